//! Handoffs that a resident process had when the daemon died.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::root::{Root, boot_id, request, running};

/// Says which handoff it got and which attempt, and answers.
const STAYS: &str = r#"while IFS= read -r line; do
    id=$(printf '%s' "$line" | sed 's/^{"handoff_id":"\([^"]*\)".*/\1/')
    attempt=$(printf '%s' "$line" | sed 's/^.*"attempt":\([0-9]*\),.*/\1/')
    echo "$id $attempt" >>starts
    printf '{"handoff_id":"%s","output":{"attempt":%s}}\n' "$id" "$attempt"
done
"#;

fn staffed(more: &str) -> Root {
    let root = Root::new();
    root.put("do.sh", STAYS);
    let config = format!(
        "[daemon]\nmax_interruptions = 2\n[specialists.a]\ncommand = [\"sh\", \"do.sh\"]\n\
         mode = \"resident\"\n{more}"
    );
    root.put("handoffd.toml", &config);
    root
}

#[test]
fn row_42_a_handoff_that_a_resident_process_had_runs_again_and_that_is_counted() {
    for boot in [boot_id(), "another boot".to_owned()] {
        let root = staffed("");
        root.put("handoffs/in-progress/x.json", &running(&boot).to_string());
        root.recover();
        let record = root.expect_completed("x", 1);
        assert_eq!(record["output"]["attempt"], 2, "{boot}");
        assert_eq!(record["handoffd"]["interruptions"], 1, "{boot}");
        assert_eq!(record["handoffd"]["attempts"][0]["outcome"], "interrupted");
    }
}

#[test]
fn row_42_it_is_given_up_when_that_happens_too_often() {
    let root = staffed("");
    let mut record = running(&boot_id());
    record["handoffd"]["interruptions"] = 1.into();
    root.put("handoffs/in-progress/x.json", &record.to_string());
    root.recover();
    assert_eq!(root.folders_of("x"), ["failed"]);
    let record = root.record("failed", "x");
    assert_eq!(record["error"]["code"], "INTERRUPTED");
    assert_eq!(root.starts("x"), 0);
}

/// One that the end of its stdin and SIGTERM don't move, as long as it is the first.
const STAYS_TOO_LONG: &str = r#"trap '' TERM
[ -e old ] && kill -0 "$(cat old)" 2>/dev/null && echo "$$" >>overlaps
[ -e old ] || { echo "$$" >old.tmp; mv old.tmp old; while :; do sleep 1; done; }
"#;

#[test]
fn row_43_a_process_of_a_former_daemon_is_ended_before_anything_of_its_agent_is_started() {
    let root = staffed("");
    root.put("do.sh", &format!("{STAYS_TOO_LONG}{STAYS}"));
    root.put("handoffs/pending/x.json", &request());
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_handoffd"))
        .args(["run", "--root"])
        .arg(root.dir.path())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let begun = std::time::Instant::now();
    while !root.path("old").exists() {
        assert!(begun.elapsed().as_secs() < 60, "it was never started");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    root.recover();
    let record = root.expect_completed("x", 1);
    assert_eq!(record["output"]["attempt"], 2);
    assert_eq!(record["handoffd"]["interruptions"], 1);
    assert!(!root.path("overlaps").exists());
}

#[test]
fn row_44_an_answer_that_was_to_be_verified_is_verified_and_not_asked_for_again() {
    let root = staffed("verify = [\"sh\", \"check.sh\"]\n");
    root.put("check.sh", "echo asked >>checks\n");
    root.put(
        "handoffs/in-progress/x.json",
        &running(&boot_id()).to_string(),
    );
    // Without a status: that it is there says that it was given.
    let answer = json!({ "output": { "attempt": 1 } });
    root.put(".handoffd/run/x.1.result", &answer.to_string());
    root.recover();
    let record = root.expect_completed("x", 0);
    assert_eq!(record["output"]["attempt"], 1);
    assert_eq!(record["validation"]["status"], "passed");
    assert_eq!(fs::read_to_string(root.path("checks")).unwrap(), "asked\n");
}

#[test]
fn row_45_what_resident_processes_left_in_the_run_folder_is_deleted() {
    let root = staffed("");
    root.put(".handoffd/run/resident-7.err", "last words");
    root.recover();
    assert!(!root.path(".handoffd/run/resident-7.err").exists());
}
