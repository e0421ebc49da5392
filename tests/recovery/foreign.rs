//! Rows 17 and 18, rejections that were cut short, and files that this daemon did not write: of a
//! newer format, made by hand, put where they do not belong.

use std::fs;

use crate::root::{Root, boot_id, parked, request, running};

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
