//! Rows 32 to 36, 49, 56 and 71 to 73: what a decided record sets in motion, whoever waits, and
//! answers.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde_json::{Value, json};

use crate::root::{Root, decided, parked};

/// A follow-up as a decided record carries it.
fn spawn(id: &str) -> Value {
    json!({ "id": id, "request": {
        "handoff_id": id, "target": {"agent_id": "a"}, "input": {"data": {}},
        "handoffd": {"format": 1, "revision": 0, "attempts": [], "chain": "x", "hop": 1,
                     "parent": "x"},
    }})
}

fn with_spawns(mut record: Value, ids: &[&str]) -> Value {
    record["handoffd"]["children"] = json!(ids);
    record["handoffd"]["spawns"] = ids.iter().map(|id| spawn(id)).collect();
    record
}

fn waits_for(ids: &[&str]) -> Value {
    let mut record = with_spawns(parked("helpers"), ids);
    record["handoffd"].as_object_mut().unwrap().remove("timer");
    record["handoffd"]["attempts"][0]["outcome"] = "delegated".into();
    record["waiting"] = json!({"on": "handoff", "ids": ids, "reason": "delegated"});
    record
}

fn ended(root: &Root, folder: &str, id: &str) {
    let mut record = decided(folder);
    record["handoff_id"] = id.into();
    record["handoffd"]["parent"] = "x".into();
    record["result"] = json!({"summary": format!("{id} says so")});
    root.put(&format!("handoffs/{folder}/{id}.json"), &record.to_string());
}

#[test]
fn row_32_what_a_decided_record_sets_in_motion_is_made_once() {
    let ids = ["x.1-aaaaaaaa", "x.1-bbbbbbbb"];
    for made in 0..=2 {
        for pending in [true, false] {
            let root = Root::new();
            for id in &ids[..made] {
                if pending {
                    let request = spawn(id)["request"].to_string();
                    root.put(&format!("handoffs/pending/{id}.json"), &request);
                } else {
                    ended(&root, "completed", id);
                }
            }
            let record = with_spawns(decided("completed"), &ids);
            root.put("handoffs/in-progress/x.json", &record.to_string());
            root.recover();
            assert_eq!(root.folders_of("x"), ["completed"]);
            assert_eq!(root.starts("x"), 0);
            for (n, id) in ids.iter().enumerate() {
                let record = root.expect_completed(id, usize::from(pending || n >= made));
                assert_eq!(record["handoffd"]["parent"], "x");
            }
            assert_eq!(
                fs::read_dir(root.path("handoffs/failed")).unwrap().count(),
                0
            );
        }
    }
}

#[test]
fn row_32_a_refused_one_goes_straight_to_failed() {
    let root = Root::new();
    let mut record = with_spawns(decided("completed"), &["x.1-aaaaaaaa"]);
    record["handoffd"]["spawns"][0]["refused"] = "chain x goes in a circle".into();
    root.put("handoffs/in-progress/x.json", &record.to_string());
    root.recover();
    assert_eq!(root.folders_of("x"), ["completed"]);
    let refused = root.record("failed", "x.1-aaaaaaaa");
    assert_eq!(refused["error"]["code"], "BLOCKED");
    assert_eq!(root.starts("x.1-aaaaaaaa"), 0);
}

