//! How a daemon proves to a keeper that it may give orders: it makes a file in the run folder.
//!
//! The keeper answers each greeting with a number of its own, and takes orders once the file of
//! that number is there. The number is no secret. What counts is the right to write to the run
//! folder, which a sandboxed attempt, another user and a read-only mount do not have. Whoever has
//! that right could change the keeper's journal as well. The file is empty and lives for a moment:
//! the keeper deletes it when it looks, and sweeps up what a killed daemon left.

use std::fs::{self, File};
use std::io;
use std::path::Path;

const PREFIX: &str = ".greeting-";

fn name(number: u64) -> String {
    format!("{PREFIX}{number}")
}

/// The daemon's half: makes the file.
pub fn show(run_dir: &Path, number: u64) -> io::Result<()> {
    match File::create_new(run_dir.join(name(number))) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// The keeper's half: whether the file is there. It is gone afterwards.
pub fn take(run_dir: &Path, number: u64) -> bool {
    fs::remove_file(run_dir.join(name(number))).is_ok()
}

/// Deletes what earlier daemons left.
pub fn sweep(run_dir: &Path) {
    for entry in fs::read_dir(run_dir).into_iter().flatten().flatten() {
        if entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(PREFIX.as_bytes())
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_counts_once_and_only_for_its_own_number() {
        let dir = tempfile::tempdir().unwrap();
        show(dir.path(), 7).unwrap();
        assert!(!take(dir.path(), 8));
        assert!(take(dir.path(), 7));
        assert!(!take(dir.path(), 7));
    }

    #[test]
    fn what_is_left_is_swept_up_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        show(dir.path(), 1).unwrap();
        File::create(dir.path().join("keeper.v1.lock")).unwrap();
        sweep(dir.path());
        assert!(!take(dir.path(), 1));
        assert!(dir.path().join("keeper.v1.lock").exists());
    }
}
