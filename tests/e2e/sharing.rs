//! Artifacts between handoffs: whose a file is, who waits for it, and who is told that it
//! changed.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::artifacts::{lines_of, wants};
use crate::common::{Daemon, Root, keepers, kill, orders, outcomes, text, wait_until, with};

const ONCE: &str = "defaults.retry.max_retries = 0";

fn needs(required: &[&str]) -> Value {
    with(
        orders("mark ran"),
        json!({ "requires_artifacts": required }),
    )
}

/// Makes an artifact with this content, the plain way.
fn make(root: &Root, id: &str, content: &str, destination: &str) {
    let sh = format!("printf '{content}' >$HANDOFF_ARTIFACT");
    root.drop_request(id, &wants(&sh, destination));
    root.completed(id);
}

fn read(root: &Root, path: &str) -> String {
    fs::read_to_string(root.path(path)).unwrap()
}

fn resubmit(root: &Root, from: &str, id: &str) {
    fs::rename(root.state(from, id), root.pending(&format!("{id}.json"))).unwrap();
}

#[test]
fn what_an_earlier_attempt_left_may_be_written_over() {
    let root = Root::with("defaults.retry.max_retries = 1");
    let daemon = Daemon::start(&root);
    // By an automatic retry, written by the specialist and given in the result.
    let own = "echo $HANDOFF_ATTEMPT >$HANDOFF_ARTIFACT; [ $HANDOFF_ATTEMPT = 2 ]";
    root.drop_request("own", &wants(own, "artifacts/own"));
    let given = "[ $HANDOFF_ATTEMPT = 2 ] && echo '{\"artifact\": \"2\\\\n\"}' && exit; \
                 echo 1 >$HANDOFF_ARTIFACT; exit 1";
    root.drop_request("given", &wants(given, "artifacts/given"));
    for id in ["own", "given"] {
        root.completed(id);
        assert_eq!(read(&root, &format!("artifacts/{id}")), "2\n");
        assert_eq!(lines_of(&root, id).len(), 1);
    }
    // After it was given up, also by another daemon, and after a command.
    let late = "echo $HANDOFF_ATTEMPT >$HANDOFF_ARTIFACT; [ $HANDOFF_ATTEMPT -gt 2 ]";
    for id in ["moved", "told"] {
        root.drop_request(id, &wants(late, "artifacts/{handoff_id}"));
        root.failed(id);
        assert_eq!(lines_of(&root, id).len(), 0);
    }
    daemon.kill();
    let _daemon = Daemon::start(&root);
    resubmit(&root, "failed", "moved");
    root.command(
        "c.json",
        &json!({ "action": "retry", "handoff_id": "told" }),
    );
    for id in ["moved", "told"] {
        let ended = |record: &Value| record["status"] == "completed";
        root.record_that("completed", id, ended);
        assert_eq!(read(&root, &format!("artifacts/{id}")), "3\n");
        assert_eq!(lines_of(&root, id).len(), 1);
    }
}

#[test]
fn what_somebody_else_put_there_meanwhile_is_not_written_over() {
    let root = Root::with(ONCE);
    let _daemon = Daemon::start(&root);
    let sh = "echo $HANDOFF_ATTEMPT >$HANDOFF_ARTIFACT; exit 1";
    for id in ["moved", "told"] {
        root.drop_request(id, &wants(sh, "artifacts/{handoff_id}"));
        root.failed(id);
        // Another file under the same name.
        fs::write(root.path("mine"), "mine").unwrap();
        fs::rename(root.path("mine"), root.path(&format!("artifacts/{id}"))).unwrap();
    }
    resubmit(&root, "failed", "moved");
    root.command(
        "c.json",
        &json!({ "action": "retry", "handoff_id": "told" }),
    );
    for id in ["moved", "told"] {
        let record = root.record_that("failed", id, |record| {
            // On its way out it stands there without an error for a moment.
            record["handoffd"]["previous"].is_array() && record["error"].is_object()
        });
        assert_eq!(record["error"]["code"], "SCHEMA_VALIDATION_FAILED", "{id}");
        assert!(text(&record["error"]["message"]).contains("exists"), "{id}");
        assert_eq!(outcomes(&record).len(), 1, "{id}");
        assert_eq!(read(&root, &format!("artifacts/{id}")), "mine");
    }
}