#[test]
fn row_56_a_package_that_ended_returns_once() {
    for (folder, to, made) in [
        ("in-progress", "completed", false),
        ("waiting", "failed", false),
        ("waiting", "failed", true),
    ] {
        let root = Root::new();
        let mut record = with_spawns(decided(to), &["x.1-aaaaaaaa"]);
        record.as_object_mut().unwrap().remove("target");
        record["handoff"] = json!({"type": "delegation", "from": {"agent": "a"},
                                   "to": {"agent": "a"}, "context": {"summary": "s"}});
        record["handoffd"]["returned"] = to.into();
        let request = &mut record["handoffd"]["spawns"][0]["request"];
        request.as_object_mut().unwrap().remove("target");
        request["handoff"] = json!({"type": "return", "from": {"agent": "a"},
                                    "to": {"agent": "a"}, "context": {"summary": "it is done"}});
        if made {
            let path = "handoffs/pending/x.1-aaaaaaaa.json";
            root.put(path, &request.to_string());
        }
        root.put(&format!("handoffs/{folder}/x.json"), &record.to_string());
        for _ in 0..2 {
            root.recover();
            assert_eq!(root.folders_of("x"), [to]);
            root.expect_completed("x.1-aaaaaaaa", 1);
        }
        assert_eq!(root.starts("x"), 0);
        let ended = |folder: &str| fs::read_dir(root.path(folder)).unwrap().count();
        let ended = ended("handoffs/completed") + ended("handoffs/failed");
        assert_eq!(ended, 2, "{folder} to {to}, made: {made}");
    }
}

#[test]
fn row_32_a_parent_that_is_to_wait_is_woken_when_all_have_ended() {
    let ids = ["x.1-aaaaaaaa", "x.1-bbbbbbbb"];
    let root = Root::new();
    ended(&root, "failed", ids[0]);
    root.put("handoffs/in-progress/x.json", &waits_for(&ids).to_string());
    root.recover();
    root.expect_completed(ids[1], 1);
    let record = root.expect_completed("x", 1);
    let returns = record["handoffd"]["returns"].as_array().unwrap();
    assert_eq!(returns.len(), 2);
    assert_eq!(returns[0]["status"], "failed");
    assert_eq!(returns[1]["status"], "completed");
}

#[test]
fn row_33_helpers_that_a_waiting_record_names_are_made() {
    let ids = ["x.1-aaaaaaaa", "x.1-bbbbbbbb"];
    for made in 0..=2 {
        let root = Root::new();
        for id in &ids[..made] {
            let request = spawn(id)["request"].to_string();
            root.put(&format!("handoffs/pending/{id}.json"), &request);
        }
        root.put("handoffs/waiting/x.json", &waits_for(&ids).to_string());
        root.recover();
        for id in ids {
            root.expect_completed(id, 1);
        }
        let record = root.expect_completed("x", 1);
        let returns = record["handoffd"]["returns"].as_array().unwrap();
        assert!(
            returns.iter().all(|it| it["status"] == "completed"),
            "{record:#}"
        );
        assert_eq!(returns.len(), 2);
    }
}

#[test]
fn row_34_who_ended_while_nobody_looked_wakes_its_parent() {
    let ids = ["x.1-aaaaaaaa", "x.1-bbbbbbbb"];
    let root = Root::new();
    ended(&root, "completed", ids[0]);
    ended(&root, "failed", ids[1]);
    root.put("handoffs/waiting/x.json", &waits_for(&ids).to_string());
    root.recover();
    let record = root.expect_completed("x", 1);
    let returns = record["handoffd"]["returns"].as_array().unwrap();
    assert_eq!(returns.len(), 2);
    assert_eq!(returns[0]["result"]["summary"], "x.1-aaaaaaaa says so");
    assert_eq!(record["output"]["attempt"], 2);
}

#[test]
fn row_34_a_parent_goes_on_without_a_helper_that_is_nowhere() {
    let root = Root::new();
    let mut record = waits_for(&["gone"]);
    record["handoffd"]["spawns"] = json!([]);
    root.put("handoffs/waiting/x.json", &record.to_string());
    root.recover();
    let record = root.expect_completed("x", 1);
    let returned = &record["handoffd"]["returns"][0];
    assert_eq!(returned["status"], "lost");
    let message = returned["result"]["error"]["message"].as_str().unwrap();
    assert!(message.contains("helper gone"), "{message}");
}

/// What a record remembers of a command that was carried out.
fn key_of(root: &Root, name: &str) -> String {
    let meta = fs::metadata(root.path("handoffs/control").join(name)).unwrap();
    let modified = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
    format!("{name}:{}:{modified}", meta.ino())
}

