//! The registry: what was added is found, whatever happened to the file in between.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;

use super::super::*;
use super::{both, entry, rel};

struct Root {
    dir: tempfile::TempDir,
}

impl Root {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir }
    }

    fn open(&self) -> Artifacts {
        Artifacts::new(self.dir.path(), Durability::Full)
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("artifacts/registry.jsonl")
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.file()).unwrap()).into_owned()
    }

    fn append(&self, text: &[u8]) {
        let mut file = fs::File::options().append(true).open(self.file()).unwrap();
        file.write_all(text).unwrap();
    }
}

fn ids(artifacts: &Artifacts) -> (Vec<String>, Vec<String>) {
    let (mut old, mut new) = (Vec::new(), Vec::new());
    artifacts
        .for_each(|entry| old.push(entry.artifact_id))
        .unwrap();
    artifacts
        .newest_first(|entry| {
            new.push(entry.artifact_id);
            ControlFlow::Continue(())
        })
        .unwrap();
    (old, new)
}

#[test]
fn without_a_registry_nothing_is_known_and_nothing_is_made() {
    let root = Root::new();
    for artifacts in both(root.dir.path()) {
        assert_eq!(artifacts.find("x").unwrap(), None);
        assert_eq!(artifacts.id_for(&rel("artifacts/x.md"), "h").unwrap(), "x");
        assert_eq!(artifacts.for_each(|_| {}).unwrap(), Skipped::default());
        artifacts.register(&[]).unwrap();
    }
    assert!(!root.dir.path().join("artifacts").exists());
}

#[test]
fn the_newest_line_counts_and_the_same_is_not_said_twice() {
    let root = Root::new();
    let artifacts = root.open();
    let first = entry("x", "artifacts/x.md", "11", "h1");
    artifacts.register(std::slice::from_ref(&first)).unwrap();
    artifacts.register(&[first.clone(), first.clone()]).unwrap();
    root.open().register(std::slice::from_ref(&first)).unwrap();
    assert_eq!(root.text().lines().count(), 1);
    let second = entry("x", "artifacts/x.md", "22", "h1");
    artifacts
        .register(&[second.clone(), first.clone()])
        .unwrap();
    assert_eq!(root.text().lines().count(), 3, "back to the first content");
    artifacts.register(std::slice::from_ref(&second)).unwrap();
    for artifacts in [&artifacts, &root.open()] {
        assert_eq!(artifacts.find("x").unwrap().as_ref(), Some(&second));
        let found = artifacts.find("artifacts/x.md").unwrap();
        assert_eq!(found.as_ref(), Some(&second));
        assert_eq!(artifacts.find("y").unwrap(), None);
    }
}

#[test]
fn an_id_is_the_stem_and_belongs_to_one_path_of_one_handoff() {
    let root = Root::new();
    let artifacts = root.open();
    let id = |path: &str, handoff: &str| artifacts.id_for(&rel(path), handoff).unwrap();
    assert_eq!(id("artifacts/a/report.md", "h1"), "report");
    assert_eq!(id("artifacts/b/report.md", "h1"), "report-2");
    assert_eq!(id("artifacts/a/report.md", "h2"), "report-3");
    assert_eq!(id("artifacts/a/report.md", "h1"), "report");
    let line = entry("report", "artifacts/a/report.md", "11", "h1");
    artifacts.register(&[line]).unwrap();
    assert_eq!(id("artifacts/a/report.md", "h1"), "report");
    assert_eq!(id("artifacts/b/report.md", "h1"), "report-2");
    for n in 2..300 {
        let (handoff, path) = (format!("g{n}"), "artifacts/a/report.md");
        let id = id(path, &handoff);
        assert_eq!(id, format!("report-{}", n + 2));
        artifacts
            .register(&[entry(&id, path, "11", &handoff)])
            .unwrap();
    }
    let anew = root.open();
    let again = anew.id_for(&rel("artifacts/a/report.md"), "g77").unwrap();
    assert_eq!(again, "report-79");
}

#[test]
fn an_id_asked_for_by_many_at_once_is_given_once() {
    let root = Root::new();
    let artifacts = root.open();
    let given: HashSet<String> = std::thread::scope(|scope| {
        let askers: Vec<_> = (0..16)
            .map(|n| {
                let artifacts = &artifacts;
                scope.spawn(move || {
                    let path = format!("artifacts/{n}/x.md");
                    let id = artifacts.id_for(&rel(&path), "h").unwrap();
                    artifacts.register(&[entry(&id, &path, "11", "h")]).unwrap();
                    id
                })
            })
            .collect();
        askers
            .into_iter()
            .map(|asker| asker.join().unwrap())
            .collect()
    });
    assert_eq!(given.len(), 16);
    assert_eq!(root.text().lines().count(), 16);
}

#[test]
fn a_torn_last_line_is_passed_over_and_closed_wherever_it_was_torn() {
    let whole = entry("b", "artifacts/b", "22", "h").encode().unwrap();
    for cut in (1..whole.len()).step_by(13).chain([whole.len() - 1]) {
        let root = Root::new();
        root.open()
            .register(&[entry("a", "artifacts/a", "11", "h")])
            .unwrap();
        root.append(&whole[..cut]);
        let artifacts = root.open();
        assert_eq!(ids(&artifacts), (vec!["a".into()], vec!["a".into()]));
        assert_eq!(artifacts.for_each(|_| {}).unwrap(), Skipped::default());
        assert_eq!(artifacts.find("b").unwrap(), None);
        artifacts
            .register(&[entry("b", "artifacts/b", "22", "h")])
            .unwrap();
        let is_whole = cut == whole.len() - 1;
        assert_eq!(root.text().lines().count(), if is_whole { 2 } else { 3 });
        let skipped = artifacts.for_each(|_| {}).unwrap();
        assert_eq!((skipped.torn, skipped.broken), (u64::from(!is_whole), 0));
        assert_eq!(ids(&artifacts).0, ["a", "b"]);
        assert!(artifacts.find("b").unwrap().is_some());
    }
}

