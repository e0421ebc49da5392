//! Acting from a terminal: submitting with options, running again, and acting on many at once.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, text, with};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Runs a command that must succeed, and gives back what it prints.
fn fine(root: &Root, args: &[&str]) -> String {
    let output = root.cli(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail with 1, and gives back what it says.
fn fails(root: &Root, args: &[&str]) -> String {
    let output = root.cli(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {}", said(&output));
    said(&output)
}

#[test]
fn options_of_submit_become_fields_of_the_request() {
    let root = Root::with("[workflows.feature]\nsteps = [{ phase = 'build', agent = '@fake' }]");
    let _daemon = Daemon::start(&root);
    fs::write(root.path("input.json"), r#"{"sh": "exit 0", "n": 1.0}"#).unwrap();
    let input = format!("@{}", root.path("input.json").display());
    let args = [
        "submit",
        "--to",
        "fake",
        "--input",
        &input,
        "--id",
        "mine",
        "--priority",
        "high",
        "--depends-on",
        "first,second",
        "--not-before",
        "2020-01-01T00:00:00Z",
        "--workflow",
        "feature",
        "--task",
        "t1",
    ];
    assert_eq!(fine(&root, &args), "mine\n");
    let waiting = root.record("waiting", "mine");
    assert_eq!(waiting["depends_on"], json!(["first", "second"]));
    for id in ["first", "second"] {
        root.drop_request(id, &orders("exit 0"));
    }
    let record = root.completed("mine");
    assert_eq!(record["priority"], "high");
    assert_eq!(record["not_before"], "2020-01-01T00:00:00.000Z");
    assert_eq!(record["workflow_state"], json!({"name": "feature"}));
    assert_eq!(record["context"]["task_id"], "t1");
    let bytes = fs::read_to_string(root.state("completed", "mine")).unwrap();
    assert!(bytes.contains(r#""n": 1.0"#), "{bytes}");
    let unknown = ["submit", "--to", "fake", "--workflow", "featur"];
    let told = fails(&root, &unknown);
    assert!(told.contains("did you mean feature?"), "{told}");
}

#[test]
fn an_id_that_exists_anywhere_is_refused_and_nothing_is_dropped() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    root.drop_request("packed", &orders("exit 0"));
    root.completed("packed");
    fine(&root, &["archive", "--older-than", "0s"]);
    let mode = fs::metadata(root.path("archive")).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o750);
    root.drop_request("done", &orders("exit 0"));
    root.completed("done");
    root.drop_request("broken", &with(orders("exit 64"), json!({})));
    root.failed("broken");
    root.drop_bytes("bytes.json", b"{]");
    root.failed("bytes");
    let never = json!({ "not_before": "2999-01-01T00:00:00Z" });
    root.drop_request("parked", &with(orders("exit 0"), never));
    root.record("waiting", "parked");
    root.drop_request("running", &orders("mark up; await go"));
    root.mark("running.up");
    daemon.kill();
    root.drop_bytes("queued.yaml", b"target: {agent_id: '@fake'}\n");
    let before = root.names("handoffs/pending");
    let file = root.path("request.json");
    fs::write(&file, orders("exit 0").to_string()).unwrap();
    for id in [
        "packed", "done", "broken", "bytes", "parked", "running", "queued",
    ] {
        let told = fails(&root, &["submit", file.to_str().unwrap(), "--id", id]);
        assert!(
            told.contains(&format!("the id {id} exists already")),
            "{told}"
        );
        let args = ["submit", "--to", "fake", "--id", id, "--json"];
        let told: Value = serde_json::from_str(&fails(&root, &args)).unwrap();
        assert_eq!(told["error"]["code"], "DUPLICATE_ID", "{id}");
        assert_eq!(root.names("handoffs/pending"), before, "{id}");
    }
    assert_eq!(
        root.told("packed", "submitted"),
        root.told("done", "submitted")
    );
    root.allow("go");
}

#[test]
fn validate_and_submit_agree_on_the_id() {
    let root = Root::new();
    let file = |name: &str, id: Option<&str>| {
        let mut request = orders("exit 0");
        if let Some(id) = id {
            request["handoff_id"] = id.into();
        }
        let path = root.path(name);
        fs::write(&path, request.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    for (name, id) in [
        ("other.json", Some("own")),
        ("same.json", Some("same")),
        ("two words.json", Some("words")),
        ("bare.json", None),
    ] {
        let file = file(name, id);
        let told: Value =
            serde_json::from_str(&fine(&root, &["validate", "--json", &file])).unwrap();
        assert_eq!(told["id"], json!(id), "{name}");
        let submitted = fine(&root, &["submit", &file]);
        match id {
            Some(id) => assert_eq!(submitted.trim(), id, "{name}"),
            None => assert!(submitted.starts_with("h-"), "{name}: {submitted}"),
        }
        // Now the id is taken, for both of them.
        if id.is_some() {
            fails(&root, &["validate", &file]);
            fails(&root, &["submit", &file]);
        }
    }
}

#[test]
fn a_completed_handoff_runs_again_under_an_id_of_its_own() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let request = with(
        orders("mark ran"),
        json!({ "own": 1, "status": "mine", "output": { "was": "here" } }),
    );
    root.drop_request("job", &request);
    let before = root.completed("job");
    for n in 1..=2 {
        let id = format!("job.again-{n}");
        assert_eq!(fine(&root, &["retry", "--again", "job"]), format!("{id}\n"));
        let again = root.completed(&id);
        assert_eq!(again["handoffd"]["rerun_of"], "job");
        assert_eq!(again["own"], 1);
        assert_eq!(again["handoffd"]["submitted"]["status"], "mine");
        assert_eq!(again["handoff_id"], id);
        assert_eq!(again["handoffd"]["attempts"].as_array().unwrap().len(), 1);
        root.mark(&format!("{id}.ran"));
    }
    assert_eq!(root.completed("job"), before, "the completed record stays");
    fine(&root, &["archive", "--older-than", "0s"]);
    let printed = fine(&root, &["retry", "--again", "job", "--json"]);
    let told: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(told, json!({"id": "job.again-3", "rerun_of": "job"}));
    root.completed("job.again-3");
    root.drop_request("bad", &orders("exit 64"));
    root.failed("bad");
    let many = ["retry", "--again", "--agent", "fake"];
    let shown = said(&root.cli(&many));
    assert!(
        shown.contains("would rerun 1; to do it, add --yes"),
        "{shown}"
    );
    let printed = fine(&root, &[&many[..], &["--yes"]].concat());
    assert_eq!(printed, "job.again-3.again-1\n");
    root.completed("job.again-3.again-1");
    let told = fails(&root, &["retry", "--again", "bad"]);
    assert!(told.contains("handoffd retry bad"), "{told}");
}

#[test]
fn many_are_cancelled_after_a_look_at_them() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let never = json!({ "not_before": "2999-01-01T00:00:00Z" });
    for id in ["a", "b"] {
        root.drop_request(id, &with(orders("exit 0"), never.clone()));
        root.record("waiting", id);
    }
    root.drop_request("c", &orders("exit 0"));
    root.completed("c");
    let shown = root.cli(&["cancel", "--agent", "fake"]);
    let told = said(&shown);
    assert_eq!(shown.status.code(), Some(0), "{told}");
    assert!(
        told.contains("would cancel 2; to do it, add --yes"),
        "{told}"
    );
    assert_eq!(root.states_of("a"), ["waiting"]);
    fine(&root, &["cancel", "--agent", "fake", "--yes"]);
    for id in ["a", "b"] {
        assert_eq!(root.failed(id).1, "CANCELLED");
    }
    assert_eq!(root.states_of("c"), ["completed"]);
    let told = said(&root.cli(&["cancel", "--state", "completed", "--yes"]));
    assert!(told.contains("left out: 1 that ended already"), "{told}");
    let both = root.cli(&["cancel", "a", "--agent", "fake"]);
    assert_eq!(both.status.code(), Some(2), "{}", said(&both));
}

#[test]
fn many_questions_are_answered_after_a_look_at_them() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    for id in ["a", "b"] {
        let request = json!({"target": {"agent_id": "human"}, "input": {"data": "?"}});
        root.drop_request(id, &request);
        root.record("waiting", id);
    }
    for filter in [
        ["--state", "failed"],
        ["--waiting", "time"],
        ["--code", "TIMEOUT"],
    ] {
        let told = fine(&root, &["approve", filter[0], filter[1], "--yes"]);
        assert_eq!(told, "", "{filter:?}");
        assert_eq!(root.states_of("a"), ["waiting"], "{filter:?}");
    }
    let told = said(&root.cli(&["approve", "--agent", "human"]));
    assert!(told.contains("would approve 2"), "{told}");
    fine(&root, &["approve", "--agent", "human", "--yes"]);
    root.completed("a");
    root.completed("b");
}

#[test]
fn an_id_may_be_cut_where_only_one_begins_like_it() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let never = json!({ "not_before": "2999-01-01T00:00:00Z" });
    for id in ["build-one", "build-two", "exact", "exact-more"] {
        root.drop_request(id, &with(orders("exit 0"), never.clone()));
        root.record("waiting", id);
    }
    let told = fails(&root, &["cancel", "build"]);
    assert!(told.contains("build-one, build-two"), "{told}");
    let told = fine(&root, &["explain", "build-o", "--json"]);
    assert!(told.contains("build-one"), "{told}");
    // A whole id is meant as it is.
    fine(&root, &["cancel", "exact", "build-o"]);
    assert_eq!(root.failed("exact").1, "CANCELLED");
    assert_eq!(root.failed("build-one").1, "CANCELLED");
    assert_eq!(root.states_of("exact-more"), ["waiting"]);
    let waited = root.cli(&["wait", "build-o"]);
    assert_eq!(waited.status.code(), Some(1), "{}", said(&waited));
    assert!(said(&waited).contains("build-one"));
}

#[test]
fn a_request_that_can_not_be_written_whole_leaves_nothing_behind() {
    let root = Root::new();
    fs::write(
        root.path("large.txt"),
        format!("\"{}\"", "x".repeat(64 * 1024)),
    )
    .unwrap();
    let program = env!("CARGO_BIN_EXE_handoffd");
    let input = format!("@{}", root.path("large.txt").display());
    // A limit in place of a full disk: files may have 1024 bytes at most.
    let output = Command::new("sh")
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 2; exec \"$@\"",
            "sh",
            program,
        ])
        .args(["submit", "--to", "fake", "--input", &input, "--root"])
        .arg(root.dir())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert_eq!(root.names("handoffs/pending"), Vec::<String>::new());
}

#[test]
fn a_running_daemon_takes_requests_while_the_configuration_is_broken() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    fs::write(root.path("handoffd.toml"), "[daemon]\nsettel = '1s'\n").unwrap();
    let input = json!({ "sh": "exit 0" }).to_string();
    let args = [
        "submit", "--to", "fake", "--input", &input, "--id", "x", "--wait",
    ];
    let output = root.cli(&args);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("did you mean `settle`?"));
    assert_eq!(text(&root.completed("x")["status"]), "completed");
    daemon.terminate();
    let output = root.cli(&["submit", "--to", "fake", "--id", "y"]);
    assert_eq!(output.status.code(), Some(2), "nobody could judge it");
    assert_eq!(root.names("handoffs/pending"), Vec::<String>::new());
}

#[test]
fn what_the_daemon_writes_into_this_repository_is_ignored_by_git() {
    let repository = env!("CARGO_MANIFEST_DIR");
    let ignored = fs::read_to_string(format!("{repository}/.gitignore")).unwrap();
    for folder in ["/.handoffd/", "/archive/", "/audit/"] {
        assert!(ignored.lines().any(|line| line == folder), "{folder}");
    }
}