#[test]
fn row_35_an_answer_that_was_decided_is_carried_out_once() {
    let root = Root::new();
    let command = json!({"action": "approve", "handoff_id": "x"}).to_string();
    root.put("handoffs/control/yes.json", &command);
    let key = key_of(&root, "yes.json");
    let mut record = with_spawns(decided("completed"), &["x.1-aaaaaaaa"]);
    record["answer"] = json!({"action": "approve"});
    record["handoffd"]["applied"] = json!([key]);
    root.put("handoffs/waiting/x.json", &record.to_string());
    root.recover();
    assert_eq!(root.folders_of("x"), ["completed"]);
    root.expect_completed("x.1-aaaaaaaa", 1);
    let control = root.path("handoffs/control");
    assert!(!control.join("yes.json").exists());
    assert_eq!(fs::read_dir(control.join("rejected")).unwrap().count(), 0);
}

/// A helper of `x` that waits for a person.
fn helper(root: &Root, id: &str) {
    let mut record = parked("later");
    record["handoff_id"] = id.into();
    record["waiting"]["on"] = "human".into();
    record["handoffd"]["parent"] = "x".into();
    record["handoffd"].as_object_mut().unwrap().remove("timer");
    root.put(&format!("handoffs/waiting/{id}.json"), &record.to_string());
}

#[test]
fn row_36_a_cancel_cut_in_half_reaches_all() {
    let ids = ["x.1-aaaaaaaa", "x.1-bbbbbbbb"];
    for carried_out in [false, true] {
        let root = Root::new();
        for id in ids {
            helper(&root, id);
        }
        for id in ["x", ids[0]] {
            let cancel = json!({"action": "cancel", "handoff_id": id}).to_string();
            root.put(&format!("handoffs/control/cancel-{id}.json"), &cancel);
        }
        let mut record = waits_for(&ids);
        if carried_out {
            record["handoffd"]["to"] = "failed".into();
            record["status"] = "failed".into();
            record["error"] = json!({"code": "CANCELLED", "message": "cancelled"});
            record["handoffd"]["applied"] = json!([key_of(&root, "cancel-x.json")]);
        }
        root.put("handoffs/waiting/x.json", &record.to_string());
        root.recover();
        for id in ["x", ids[0], ids[1]] {
            assert_eq!(root.folders_of(id), ["failed"], "{id}");
            let record = root.record("failed", id);
            assert_eq!(record["error"]["code"], "CANCELLED", "{id}");
            assert_eq!(root.starts(id), 0);
        }
    }
}

#[test]
fn row_49_a_wait_that_was_deleted_stays_deleted_and_nobody_waits_for_it() {
    let root = Root::new();
    helper(&root, "deleted");
    let mut record = parked("dependency");
    record["depends_on"] = json!(["deleted"]);
    record["waiting"] = json!({"on": "dependency", "ids": ["deleted"], "reason": "it waits"});
    root.put("handoffs/waiting/x.json", &record.to_string());
    root.recover();
    assert_eq!(root.folders_of("x"), ["waiting"], "a person may answer");
    fs::remove_file(root.state("waiting", "deleted")).unwrap();
    root.recover();
    assert!(root.folders_of("deleted").is_empty());
    assert_eq!(root.folders_of("x"), ["failed"]);
    let error = &root.record("failed", "x")["error"];
    assert_eq!(error["code"], "DEPENDENCY_MISSING");
    assert_eq!(root.starts("x"), 0);
}

