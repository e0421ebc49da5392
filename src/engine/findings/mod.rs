//! What is wrong with a configuration that can be read: programs, agents, schemas and repositories that
//! are missing, and rights that a start refuses. `check` and a reload say the same.

mod agents;
mod named;

use std::path::Path;

use crate::config::Config;
use crate::engine::{confine, rights};
use crate::spool::layout::Layout;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub what: String,
    pub do_this: String,
}

/// All that was found. Nothing in `notes` keeps a handoff from running.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    pub wrong: Vec<Finding>,
    pub notes: Vec<String>,
}

/// Looks at everything that a configuration names, for a daemon that runs as `user`. `file` is where the
/// configuration was read from.
pub fn of_config(user: u32, layout: &Layout, file: &Path, config: &Config) -> Findings {
    let mut found = Findings::default();
    named::check(layout, config, &mut found.wrong, &mut found.notes);
    agents::check(layout, config, &mut found.wrong, &mut found.notes);
    for (what, do_this) in confine::check(config) {
        found.wrong.push(Finding { what, do_this });
    }
    let wrong = rights::all_for(user, layout.root(), file, config);
    found.wrong.extend(wrong.into_iter().map(|wrong| Finding {
        what: wrong.what,
        do_this: wrong.advice,
    }));
    found
}
