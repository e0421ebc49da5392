//! Worktrees in a queue that runs: helpers beside their parent, `verify`, kills, bad repositories, retention.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{
    Daemon, Root, ask, attempts, children, kill, kill_all, outcomes, wait_until, with,
};
use crate::shop::git;

/// A root with the repository `shop` in it, and specialists that work in its worktrees.
pub fn root(config: &str, specialists: &[(&str, &str)]) -> Root {
    let mut lines = format!("{config}\n");
    for (name, _) in specialists {
        let key = format!("specialists.'@{name}'");
        writeln!(
            lines,
            "{key}.workspace = 'worktree'\n{key}.repository = 'shop'"
        )
        .unwrap();
    }
    // The working folder is the worktree, so the script is named from the root.
    let scripts: Vec<(&str, &str)> = specialists.to_vec();
    let root = Root::team(&lines, &scripts);
    let text = fs::read_to_string(root.path("handoffd.toml")).unwrap();
    let text = scripts.iter().fold(text, |text, (name, _)| {
        let script = root.path(&format!("{name}.sh"));
        text.replace(&format!("'{name}.sh'"), &format!("'{}'", script.display()))
    });
    fs::write(root.path("handoffd.toml"), text).unwrap();
    let shop = root.path("shop");
    fs::create_dir(&shop).unwrap();
    git(&shop, &["init", "-q", "-b", "main"]);
    fs::write(shop.join("README"), "a shop\n").unwrap();
    git(&shop, &["add", "."]);
    git(&shop, &["commit", "-q", "-m", "first"]);
    root
}

pub fn shop(root: &Root) -> PathBuf {
    root.path("shop")
}

fn show(root: &Root, what: &str) -> String {
    git(&shop(root), &["show", what])
}

const PARENT: &str = r#"if [ $HANDOFF_ATTEMPT = 1 ]; then echo plan >plan
echo '{"status": "delegate", "handoff": {"children": [
{"agent": "back", "input": {"n": 1}}, {"agent": "front", "input": {"n": 2}}]}}'
else ls | tr '\n' ' '; fi"#;

#[test]
fn delegated_children_work_on_branches_of_their_own_and_what_follows_them_goes_on_there() {
    let child = "mark began; test -e plan; echo $HANDOFF_ID >who; sleep 0.1; cat who";
    let front = "echo front >who; echo '{\"status\": \"complete\", \"summary\": \"s\", \"handoff\": \
                 {\"next_agent\": \"polish\", \"context\": \"c\"}}'";
    let root = root(
        "",
        &[
            ("lead", PARENT),
            ("back", child),
            ("front", front),
            ("polish", "cat who; echo p >>who"),
        ],
    );
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &ask("@lead"));
    let record = root.completed("x");
    assert_eq!(record["output"]["branch"], "handoffd/x");
    // Their work is not in the parent's tree: merging is the next step's.
    assert_eq!(record["output"]["text"], "README plan ");
    let kids = children(&record);
    for kid in &kids {
        let child = root.completed(kid);
        assert_eq!(
            child["output"]["branch"],
            format!("handoffd/{kid}"),
            "{child}"
        );
        assert_eq!(
            child["handoffd"]["worktree"],
            json!({"line": kid, "from": "x"})
        );
        assert_eq!(show(&root, &format!("handoffd/{kid}:plan")), "plan");
    }
    assert_eq!(show(&root, &format!("handoffd/{}:who", kids[0])), kids[0]);
    let polish = children(&root.completed(&kids[1]));
    let polish = root.completed(&polish[0]);
    assert_eq!(polish["output"]["branch"], format!("handoffd/{}", kids[1]));
    assert_eq!(polish["output"]["text"], "front\n");
    assert_eq!(
        show(&root, &format!("handoffd/{}:who", kids[1])),
        "front\np"
    );
    root.assert_audit_is_sound();
}

#[test]
fn two_chains_and_verify_each_see_their_own_tree() {
    let root = root(
        "specialists.'@coder'.verify = ['sh', '-c', 'test \"$(cat who)\" = \"$HANDOFF_ID\" && echo seen >>seen']",
        &[("coder", "echo $HANDOFF_ID >who")],
    );
    let _daemon = Daemon::start(&root);
    for id in ["a", "b"] {
        root.drop_request(id, &ask("@coder"));
    }
    for id in ["a", "b"] {
        let record = root.completed(id);
        assert_eq!(record["validation"]["status"], "passed", "{record}");
        assert_eq!(show(&root, &format!("handoffd/{id}:who")), id);
        assert_eq!(show(&root, &format!("handoffd/{id}:seen")), "seen");
    }
    assert_eq!(git(&shop(&root), &["status", "--porcelain"]), "");
}

#[test]
fn work_of_an_attempt_that_was_killed_with_everything_is_on_the_branch() {
    let root = root(
        "",
        &[(
            "coder",
            "echo $HANDOFF_ATTEMPT >>work; mark wrote; \
                     [ $HANDOFF_ATTEMPT = 1 ] && await never; cat work",
        )],
    );
    let daemon = Daemon::start(&root);
    root.drop_request("x", &ask("@coder"));
    root.mark("x.wrote");
    let running = attempts(root.dir());
    kill_all(&root, daemon);
    for pid in running {
        kill(pid, Signal::KILL);
    }
    let _daemon = Daemon::start(&root);
    let record = root.completed("x");
    assert_eq!(outcomes(&record), ["interrupted", "completed"]);
    assert_eq!(record["output"]["text"], "1\n2\n");
    assert_eq!(
        record["output"]["diffstat"],
        "1 file changed, 2 insertions(+)"
    );
    let log = git(&shop(&root), &["log", "--format=%s", "main..handoffd/x"]);
    assert_eq!(log, "x: attempt 2\nx: interrupted work");
}