#[test]
fn a_file_that_appears_while_a_retry_waits_is_not_written_over() {
    let root = Root::with("defaults.retry.delay = '2s'");
    let _daemon = Daemon::start(&root);
    let sh = "mark ran; [ $HANDOFF_ATTEMPT = 2 ] && echo '{\"artifact\": 1}'";
    root.drop_request("x", &wants(sh, "artifacts/x"));
    root.record("waiting", "x");
    fs::write(root.path("artifacts/x"), "mine").unwrap();
    let (record, code) = root.failed("x");
    assert_eq!(code, "SCHEMA_VALIDATION_FAILED", "{record:#}");
    assert_eq!(read(&root, "artifacts/x"), "mine");
}

#[test]
fn what_a_lost_attempt_left_is_its_own() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    let sh =
        "echo $HANDOFF_ATTEMPT >$HANDOFF_ARTIFACT; mark up; [ $HANDOFF_ATTEMPT = 2 ] || forever";
    root.drop_request("x", &wants(sh, "artifacts/x"));
    let mark = root.mark("x.up");
    let pid = mark.split_whitespace().nth(1).unwrap().parse().unwrap();
    daemon.kill();
    for keeper in keepers(root.dir()) {
        kill(keeper, Signal::KILL);
    }
    kill(pid, Signal::KILL);
    wait_until("the keeper is gone", || {
        keepers(root.dir()).is_empty().then_some(())
    });
    let _daemon = Daemon::start(&root);
    assert_eq!(outcomes(&root.completed("x")), ["interrupted", "completed"]);
    assert_eq!(read(&root, "artifacts/x"), "2\n");
}

#[test]
fn of_two_with_one_destination_only_the_first_gets_it() {
    let root = Root::with(ONCE);
    let daemon = Daemon::start(&root);
    let sh = "mark up; await go; echo first >$HANDOFF_ARTIFACT";
    root.drop_request("first", &wants(sh, "artifacts/one"));
    root.mark("first.up");
    for (id, word) in [("second", "first"), ("third", "first")] {
        if id == "third" {
            root.mark("first.up");
        }
        root.drop_request(
            id,
            &wants("mark up; echo no >$HANDOFF_ARTIFACT", "artifacts/one"),
        );
        let (record, code) = root.failed(id);
        assert_eq!(code, "SCHEMA_VALIDATION_FAILED");
        assert!(
            text(&record["error"]["message"]).contains(word),
            "{record:#}"
        );
    }
    // Also when it was adopted.
    daemon.kill();
    let _daemon = Daemon::start(&root);
    root.drop_request("fourth", &wants("mark up", "artifacts/one"));
    assert_eq!(root.failed("fourth").1, "SCHEMA_VALIDATION_FAILED");
    root.allow("go");
    root.completed("first");
    root.drop_request("fifth", &wants("mark up", "artifacts/one"));
    let (record, _) = root.failed("fifth");
    assert!(text(&record["error"]["message"]).contains("exists"));
    assert_eq!(read(&root, "artifacts/one"), "first\n");
    assert_eq!(root.names("marks"), ["first.up", "go"]);
}

#[test]
fn a_handoff_waits_for_the_artifacts_that_it_requires() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    root.drop_request("by-path", &needs(&["artifacts/one.json"]));
    root.drop_request("by-id", &needs(&["two"]));
    root.drop_request("both", &needs(&["artifacts/one.json", "two"]));
    root.drop_request("by-hand", &needs(&["docs/notes.md"]));
    root.drop_request("folder", &needs(&["docs/"]));
    for id in ["by-path", "by-id", "both", "by-hand", "folder"] {
        let record = root.record("waiting", id);
        assert_eq!(record["waiting"]["on"], "dependency");
        assert!(
            text(&record["waiting"]["reason"]).contains("artifact"),
            "{record:#}"
        );
    }
    make(&root, "one", "1", "artifacts/one.json");
    root.completed("by-path");
    assert_eq!(root.states_of("both"), ["waiting"]);
    daemon.kill();
    let _daemon = Daemon::start(&root);
    make(&root, "two", "2", "artifacts/deep/two.json");
    for id in ["by-id", "both"] {
        root.completed(id);
    }
    fs::create_dir(root.path("docs")).unwrap();
    root.completed("folder");
    fs::write(root.path("docs/notes.md"), "n").unwrap();
    root.completed("by-hand");
    for id in ["by-path", "by-id", "both", "by-hand", "folder"] {
        assert_eq!(root.mark(&format!("{id}.ran")).lines().count(), 1);
    }
    // What is there already is not waited for.
    root.drop_request("late", &needs(&["two", "artifacts/one.json"]));
    root.completed("late");
}

