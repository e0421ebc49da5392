//! Worktrees of chains that have ended, and their branches: removed when they are old.
//!
//! A branch with commits that no other branch has always stays.

use std::collections::HashSet;
use std::io;

use handoffd_agents::workspace::list::{self, Found, Pruned};
use serde_json::Value;

use crate::clock::Wall;
use crate::inspect::chain::gather;
use crate::inspect::list::Filter;
use crate::inspect::newest;
use crate::protocol::lifecycle::State;
use crate::spool::layout::Layout;

/// The worktrees of a root, and which lines of handoffs still need theirs.
#[derive(Debug)]
pub struct Trees<'a> {
    layout: &'a Layout,
    pub found: Vec<Found>,
    live: HashSet<String>,
}

impl<'a> Trees<'a> {
    pub fn of(layout: &'a Layout) -> io::Result<Self> {
        Ok(Self {
            layout,
            found: list::all(&layout.worktrees()),
            live: live_lines(layout)?,
        })
    }

    /// Those of chains of which no handoff is on its way.
    pub fn ended(&self) -> impl Iterator<Item = &Found> {
        self.found.iter().filter(|tree| {
            let state = || gather(self.layout, &tree.line).state();
            !self.live.contains(&tree.line) && matches!(state(), "completed" | "failed")
        })
    }
}

/// When something last happened in a worktree. One that nobody can date is not old.
pub fn touched(tree: &Found, now: Wall) -> Wall {
    let since = tree.touched.and_then(|at| at.elapsed().ok());
    let since = since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    });
    now.plus_ms(-since)
}

/// What became of a worktree, in words.
pub fn told(tree: &Found, pruned: &Pruned) -> String {
    match pruned {
        Pruned::WithBranch => format!("{}: removed, with its branch {}", tree.line, tree.branch),
        Pruned::KeptBranches(kept) => format!(
            "{}: removed; kept {}, with commits of its own",
            tree.line,
            kept.join(" and ")
        ),
    }
}

/// The lines that handoffs on their way work on, or begin from.
fn live_lines(layout: &Layout) -> io::Result<HashSet<String>> {
    let live = Filter {
        states: vec![State::Pending, State::InProgress, State::Waiting],
        ..Filter::default()
    };
    let mut lines = HashSet::new();
    for place in newest::all(layout, &live)? {
        lines.insert(place.id.clone());
        let Some((doc, _)) = place.read() else {
            continue;
        };
        let own = doc.get("handoffd");
        let tree = own.and_then(|own| own.get("worktree"));
        let named = [
            own.and_then(|own| own.get("chain")),
            tree.and_then(|tree| tree.get("line")),
            tree.and_then(|tree| tree.get("from")),
        ];
        let named = named.into_iter().flatten().filter_map(Value::as_str);
        lines.extend(named.map(str::to_owned));
    }
    Ok(lines)
}
