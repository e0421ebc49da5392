//! Artifacts: where they go, who may write there, what is registered of them.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, outcomes, text, with};

const ONCE: &str = "defaults.retry.max_retries = 0";

/// A request whose artifact goes to `destination`.
pub fn wants(sh: &str, destination: &str) -> Value {
    let expected = json!({ "expected_output": { "destination": destination } });
    with(orders(sh), expected)
}

pub fn registry(root: &Root) -> Vec<Value> {
    let lines = fs::read_to_string(root.path("artifacts/registry.jsonl")).unwrap_or_default();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

pub fn lines_of(root: &Root, id: &str) -> Vec<Value> {
    let all = registry(root).into_iter();
    all.filter(|line| line["handoff_id"] == id).collect()
}

fn sha256(bytes: &[u8]) -> String {
    handoffd::protocol::digest::sha256(bytes)
}

/// The fields that a failed record names.
pub fn fields(record: &Value) -> Vec<String> {
    let errors = record["validation"]["errors"].as_array().unwrap();
    errors.iter().map(|error| text(&error["field"])).collect()
}

#[test]
fn a_template_is_resolved_once_and_the_artifact_written_there() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let sh = "echo $HANDOFF_ARTIFACT >>$HANDOFF_ROOT/marks/where; [ $HANDOFF_ATTEMPT = 2 ] && \
              echo '{\"artifact\": {\"a\": 1.0, \"b\": [1e400]}}'";
    let template =
        "artifacts/{agent}/{task_id}/p{phase}/{artifact_type}-{handoff_id}-{timestamp}.json";
    let request = json!({
        "target": { "agent_id": "@fake", "phase": 13 }, "context": { "task_id": "T-1" },
        "input": { "data": { "sh": sh } },
        "expected_output": { "destination": template, "artifact_type": "react-components" },
    });
    root.drop_request("x", &request);
    let record = root.completed("x");
    let path = text(&record["output"]["artifact_path"]);
    let stem = path
        .strip_prefix("artifacts/fake/T-1/p13/")
        .and_then(|rest| rest.strip_suffix(".json"))
        .unwrap();
    let time = stem.strip_prefix("react-components-x-").unwrap();
    assert!(time.len() == 13 && time.parse::<u64>().is_ok(), "{time}");
    let absolute = root.path(&path).display().to_string();
    assert_eq!(root.mark("where"), format!("{absolute}\n{absolute}\n"));
    let bytes = fs::read(root.path(&path)).unwrap();
    let written = String::from_utf8(bytes.clone()).unwrap();
    assert!(
        written.contains("1.0") && written.contains("1e400"),
        "{written}"
    );
    let output = &record["output"];
    assert_eq!(output["artifact_id"], stem);
    assert_eq!(output["artifact_type"], "react-components");
    assert_eq!(output["schema_compliance"], "unchecked");
    assert_eq!(output["sha256"], sha256(&bytes));
    assert_eq!(output["size_bytes"], bytes.len());
    assert_eq!(output["artifacts"].as_array().unwrap().len(), 1);
    assert_eq!(record["validation"]["status"], "passed");
    let lines = registry(&root);
    assert_eq!(lines.len(), 1);
    let expected = json!({
        "artifact_id": stem, "path": path, "artifact_type": "react-components",
        "sha256": sha256(&bytes), "size_bytes": bytes.len(), "handoff_id": "x",
        "created_at": record["completed_at"],
    });
    assert_eq!(lines[0], expected);
}