#[test]
fn row_71_a_key_that_is_lost_or_half_written_is_made_anew_and_children_keep_their_ids() {
    for left in [None, Some("half")] {
        let ids = ["x.1-aaaaaaaa"];
        let root = Root::new();
        fs::create_dir_all(root.path(".handoffd/tmp")).unwrap();
        root.put(".handoffd/tmp/key", "half");
        if let Some(left) = left {
            root.put(".handoffd/key", left);
        }
        let record = waits_for(&ids);
        root.put("handoffs/in-progress/x.json", &record.to_string());
        root.recover();
        root.expect_completed(ids[0], 1);
        let record = root.expect_completed("x", 1);
        assert_eq!(record["handoffd"]["returns"][0]["status"], "completed");
        let key = fs::metadata(root.path(".handoffd/key")).unwrap();
        assert_eq!((key.len(), key.mode() & 0o777), (32, 0o600));
    }
}

#[test]
fn row_72_a_stranger_s_file_under_a_child_s_id_is_a_duplicate() {
    for name in ["x.1-aaaaaaaa.json", "x.1-aaaaaaaa.yaml"] {
        let ids = ["x.1-aaaaaaaa"];
        let root = Root::new();
        let mut stranger = spawn(ids[0])["request"].clone();
        stranger["input"]["data"] = json!({"forged": true});
        root.put(&format!("handoffs/pending/{name}"), &stranger.to_string());
        let record = waits_for(&ids);
        root.put("handoffs/in-progress/x.json", &record.to_string());
        root.recover();
        let child = root.expect_completed(ids[0], 1);
        assert_eq!(child["input"]["data"], json!({}));
        let record = root.expect_completed("x", 1);
        assert_eq!(record["handoffd"]["returns"][0]["status"], "completed");
        let refused = root.record("failed", "x.1-aaaaaaaa~2");
        assert_eq!(refused["error"]["code"], "DUPLICATE_ID");
        assert_eq!(refused["input"]["data"]["forged"], true);
    }
}

#[test]
fn row_73_where_a_stranger_s_record_has_a_child_s_id_the_child_gets_another() {
    let ids = ["x.1-aaaaaaaa", "x.1-bbbbbbbb"];
    let root = Root::new();
    ended(&root, "completed", ids[0]);
    ended(&root, "completed", ids[1]);
    let path = format!("handoffs/completed/{}.json", ids[0]);
    let mut stranger = root.record("completed", ids[0]);
    stranger["handoffd"]["request_sha256"] = "f".repeat(64).into();
    root.put(&path, &stranger.to_string());
    let record = waits_for(&ids);
    root.put("handoffs/in-progress/x.json", &record.to_string());
    root.recover();
    let record = root.expect_completed("x", 1);
    let children = record["handoffd"]["children"].as_array().unwrap();
    assert_eq!(children.len(), 2);
    assert_eq!(children[1], ids[1]);
    let other = children[0].as_str().unwrap();
    assert_ne!(other, ids[0]);
    root.expect_completed(other, 1);
    let returns = record["handoffd"]["returns"].as_array().unwrap();
    assert_eq!(
        (&returns[0]["id"], &returns[1]["id"]),
        (&children[0], &children[1])
    );
    assert_eq!(root.record("completed", ids[0]), stranger);
}

#[test]
fn row_73_a_record_that_is_not_the_helper_s_is_no_answer() {
    let ids = ["x.1-aaaaaaaa"];
    let root = Root::new();
    let mut stranger = decided("completed");
    stranger["handoff_id"] = ids[0].into();
    stranger["handoffd"]["parent"] = "x".into();
    stranger["handoffd"]["request_sha256"] = "f".repeat(64).into();
    stranger["result"] = json!({"summary": "approved"});
    let path = format!("handoffs/completed/{}.json", ids[0]);
    root.put(&path, &stranger.to_string());
    let record = waits_for(&ids);
    root.put("handoffs/waiting/x.json", &record.to_string());
    root.recover();
    let record = root.expect_completed("x", 1);
    let returned = &record["handoffd"]["returns"][0];
    assert_ne!(returned["result"]["summary"], "approved", "{record:#}");
    let child = record["handoffd"]["children"][0].as_str().unwrap();
    assert_ne!(child, ids[0]);
    root.expect_completed(child, 1);
}
