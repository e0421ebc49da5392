//! `validate` says what intake would, and `submit` lets nothing through that intake refuses.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Root, completed};

fn request(id: Option<&str>, agent: &str) -> String {
    let mut request = json!({"target": {"agent_id": agent}});
    if let Some(id) = id {
        request["handoff_id"] = id.into();
    }
    request.to_string()
}

/// Validates a file of this name with this text.
fn told(root: &Root, name: &str, text: &str) -> String {
    let file = root.path("drafts").join(name);
    fs::create_dir_all(root.path("drafts")).unwrap();
    fs::write(&file, text).unwrap();
    let told = root.see(&["validate", file.to_str().unwrap()]);
    let as_json = root.run(&["validate", "--json", file.to_str().unwrap()]);
    let parsed: Value = serde_json::from_slice(&as_json.stdout).unwrap();
    let is_fine = told.ends_with("exit 0\n");
    assert_eq!(as_json.status.success(), is_fine, "{told}");
    assert_eq!(parsed.get("error").is_none(), is_fine, "{parsed}");
    told
}

#[test]
fn what_intake_refuses_is_not_fine() {
    let root = Root::new();
    let config =
        "[daemon]\nmax_request_size = \"4KiB\"\n[specialists.coder]\ncommand = [\"true\"]\n";
    fs::write(root.path("handoffd.toml"), config).unwrap();
    root.put("completed", "done", 3, &completed());
    fs::write(
        root.path("handoffs/pending/queued.yaml"),
        request(None, "coder"),
    )
    .unwrap();
    let plain = request(None, "coder");
    let large = plain.replace('{', &format!("{{{}", " ".repeat(5000)));
    let alone = json!({
        "handoff_id": "alone", "target": {"agent_id": "coder"}, "depends_on": ["alone"],
    })
    .to_string();
    for (name, text, why) in [
        ("large.json", &large, "daemon.max_request_size allows"),
        ("a.json", &request(Some("a~2"), "coder"), "not allowed"),
        (
            "x.json",
            &request(Some("done"), "coder"),
            "the id done exists already (completed)",
        ),
        (
            "x.json",
            &request(Some("queued"), "coder"),
            "the id queued exists already (pending)",
        ),
        ("alone.json", &alone, "depends on itself"),
        ("who.json", &request(None, "nobody"), "unknown agent"),
    ] {
        let told = told(&root, name, text);
        assert!(told.contains(why), "{name}: {told}");
        assert!(told.ends_with("exit 1\n"), "{name}: {told}");
        assert!(!told.contains("move the file back"), "{name}: {told}");
        assert!(!told.contains("handoffs/failed/"), "{name}: {told}");
    }
    // The file's name is nothing to submit; whoever moves the file itself is told.
    for (name, text, note) in [
        ("x.json", plain.clone(), None),
        ("done.json", plain.clone(), None),
        ("y.json", request(Some("y"), "coder"), None),
        (
            "x.json",
            request(Some("y"), "coder"),
            Some("rename it to y.json"),
        ),
        ("bad name.json", plain.clone(), Some("not a valid id")),
        (".hid.json", plain.clone(), Some("ignores such a name")),
    ] {
        let told = told(&root, name, &text);
        assert!(told.starts_with("valid request"), "{name}: {told}");
        match note {
            Some(note) => assert!(told.contains(note), "{name}: {told}"),
            None => assert!(!told.contains("warning"), "{name}: {told}"),
        }
    }
    // What waits there already is not in its own way.
    let dropped = root.path("handoffs/pending/queued.yaml");
    let told = root.see(&["validate", dropped.to_str().unwrap()]);
    assert!(told.starts_with("valid request for @coder"), "{told}");
}

#[test]
fn without_a_root_or_a_configuration_no_specialist_is_blamed() {
    let root = Root::new();
    let bare = tempfile::tempdir().unwrap();
    let file = bare.path().join("x.json");
    fs::write(&file, request(None, "coder")).unwrap();
    let args = ["validate", file.to_str().unwrap()];
    let output = root
        .command(&args)
        .env("HANDOFFD_ROOT", bare.path())
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("has no handoffs/ folder"), "{told}");
    fs::remove_file(root.path("handoffd.toml")).unwrap();
    for command in ["validate", "submit"] {
        let told = root.see(&[command, file.to_str().unwrap()]);
        assert!(told.contains("the root has no handoffd.toml"), "{told}");
        assert!(told.ends_with("exit 1\n"), "{told}");
    }
}

#[test]
fn stdin_may_be_json_yaml_or_markdown() {
    for text in [
        &request(None, "coder"),
        "target:\n  agent_id: coder\n",
        "# For coder\n\n- Some: words\n\n```json\n{\"target\": {\"agent_id\": \"coder\"}}\n```\n",
    ] {
        let root = Root::new();
        for command in ["validate", "submit"] {
            let mut child = root
                .command(&[command, "-"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            child
                .stdin
                .take()
                .unwrap()
                .write_all(text.as_bytes())
                .unwrap();
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{command} {text}: {said}");
        }
        let pending = fs::read_dir(root.path("handoffs/pending")).unwrap();
        let names: Vec<_> = pending.map(|it| it.unwrap().file_name()).collect();
        let ext = match text.as_bytes()[0] {
            b'{' => ".json",
            b't' => ".yaml",
            _ => ".md",
        };
        assert!(names[0].to_str().unwrap().ends_with(ext), "{names:?}");
    }
}
