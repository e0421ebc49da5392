//! Rows 1 to 5, 46 and 48: claims that were prepared, half made, or torn.

use std::fs;

use serde_json::json;

use crate::root::{Root, boot_id, decided, parked, request, running};

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
fn row_4_a_wait_that_the_log_knows_nothing_of_is_told_once() {
    let root = Root::new();
    let inode = root.put("original", &request());
    let leftover = format!(".handoffd/tmp/claim-p-{inode}-x.json");
    fs::rename(root.path("original"), root.path(&leftover)).unwrap();
    let mut record = parked("a person is asked");
    record["waiting"] = serde_json::json!({"on": "human", "kind": "gate", "reason": "asked"});
    record["handoffd"]["attempts"] = serde_json::json!([]);
    record["handoffd"].as_object_mut().unwrap().remove("timer");
    root.put("handoffs/waiting/x.json", &record.to_string());
    root.recover();
    assert_eq!(root.folders_of("x"), ["waiting"]);
    let told = handoffd::store::audit::recent(&root.path("audit"), 1 << 20).unwrap();
    let told: Vec<_> = told
        .iter()
        .filter(|line| line.handoff_id.as_deref() == Some("x"))
        .map(|line| line.event.as_str())
        .collect();
    assert_eq!(told, ["waiting_human"]);
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