#[test]
fn a_repository_that_cannot_be_used_costs_no_retry() {
    let root = root("", &[("coder", "mark ran")]);
    let merge = shop(&root).join(".git/MERGE_HEAD");
    fs::write(&merge, git(&shop(&root), &["rev-parse", "HEAD"])).unwrap();
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &ask("@coder"));
    let (record, code) = root.failed("x");
    assert_eq!(code, "PROCESSING_ERROR");
    let message = record["error"]["message"].as_str().unwrap();
    assert!(message.contains("in the middle of a merge"), "{message}");
    assert!(record["handoffd"]["retries"].is_null(), "{record}");
    assert!(!root.path("marks/x.ran").exists());
    fs::remove_file(&merge).unwrap();
    let retried = root.cli(&["retry", "x"]);
    assert!(retried.status.success());
    root.completed("x");
}

#[test]
fn the_diff_is_shown_while_it_runs_while_a_person_looks_and_after_the_tree_is_gone() {
    let asks = "echo more >>README; mark wrote; await go; \
                echo '{\"status\": \"needs_review\", \"summary\": \"s\"}'";
    let root = root("", &[("coder", asks)]);
    let _daemon = Daemon::start(&root);
    let diff = || {
        let output = root.cli(&["diff", "x"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{error}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("\n+more\n"), "{text}");
    };
    root.drop_request("x", &ask("@coder"));
    root.mark("x.wrote");
    diff();
    root.allow("go");
    root.waiting("x");
    diff();
    root.answer("approve", "x", json!({}));
    root.completed("x");
    let pruned = root.cli(&["worktrees", "prune"]);
    assert!(pruned.status.success());
    assert!(!root.path("worktrees/x").exists());
    diff();
}

/// Sets the times of a tree and of a session's file back.
fn make_old(paths: &[&Path]) {
    for path in paths {
        let touched = Command::new("touch")
            .args(["-d", "2 days ago"])
            .arg(path)
            .status();
        assert!(touched.unwrap().success());
    }
}

#[test]
fn retention_removes_old_trees_and_sessions_and_keeps_branches_with_work() {
    let root = root("", &[("coder", "echo $HANDOFF_ID >who"), ("idle", "true")]);
    let daemon = Daemon::start(&root);
    let waits = with(ask("@coder"), json!({"gate": {"name": "g"}}));
    root.drop_request("waits", &waits);
    for (id, agent) in [("old", "@coder"), ("none", "@idle"), ("young", "@coder")] {
        root.drop_request(id, &ask(agent));
        root.completed(id);
    }
    root.waiting("waits");
    assert_eq!(daemon.terminate(), Some(0));
    let sessions = root.path("context/sessions");
    fs::create_dir_all(&sessions).unwrap();
    for id in ["old", "young", "waits"] {
        fs::write(sessions.join(format!("{id}.json")), "{}").unwrap();
    }
    for id in ["old", "none"] {
        let entry = shop(&root).join(".git/worktrees").join(id);
        let names = ["index", "HEAD", "logs/HEAD", "handoffd-begun"];
        let paths = names.map(|name| entry.join(name));
        make_old(&paths.each_ref().map(PathBuf::as_path));
    }
    make_old(&[&sessions.join("old.json"), &sessions.join("waits.json")]);
    let text = fs::read_to_string(root.path("handoffd.toml")).unwrap();
    // The short age brings the first pass forward.
    let ages = "retention.worktrees = '1d'\nretention.sessions = '1d'\nretention.logs = '1s'\n";
    fs::write(root.path("handoffd.toml"), format!("{text}\n{ages}")).unwrap();
    let _daemon = Daemon::start(&root);
    wait_until("the end of the old ones", || {
        let gone = [
            "worktrees/old",
            "worktrees/none",
            "context/sessions/old.json",
        ];
        gone.iter()
            .all(|path| !root.path(path).exists())
            .then_some(())
    });
    for kept in [
        "worktrees/young",
        "context/sessions/young.json",
        "context/sessions/waits.json",
    ] {
        assert!(root.path(kept).exists(), "{kept}");
    }
    let branches = git(&shop(&root), &["branch", "--format=%(refname:short)"]);
    assert_eq!(branches, "handoffd/old\nhandoffd/young\nmain");
    let logs = root
        .names("audit")
        .into_iter()
        .map(|name| fs::read_to_string(root.path("audit").join(name)).unwrap());
    let logs: String = logs.collect();
    let pruned: Vec<Value> = logs
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|line: &Value| line["event"] == "pruned")
        .collect();
    assert!(
        pruned
            .iter()
            .any(|line| line["kind"] == "worktrees" && line["line"] == "old")
    );
    assert!(pruned.iter().any(|line| line["kind"] == "sessions"));
}
