//! Files outside of a root that nobody may read into it, nor write to.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

/// Stands in every file outside. It must show up nowhere in a root.
const WORD: &str = "canary-that-must-not-be-seen-7f3a";

/// A folder outside of the root, with one file of each kind that somebody might lead to.
pub struct Outside {
    dir: TempDir,
}

impl Outside {
    pub fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("handoffd-outside-")
            .tempdir()
            .unwrap();
        let outside = Self { dir };
        for (name, bytes) in files() {
            fs::write(outside.path(name), bytes).unwrap();
        }
        fs::create_dir(outside.path("folder")).unwrap();
        outside
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// What has changed outside, and where in the root something of it shows up. Links and files
    /// that the attacker put there itself (`planted`) are not looked into.
    pub fn broken(&self, root: &Path, planted: &[&Path]) -> Vec<String> {
        let mut broken = Vec::new();
        for (name, bytes) in files() {
            if fs::read(self.path(name)).ok().as_deref() != Some(bytes.as_slice()) {
                broken.push(format!("{name} outside has changed"));
            }
        }
        let mut expected: Vec<String> = files().iter().map(|(name, _)| (*name).into()).collect();
        expected.push("folder".into());
        for name in names(self.dir()) {
            if !expected.contains(&name) {
                broken.push(format!("{name} was made outside"));
            }
        }
        if !names(&self.path("folder")).is_empty() {
            broken.push("something was made in a folder outside".into());
        }
        leaks(root, planted, &mut broken);
        broken
    }
}

fn files() -> [(&'static str, Vec<u8>); 4] {
    let request = json!({
        "target": { "agent_id": "@fake" }, "input": { "data": { "sh": "exit 0" } }, "note": WORD,
    });
    let schema = json!({ "title": WORD, "type": "object", "required": [WORD] });
    [
        ("request.json", request.to_string().into_bytes()),
        ("schema.json", schema.to_string().into_bytes()),
        (
            "state.json",
            json!({ "task_id": "t", "secret": WORD })
                .to_string()
                .into_bytes(),
        ),
        ("secret.txt", WORD.as_bytes().to_vec()),
    ]
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

fn leaks(folder: &Path, planted: &[&Path], broken: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let (path, Ok(metadata)) = (entry.path(), entry.metadata()) else {
            continue;
        };
        if planted.contains(&path.as_path()) {
            continue;
        }
        if metadata.is_dir() {
            leaks(&path, planted, broken);
        } else if metadata.is_file()
            && metadata.len() < 64 << 20
            && fs::read(&path).is_ok_and(|bytes| holds(&bytes))
        {
            broken.push(format!("{} shows what is outside", path.display()));
        }
    }
}

fn holds(bytes: &[u8]) -> bool {
    bytes
        .windows(WORD.len())
        .any(|part| part == WORD.as_bytes())
}

#[test]
fn a_canary_that_sings_is_heard() {
    let (root, outside) = (tempfile::tempdir().unwrap(), Outside::new());
    assert!(outside.broken(root.path(), &[]).is_empty());
    let copy = root.path().join("copy");
    fs::copy(outside.path("secret.txt"), &copy).unwrap();
    assert_eq!(outside.broken(root.path(), &[]).len(), 1);
    assert!(outside.broken(root.path(), &[&copy]).is_empty());
    fs::write(outside.path("folder/new"), "").unwrap();
    fs::write(outside.path("state.json"), "").unwrap();
    assert_eq!(outside.broken(root.path(), &[&copy]).len(), 2);
}
