//! Which name in `pending/` is read next.
//!
//! Names are read in the order in which they came. In a flood, the newest is read in turn with the
//! oldest: a request that is dropped behind thousands of others does not wait until all of them
//! were read. Which request starts first among those that were read is decided elsewhere.

use std::collections::VecDeque;
use std::ffi::OsString;

/// More names than this are a flood.
const FLOOD: usize = 256;
/// Room for more names than this is given back when a flood is over.
const ROOM: usize = 1024;

#[derive(Debug, Default)]
pub struct Looks {
    names: VecDeque<OsString>,
    /// In a flood, the newest comes next.
    newest: bool,
}

impl Looks {
    pub fn push(&mut self, name: OsString) {
        self.names.push_back(name);
    }

    pub fn take(&mut self) -> Option<OsString> {
        let newest = self.newest && self.names.len() > FLOOD;
        self.newest = !self.newest;
        if newest {
            self.names.pop_back()
        } else {
            self.names.pop_front()
        }
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Gives back the room that a flood needed; false if there was none.
    pub fn shrink(&mut self) -> bool {
        let was_flooded = self.names.capacity() > ROOM;
        if was_flooded {
            self.names.shrink_to_fit();
        }
        was_flooded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: impl IntoIterator<Item = usize>) -> Looks {
        let mut looks = Looks::default();
        names
            .into_iter()
            .for_each(|n| looks.push(n.to_string().into()));
        looks
    }

    fn next(looks: &mut Looks) -> Option<usize> {
        looks.take()?.to_str()?.parse().ok()
    }

    #[test]
    fn a_few_are_read_in_the_order_in_which_they_came() {
        let mut looks = of(0..FLOOD);
        let read: Vec<usize> = std::iter::from_fn(|| next(&mut looks)).collect();
        assert!(read.into_iter().eq(0..FLOOD));
    }

    #[test]
    fn in_a_flood_the_newest_does_not_wait_for_all_and_the_oldest_has_its_turn() {
        let mut looks = of(0..20_000);
        let mut read: Vec<usize> = (0..4).filter_map(|_| next(&mut looks)).collect();
        assert_eq!(read, [0, 19_999, 1, 19_998]);
        // Also while one comes for each that is read.
        for n in 20_000..20_010 {
            looks.push(n.to_string().into());
            read.extend(next(&mut looks));
        }
        assert_eq!(read[4..10], [2, 20_001, 3, 20_003, 4, 20_005]);
        read.extend(std::iter::from_fn(|| next(&mut looks)));
        read.sort_unstable();
        assert!(read.into_iter().eq(0..20_010), "each once");
        assert!(looks.is_empty() && looks.shrink() && !looks.shrink());
    }
}
