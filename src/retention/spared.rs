//! Who may not go yet: whoever a handoff names that has not ended, and its whole chain.

use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};

use crate::inspect::chain::gather;
use crate::inspect::links::Relations;
use crate::inspect::list::Filter;
use crate::inspect::newest;
use crate::protocol::lifecycle::State;
use crate::spool::layout::Layout;

/// How many live records are read between two pauses.
const STEP: usize = 200;
/// What was found is believed for this long, or for ten times as long as it took to find.
const BELIEVED: Duration = Duration::from_secs(5);

/// Ids that are spared, found anew when what is known is old.
#[derive(Debug, Default)]
pub struct Spared {
    ids: HashSet<String>,
    until: Option<Instant>,
}

impl Spared {
    /// Those that are spared now.
    pub fn now(&mut self, layout: &Layout, pause: &dyn Fn()) -> io::Result<&HashSet<String>> {
        let begun = Instant::now();
        if self.until.is_none_or(|until| begun >= until) {
            self.ids = named_by_live(layout, pause)?;
            self.until = Some(begun + BELIEVED.max(begun.elapsed() * 10));
        }
        Ok(&self.ids)
    }
}

/// Ids that a handoff which has not ended still names.
fn named_by_live(layout: &Layout, pause: &dyn Fn()) -> io::Result<HashSet<String>> {
    let live = Filter {
        states: vec![State::Pending, State::InProgress, State::Waiting],
        ..Filter::default()
    };
    let mut named = HashSet::new();
    let mut chained = HashSet::new();
    for (at, place) in newest::all(layout, &live)?.enumerate() {
        if at % STEP == STEP - 1 {
            pause();
        }
        let Some((doc, _)) = place.read() else {
            continue;
        };
        let links = Relations::of(&doc);
        named.extend(links.named().cloned());
        // A chain is kept whole while any of it is on its way.
        if links.is_linked() && chained.insert(place.id.clone()) {
            let members = gather(layout, &place.id);
            let ids = members.nodes().into_iter().map(|node| node.id.clone());
            chained.extend(ids);
        }
    }
    named.extend(chained);
    Ok(named)
}
