//! What the disk may know of names.
//!
//! Each change of names is atomic: it gives a few names their files, or takes them away. Until a folder is
//! synced, a power cut may lose changes: in *order*, where a file system keeps a prefix of all changes, or
//! *loosely*, where any may be lost, but never an earlier change of the same name than one that is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use crate::dice::Dice;

/// How a file system keeps changes through a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Ordered,
    Loose,
}

/// A file or folder for as long as the model lives; inode numbers come back, these don't.
pub(super) type NodeId = u64;

/// A name: of which folder, and what.
pub(super) type Name = (NodeId, OsString);

#[derive(Debug, Clone, Default)]
pub(super) struct Journal {
    /// The names that are on disk for sure.
    settled: BTreeMap<Name, NodeId>,
    /// Changes that no sync asked for yet.
    changes: Vec<Change>,
    /// The number of the next change.
    next: u64,
    /// Where changes are kept in order, all before this one are on disk.
    synced_before: u64,
}

#[derive(Debug, Clone)]
struct Change {
    number: u64,
    names: Vec<(Name, Option<NodeId>)>,
}

/// Which changes a power cut leaves.
pub(super) enum Survivors {
    /// All before this one.
    Before(u64),
    /// Any, as this seed says.
    Some(u64),
}

impl Survivors {
    /// Whether a change of a length is on disk.
    pub fn has(&self, number: u64) -> bool {
        match self {
            Self::Before(first_lost) => number < *first_lost,
            Self::Some(seed) => Dice::new(seed ^ number).once_in(2),
        }
    }
}

impl Journal {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Notes a change of names.
    pub fn note(&mut self, names: Vec<(Name, Option<NodeId>)>) {
        let number = self.number();
        self.changes.push(Change { number, names });
    }

    /// Gives a change of a length its place in the order of changes.
    pub fn note_length(&mut self) -> u64 {
        self.number()
    }

    /// The names in a folder are on disk from now on, with every earlier change of those names.
    pub fn sync(&mut self, folder: NodeId) {
        let mut needed: BTreeSet<Name> = BTreeSet::new();
        let mut synced = Vec::new();
        for at in (0..self.changes.len()).rev() {
            let names = &self.changes[at].names;
            if names
                .iter()
                .any(|(name, _)| name.0 == folder || needed.contains(name))
            {
                needed.extend(names.iter().map(|(name, _)| name.clone()));
                synced.push(self.changes.remove(at));
            }
        }
        if let Some(last) = synced.first() {
            self.synced_before = self.synced_before.max(last.number + 1);
        }
        for change in synced.into_iter().rev() {
            apply(&mut self.settled, change.names);
        }
    }

    /// The names that a power cut leaves. From now on they are all that ever was.
    pub fn cut_power(
        &mut self,
        dice: &mut Dice,
        order: Order,
    ) -> (BTreeMap<Name, NodeId>, Survivors) {
        let changes = std::mem::take(&mut self.changes);
        let (kept, survivors) = match order {
            Order::Ordered => self.prefix(&changes, dice),
            Order::Loose => (subset(&changes, dice), Survivors::Some(dice.draw())),
        };
        for change in changes {
            if kept.contains(&change.number) {
                apply(&mut self.settled, change.names);
            }
        }
        (self.settled.clone(), survivors)
    }

    fn prefix(&self, changes: &[Change], dice: &mut Dice) -> (BTreeSet<u64>, Survivors) {
        let numbers: Vec<u64> = changes.iter().map(|it| it.number).collect();
        let least = numbers.partition_point(|number| *number < self.synced_before);
        let count = least + dice.below(numbers.len() - least + 1);
        let first_lost = numbers.get(count).copied().unwrap_or(self.next);
        let kept = numbers.into_iter().take(count).collect();
        (kept, Survivors::Before(first_lost))
    }
}

fn subset(changes: &[Change], dice: &mut Dice) -> BTreeSet<u64> {
    let mut kept = BTreeSet::new();
    let mut needed: BTreeSet<&Name> = BTreeSet::new();
    let chance = 1 + dice.below(4);
    for change in changes.iter().rev() {
        let is_needed = change.names.iter().any(|(name, _)| needed.contains(name));
        if is_needed || dice.once_in(chance) {
            kept.insert(change.number);
            needed.extend(change.names.iter().map(|(name, _)| name));
        }
    }
    kept
}

fn apply(names: &mut BTreeMap<Name, NodeId>, change: Vec<(Name, Option<NodeId>)>) {
    for (name, node) in change {
        match node {
            Some(node) => names.insert(name, node),
            None => names.remove(&name),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLDER: NodeId = 1;
    const OTHER: NodeId = 2;

    fn name(folder: NodeId, name: &str) -> Name {
        (folder, OsString::from(name))
    }

    fn images(journal: &Journal, order: Order) -> BTreeSet<Vec<(Name, NodeId)>> {
        (0..500)
            .map(|seed| {
                let left = journal.clone().cut_power(&mut Dice::new(seed), order).0;
                left.into_iter().collect()
            })
            .collect()
    }

    #[test]
    fn a_rename_is_lost_whole_or_kept_whole() {
        for order in [Order::Ordered, Order::Loose] {
            let mut journal = Journal::default();
            journal.note(vec![(name(FOLDER, "a"), Some(10))]);
            journal.sync(FOLDER);
            journal.note(vec![
                (name(FOLDER, "a"), None),
                (name(OTHER, "b"), Some(10)),
            ]);
            let left = images(&journal, order);
            let (before, after) = (vec![(name(FOLDER, "a"), 10)], vec![(name(OTHER, "b"), 10)]);
            assert_eq!(left, BTreeSet::from([before, after.clone()]), "{order:?}");
            journal.sync(OTHER);
            assert_eq!(
                images(&journal, order),
                BTreeSet::from([after]),
                "{order:?}"
            );
        }
    }

    #[test]
    fn only_a_loose_file_system_keeps_a_later_change_without_an_earlier_one() {
        let mut journal = Journal::default();
        journal.note(vec![(name(FOLDER, "a"), Some(10))]);
        journal.note(vec![(name(OTHER, "b"), Some(11))]);
        let only_the_later = vec![(name(OTHER, "b"), 11)];
        assert!(!images(&journal, Order::Ordered).contains(&only_the_later));
        assert!(images(&journal, Order::Loose).contains(&only_the_later));
        journal.sync(OTHER);
        assert!(images(&journal, Order::Loose).contains(&only_the_later));
        assert_eq!(
            images(&journal, Order::Ordered).len(),
            1,
            "an ordered sync takes all before it"
        );
    }

    #[test]
    fn changes_of_one_name_keep_their_order() {
        let mut journal = Journal::default();
        journal.note(vec![(name(FOLDER, "a"), Some(10))]);
        journal.note(vec![
            (name(FOLDER, "a"), None),
            (name(FOLDER, "b"), Some(10)),
        ]);
        for left in images(&journal, Order::Loose) {
            assert!(left.len() < 2, "one file under both of its names: {left:?}");
        }
    }
}
