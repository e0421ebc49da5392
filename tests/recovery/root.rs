//! A root as a crash leaves it: its folders, the records that stand in it, and what came of them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

/// Says in its result which attempt it was, and leaves a line for every start.
pub const SPECIALIST: &str = r#"#!/bin/sh
echo "$HANDOFF_ID $HANDOFF_ATTEMPT" >> "$HANDOFF_ROOT/starts"
printf '{"status":"complete","output":{"attempt":%s}}' "$HANDOFF_ATTEMPT"
"#;

pub struct Root {
    pub dir: tempfile::TempDir,
}

impl Root {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = Self { dir };
        let folders = [
            "pending",
            "in-progress",
            "waiting",
            "completed",
            "failed",
            "control",
        ];
        for folder in folders {
            fs::create_dir_all(root.path("handoffs").join(folder)).unwrap();
        }
        for folder in ["tmp", "run", "rejecting"] {
            fs::create_dir_all(root.path(".handoffd").join(folder)).unwrap();
        }
        fs::write(root.path("do.sh"), SPECIALIST).unwrap();
        let config =
            "[specialists.a]\ncommand = [\"sh\", \"do.sh\"]\n[defaults]\nkill_grace = \"1s\"\n";
        fs::write(root.path("handoffd.toml"), config).unwrap();
        root
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn state(&self, folder: &str, id: &str) -> PathBuf {
        self.path("handoffs")
            .join(folder)
            .join(format!("{id}.json"))
    }

    pub fn put(&self, name: &str, text: &str) -> u64 {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::metadata(path).unwrap().ino()
    }

    /// Starts a daemon on it and has it work off what is there.
    pub fn recover_once(&self) {
        let output = Command::new(env!("CARGO_BIN_EXE_handoffd"))
            .args(["run", "--drain", "--root"])
            .arg(self.dir.path())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Runs the daemon until there is nothing left to do, twice.
    pub fn recover(&self) {
        for _ in 0..2 {
            self.recover_once();
        }
        let tmp: Vec<_> = fs::read_dir(self.path(".handoffd/tmp")).unwrap().collect();
        assert!(tmp.is_empty(), "left in tmp: {tmp:?}");
        let verdict = handoffd::store::audit::verify(&self.path("audit")).unwrap();
        assert!(verdict.is_sound(), "{:?}", verdict.problems);
    }

    pub fn folders_of(&self, id: &str) -> Vec<&'static str> {
        ["pending", "in-progress", "waiting", "completed", "failed"]
            .into_iter()
            .filter(|folder| self.state(folder, id).exists())
            .collect()
    }

    pub fn record(&self, folder: &str, id: &str) -> Value {
        let path = self.state(folder, id);
        let bytes = fs::read(&path).unwrap_or_else(|e| {
            panic!(
                "{}: {e}; it is in {:?}",
                path.display(),
                self.folders_of(id)
            )
        });
        serde_json::from_slice(&bytes).unwrap()
    }

    /// How often the specialist ran for this id.
    pub fn starts(&self, id: &str) -> usize {
        fs::read_to_string(self.path("starts"))
            .unwrap_or_default()
            .lines()
            .filter(|line| line.starts_with(&format!("{id} ")))
            .count()
    }

    /// It completed, in one place, after this many starts.
    pub fn expect_completed(&self, id: &str, starts: usize) -> Value {
        assert_eq!(self.folders_of(id), ["completed"]);
        assert_eq!(self.starts(id), starts, "starts of {id}");
        self.record("completed", id)
    }
}

pub fn request() -> String {
    json!({"target": {"agent_id": "a"}, "note": 1}).to_string()
}

pub fn boot_id() -> String {
    handoffd::clock::boot_id().to_owned()
}

/// A record as the daemon leaves it, with an attempt that is listed as running.
pub fn running(boot: &str) -> Value {
    json!({
        "handoff_id": "x", "target": {"agent_id": "a"}, "note": 1,
        "status": "in_progress", "started_at": "2026-01-01T00:00:00.000Z",
        "handoffd": {
            "format": 1, "revision": 1, "to": "in_progress", "boot": boot,
            "attempts": [{"number": 1, "started_at": "2026-01-01T00:00:00.000Z"}],
        },
    })
}

pub fn decided(to: &str) -> Value {
    let mut record = running(&boot_id());
    record["handoffd"]["to"] = to.into();
    record["handoffd"]["revision"] = 2.into();
    record["handoffd"]["attempts"][0]["outcome"] = "completed".into();
    record["status"] = to.into();
    record
}

pub fn parked(reason: &str) -> Value {
    let mut record = decided("waiting");
    record["waiting"] = json!({"on": "retry", "reason": reason});
    record["handoffd"]["timer"] = json!({
        "boot": "another", "at_boot_ms": 1, "length_ms": 1, "until": "2026-01-01T00:00:00.000Z",
    });
    record
}
