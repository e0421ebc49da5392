//! What the room promises, against a real folder, and both with the kernel's help and by foot.

mod confined;
mod listed;

use std::path::Path;

use sha2::{Digest, Sha256};

use super::*;
use crate::clock::Wall;

pub(super) fn rel(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}

/// Both ways of opening, on the same root.
pub(super) fn both(root: &Path) -> [Artifacts; 2] {
    let by_kernel = Artifacts::new(root, Durability::Full);
    let mut by_foot = Artifacts::new(root, Durability::Relaxed);
    by_foot.beneath.by_foot = true;
    [by_kernel, by_foot]
}

pub(super) fn entry(id: &str, path: &str, sha256: &str, handoff_id: &str) -> Entry {
    Entry {
        artifact_id: id.to_owned(),
        path: path.to_owned(),
        artifact_type: Some("document".to_owned()),
        sha256: sha256.to_owned(),
        size_bytes: 1,
        handoff_id: handoff_id.to_owned(),
        created_at: Wall(1_700_000_000_000),
        extra: serde_json::Map::new(),
    }
}

#[test]
fn a_written_file_is_what_it_is_measured_to_be() {
    let dir = tempfile::tempdir().unwrap();
    for (n, artifacts) in both(dir.path()).iter().enumerate() {
        let path = rel(&format!("artifacts/deep/{n}/er/report.md"));
        let made = artifacts.write(&path, b"hello", false).unwrap();
        assert_eq!(
            made.sha256,
            "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
        );
        assert_eq!(made.size_bytes, 5);
        assert_eq!(artifacts.measure(&path).unwrap(), made);
        assert_eq!(artifacts.read(&path, 5).unwrap(), b"hello");
        assert!(artifacts.read(&path, 4).unwrap_err().contains("4 bytes"));
        assert_eq!(artifacts.presence(&path), Presence::File { size_bytes: 5 });
        let again = artifacts.write(&path, b"other", false);
        assert!(matches!(again, Err(WriteError::Exists)));
        assert_eq!(artifacts.read(&path, 5).unwrap(), b"hello");
        artifacts.write(&path, b"other!", true).unwrap();
        assert_eq!(artifacts.read(&path, 9).unwrap(), b"other!");
        let folder = dir.path().join(format!("artifacts/deep/{n}/er"));
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
    }
}

#[test]
fn what_a_crash_left_is_removed_by_the_next_writer_and_what_cannot_be_is_passed() {
    let dir = tempfile::tempdir().unwrap();
    let artifacts = Artifacts::new(dir.path(), Durability::Full);
    let path = rel("artifacts/x");
    artifacts.make_folder_for(&path).unwrap();
    let folder = dir.path().join("artifacts");
    let digest = hex(&Sha256::digest(b"x"));
    let temp = |n: usize| folder.join(format!(".{}-{n}.tmp", &digest[..16]));
    std::fs::write(temp(0), "left").unwrap();
    artifacts.write(&path, b"1", false).unwrap();
    assert!(!temp(0).exists());
    std::fs::create_dir(temp(0)).unwrap();
    artifacts.write(&path, b"2", true).unwrap();
    assert_eq!(artifacts.read(&path, 1).unwrap(), b"2");
}

#[test]
fn of_writers_at_once_one_wins_and_the_file_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let artifacts = Artifacts::new(dir.path(), Durability::Relaxed);
    let path = rel("artifacts/contested");
    let won: usize = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8u8)
            .map(|n| {
                let (artifacts, path) = (&artifacts, &path);
                scope.spawn(move || artifacts.write(path, &vec![n; 100_000], false).is_ok())
            })
            .collect();
        let wins = writers.into_iter().map(|writer| writer.join().unwrap());
        wins.filter(|won| *won).count()
    });
    assert_eq!(won, 1);
    let bytes = artifacts.read(&path, 100_000).unwrap();
    assert_eq!(bytes, vec![bytes[0]; 100_000]);
}

#[test]
fn only_places_of_artifacts_are_written_to() {
    let dir = tempfile::tempdir().unwrap();
    for artifacts in both(dir.path()) {
        for text in [
            "handoffs/pending/x.json",
            "x",
            "artifacts",
            "artifacts/registry.jsonl",
            "artifacts/Registry.JSONL",
        ] {
            let refused = artifacts.write(&rel(text), b"", true);
            assert!(matches!(refused, Err(WriteError::Refused(_))), "{text}");
            assert!(artifacts.make_folder_for(&rel(text)).is_err(), "{text}");
        }
        artifacts.write(&rel("artifacts/file"), b"", true).unwrap();
        std::fs::create_dir_all(dir.path().join("artifacts/folder")).unwrap();
        for (text, why) in [
            ("artifacts/file/below", "`file`, which is a file"),
            ("artifacts/folder", "is a folder"),
        ] {
            match artifacts.write(&rel(text), b"", true) {
                Err(WriteError::Refused(said)) => assert!(said.contains(why), "{said}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        let unreplaced = artifacts.write(&rel("artifacts/folder"), b"", false);
        assert!(matches!(unreplaced, Err(WriteError::Exists)));
    }
    assert!(!dir.path().join("handoffs").exists());
}
