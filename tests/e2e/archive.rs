//! The archive: packed handoffs are out of the way, still found, and never lost.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, with};

fn make_old(root: &Root, state: &str, id: &str) {
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let file = File::options()
        .write(true)
        .open(root.state(state, id))
        .unwrap();
    file.set_modified(long_ago).unwrap();
}

fn said(root: &Root, args: &[&str]) -> String {
    let output = root.cli(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Two that ended long ago, one lately, one that somebody waits for; the daemon runs on.
fn ended(root: &Root) -> Daemon {
    let daemon = Daemon::start(root);
    for id in ["good", "young", "needed"] {
        root.drop_request(id, &orders("echo said >&2; exit 0"));
        root.completed(id);
    }
    root.drop_request("bad", &orders("echo no >&2; exit 64"));
    root.failed("bad");
    let waits = with(
        orders("exit 0"),
        json!({"depends_on": ["needed", "nobody"]}),
    );
    root.drop_request("waits", &waits);
    root.record("waiting", "waits");
    for (state, id) in [
        ("completed", "good"),
        ("completed", "needed"),
        ("failed", "bad"),
    ] {
        make_old(root, state, id);
    }
    daemon
}

#[test]
fn what_is_packed_is_gone_from_its_folder_and_found_by_its_id() {
    let root = Root::new();
    let _daemon = ended(&root);
    let before = fs::read_to_string(root.state("completed", "good")).unwrap();
    let dry = said(&root, &["archive", "--dry-run"]);
    assert_eq!(
        dry,
        "completed: would pack 1 handoff\nfailed: would pack 1 handoff\n"
    );
    assert!(root.state("completed", "good").exists() && !root.path("archive").exists());
    said(&root, &["archive"]);
    assert!(root.states_of("good").is_empty() && root.states_of("bad").is_empty());
    assert!(!root.path(".handoffd/logs/bad.1.log").exists());
    assert_eq!(root.states_of("needed"), ["completed"], "`waits` names it");
    assert_eq!(root.states_of("young"), ["completed"]);
    assert_eq!(said(&root, &["show", "good", "--json"]), before);
    assert!(said(&root, &["show", "good"]).contains("packed in archive/"));
    assert_eq!(said(&root, &["wait", "good"]), before);
    assert!(said(&root, &["audit", "good"]).contains("completed"));
    assert_eq!(said(&root, &["logs", "bad"]), "stderr | no\n");
    assert!(said(&root, &["export", "good"]).contains("good"));
    assert!(said(&root, &["chain", "good"]).contains("completed"));
    let listed = said(&root, &["list", "--archived", "--json"]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let failed = said(&root, &["list", "--archived", "--code", "PROCESSING_ERROR"]);
    assert!(
        failed.contains("bad") && !failed.contains("good"),
        "{failed}"
    );
    assert_eq!(
        said(&root, &["archive"]),
        "completed: packed 0 handoffs\nfailed: packed 0 handoffs\n"
    );
}

#[test]
fn a_dry_run_counts_what_a_real_one_packs_and_leaves() {
    let root = Root::new();
    let _daemon = ended(&root);
    root.drop_bytes("never.json", b"no request");
    root.failed("never");
    make_old(&root, "failed", "never");
    let rows = |args: &[&str]| -> Vec<Value> {
        let told = said(&root, args);
        let rows = told.lines().map(|row| serde_json::from_str(row).unwrap());
        rows.collect()
    };
    let dry_text = root.cli(&["archive", "--dry-run"]);
    let dry = rows(&["archive", "--dry-run", "--json"]);
    let done = rows(&["archive", "--json"]);
    for (dry, done) in dry.iter().zip(&done) {
        assert_eq!(
            (&dry["packed"], &done["packed"]),
            (&json!(false), &json!(true))
        );
        for key in ["kind", "handoffs", "left"] {
            assert_eq!(dry[key], done[key], "{dry} {done}");
        }
    }
    assert_eq!(
        (&done[1]["handoffs"], &done[1]["left"]),
        (&json!(1), &json!(1))
    );
    let (out, err) = (dry_text.stdout, dry_text.stderr);
    let told = String::from_utf8([out, err].concat()).unwrap();
    assert!(told.contains("failed: would pack 1 handoff"), "{told}");
    assert!(told.contains("failed: 1 would be left"), "{told}");
    assert!(root.state("failed", "never").exists());
}

#[test]
fn a_packed_id_stays_taken_and_meets_who_depends_on_it() {
    let root = Root::new();
    let daemon = ended(&root);
    said(&root, &["archive"]);
    root.drop_request("good", &orders("exit 0"));
    let (_, code) = root.failed("good~2");
    assert_eq!(code, "DUPLICATE_ID");
    assert!(root.states_of("good").is_empty());
    let after = |id: &str| with(orders("exit 0"), json!({"depends_on": [id]}));
    root.drop_request("met", &after("good"));
    root.completed("met");
    root.drop_request("unmet", &after("bad"));
    let (_, code) = root.failed("unmet");
    assert_eq!(code, "DEPENDENCY_MISSING");
    // Also by a daemon that finds the index lost.
    assert_eq!(daemon.terminate(), Some(0));
    fs::remove_file(root.path("archive/index")).unwrap();
    let _daemon = Daemon::start(&root);
    root.drop_request("good", &orders("exit 0"));
    assert_eq!(root.failed("good~3").1, "DUPLICATE_ID");
}

#[test]
fn a_packed_failure_can_be_put_back_and_retried() {
    let root = Root::new();
    let _daemon = ended(&root);
    let before = fs::read(root.state("failed", "bad")).unwrap();
    said(&root, &["archive", "--state", "failed"]);
    assert_eq!(root.states_of("good"), ["completed"]);
    let refused = root.cli(&["retry", "bad"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    said(&root, &["archive", "--restore", "bad"]);
    assert_eq!(fs::read(root.state("failed", "bad")).unwrap(), before);
    assert_eq!(said(&root, &["logs", "bad"]), "stderr | no\n");
    assert_eq!(
        root.cli(&["archive", "--restore", "bad"]).status.code(),
        Some(1)
    );
    said(&root, &["retry", "bad"]);
    root.record_that("failed", "bad", |record| tried(record) == 2);
    // Packed once more, the newer one counts.
    make_old(&root, "failed", "bad");
    said(&root, &["archive"]);
    let record: Value = serde_json::from_str(&said(&root, &["show", "bad", "--json"])).unwrap();
    assert_eq!(tried(&record), 2);
}

#[test]
fn advice_for_what_is_packed_can_be_followed() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &orders("mark ran"));
    root.completed("x");
    make_old(&root, "completed", "x");
    said(&root, &["archive"]);
    assert!(!root.state("completed", "x").exists());
    let told = String::from_utf8(root.cli(&["retry", "x"]).stderr).unwrap();
    let advice = "handoffd archive --restore x && mv handoffs/completed/x.json handoffs/pending/";
    assert!(told.contains(advice), "{told}");
    said(&root, &["archive", "--restore", "x"]);
    fs::rename(root.state("completed", "x"), root.pending("x.json")).unwrap();
    let ran = |record: &Value| tried(record) == 2;
    root.record_that("completed", "x", ran);
    for action in ["cancel", "approve"] {
        let told = String::from_utf8(root.cli(&[action, "x"]).stderr).unwrap();
        assert!(!told.contains("ls "), "{told}");
    }
}

fn tried(record: &Value) -> usize {
    record["handoffd"]["attempts"].as_array().unwrap().len()
}

#[test]
fn a_packed_failure_that_was_put_back_can_be_submitted_again() {
    let root = Root::new();
    let _daemon = ended(&root);
    for attempts in 2..4 {
        said(&root, &["archive", "--state", "failed"]);
        assert!(root.states_of("bad").is_empty());
        said(&root, &["archive", "--restore", "bad"]);
        fs::rename(root.state("failed", "bad"), root.pending("bad.json")).unwrap();
        root.record_that("failed", "bad", |record| tried(record) == attempts);
        // It is packed again, and found, as any other.
        make_old(&root, "failed", "bad");
    }
    said(&root, &["archive"]);
    let record: Value = serde_json::from_str(&said(&root, &["show", "bad", "--json"])).unwrap();
    assert_eq!(tried(&record), 3);
    root.drop_request("bad", &orders("exit 0"));
    assert_eq!(root.failed("bad~2").1, "DUPLICATE_ID");
}

#[test]
fn row_41_what_is_packed_and_not_yet_gone_goes_without_being_packed_twice() {
    let root = Root::new();
    let _daemon = ended(&root);
    let log = root.path(".handoffd/logs/good.1.log");
    let before = fs::read(root.state("completed", "good")).unwrap();
    let logged = fs::read(&log).unwrap();
    said(&root, &["archive"]);
    let files = root.names("archive");
    for _ in 0..2 {
        // As if it had been killed before the first original went.
        fs::write(root.state("completed", "good"), &before).unwrap();
        fs::write(&log, &logged).unwrap();
        make_old(&root, "completed", "good");
        said(&root, &["archive"]);
        assert!(root.states_of("good").is_empty() && !log.exists());
    }
    assert_eq!(root.names("archive"), files);
    assert_eq!(said(&root, &["show", "good", "--json"]).as_bytes(), before);
}

/// Killed wherever it may be, again and again: every record is in the folder or in the archive.
#[test]
fn killed_anywhere_no_record_is_in_neither_place() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    root.assert_works("first");
    assert_eq!(daemon.terminate(), Some(0));
    let record = fs::read_to_string(root.state("completed", "first")).unwrap();
    let mut all = BTreeMap::new();
    for n in 0..400 {
        let id = format!("job-{n}");
        let text = record.replace("\"first\"", &format!("\"{id}\""));
        fs::write(root.state("completed", &id), &text).unwrap();
        make_old(&root, "completed", &id);
        all.insert(id, text);
    }
    let packed_of = |id: &str| {
        let archive = handoffd::store::archive::Archive::new(&root.path("archive"));
        archive.find(id).unwrap()
    };
    let mut ended_by_itself = false;
    for round in 0..40 {
        let mut child = Command::new(env!("CARGO_BIN_EXE_handoffd"))
            .args(["archive", "--root"])
            .arg(root.dir())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(5 + round * 7));
        ended_by_itself = child.try_wait().unwrap().is_some();
        let _ = child.kill();
        child.wait().unwrap();
        handoffd::retention::leave::put_back(&handoffd::spool::layout::Layout::new(root.dir()))
            .unwrap();
        for (id, text) in &all {
            let stands = fs::read_to_string(root.state("completed", id)).ok();
            let found = stands
                .or_else(|| packed_of(id).map(|packed| String::from_utf8(packed.record).unwrap()));
            assert_eq!(found.as_ref(), Some(text), "{id} after round {round}");
        }
        if ended_by_itself {
            break;
        }
    }
    if !ended_by_itself {
        said(&root, &["archive"]);
    }
    for (id, text) in &all {
        assert!(root.states_of(id).is_empty(), "{id}");
        assert_eq!(packed_of(id).unwrap().record, text.as_bytes(), "{id}");
    }
}
