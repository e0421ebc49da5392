//! `report`: agents whose output file ends in the block that reports.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, outcomes, text, with};

const FAKE: &str = "defaults.retry.max_retries = 0\n\
                    specialists.'@fake'.report = 'out/{task_id}/*.md'";

/// A file that ends in a report, written by a line of sh.
fn writes(path: &str, report: &Value) -> String {
    format!(
        "mkdir -p \"$(dirname {path})\"; printf '# Tiles\\n\\nThree.\\n\\n```json\\n%s\\n```\\n' \
         '{report}' >{path}"
    )
}

fn done(summary: &str) -> Value {
    json!({ "status": "complete", "summary": summary, "phase": "p" })
}

fn for_task(sh: &str) -> Value {
    with(orders(sh), json!({ "context": { "task_id": "T-1" } }))
}

fn completed(root: &Root, id: &str, sh: &str) -> Value {
    root.drop_request(id, &for_task(sh));
    root.completed(id)
}

#[test]
fn the_block_at_the_end_of_a_report_file_is_the_result() {
    let root = Root::with(FAKE);
    let _daemon = Daemon::start(&root);
    let record = completed(&root, "x", &writes("out/T-1/x.md", &done("three tiles")));
    assert_eq!(record["result"], done("three tiles"));
    let path = text(&record["output"]["artifact_path"]);
    let kept = fs::read_to_string(root.path(&path)).unwrap();
    assert!(kept.starts_with("# Tiles\n\nThree."), "{kept}");
    // What an agent says beside it is not the result.
    let blocked = json!({ "status": "blocked", "blocked_reason": "unknown", "attempted": ["a"],
                          "phase": "p", "summary": "s", "handoff": { "blockers": ["b"] } });
    let sh = format!("{}; echo All done.", writes("out/T-1/y.md", &blocked));
    root.drop_request("y", &for_task(&sh));
    let (record, code) = root.failed("y");
    assert_eq!(code, "BLOCKED");
    assert_eq!(outcomes(&record), ["blocked"]);
    // It counts at any exit code, as on stdout.
    let review = json!({ "status": "needs_review", "phase": "p", "summary": "look" });
    let sh = format!("{}; exit 3", writes("out/T-1/z.md", &review));
    root.drop_request("z", &for_task(&sh));
    let record = root.record("waiting", "z");
    assert_eq!(record["result"]["summary"], "look");
}

#[test]
fn a_result_elsewhere_comes_first() {
    let root = Root::with(FAKE);
    let _daemon = Daemon::start(&root);
    let file = writes("out/T-1/x.md", &done("file"));
    let summary = |id: &str, sh: &str| {
        let record = completed(&root, id, &format!("{file}; {sh}"));
        record["result"]["summary"].clone()
    };
    assert_eq!(summary("a", "result '{\"summary\": \"left\"}'"), "left");
    assert_eq!(summary("b", "echo '{\"summary\": \"printed\"}'"), "printed");
    let block = "printf 'a\\n```json\\n{\"status\": \"ok\", \"summary\": \"block\"}\\n```\\n'";
    assert_eq!(summary("c", block), "block");
    assert_eq!(summary("d", "echo text"), "file");
    root.drop_request(
        "e",
        &for_task(&format!("{file}; printf '{{' >$HANDOFF_RESULT")),
    );
    assert_eq!(
        root.failed("e").1,
        "VALIDATION_FAILED",
        "broken is not absent"
    );
}

#[test]
fn only_a_file_of_this_attempt_inside_the_folder_counts() {
    let root = Root::with(
        "defaults.retry.max_retries = 1\ndefaults.retry.delay = '10ms'\n\
         specialists.'@fake'.report = 'out/{task_id}/*.md'",
    );
    fs::create_dir_all(root.path("out/T-1")).unwrap();
    let old = "# Old\n\n```json\n{\"status\": \"failed\"}\n```\n";
    fs::write(root.path("out/T-1/old.md"), old).unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("x.md"), old).unwrap();
    let _daemon = Daemon::start(&root);
    // Of before the attempt, of the attempt before, links, another name, and no task.
    let early = "[ $HANDOFF_ATTEMPT = 2 ] || { cp out/T-1/old.md out/T-1/first.md; exit 1; }";
    let link = format!("ln -s {}/x.md out/T-1/link.md", outside.path().display());
    let folder = format!("ln -s {} out/T-2", outside.path().display());
    for (id, sh, task, attempts) in [
        ("before", "echo text", "T-1", 1),
        ("early", early, "T-1", 2),
        ("link", &link, "T-1", 1),
        ("folder", &folder, "T-2", 1),
        ("name", "cp out/T-1/old.md out/T-1/new.txt", "T-1", 1),
        ("no-task", "cp out/T-1/old.md out/T-1/new.md", "", 1),
    ] {
        let task = (!task.is_empty()).then(|| json!({ "context": { "task_id": task } }));
        root.drop_request(id, &with(orders(sh), task.unwrap_or(json!({}))));
        let record = root.completed(id);
        assert_eq!(record["result"]["status"], Value::Null, "{id}: {record:#}");
        assert_eq!(outcomes(&record).len(), attempts, "{id}");
    }
}

