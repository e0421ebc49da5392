//! Who waits for whom, and whether a new wait would close a circle.
//!
//! A circle that a new wait closes runs through it: from those that it waits for back to itself. So
//! it is looked for from both ends in turn, along what the one end waits for and along who waits
//! for the other, and the search is over as soon as either end leads nowhere further. Handoffs that
//! come in the order of their dependencies, or against it, cost a step each; in any order, a chain
//! costs the shorter of the two pieces that a new link joins.

use std::collections::{HashMap, HashSet};

/// A graph of ids.
#[derive(Debug, Default)]
pub struct Waits {
    waits_for: HashMap<String, Vec<String>>,
    waited_by: HashMap<String, HashSet<String>>,
}

impl Waits {
    /// From now on, `id` waits for these and no others.
    pub fn insert(&mut self, id: &str, others: &[String]) {
        self.remove(id);
        for other in others {
            let waiting = self.waited_by.entry(other.clone()).or_default();
            waiting.insert(id.to_owned());
        }
        self.waits_for.insert(id.to_owned(), others.to_vec());
    }

    pub fn remove(&mut self, id: &str) {
        for other in self.waits_for.remove(id).unwrap_or_default() {
            if let Some(waiting) = self.waited_by.get_mut(&other) {
                waiting.remove(id);
                if waiting.is_empty() {
                    self.waited_by.remove(&other);
                }
            }
        }
    }

    /// Who waits for this one.
    pub fn waiting_for(&self, id: &str) -> impl Iterator<Item = &String> {
        self.waited_by.get(id).into_iter().flatten()
    }

    /// If `id`, waiting for `others`, closes a circle: the circle, `id` first and last.
    pub fn circle(&self, id: &str, others: &[String]) -> Option<Vec<String>> {
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        let mut down = Search::from(&others);
        let mut up = Search::from(&[id]);
        loop {
            if down.met.contains_key(id) {
                return Some(circle(id, id, &down, &up));
            }
            // The end that has cost less goes on.
            let (side, other, next): (_, _, Next<'_>) = if down.cost <= up.cost {
                (&mut down, &up, |waits, id| waits.below(id))
            } else {
                (&mut up, &down, |waits, id| waits.above(id))
            };
            let node = side.open.pop()?;
            for neighbour in next(self, node) {
                side.cost += 1;
                if !side.reach(neighbour, node) {
                    continue;
                }
                if other.met.contains_key(neighbour) {
                    return Some(circle(id, neighbour, &down, &up));
                }
            }
        }
    }

    fn below(&self, id: &str) -> Vec<&str> {
        let known = self.waits_for.get(id);
        known.into_iter().flatten().map(String::as_str).collect()
    }

    fn above(&self, id: &str) -> Vec<&str> {
        self.waiting_for(id).map(String::as_str).collect()
    }
}

type Next<'a> = fn(&'a Waits, &str) -> Vec<&'a str>;

/// One end of the search.
struct Search<'a> {
    /// What was met, and from where; nothing for where it began.
    met: HashMap<&'a str, Option<&'a str>>,
    open: Vec<&'a str>,
    cost: usize,
}

impl<'a> Search<'a> {
    fn from(begin: &[&'a str]) -> Self {
        Self {
            met: begin.iter().map(|id| (*id, None)).collect(),
            open: begin.to_vec(),
            cost: 0,
        }
    }

    /// Whether it is met for the first time.
    fn reach(&mut self, id: &'a str, from: &'a str) -> bool {
        if self.met.contains_key(id) {
            return false;
        }
        self.met.insert(id, Some(from));
        self.open.push(id);
        true
    }

    /// The way from `id` to where the search began.
    fn way(&self, id: &'a str) -> Vec<String> {
        let step = |at: &&'a str| self.met.get(*at).copied().flatten();
        std::iter::successors(Some(id), step)
            .map(str::to_owned)
            .collect()
    }
}

/// The circle through the place where both ends met.
fn circle<'a>(id: &str, meeting: &'a str, down: &Search<'a>, up: &Search<'a>) -> Vec<String> {
    let mut circle = vec![id.to_owned()];
    let mut there = down.way(meeting);
    there.reverse();
    circle.extend(there);
    circle.extend(up.way(meeting).into_iter().skip(1));
    circle
}

#[cfg(test)]
#[path = "waits_tests.rs"]
mod tests;