#[test]
fn files_that_the_specialist_wrote_itself_are_measured_and_listed() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let sh = "printf main >$HANDOFF_ARTIFACT; mkdir -p $HANDOFF_ROOT/src; \
              printf code >$HANDOFF_ROOT/src/a.rs; printf note >$HANDOFF_ROOT/artifacts/n.md; \
              echo '{\"artifacts\": [{\"path\": \"src/a.rs\", \"type\": \"code\"}, \
              \"artifacts/n.md\", {\"path\": \"artifacts/main.txt\"}]}'";
    root.drop_request("x", &wants(sh, "artifacts/main.txt"));
    let record = root.completed("x");
    let listed = record["output"]["artifacts"].as_array().unwrap();
    let paths: Vec<&str> = listed.iter().filter_map(|it| it["path"].as_str()).collect();
    assert_eq!(paths, ["artifacts/main.txt", "src/a.rs", "artifacts/n.md"]);
    assert_eq!(record["output"]["sha256"], sha256(b"main"));
    let lines = lines_of(&root, "x");
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[1]["sha256"], sha256(b"code"));
    // The same name elsewhere gets another id.
    let sh = "mkdir $HANDOFF_ROOT/artifacts/y; printf 2 >$HANDOFF_ROOT/artifacts/y/n.md; \
              echo '{\"artifacts\": [{\"path\": \"artifacts/y/n.md\"}]}'";
    root.drop_request("y", &orders(sh));
    assert_eq!(root.completed("y")["output"]["artifact_id"], "n-2");
    let ids: Vec<String> = registry(&root)
        .iter()
        .map(|line| text(&line["artifact_id"]))
        .collect();
    assert_eq!(ids, ["main", "a", "n", "n-2"]);
}