#[test]
fn an_artifact_that_never_comes_is_a_dependency_missing() {
    let root = Root::with("defaults.dependency_wait = '300ms'");
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &needs(&["never", "artifacts/nor-this.json"]));
    let (record, code) = root.failed("x");
    assert_eq!(code, "DEPENDENCY_MISSING");
    let message = text(&record["error"]["message"]);
    assert!(
        message.contains("never") && message.contains("nor-this"),
        "{message}"
    );
    assert_eq!(outcomes(&record).len(), 0);
    // What can't be a path at all is not waited for.
    for (n, path) in ["../x", "/etc/passwd", "a/../../b"].into_iter().enumerate() {
        root.drop_request(&format!("bad{n}"), &needs(&["artifacts", path]));
        let (record, code) = root.failed(&format!("bad{n}"));
        assert_eq!(code, "SCHEMA_VALIDATION_FAILED");
        let field = &record["validation"]["errors"][0]["field"];
        assert_eq!(field, "requires_artifacts[1]");
    }
    assert!(root.names("marks").is_empty());
}

#[test]
fn whoever_depends_on_an_artifact_is_told_that_it_changed() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    make(&root, "maker", "one", "artifacts/a.json");
    let package = |path: &str| {
        json!({ "handoff": { "from": { "agent": "a" }, "to": { "agent": "fake" }, "context": {
            "summary": "Three tables and an index", "artifacts": [{ "path": path }],
        } } })
    };
    root.drop_request("same", &needs(&["a"]));
    root.drop_request("same-too", &package("artifacts/a.json"));
    for id in ["same", "same-too"] {
        let record = root.completed(id);
        assert_eq!(record["acknowledgment"]["warnings"], Value::Null, "{id}");
    }
    fs::write(root.path("artifacts/a.json"), "two").unwrap();
    root.drop_request("id", &needs(&["a"]));
    root.drop_request("path", &needs(&["artifacts/a.json"]));
    root.drop_request("package", &package("artifacts/a.json"));
    for id in ["id", "path", "package"] {
        let record = root.completed(id);
        let warnings = record["acknowledgment"]["warnings"].as_array().unwrap();
        assert_eq!(warnings.len(), 1, "{id}");
        assert!(text(&warnings[0]).contains("changed"), "{id}");
        assert_eq!(record["warnings"], json!(warnings), "{id}");
    }
    // Its own maker may change it, and then that is what is registered.
    let request = wants("printf three >$HANDOFF_ARTIFACT", "artifacts/a.json");
    let mut again = root.completed("maker");
    again["input"] = request["input"].clone();
    fs::remove_file(root.state("completed", "maker")).unwrap();
    root.drop_request("maker", &again);
    root.completed("maker");
    assert_eq!(read(&root, "artifacts/a.json"), "three");
    root.drop_request("after", &needs(&["a"]));
    let record = root.completed("after");
    assert_eq!(record["acknowledgment"]["warnings"], Value::Null);
}

#[test]
fn a_registry_that_can_t_be_written_is_waited_for() {
    let root = Root::new();
    fs::create_dir_all(root.path("artifacts/registry.jsonl")).unwrap();
    let _daemon = Daemon::start(&root);
    let sh = "mark ran; echo 1 >$HANDOFF_ARTIFACT";
    root.drop_request("x", &wants(sh, "artifacts/x"));
    wait_until("it is said", || {
        root.problems().contains("registry").then_some(())
    });
    assert_eq!(root.states_of("x"), ["in-progress"]);
    root.assert_works("good");
    fs::remove_dir(root.path("artifacts/registry.jsonl")).unwrap();
    root.completed("x");
    assert_eq!(root.mark("x.ran").lines().count(), 1);
    assert_eq!(lines_of(&root, "x").len(), 1);
    wait_until("it is forgotten", || {
        (root.problems() == "[]").then_some(())
    });
}

#[test]
fn handoffs_of_one_moment_do_not_get_in_each_other_s_way() {
    let root = Root::with("daemon.max_concurrent = 40");
    let ids: Vec<String> = (0..120).map(|n| format!("x{n}")).collect();
    for id in &ids {
        let sh = "echo '{\"artifact\": \"'$HANDOFF_ID'\"}'";
        root.drop_request(id, &wants(sh, "artifacts/all/part-{timestamp}.txt"));
    }
    let _daemon = Daemon::start(&root);
    for id in &ids {
        let record = root.completed(id);
        let path = text(&record["output"]["artifact_path"]);
        assert_eq!(read(&root, &path), *id);
    }
    assert_eq!(root.names("artifacts/all").len(), ids.len());
}