#[test]
fn of_several_files_the_newest_counts_and_then_the_last_by_name() {
    let root = Root::with("specialists.'@fake'.report = 'out/**/{handoff_id}-[0-9].md'");
    fs::create_dir_all(root.path("real")).unwrap();
    symlink("real", root.path("out")).unwrap();
    let _daemon = Daemon::start(&root);
    let two = |id: &str, dates: &str| {
        let (one, two) = (format!("out/a/{id}-1.md"), format!("out/b/c/{id}-2.md"));
        let both = [writes(&one, &done("one")), writes(&two, &done("two"))].join("; ");
        let odd = writes(&format!("out/{id}-x.md"), &done("odd"));
        completed(&root, id, &format!("{both}; {odd}; {dates}"))["result"]["summary"].clone()
    };
    let date = |name: &str, at: u32| format!("touch -d @{at} {name}");
    let older = date("out/b/c/p-2.md", 1_700_000_000);
    assert_eq!(
        two("p", &older),
        "one",
        "in a folder that a link inside leads to"
    );
    let same = date("out/a/q-1.md out/b/c/q-2.md", 1_700_000_000);
    assert_eq!(two("q", &same), "two");
}

#[test]
fn a_report_file_that_is_no_report_is_text() {
    let root = Root::with(FAKE);
    let _daemon = Daemon::start(&root);
    let file = |text: &str| format!("mkdir -p out/T-1; printf '{text}' >out/T-1/$HANDOFF_ID.md");
    let record = completed(&root, "a", &file("words\\n"));
    assert_eq!(record["output"]["text"], "words\n");
    let record = completed(&root, "b", &format!("{}; echo printed", file("words\\n")));
    assert_eq!(record["output"]["text"], "printed\n");
    for text in ["{\"status\": \"blo", "```json\\n{,}\\n```\\n"] {
        let id = if text.starts_with('{') { "c" } else { "d" };
        let record = completed(&root, id, &format!("{}; echo printed", file(text)));
        assert_eq!(record["output"]["text"], "printed\n");
        let warnings = record["warnings"].to_string();
        assert!(
            warnings.contains(&format!("report file out/T-1/{id}.md")),
            "{warnings}"
        );
    }
}

#[test]
fn the_command_that_verifies_does_not_change_what_was_reported() {
    let root = Root::with(
        "defaults.retry.max_retries = 0\n\
         specialists.'@fake'.report = '*.md'\n\
         specialists.'@fake'.working_dir = 'work'\n\
         specialists.'@fake'.verify = ['sh', '-c', 'cp ../later.md later.md']",
    );
    fs::create_dir_all(root.path("work")).unwrap();
    let later = "```json\n{\"status\": \"failed\", \"summary\": \"of verify\"}\n```\n";
    fs::write(root.path("later.md"), later).unwrap();
    let _daemon = Daemon::start(&root);
    let record = completed(&root, "x", &writes("x.md", &done("reported")));
    assert_eq!(record["result"]["summary"], "reported");
    assert_eq!(record["validation"]["status"], "passed");
    fs::remove_file(root.path("work/later.md")).unwrap();
    let record = completed(&root, "y", "echo text");
    assert_eq!(record["result"]["status"], Value::Null);
    assert_eq!(
        root.names(".handoffd/run")
            .iter()
            .filter(|name| name.ends_with(".report"))
            .count(),
        0
    );
}

#[test]
fn in_a_worktree_the_report_is_of_that_tree_and_keeps_its_branch() {
    let repository = tempfile::tempdir().unwrap();
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(repository.path()).args(args);
        for (name, value) in [("NAME", "Ann"), ("EMAIL", "ann@example.org")] {
            command.env(format!("GIT_AUTHOR_{name}"), value);
            command.env(format!("GIT_COMMITTER_{name}"), value);
        }
        assert!(command.output().unwrap().status.success(), "{args:?}");
    };
    git(&["init", "-q"]);
    git(&["commit", "-q", "--allow-empty", "-m", "first"]);
    let root = Root::with(&format!(
        "specialists.'@fake'.report = 'out/*.md'\nspecialists.'@fake'.workspace = 'worktree'\n\
         specialists.'@fake'.repository = '{}'",
        repository.path().display()
    ));
    let _daemon = Daemon::start(&root);
    for (id, more) in [("x", ""), ("y", "; echo done")] {
        let sh = format!("{}{more}", writes("out/r.md", &done("in the tree")));
        let record = completed(&root, id, &sh);
        assert_eq!(record["result"]["summary"], "in the tree", "{record:#}");
        assert_eq!(record["output"]["branch"], format!("handoffd/{id}"));
    }
    let record = completed(&root, "z", "echo words");
    assert_eq!(record["output"]["text"], "words\n");
    assert_eq!(record["output"]["branch"], "handoffd/z");
}

#[test]
fn a_coding_agent_that_reports_in_a_file_has_reported() {
    let root = Root::with(
        "specialists.coder = { agent = 'generic', args = ['sh', 'coder.sh'], \
         require_report = true, report = 'out/*.md' }",
    );
    let report = writes("out/r.md", &done("in a file"));
    let sh =
        format!("cat >/dev/null; [ -e quiet ] || echo I am done.; [ -e none ] || {{ {report}; }}");
    fs::write(root.path("coder.sh"), sh).unwrap();
    let _daemon = Daemon::start(&root);
    let request = json!({ "target": { "agent_id": "coder" } });
    for (id, mark) in [("x", ""), ("y", "quiet")] {
        if !mark.is_empty() {
            fs::write(root.path(mark), "").unwrap();
        }
        root.drop_request(id, &request);
        let record = root.completed(id);
        assert_eq!(record["result"]["summary"], "in a file");
        assert!(record["metadata"]["usage"].is_object(), "{record:#}");
        assert!(
            !record["warnings"].to_string().contains("no report"),
            "{record:#}"
        );
    }
    fs::remove_file(root.path("quiet")).unwrap();
    fs::write(root.path("none"), "").unwrap();
    root.drop_request("z", &request);
    let record = root.record("waiting", "z");
    assert!(
        record["warnings"].to_string().contains("no report"),
        "{record:#}"
    );
}
