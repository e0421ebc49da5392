//! The recipes of docs/agents.md for what becomes of a branch, run as they are written there.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::common::{Daemon, Root, ask, child, with};
use crate::queue::{root, shop};
use crate::shop::git;

const DOCS: &str = include_str!("../../docs/agents.md");

/// The block of code with these words in it, for this root.
fn block(root: &Root, words: &str) -> String {
    let found = DOCS
        .split("```")
        .skip(1)
        .step_by(2)
        .find(|block| block.contains(words));
    let (_, text) = found.unwrap().split_once('\n').unwrap();
    text.replace("/srv/src/shop", shop(root).to_str().unwrap())
}

/// A root with a coder, a last step from the documentation, and a workflow of both.
fn with_last_step(name: &str) -> Root {
    let root = root("", &[("coder", "echo more >>README")]);
    let steps = format!(
        "[workflows.w]\nsteps = [{{ phase = \"a\", agent = \"@coder\" }}, {{ phase = \"b\", agent = \"@{name}\" }}]\n"
    );
    let config = fs::read_to_string(root.path("handoffd.toml")).unwrap();
    let recipe = block(&root, &format!("[specialists.\"@{name}\"]"));
    fs::write(root.path("handoffd.toml"), config + &recipe + &steps).unwrap();
    let origin = root.path("origin");
    git(
        &shop(&root),
        &["clone", "-q", "--bare", ".", origin.to_str().unwrap()],
    );
    git(
        &shop(&root),
        &["remote", "add", "origin", origin.to_str().unwrap()],
    );
    root
}

/// Sends a task through the workflow; the id of its last step.
fn run(root: &Root, id: &str) -> String {
    let workflow = json!({"workflow_state": {"name": "w", "current_step": 1}});
    root.drop_request(id, &with(ask("@coder"), workflow));
    child(&root.completed(id))
}

#[test]
fn a_last_step_pushes_the_branch() {
    let root = with_last_step("push");
    let _daemon = Daemon::start(&root);
    root.completed(&run(&root, "x"));
    let pushed = git(&root.path("origin"), &["show", "handoffd/x:README"]);
    assert_eq!(pushed, "a shop\nmore");
}

#[test]
fn a_last_step_opens_a_pull_request() {
    let root = with_last_step("pull-request");
    let tools = root.path("tools");
    fs::create_dir(&tools).unwrap();
    let gh = "#!/bin/sh\necho \"$@\" >\"$HANDOFF_ROOT/marks/gh\"\n";
    fs::write(tools.join("gh"), gh).unwrap();
    fs::set_permissions(tools.join("gh"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", tools.display());
    let _daemon = Daemon::start_with(&root, |command| {
        command.env("PATH", path);
    });
    root.completed(&run(&root, "x"));
    assert_eq!(root.mark("gh").trim(), "pr create --fill --head handoffd/x");
}

#[test]
fn a_last_step_merges_and_asks_a_person_about_conflicts() {
    let root = with_last_step("merge");
    fs::create_dir(root.path("specialists")).unwrap();
    let script = block(&root, "# specialists/merge.sh");
    fs::write(root.path("specialists/merge.sh"), script).unwrap();
    for (key, value) in [("user.name", "Ann"), ("user.email", "ann@example.org")] {
        git(&shop(&root), &["config", key, value]);
    }
    let _daemon = Daemon::start(&root);
    root.completed(&run(&root, "x"));
    assert_eq!(git(&shop(&root), &["show", "main:README"]), "a shop\nmore");
    // A branch from the start that changes the same line.
    git(&shop(&root), &["branch", "handoffd/y", "main~1"]);
    let script = root.path("coder.sh");
    fs::write(&script, "echo other >>README\n").unwrap();
    let last = run(&root, "y");
    let waiting = root.waiting(&last);
    assert_eq!(
        waiting["result"]["question"]["text"], "Merge by hand, then approve?",
        "{waiting}"
    );
    assert_eq!(
        git(&shop(&root), &["status", "--porcelain"]),
        "",
        "the merge was given up"
    );
}
