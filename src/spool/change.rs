//! The changes that the committer makes durable.

use std::path::{Path, PathBuf};

use crate::protocol::lifecycle::State;
use crate::spool::claim::{self, Origin};
use crate::spool::layout::Layout;
use crate::spool::reject;

/// One change to make durable.
#[derive(Debug)]
pub enum Change {
    /// Gives a record its next content where it stands, and moves it.
    Advance {
        id: String,
        from: State,
        to: State,
        bytes: Vec<u8>,
    },
    /// Moves a record whose content is decided and on disk already.
    Move { id: String, from: State, to: State },
    /// Makes a claim durable that was made without waiting, moves it on if it is decided for
    /// another folder, and lets go of the bytes it had before (or keeps them at `keep`).
    Settle {
        id: String,
        at: State,
        to: State,
        leftover: PathBuf,
        keep: Option<PathBuf>,
        /// Somebody waits for it: it is not held back for company.
        awaited: bool,
    },
    /// Moves bytes that are no request to `failed/`, with a notice beside them.
    Reject(Box<reject::Rejection>),
    /// Only the audit lines.
    Note,
}

impl Change {
    /// The handoff it is about, where that is known.
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Advance { id, .. } | Self::Move { id, .. } | Self::Settle { id, .. } => Some(id),
            Self::Reject(_) | Self::Note => None,
        }
    }

    /// The folders whose names it changes.
    pub fn folders(&self, layout: &Layout) -> Vec<PathBuf> {
        match self {
            Self::Advance { from, to, .. } | Self::Move { from, to, .. } => {
                vec![layout.state(*from).to_owned(), layout.state(*to).to_owned()]
            }
            Self::Settle {
                at, to, leftover, ..
            } => {
                let origin = match claim::origin(leftover) {
                    Some(Origin::Waiting) => layout.state(State::Waiting),
                    Some(Origin::Pending) | None => layout.pending(),
                };
                [origin, layout.state(*at), layout.state(*to)]
                    .map(Path::to_owned)
                    .into()
            }
            Self::Reject(rejection) => {
                vec![
                    rejection.from_folder(),
                    layout.state(State::Failed).to_owned(),
                ]
            }
            Self::Note => Vec::new(),
        }
    }
}