#[test]
fn broken_lines_are_counted_and_hide_nothing() {
    let root = Root::new();
    let artifacts = root.open();
    let all: Vec<Entry> = (0..200)
        .map(|n| entry(&format!("a{n}"), &format!("artifacts/{n}"), "11", "h"))
        .collect();
    artifacts.register(&all[..100]).unwrap();
    root.append(b"{}\n\n\0\0\0\n");
    root.append(&vec![b'x'; 3_000_000]);
    root.append(b"\n");
    artifacts.register(&all[100..]).unwrap();
    let skipped = artifacts.for_each(|_| {}).unwrap();
    assert_eq!((skipped.torn, skipped.broken), (1, 2));
    assert_eq!(skipped.first_broken_line, Some(101));
    let backwards = artifacts
        .newest_first(|_| ControlFlow::Continue(()))
        .unwrap();
    assert_eq!((backwards.torn, backwards.broken), (1, 2));
    let (old, mut new) = ids(&artifacts);
    new.reverse();
    assert_eq!(old, new);
    assert_eq!(old.len(), 200);
    for entry in &all {
        assert_eq!(
            artifacts.find(&entry.artifact_id).unwrap().as_ref(),
            Some(entry)
        );
        assert_eq!(artifacts.find(&entry.path).unwrap().as_ref(), Some(entry));
    }
}

#[test]
fn a_file_that_was_edited_replaced_or_removed_is_read_again() {
    let root = Root::new();
    let artifacts = root.open();
    let [a, b] = ["a", "b"].map(|id| entry(id, &format!("artifacts/{id}"), "11", "h"));
    let found = |id: &str| artifacts.find(id).unwrap().is_some();
    artifacts.register(&[a.clone(), b.clone()]).unwrap();
    let text = root.text();
    // Cut by hand.
    fs::write(root.file(), a.encode().unwrap()).unwrap();
    assert!(found("a") && !found("b"));
    // Edited in place, and longer at the end.
    fs::write(root.file(), text.replace(r#""a""#, r#""alpha""#) + &text).unwrap();
    assert!(found("a") && found("b") && found("alpha"));
    // Replaced by another file.
    let other = root.dir.path().join("other");
    fs::write(&other, b.encode().unwrap()).unwrap();
    crate::durable::replace(&other, &root.file()).unwrap();
    assert!(!found("a") && found("b"));
    // Grown by another process.
    root.open().register(std::slice::from_ref(&a)).unwrap();
    assert!(found("a") && found("b"));
    // Removed.
    fs::remove_file(root.file()).unwrap();
    assert!(!found("a"));
    artifacts.register(&[a]).unwrap();
    assert!(found("a") && !found("b"));
}

#[test]
fn a_registry_that_is_no_file_is_an_error_that_says_so() {
    for artifacts_is_link in [false, true] {
        let root = Root::new();
        let elsewhere = tempfile::tempdir().unwrap();
        let folder = root.dir.path().join("artifacts");
        if artifacts_is_link {
            std::os::unix::fs::symlink(elsewhere.path(), &folder).unwrap();
        } else {
            fs::create_dir(&folder).unwrap();
            let target = elsewhere.path().join("registry");
            std::os::unix::fs::symlink(target, root.file()).unwrap();
        }
        for artifacts in both(root.dir.path()) {
            let line = entry("a", "artifacts/a", "11", "h");
            for said in [
                artifacts.find("a").unwrap_err(),
                artifacts.register(&[line]).unwrap_err(),
                artifacts.for_each(|_| {}).unwrap_err(),
            ] {
                assert!(said.to_string().contains("is a symlink"), "{said}");
            }
        }
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
    let root = Root::new();
    fs::create_dir_all(root.file()).unwrap();
    let said = root.open().find("a").unwrap_err().to_string();
    assert!(said.contains("registry.jsonl is a folder"), "{said}");
}

#[test]
fn readers_beside_a_writer_see_only_whole_lines() {
    let root = Root::new();
    let artifacts = Artifacts::new(root.dir.path(), Durability::Relaxed);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0..500 {
                let line = entry(&format!("a{n}"), &format!("artifacts/{n}"), "11", "h");
                artifacts.register(&[line]).unwrap();
            }
        });
        let reader = root.open();
        while !writer.is_finished() {
            let mut count = 0;
            let skipped = reader.for_each(|_| count += 1).unwrap();
            assert_eq!(skipped, Skipped::default());
            let mut backwards = 0;
            let skipped = reader.newest_first(|_| {
                backwards += 1;
                ControlFlow::Continue(())
            });
            assert_eq!(skipped.unwrap(), Skipped::default());
            assert!(backwards >= count);
            if count > 0 {
                assert!(reader.find(&format!("a{}", count - 1)).unwrap().is_some());
            }
        }
    });
}
