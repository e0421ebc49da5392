//! Anchors: number and hash of a line of the log, kept where the log's writer can't change them.
//!
//! The chain shows a change to whoever compares hashes, and a person with the daemon's rights can
//! make all of it anew. They can't make the anchors anew that a journal, or a file of another owner,
//! took in before. One line each, which says of which root it is; whatever a log puts before it is
//! skipped, so that the file of a syslog daemon can be read as it is.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};

use serde::{Deserialize, Serialize};

use super::altered::Head;
use crate::clock::Wall;

/// What tells an anchor from any other line of a log.
const KEY: &str = "handoffd_anchor";
const FORMAT: u32 = 1;

/// The longest line that is looked at.
const LONGEST: u64 = 64 * 1024;

/// One line of the log as it was at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    /// The folder of the root.
    pub root: String,
    pub at: Wall,
    pub head: Head,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    handoffd_anchor: u32,
    root: String,
    at: String,
    seq: u64,
    hash: String,
}

impl Anchor {
    /// As one line, without newline.
    pub fn to_line(&self) -> String {
        let stored = Stored {
            handoffd_anchor: FORMAT,
            root: self.root.clone(),
            at: self.at.to_string(),
            seq: self.head.seq,
            hash: self.head.hash.clone(),
        };
        serde_json::to_string(&stored).unwrap_or_default()
    }

    /// The anchor in a line, behind whatever a log put before it. `None` if the line has none, an
    /// error if what it has can't be read.
    pub fn in_line(line: &str) -> Option<Result<Self, String>> {
        let at = line.find(&format!("{{\"{KEY}\""))?;
        let mut documents = serde_json::Deserializer::from_str(&line[at..]).into_iter();
        let stored: Stored = match documents.next()? {
            Ok(stored) => stored,
            Err(error) => return Some(Err(error.to_string())),
        };
        if stored.handoffd_anchor != FORMAT {
            let text = format!("its format is {}", stored.handoffd_anchor);
            return Some(Err(text));
        }
        let Some(at) = Wall::parse(&stored.at) else {
            return Some(Err("its time can't be read".to_owned()));
        };
        let head = Head {
            seq: stored.seq,
            hash: stored.hash,
        };
        let root = stored.root;
        Some(Ok(Self { root, at, head }))
    }
}

/// An anchor, and the line of the collection that it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placed {
    pub anchor: Anchor,
    pub file: String,
    pub line: u64,
}

/// Anchors of one root, by the number of the line that they are of.
#[derive(Debug, Clone, Default)]
pub struct Anchors {
    pub(super) placed: BTreeMap<u64, Vec<Placed>>,
    pub of_other_roots: u64,
    /// Lines that have an anchor which can't be read: file, line and why.
    pub unreadable: Vec<(String, u64, String)>,
}

impl Anchors {
    pub fn is_empty(&self) -> bool {
        self.placed.is_empty()
    }

    /// The one of the highest number.
    pub fn last(&self) -> Option<&Anchor> {
        let (_, placed) = self.placed.last_key_value()?;
        placed.last().map(|placed| &placed.anchor)
    }

    /// Adds the anchors of `root` that `lines` has. `file` is what messages call it.
    pub fn read(&mut self, file: &str, mut lines: impl BufRead, root: &str) -> io::Result<()> {
        let mut number = 0;
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let read = (&mut lines).take(LONGEST).read_until(b'\n', &mut bytes)?;
            if read == 0 {
                return Ok(());
            }
            number += 1;
            match Anchor::in_line(&String::from_utf8_lossy(&bytes)) {
                None => {}
                Some(Err(why)) => self.unreadable.push((file.to_owned(), number, why)),
                Some(Ok(anchor)) if anchor.root != root => self.of_other_roots += 1,
                Some(Ok(anchor)) => {
                    let placed = Placed {
                        file: file.to_owned(),
                        line: number,
                        anchor,
                    };
                    let seq = placed.anchor.head.seq;
                    self.placed.entry(seq).or_default().push(placed);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anchor() -> Anchor {
        Anchor {
            root: "/srv/a \"b\"".to_owned(),
            at: Wall::parse("2026-01-13T12:00:00.000Z").unwrap(),
            head: Head {
                seq: 7,
                hash: "a".repeat(64),
            },
        }
    }

    #[test]
    fn an_anchor_is_found_behind_what_a_log_puts_before_it() {
        let line = anchor().to_line();
        for before in ["", "Jan 13 12:00:00 box handoffd-anchor[7]: ", "{\"a\":1} "] {
            let read = Anchor::in_line(&format!("{before}{line} \r")).unwrap();
            assert_eq!(read.unwrap(), anchor());
        }
        assert_eq!(Anchor::in_line("Jan 13 something else"), None);
        for broken in [
            line[..40].to_owned(),
            line.replace("\":1,", "\":2,"),
            line.replace("2026-", "soon"),
        ] {
            assert!(Anchor::in_line(&broken).unwrap().is_err(), "{broken}");
        }
    }

    #[test]
    fn anchors_of_other_roots_are_counted_and_left_out() {
        let mut other = anchor();
        other.root = "/srv/b".to_owned();
        let text = format!(
            "x\n{}\n{}\n{}",
            anchor().to_line(),
            other.to_line(),
            &anchor().to_line()[..30]
        );
        let mut anchors = Anchors::default();
        anchors
            .read("log", text.as_bytes(), &anchor().root)
            .unwrap();
        let placed: Vec<_> = anchors
            .placed
            .values()
            .flatten()
            .map(|it| it.line)
            .collect();
        assert_eq!((placed, anchors.of_other_roots), (vec![2], 1));
        assert_eq!(anchors.unreadable[0].1, 4);
    }
}
