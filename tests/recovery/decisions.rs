//! Rows 9 to 16, 19 and 63: attempts that were lost, and decisions that were written down and not
//! carried out.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::json;

use crate::root::{Root, boot_id, decided, parked, request, running};

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
fn row_11_what_a_judged_attempt_left_goes_with_the_first_start() {
    for (to, folder) in [
        ("completed", "in-progress"),
        ("failed", "in-progress"),
        ("failed", "waiting"),
    ] {
        let root = Root::new();
        let left = [".handoffd/run/x.1.result", ".handoffd/run/x.1.beat"];
        for file in left {
            root.put(file, "");
        }
        root.put(
            &format!("handoffs/{folder}/x.json"),
            &decided(to).to_string(),
        );
        root.recover_once();
        assert_eq!(root.folders_of("x"), [to]);
        for file in left {
            assert!(!root.path(file).exists(), "{file} of one in {folder}/");
        }
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
fn row_19_a_retry_that_was_decided_but_not_moved_is_moved() {
    let root = Root::new();
    root.put("handoffs/failed/x.json", &decided("failed").to_string());
    let command = json!({"action": "retry", "handoff_id": "x"}).to_string();
    root.put("handoffs/control/c.json", &command);
    // What the daemon writes before the move; the key names the very file in control/.
    let control = fs::metadata(root.path("handoffs/control/c.json")).unwrap();
    let modified = i128::from(control.mtime()) * 1_000_000_000 + i128::from(control.mtime_nsec());
    let mut record = parked("retry requested");
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
fn row_63_a_proof_that_a_killed_daemon_left_for_the_keeper_is_deleted() {
    let root = Root::new();
    root.put("handoffs/pending/x.json", &request());
    root.put(".handoffd/run/.greeting-1", "");
    root.put(".handoffd/run/.greeting-77", "");
    root.recover();
    root.expect_completed("x", 1);
    let names = fs::read_dir(root.path(".handoffd/run")).unwrap();
    let left = |name: &str| name.starts_with(".greeting-");
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| left(name)).count(), 0);
}
