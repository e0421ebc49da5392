//! Taking a file: out of `pending/`, or out of `waiting/` into its next attempt.
//!
//! From `pending/` the move comes first and the new content second, because nothing is ever
//! rewritten there. The new content is an exchange, so that the bytes that were there before
//! stand in `.handoffd/tmp/` until the new ones are known to be on disk. The temporary file's
//! name carries the inode of the file that is being taken: after a crash, comparing inodes
//! tells a file that was moved but not yet rewritten from one that was, whatever the file says
//! of itself.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

pub use crate::durable::TakeError;
use crate::durable::{self, Durability};
use crate::protocol::document::Syntax;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::spool::layout::Layout;
use crate::spool::look::Identity;
use crate::spool::spare::Spares;

/// A file that was taken. The bytes it had before stand at `leftover` until they are let go.
#[derive(Debug)]
#[must_use]
pub struct Taken {
    pub leftover: PathBuf,
}

/// Where a claim came from, as its temporary file's name tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Pending,
    Waiting,
}

fn claim_path(layout: &Layout, origin: Origin, inode: u64, id: &str) -> PathBuf {
    let letter = match origin {
        Origin::Pending => 'p',
        Origin::Waiting => 'w',
    };
    layout
        .tmp()
        .join(format!("claim-{letter}-{inode}-{id}.json"))
}

/// Reads a claim's file name back: where it came from, the inode that was taken, the id.
pub fn parse_claim_name(name: &str) -> Option<(Origin, u64, &str)> {
    let rest = name.strip_prefix("claim-")?.strip_suffix(".json")?;
    let (letter, rest) = rest.split_once('-')?;
    let origin = match letter {
        "p" => Origin::Pending,
        "w" => Origin::Waiting,
        _ => return None,
    };
    let (inode, id) = rest.split_once('-')?;
    Some((origin, inode.parse().ok()?, id))
}

/// Where the file came from that this claim's bytes are kept of.
pub fn origin(leftover: &Path) -> Option<Origin> {
    let name = leftover.file_name()?.to_str()?;
    parse_claim_name(name).map(|(origin, _, _)| origin)
}

/// Lets go of a claim that came to nothing.
pub fn forget(path: &Path) {
    // What stays behind is swept at the next start; nothing depends on it.
    let _ = fs::remove_file(path);
}

/// A producer's file, as it was read.
#[derive(Debug, Clone, Copy)]
pub struct Submitted<'a> {
    pub path: &'a Path,
    pub identity: Identity,
    /// Only its claim tells what it is, and a power cut is to be survived.
    pub needs_its_claim: bool,
}

impl<'a> Submitted<'a> {
    /// A file that `record` was made of. One in JSON that was never a record is known for a
    /// submission wherever it stands; one that was, or says so, is not, nor is YAML or Markdown.
    pub fn new(
        path: &'a Path,
        identity: Identity,
        (record, syntax): (&Record, Syntax),
        durability: Durability,
    ) -> Self {
        let tells = syntax == Syntax::Json && !record.has_history();
        Self {
            path,
            identity,
            needs_its_claim: !tells && durability == Durability::Full,
        }
    }
}

/// Takes a submission out of `pending/` to `land` as `<id>.json` with `bytes` as its content.
pub fn from_pending(
    layout: &Layout,
    spares: &Spares,
    submitted: Submitted<'_>,
    id: &str,
    land: State,
    bytes: &[u8],
) -> Result<Taken, TakeError> {
    let (temp, _) = prepare(layout, spares, submitted, id, bytes)?;
    let target = layout.record(land, id);
    match durable::take(submitted.path, submitted.identity, &target, &temp) {
        Ok(()) => Ok(Taken { leftover: temp }),
        Err(error) => {
            // Unless the bytes that were taken could not be given back: then it says whose they are.
            if Identity::at(&target).map(|found| found.inode).ok() != Some(submitted.identity.inode)
            {
                forget(&temp);
            }
            Err(error)
        }
    }
}

/// Writes what a submission is to be taken with, under a name that says of which one.
pub fn prepare(
    layout: &Layout,
    spares: &Spares,
    submitted: Submitted<'_>,
    id: &str,
    bytes: &[u8],
) -> io::Result<(PathBuf, File)> {
    let temp = claim_path(layout, Origin::Pending, submitted.identity.inode, id);
    let file = spares.write_as(&temp, bytes)?;
    if submitted.needs_its_claim && !spares.are_kept_in_order() {
        // Where a power cut may keep the move below and lose what came before it, a record that was
        // moved back by hand would be taken for one on its way to its end, and YAML for damage.
        durable::sync_file(&file, Durability::Full)?;
        durable::sync_dir(&Layout::open_dir(layout.tmp())?, Durability::Full)?;
    }
    Ok((temp, file))
}

