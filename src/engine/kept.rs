//! Documents that were read and are kept for an attempt that may start soon.
//!
//! What is not kept is read again when its turn comes, so this only saves work: enough for a
//! burst, and bounded by what the documents weigh. Of a large backlog it would save next to
//! nothing, so there the memory is worth more.

use std::collections::HashMap;

use crate::engine::intake::Submission;

/// A larger document is read again.
const LARGEST: u64 = 65_536;
/// How many bytes of documents are kept. In memory they take a few times as much.
const MOST_BYTES: u64 = 3 << 20;
/// With more than this waiting, nothing is kept.
const BACKLOG: usize = 10_000;
/// What keeping one costs besides its bytes.
const EACH: u64 = 1024;

#[derive(Debug, Default)]
pub struct Kept {
    documents: HashMap<String, Box<Submission>>,
    weight: u64,
}

fn weight(submission: &Submission) -> u64 {
    submission.identity.size + EACH
}

impl Kept {
    /// Keeps it if there is room, and not too many are waiting with it.
    pub fn offer(&mut self, id: String, submission: Box<Submission>, waiting: usize) {
        if waiting > BACKLOG {
            *self = Self::default();
            return;
        }
        let more = weight(&submission);
        if submission.identity.size > LARGEST || self.weight + more > MOST_BYTES {
            return;
        }
        self.weight += more;
        if let Some(former) = self.documents.insert(id, submission) {
            self.weight -= weight(&former);
        }
    }

    pub fn take(&mut self, id: &str) -> Option<Box<Submission>> {
        let taken = self.documents.remove(id)?;
        self.weight -= weight(&taken);
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::intake::Needs;
    use crate::protocol::document::Syntax;
    use crate::protocol::name::Ext;
    use crate::spool::look::{Identity, Writer};

    fn of_size(size: u64) -> Box<Submission> {
        Box::new(Submission {
            kin: None,
            id: "x".to_owned(),
            ext: Ext::Json,
            syntax: Syntax::Json,
            identity: Identity {
                device: 1,
                inode: 1,
                size,
                modified_ns: 0,
            },
            arrived_ms: 0,
            doc: serde_json::Map::new(),
            sha256: String::new(),
            request: Err(Vec::new()),
            needs: Needs::default(),
            receipt: None,
            taken: false,
            writer: Writer::Closed,
        })
    }

    #[test]
    fn a_burst_is_kept_and_a_flood_is_not() {
        let mut kept = Kept::default();
        for n in 0..100_000 {
            kept.offer(n.to_string(), of_size(1000), 1);
        }
        assert!(kept.documents.len() > 900, "{}", kept.documents.len());
        assert!(kept.documents.len() < 2500, "{}", kept.documents.len());
        for n in 0..100_000 {
            kept.take(&n.to_string());
        }
        assert_eq!(kept.weight, 0);
    }

    #[test]
    fn of_a_large_backlog_nothing_is_kept() {
        let mut kept = Kept::default();
        kept.offer("first".to_owned(), of_size(10), BACKLOG);
        kept.offer("next".to_owned(), of_size(10), BACKLOG + 1);
        assert!(kept.documents.is_empty());
        kept.offer("later".to_owned(), of_size(10), BACKLOG);
        assert!(kept.take("later").is_some());
        assert_eq!(kept.weight, 0);
    }

    #[test]
    fn the_same_id_counts_once_and_large_ones_not_at_all() {
        let mut kept = Kept::default();
        kept.offer("x".to_owned(), of_size(10), 1);
        kept.offer("x".to_owned(), of_size(20), 1);
        kept.offer("large".to_owned(), of_size(LARGEST + 1), 1);
        assert_eq!(kept.weight, 20 + EACH);
        assert!(kept.take("large").is_none());
    }
}
