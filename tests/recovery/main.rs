//! Recovery, one test for each row of the crash table: files as a crash leaves them, then the
//! real daemon works them off, twice, because recovery must be idempotent.
#![expect(
    clippy::disallowed_methods,
    reason = "the tests play the crash, with bare hands"
)]

mod artifacts;
mod chains;
mod resident;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

/// Says in its result which attempt it was, and leaves a line for every start.
const SPECIALIST: &str = r#"#!/bin/sh
echo "$HANDOFF_ID $HANDOFF_ATTEMPT" >> "$HANDOFF_ROOT/starts"
printf '{"status":"complete","output":{"attempt":%s}}' "$HANDOFF_ATTEMPT"
"#;

struct Root {
    dir: tempfile::TempDir,
}

impl Root {
    fn new() -> Self {
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

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn state(&self, folder: &str, id: &str) -> PathBuf {
        self.path("handoffs")
            .join(folder)
            .join(format!("{id}.json"))
    }

    fn put(&self, name: &str, text: &str) -> u64 {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::metadata(path).unwrap().ino()
    }

    /// Runs the daemon until there is nothing left to do, twice.
    fn recover(&self) {
        for _ in 0..2 {
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
        let tmp: Vec<_> = fs::read_dir(self.path(".handoffd/tmp")).unwrap().collect();
        assert!(tmp.is_empty(), "left in tmp: {tmp:?}");
        let verdict = handoffd::store::audit::verify(&self.path("audit")).unwrap();
        assert!(verdict.is_sound(), "{:?}", verdict.problems);
    }

    fn folders_of(&self, id: &str) -> Vec<&'static str> {
        ["pending", "in-progress", "waiting", "completed", "failed"]
            .into_iter()
            .filter(|folder| self.state(folder, id).exists())
            .collect()
    }

    fn record(&self, folder: &str, id: &str) -> Value {
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
    fn starts(&self, id: &str) -> usize {
        fs::read_to_string(self.path("starts"))
            .unwrap_or_default()
            .lines()
            .filter(|line| line.starts_with(&format!("{id} ")))
            .count()
    }

    /// It completed, in one place, after this many starts.
    fn expect_completed(&self, id: &str, starts: usize) -> Value {
        assert_eq!(self.folders_of(id), ["completed"]);
        assert_eq!(self.starts(id), starts, "starts of {id}");
        self.record("completed", id)
    }
}

fn request() -> String {
    json!({"target": {"agent_id": "a"}, "note": 1}).to_string()
}

fn boot_id() -> String {
    handoffd::clock::boot_id().to_owned()
}

/// A record as the daemon leaves it, with an attempt that is listed as running.
fn running(boot: &str) -> Value {
    json!({
        "handoff_id": "x", "target": {"agent_id": "a"}, "note": 1,
        "status": "in_progress", "started_at": "2026-01-01T00:00:00.000Z",
        "handoffd": {
            "format": 1, "revision": 1, "to": "in_progress", "boot": boot,
            "attempts": [{"number": 1, "started_at": "2026-01-01T00:00:00.000Z"}],
        },
    })
}

fn decided(to: &str) -> Value {
    let mut record = running(&boot_id());
    record["handoffd"]["to"] = to.into();
    record["handoffd"]["revision"] = 2.into();
    record["handoffd"]["attempts"][0]["outcome"] = "completed".into();
    record["status"] = to.into();
    record
}

fn parked(reason: &str) -> Value {
    let mut record = decided("waiting");
    record["waiting"] = json!({"on": "retry", "reason": reason});
    record["handoffd"]["timer"] = json!({
        "boot": "another", "at_boot_ms": 1, "length_ms": 1, "until": "2026-01-01T00:00:00.000Z",
    });
    record
}

#[test]
fn row_1_a_submission_is_taken_in() {
    let root = Root::new();
    root.put("handoffs/pending/x.json", &request());
    root.recover();
    assert_eq!(root.expect_completed("x", 1)["note"], 1);
}

#[test]
fn row_2_a_claim_that_was_prepared_but_not_made_is_forgotten() {
    let root = Root::new();
    let inode = root.put("handoffs/pending/x.json", &request());
    let prepared = running(&boot_id()).to_string();
    root.put(&format!(".handoffd/tmp/claim-p-{inode}-x.json"), &prepared);
    root.recover();
    let record = root.expect_completed("x", 1);
    assert_eq!(record["output"]["attempt"], 1);
}

#[test]
fn row_3_moved_but_not_rewritten_is_admitted_anew() {
    for folder in ["in-progress", "waiting"] {
        let root = Root::new();
        let inode = root.put(&format!("handoffs/{folder}/x.json"), &request());
        let prepared = running(&boot_id()).to_string();
        root.put(&format!(".handoffd/tmp/claim-p-{inode}-x.json"), &prepared);
        root.recover();
        let record = root.expect_completed("x", 1);
        assert_eq!(record["output"]["attempt"], 1, "{folder}");
        assert!(record["handoffd"]["request_sha256"].is_string());
    }
}

#[test]
fn row_3_a_producers_yaml_is_kept_as_it_was() {
    let root = Root::new();
    let text = "# why\ntarget:\n  agent_id: a\n";
    let inode = root.put("handoffs/in-progress/x.json", text);
    root.put(&format!(".handoffd/tmp/claim-p-{inode}-x.json"), "{}");
    root.recover();
    root.expect_completed("x", 1);
    let kept = fs::read_to_string(root.path(".handoffd/originals/x.yaml")).unwrap();
    assert_eq!(kept, text);
}

#[test]
fn row_3_a_report_met_there_is_received_and_ends() {
    let root = Root::new();
    let report = json!({"status": "complete", "phase": "p", "summary": "Added tests",
                        "handoff": {"next_phase": "complete"}});
    let inode = root.put("handoffs/waiting/x.json", &report.to_string());
    root.put(&format!(".handoffd/tmp/claim-p-{inode}-x.json"), "{}");
    root.recover();
    let record = root.expect_completed("x", 0);
    assert_eq!(record["result"]["summary"], "Added tests");
    let warned = record["acknowledgment"]["warnings"].to_string();
    assert!(warned.contains("summary"), "{record:#}");
}

#[test]
fn row_3_a_forged_submission_met_there_is_not_believed() {
    let root = Root::new();
    let mut forged = decided("completed");
    forged["result"] = json!({"status": "complete", "forged": true});
    let inode = root.put("handoffs/in-progress/x.json", &forged.to_string());
    root.put(&format!(".handoffd/tmp/claim-p-{inode}-x.json"), "{}");
    root.recover();
    let record = root.expect_completed("x", 1);
    assert_eq!(record["result"].get("forged"), None);
    assert_eq!(record["handoffd"]["previous"][0]["result"]["forged"], true);
}

#[test]
fn row_3_a_duplicate_met_there_fails_and_does_not_run() {
    let root = Root::new();
    let mut first = decided("completed");
    first["handoffd"]["to"] = "completed".into();
    root.put("handoffs/completed/x.json", &first.to_string());
    let inode = root.put("handoffs/waiting/x~2.json", &request());
    root.put(&format!(".handoffd/tmp/claim-p-{inode}-x~2.json"), "{}");
    root.recover();
    assert_eq!(root.folders_of("x~2"), ["failed"]);
    assert_eq!(
        root.record("failed", "x~2")["error"]["code"],
        "DUPLICATE_ID"
    );
    assert_eq!(root.starts("x~2"), 0);
}

#[test]
fn row_4_rewritten_with_the_producers_bytes_still_there_goes_on() {
    let root = Root::new();
    let text = "target:\n  agent_id: a\nnote: 1\n";
    let inode = root.put("original.yaml", text);
    let leftover = format!(".handoffd/tmp/claim-p-{inode}-x.json");
    fs::rename(root.path("original.yaml"), root.path(&leftover)).unwrap();
    root.put(
        "handoffs/in-progress/x.json",
        &running(&boot_id()).to_string(),
    );
    root.recover();
    root.expect_completed("x", 1);
    let kept = fs::read_to_string(root.path(".handoffd/originals/x.yaml")).unwrap();
    assert_eq!(kept, text, "a producer's YAML is kept as it was");
}

#[test]
fn row_4_rewritten_but_torn_is_restored_from_the_leftover() {
    let root = Root::new();
    let inode = root.put("original", &request());
    let leftover = format!(".handoffd/tmp/claim-p-{inode}-x.json");
    fs::rename(root.path("original"), root.path(&leftover)).unwrap();
    root.put("handoffs/in-progress/x.json", "");
    root.recover();
    assert_eq!(root.expect_completed("x", 1)["note"], 1);
}

#[test]
fn row_4_a_torn_claim_from_waiting_goes_back_to_waiting() {
    let root = Root::new();
    let inode = root.put("old", &parked("before").to_string());
    let leftover = format!(".handoffd/tmp/claim-w-{inode}-x.json");
    fs::rename(root.path("old"), root.path(&leftover)).unwrap();
    root.put("handoffs/in-progress/x.json", "{\"torn");
    root.recover();
    let record = root.expect_completed("x", 1);
    assert_eq!(record["output"]["attempt"], 2, "attempt 1 stays listed");
}

#[test]
fn row_48_of_two_claims_the_later_one_counts_and_both_are_let_go() {
    for torn in [false, true] {
        let root = Root::new();
        for (letter, text) in [('p', request()), ('w', parked("before").to_string())] {
            let inode = root.put("old", &text);
            let leftover = format!(".handoffd/tmp/claim-{letter}-{inode}-x.json");
            fs::rename(root.path("old"), root.path(&leftover)).unwrap();
        }
        let record = if torn {
            "{\"torn".to_owned()
        } else {
            running(&boot_id()).to_string()
        };
        root.put("handoffs/in-progress/x.json", &record);
        root.recover();
        let record = root.expect_completed("x", 1);
        assert_eq!(record["output"]["attempt"], 2, "attempt 1 stays listed");
        let left = fs::read_dir(root.path(".handoffd/tmp")).unwrap().count();
        assert_eq!(left, 0);
    }
}

#[test]
fn row_5_torn_with_nothing_left_is_set_aside() {
    for folder in ["in-progress", "waiting"] {
        let root = Root::new();
        root.put(&format!("handoffs/{folder}/x.json"), "{\"torn");
        root.recover();
        assert_eq!(root.folders_of("x"), ["failed"]);
        let kept = fs::read_to_string(root.path("handoffs/failed/x.rejected")).unwrap();
        assert_eq!(kept, "{\"torn");
        assert_eq!(root.starts("x"), 0);
    }
}

#[test]
fn row_9_a_lost_attempt_runs_again_and_is_counted() {
    let root = Root::new();
    root.put(
        "handoffs/in-progress/x.json",
        &running("another boot").to_string(),
    );
    root.recover();
    let record = root.expect_completed("x", 1);
    assert_eq!(record["handoffd"]["attempts"][0]["outcome"], "interrupted");
    assert_eq!(record["handoffd"]["interruptions"], 1);
    assert_eq!(record["output"]["attempt"], 2);
}

#[test]
fn row_9_too_many_lost_attempts_fail() {
    let root = Root::new();
    let mut record = running("another boot");
    record["handoffd"]["interruptions"] = 4.into();
    root.put("handoffs/in-progress/x.json", &record.to_string());
    root.recover();
    assert_eq!(root.folders_of("x"), ["failed"]);
    assert_eq!(root.record("failed", "x")["error"]["code"], "INTERRUPTED");
    assert_eq!(root.starts("x"), 0);
}

#[test]
fn row_10_an_attempt_that_never_began_runs_and_is_not_counted() {
    let root = Root::new();
    root.put(
        "handoffs/in-progress/x.json",
        &running(&boot_id()).to_string(),
    );
    root.recover();
    let record = root.expect_completed("x", 1);
    assert_eq!(record["handoffd"].get("interruptions"), None);
    assert_eq!(record["output"]["attempt"], 2);
}

#[test]
fn row_11_decided_in_progress_is_moved_and_not_rerun() {
    for (to, folder) in [("completed", "completed"), ("failed", "failed")] {
        let root = Root::new();
        root.put("handoffs/in-progress/x.json", &decided(to).to_string());
        root.recover();
        assert_eq!(root.folders_of("x"), [folder]);
        assert_eq!(root.starts("x"), 0);
        assert_eq!(root.record(folder, "x")["handoffd"]["revision"], 2);
    }
}

#[test]
fn row_11_decided_for_a_wait_waits_and_then_runs() {
    let root = Root::new();
    root.put("handoffs/in-progress/x.json", &parked("retry").to_string());
    root.recover();
    root.expect_completed("x", 1);
}

#[test]
fn row_12_a_claim_from_waiting_that_was_not_moved_has_not_begun() {
    let root = Root::new();
    root.put("handoffs/waiting/x.json", &running(&boot_id()).to_string());
    let old = root.put("old", &parked("before").to_string());
    let leftover = format!(".handoffd/tmp/claim-w-{old}-x.json");
    fs::rename(root.path("old"), root.path(&leftover)).unwrap();
    root.recover();
    let record = root.expect_completed("x", 1);
    assert_eq!(record["output"]["attempt"], 2);
}

#[test]
fn row_13_decided_in_waiting_is_moved() {
    let root = Root::new();
    let mut record = parked("cancelled");
    record["handoffd"]["to"] = "failed".into();
    root.put("handoffs/waiting/x.json", &record.to_string());
    root.recover();
    assert_eq!(root.folders_of("x"), ["failed"]);
    assert_eq!(root.starts("x"), 0);
}

#[test]
fn row_14_parked_stays_parked_until_its_waker_comes() {
    let root = Root::new();
    let mut human = parked("a person decides");
    human["waiting"]["on"] = "human".into();
    human["handoffd"].as_object_mut().unwrap().remove("timer");
    root.put("handoffs/waiting/x.json", &human.to_string());
    root.put(
        "handoffs/waiting/y.json",
        &parked("due").to_string().replace("\"x\"", "\"y\""),
    );
    root.recover();
    assert_eq!(root.folders_of("x"), ["waiting"]);
    root.expect_completed("y", 1);
}

#[test]
fn row_15_of_two_the_higher_revision_wins_and_the_other_is_set_aside() {
    let root = Root::new();
    root.put(
        "handoffs/in-progress/x.json",
        &running(&boot_id()).to_string(),
    );
    root.put(
        "handoffs/completed/x.json",
        &decided("completed").to_string(),
    );
    root.recover();
    assert_eq!(root.folders_of("x"), ["completed"]);
    assert_eq!(root.starts("x"), 0);
    assert_eq!(
        fs::read_dir(root.path(".handoffd/aside")).unwrap().count(),
        1
    );
}

#[test]
fn row_15_a_move_by_link_that_was_cut_in_half_is_finished() {
    let root = Root::new();
    root.put(
        "handoffs/in-progress/x.json",
        &decided("completed").to_string(),
    );
    fs::hard_link(root.state("in-progress", "x"), root.state("completed", "x")).unwrap();
    root.recover();
    assert_eq!(root.folders_of("x"), ["completed"]);
    assert_eq!(root.starts("x"), 0);
}

#[test]
fn row_16_contents_that_were_never_put_in_place_are_swept() {
    let root = Root::new();
    root.put(".handoffd/tmp/next-7-x.json", "{\"half");
    root.recover();
}

#[test]
fn rows_17_and_18_a_rejection_is_finished() {
    let root = Root::new();
    root.put(".handoffd/rejecting/x.rejected", "{broken");
    root.recover();
    let kept = fs::read_to_string(root.path("handoffs/failed/x.rejected")).unwrap();
    assert_eq!(kept, "{broken");
    assert_eq!(root.folders_of("x"), ["failed"]);
    // The notice stands, the bytes do not: as if it had died between the two.
    fs::rename(
        root.path("handoffs/failed/x.rejected"),
        root.path(".handoffd/rejecting/x.rejected"),
    )
    .unwrap();
    root.recover();
    assert!(root.path("handoffs/failed/x.rejected").exists());
    assert!(
        !root.state("failed", "x~2").exists(),
        "it knows its own notice"
    );
}

#[test]
fn row_17_the_reason_survives() {
    let root = Root::new();
    root.put("handoffs/pending/x.json", "{broken");
    root.recover();
    let told = root.record("failed", "x");
    // As if it had died with notice and bytes both still on their way.
    for name in ["x.rejected", "x.json"] {
        let rejecting = root.path(".handoffd/rejecting").join(name);
        fs::rename(root.path("handoffs/failed").join(name), rejecting).unwrap();
    }
    root.recover();
    assert_eq!(root.record("failed", "x"), told);
    assert!(
        told["error"]["message"]
            .as_str()
            .unwrap()
            .contains("line 1")
    );
}

#[test]
fn row_46_bytes_that_are_all_that_is_left_go_back() {
    let root = Root::new();
    for (letter, id, text) in [
        ('p', "x", request()),
        (
            'w',
            "y",
            parked("later").to_string().replace("\"x\"", "\"y\""),
        ),
    ] {
        let inode = root.put(".handoffd/tmp/claim", &text);
        let claim = format!(".handoffd/tmp/claim-{letter}-{inode}-{id}.json");
        fs::rename(root.path(".handoffd/tmp/claim"), root.path(&claim)).unwrap();
    }
    root.recover();
    root.expect_completed("x", 1);
    root.expect_completed("y", 1);
}

#[test]
fn row_19_a_retry_that_was_decided_but_not_moved_is_moved() {
    let root = Root::new();
    root.put("handoffs/failed/x.json", &decided("failed").to_string());
    let command = json!({"action": "retry", "handoff_id": "x"}).to_string();
    root.put("handoffs/control/c.json", &command);
    // What the daemon writes before the move; the key names the very file in control/.
    let control = fs::metadata(root.path("handoffs/control/c.json")).unwrap();
    let modified = i128::from(control.mtime()) * 1_000_000_000 + i128::from(control.mtime_nsec());
    let mut record = parked("retry asked for");
    record["handoffd"]["applied"] = json!([format!("c.json:{}:{modified}", control.ino())]);
    root.put("handoffs/failed/x.json", &record.to_string());
    root.recover();
    root.expect_completed("x", 1);
    assert!(!root.path("handoffs/control/c.json").exists());
}

#[test]
fn row_19_a_command_that_was_carried_out_is_not_carried_out_again() {
    let root = Root::new();
    let mut failed = decided("failed");
    failed["error"] = json!({"code": "PROCESSING_ERROR", "message": "m"});
    root.put("handoffs/failed/x.json", &failed.to_string());
    let command = json!({"action": "retry", "handoff_id": "x"}).to_string();
    root.put("handoffs/control/c.json", &command);
    root.recover();
    let record = root.expect_completed("x", 1);
    assert!(!root.path("handoffs/control/c.json").exists());
    assert_eq!(
        record["handoffd"]["previous"][0]["error"]["code"],
        "PROCESSING_ERROR"
    );
    let again = json!({"action": "cancel", "handoff_id": "x"}).to_string();
    root.put("handoffs/control/late.json", &again);
    root.recover();
    assert!(Path::new(&root.path("handoffs/control/rejected/late.json")).exists());
    let reason = fs::read_to_string(root.path("handoffs/control/rejected/late.json.reason.json"));
    assert!(reason.unwrap().contains("completed"));
}

#[test]
fn a_record_of_a_newer_format_is_left_alone() {
    let root = Root::new();
    let mut newer = parked("later");
    newer["handoffd"]["format"] = 2.into();
    root.put("handoffs/waiting/x.json", &newer.to_string());
    root.recover();
    assert_eq!(root.record("waiting", "x"), newer);
}

#[test]
fn a_record_made_by_hand_neither_stops_the_daemon_nor_waits_for_ever() {
    let root = Root::new();
    let mut huge = running(&boot_id());
    huge["handoffd"]["revision"] = u64::MAX.into();
    huge["handoffd"]["attempts"][0]["number"] = u32::MAX.into();
    root.put("handoffs/waiting/x.json", &huge.to_string());
    let mut timeless = parked("no clock").to_string().replace("\"x\"", "\"y\"");
    timeless = timeless.replace("\"timer\"", "\"other\"");
    root.put("handoffs/waiting/y.json", &timeless);
    root.recover();
    assert_eq!(root.folders_of("x"), ["completed"]);
    root.expect_completed("y", 1);
}

#[test]
fn a_foreign_file_is_treated_as_interrupted() {
    for folder in ["in-progress", "waiting"] {
        let root = Root::new();
        root.put(&format!("handoffs/{folder}/x.json"), &request());
        root.recover();
        root.expect_completed("x", 1);
    }
}