/// Takes a parked record into `in-progress/`: content first, then the move.
pub fn from_waiting(
    layout: &Layout,
    spares: &Spares,
    identity: Identity,
    id: &str,
    bytes: &[u8],
) -> Result<Taken, TakeError> {
    let parked = layout.record(State::Waiting, id);
    let temp = claim_path(layout, Origin::Waiting, identity.inode, id);
    drop(spares.write_as(&temp, bytes)?);
    if let Err(error) = durable::exchange(&temp, &parked) {
        forget(&temp);
        return Err(match error.kind() {
            io::ErrorKind::NotFound => TakeError::Gone,
            _ => TakeError::Io(error),
        });
    }
    if Identity::at(&temp).is_ok_and(|now| now == identity) {
        match durable::move_no_replace(&parked, &layout.record(State::InProgress, id)) {
            Ok(()) => return Ok(Taken { leftover: temp }),
            Err(error) => {
                durable::exchange(&temp, &parked)?;
                forget(&temp);
                return Err(match error.kind() {
                    io::ErrorKind::AlreadyExists => TakeError::Taken,
                    _ => TakeError::Io(error),
                });
            }
        }
    }
    durable::exchange(&temp, &parked)?;
    forget(&temp);
    Err(TakeError::Changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> (tempfile::TempDir, Layout) {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        layout.ensure().unwrap();
        (dir, layout)
    }

    fn take(layout: &Layout, path: &Path, identity: Identity) -> Result<Taken, TakeError> {
        let spares = Spares::new(&layout.spares(), Durability::Full);
        let submitted = Submitted {
            path,
            identity,
            needs_its_claim: true,
        };
        from_pending(layout, &spares, submitted, "x", State::InProgress, b"new")
    }

    fn resume(layout: &Layout, identity: Identity) -> Result<Taken, TakeError> {
        from_waiting(
            layout,
            &Spares::new(&layout.spares(), Durability::Full),
            identity,
            "x",
            b"new",
        )
    }

    #[test]
    fn a_submission_is_taken_once_and_its_bytes_are_kept_until_let_go() {
        let (_dir, layout) = root();
        let path = layout.pending().join("x.json");
        fs::write(&path, "raw").unwrap();
        let identity = Identity::at(&path).unwrap();
        let taken = take(&layout, &path, identity).unwrap();
        assert_eq!(
            fs::read(layout.record(State::InProgress, "x")).unwrap(),
            b"new"
        );
        assert_eq!(fs::read(&taken.leftover).unwrap(), b"raw");
        let name = taken.leftover.file_name().unwrap().to_str().unwrap();
        assert_eq!(
            parse_claim_name(name),
            Some((Origin::Pending, identity.inode, "x"))
        );
        let again = take(&layout, &path, identity);
        assert!(matches!(again, Err(TakeError::Gone)));
    }

    #[test]
    fn a_file_that_changed_is_given_back() {
        let (_dir, layout) = root();
        let path = layout.pending().join("x.json");
        fs::write(&path, "raw").unwrap();
        let identity = Identity::at(&path).unwrap();
        fs::write(&path, "rewritten").unwrap();
        let taken = take(&layout, &path, identity);
        assert!(matches!(taken, Err(TakeError::Changed)));
        assert_eq!(fs::read(&path).unwrap(), b"rewritten");
        assert!(layout.states_of("x").is_empty());
        assert_eq!(fs::read_dir(layout.tmp()).unwrap().count(), 0);
    }

    #[test]
    fn an_id_that_is_taken_is_never_overwritten() {
        let (_dir, layout) = root();
        let path = layout.pending().join("x.json");
        fs::write(&path, "raw").unwrap();
        fs::write(layout.record(State::InProgress, "x"), "other").unwrap();
        let identity = Identity::at(&path).unwrap();
        let taken = take(&layout, &path, identity);
        assert!(matches!(taken, Err(TakeError::Taken)));
        assert_eq!(
            fs::read(layout.record(State::InProgress, "x")).unwrap(),
            b"other"
        );
        assert!(path.exists());
    }

    #[test]
    fn a_parked_record_is_rewritten_and_then_moved() {
        let (_dir, layout) = root();
        let parked = layout.record(State::Waiting, "x");
        fs::write(&parked, "old").unwrap();
        let identity = Identity::at(&parked).unwrap();
        let taken = resume(&layout, identity).unwrap();
        assert_eq!(layout.states_of("x"), [State::InProgress]);
        assert_eq!(fs::read(&taken.leftover).unwrap(), b"old");
        assert_eq!(origin(&taken.leftover), Some(Origin::Waiting));
        assert!(matches!(resume(&layout, identity), Err(TakeError::Gone)));
    }

    #[test]
    fn a_parked_record_that_changed_stays_parked() {
        let (_dir, layout) = root();
        let parked = layout.record(State::Waiting, "x");
        fs::write(&parked, "old").unwrap();
        let identity = Identity::at(&parked).unwrap();
        fs::write(&parked, "edited").unwrap();
        assert!(matches!(resume(&layout, identity), Err(TakeError::Changed)));
        assert_eq!(fs::read(&parked).unwrap(), b"edited");
        assert_eq!(layout.states_of("x"), [State::Waiting]);
    }
}