#[test]
fn destinations_that_lead_elsewhere_or_exist_are_refused_before_anything_runs() {
    let root = Root::new();
    fs::create_dir_all(root.path("artifacts/folder")).unwrap();
    fs::create_dir(root.path("outside")).unwrap();
    fs::write(root.path("artifacts/there.json"), "mine").unwrap();
    symlink(root.path("outside"), root.path("artifacts/link")).unwrap();
    symlink("/nowhere", root.path("artifacts/dangling.json")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.path("artifacts/pipe"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let _daemon = Daemon::start(&root);
    let all = [
        ("artifacts/../x.json", ".."),
        ("../x.json", ".."),
        ("/etc/x.json", "absolute"),
        ("out/x.json", "artifacts/"),
        ("artifacts", "artifacts/"),
        ("artifacts/x/", "name"),
        ("artifacts/registry.jsonl", "registry"),
        ("artifacts/{nope}.json", "{nope}"),
        ("artifacts/{phase}.json", "{phase}"),
        ("artifacts/{task_id.json", "brace"),
        ("artifacts/there.json", "exists"),
        ("artifacts/there.json/x.json", "artifacts/there.json"),
        ("artifacts/folder", "exists"),
        ("artifacts/pipe", "FIFO"),
        ("artifacts/link/x.json", "link"),
        ("artifacts/dangling.json", "link"),
    ];
    for (n, (destination, _)) in all.iter().enumerate() {
        let sh = "mark ran; echo '{\"artifact\": 1}'";
        root.drop_request(&format!("d{n}"), &wants(sh, destination));
    }
    for (n, (destination, word)) in all.iter().enumerate() {
        let (record, code) = root.failed(&format!("d{n}"));
        assert_eq!(code, "SCHEMA_VALIDATION_FAILED", "{destination}");
        assert_eq!(
            fields(&record),
            ["expected_output.destination"],
            "{destination}"
        );
        let message = text(&record["error"]["message"]);
        assert!(message.contains(word), "{destination}: {message}");
        assert!(!record["recovery_actions"].as_array().unwrap().is_empty());
        assert_eq!(outcomes(&record).len(), 0);
    }
    assert!(root.names("marks").is_empty() && root.names("outside").is_empty());
    assert_eq!(
        fs::read(root.path("artifacts/there.json")).unwrap(),
        b"mine"
    );
    root.assert_works("good");
}

#[test]
fn what_the_daemon_keeps_is_nobodys_artifact() {
    let root = Root::with(ONCE);
    let _daemon = Daemon::start(&root);
    root.drop_request(
        "first",
        &wants("echo '{\"artifact\": 1}'", "artifacts/a.json"),
    );
    root.completed("first");
    for (id, path) in [
        ("record", "handoffs/in-progress/record.json"),
        ("result", ".handoffd/run/result.1.result"),
        ("registry", "artifacts/registry.jsonl"),
        ("board", "context/state/current.json"),
        ("log", "audit/events.jsonl"),
        (
            "absolute",
            "$HANDOFF_ROOT/handoffs/in-progress/absolute.json",
        ),
    ] {
        let sh = format!("echo \"{{\\\"artifacts\\\": [\\\"{path}\\\"]}}\" >$HANDOFF_RESULT");
        root.drop_request(id, &orders(&sh));
        let (record, code) = root.failed(id);
        assert_eq!(code, "VALIDATION_FAILED");
        assert_eq!(fields(&record), ["artifacts[0].path"]);
        let message = text(&record["error"]["message"]);
        assert!(
            message.contains("list only files that the specialist made"),
            "{message}"
        );
    }
    assert_eq!(registry(&root).len(), 1);
}

#[test]
fn a_link_swapped_in_while_it_runs_leads_nowhere() {
    let root = Root::with(ONCE);
    let outside = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(&root);
    let swap = format!(
        "cd $HANDOFF_ROOT/artifacts; mv sub-$HANDOFF_ID old-$HANDOFF_ID; \
         ln -s {} sub-$HANDOFF_ID;",
        outside.path().display()
    );
    let given = format!("{swap} echo '{{\"artifact\": 1}}'");
    let own = format!("{swap} echo 1 >$HANDOFF_ARTIFACT");
    root.drop_request("given", &wants(&given, "artifacts/sub-{handoff_id}/g.json"));
    root.drop_request("own", &wants(&own, "artifacts/sub-{handoff_id}/o.json"));
    root.drop_request(
        "file",
        &wants("ln -s /etc/passwd $HANDOFF_ARTIFACT", "artifacts/f"),
    );
    for id in ["given", "own", "file"] {
        let (record, code) = root.failed(id);
        assert_eq!(code, "VALIDATION_FAILED", "{id}: {record:#}");
        assert!(text(&record["error"]["message"]).contains("link"), "{id}");
    }
    assert!(!outside.path().join("g.json").exists());
    assert!(registry(&root).is_empty());
}

#[test]
fn what_is_no_file_is_no_artifact() {
    let root = Root::with(ONCE);
    let _daemon = Daemon::start(&root);
    let listed = |path: &str| format!("echo '{{\"artifacts\": [{path}]}}'");
    let mut all = vec![
        (
            "mkdir $HANDOFF_ARTIFACT".to_owned(),
            true,
            "artifact",
            "folder",
        ),
        (
            "mkfifo $HANDOFF_ARTIFACT".to_owned(),
            true,
            "artifact",
            "FIFO",
        ),
        ("exit 0".to_owned(), true, "artifact", "no artifact: "),
        ("echo words".to_owned(), true, "artifact", "no artifact: "),
        (
            "mkdir $HANDOFF_ARTIFACT; echo '{\"artifact\": 1}'".to_owned(),
            true,
            "expected_output.destination",
            "folder",
        ),
        (
            listed("\"src/nothing.rs\""),
            false,
            "artifacts[0].path",
            "does not exist",
        ),
        (listed("\"marks\""), false, "artifacts[0].path", "folder"),
        (listed("\"../x\""), false, "artifacts[0].path", ".."),
        (
            listed("\"/etc/passwd\""),
            false,
            "artifacts[0].path",
            "absolute",
        ),
        (
            listed("{\"type\": \"code\"}"),
            false,
            "artifacts[0].path",
            "missing",
        ),
        (
            format!(
                "mkfifo $HANDOFF_ROOT/pipe; {}",
                listed("{\"path\": \"pipe\"}")
            ),
            false,
            "artifacts[0].path",
            "FIFO",
        ),
    ];
    if !rustix::process::geteuid().is_root() {
        let sh = "echo 1 >$HANDOFF_ARTIFACT; chmod 0 $HANDOFF_ARTIFACT".to_owned();
        all.push((sh, true, "artifact", "read"));
    }
    for (n, (sh, main, ..)) in all.iter().enumerate() {
        let request = if *main {
            wants(sh, "artifacts/{handoff_id}.json")
        } else {
            orders(sh)
        };
        root.drop_request(&format!("c{n}"), &request);
    }
    for (n, (sh, _, field, word)) in all.iter().enumerate() {
        let (record, code) = root.failed(&format!("c{n}"));
        assert_eq!(code, "VALIDATION_FAILED", "{sh}");
        assert_eq!(fields(&record), [*field], "{sh}");
        let message = text(&record["error"]["message"]);
        assert!(message.contains(word), "{sh}: {message}");
    }
    assert!(registry(&root).is_empty());
}
