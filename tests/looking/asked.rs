//! What is asked for is what is meant: ids, filters and limits are taken at their word.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use super::{Root, completed, failed};

#[test]
fn a_path_is_no_id_whatever_it_leads_to() {
    let root = Root::new();
    root.put("failed", "broken-build", 5, &failed());
    let mut duplicate = failed();
    duplicate["handoff_id"] = "x~2".into();
    root.put("failed", "x~2", 6, &duplicate);
    fs::write(root.path("evil.json"), failed().to_string()).unwrap();
    for id in ["../failed/broken-build", "../../evil", "./broken-build"] {
        for command in [
            &["show"][..],
            &["explain"],
            &["chain"],
            &["export"],
            &["logs"],
            &["wait"],
            &["cancel"],
            &["retry"],
            &["approve"],
            &["reject"],
            &["ask", "--comment", "why?"],
        ] {
            let told = root.see(&[command, &[id]].concat());
            assert!(
                told.contains("no handoff has the id"),
                "{command:?}: {told}"
            );
            assert!(told.ends_with("exit 1\n"), "{command:?}: {told}");
        }
    }
    let commands = fs::read_dir(root.path("handoffs/control")).unwrap();
    assert_eq!(commands.count(), 0);
    let made = root.see(&["explain", "x~2"]);
    assert!(made.starts_with("x~2 failed with"), "{made}");
}

#[test]
fn filters_narrow_each_other() {
    let root = Root::new();
    root.put("failed", "broken-build", 5, &failed());
    root.put("completed", "done", 3, &completed());
    let code = ["--code", "PROCESSING_ERROR"];
    for (args, found) in [
        (&["list", "--state", "completed"][..], "done"),
        (&["list", "--state", "failed"], "broken-build"),
        (&["list"], "broken-build"),
        (&["list", "--state", "failed,completed"], "broken-build"),
    ] {
        let narrow = root.see(&[args, &code].concat());
        let matches = found == "broken-build";
        assert_eq!(
            narrow.contains("broken-build"),
            matches,
            "{args:?}: {narrow}"
        );
        assert!(!narrow.contains("done"), "{args:?}: {narrow}");
        assert!(root.see(args).contains(found));
    }
    let told = root.see(&["list", "--state", "failed", "--waiting", "human"]);
    assert!(told.starts_with("no handoff matches"), "{told}");
    let bulk = ["retry", "--state", "completed", "--yes"];
    let told = root.see(&[&bulk[..], &code].concat());
    assert!(told.contains("nothing to retry"), "{told}");
    let commands = fs::read_dir(root.path("handoffs/control")).unwrap();
    assert_eq!(commands.count(), 0);
}

#[test]
fn a_limit_that_never_comes_is_none() {
    let root = Root::new();
    root.put("completed", "done", 3, &completed());
    let ages = "18446744073709551615s";
    let told = root.see(&["wait", "done", "--timeout", ages]);
    assert!(told.ends_with("exit 0\n"), "{told}");
    assert!(!told.contains("waiting"), "it has ended: {told}");
    for args in [
        &["list", "--since", ages][..],
        &["prune", "--completed", ages],
        &["archive", "--older-than", ages],
    ] {
        let told = root.see(args);
        assert!(told.ends_with("exit 0\n"), "{args:?}: {told}");
    }
    let told = root.see(&["list", "--page", "0"]);
    assert!(told.contains("the first page is 1"), "{told}");
    assert!(told.ends_with("exit 2\n"), "{told}");
}

#[test]
fn what_is_packed_is_said_to_be_and_has_the_attempts_that_it_had() {
    let root = Root::new();
    root.put("failed", "broken-build", 5, &failed());
    fs::write(root.path(".handoffd/logs/broken-build.2.log"), "w\0rds").unwrap();
    let mut told = Vec::new();
    for packed in [false, true] {
        if packed {
            root.run(&["archive"]);
        }
        let explained = root.see(&["explain", "broken-build"]);
        assert_eq!(
            explained.contains("It is in the archive."),
            packed,
            "{explained}"
        );
        let back = explained.contains("handoffd archive --restore broken-build");
        assert_eq!(back, packed, "{explained}");
        let attempts = ["0", "1", "2", "9"];
        told.push(attempts.map(|n| root.see(&["logs", "broken-build", "--attempt", n])));
    }
    assert_eq!(told[0], told[1]);
    let [none, silent, last, beyond] = &told[1];
    for told in [none, beyond] {
        assert!(told.contains("has no attempt"), "{told}");
        assert!(told.ends_with("exit 1\n"), "{told}");
    }
    assert!(silent.contains("wrote nothing"), "{silent}");
    assert!(last.starts_with("stderr | w\0rds"), "{last}");
}

#[test]
fn commands_to_copy_are_words_to_a_shell() {
    let root = Root::new();
    let told = root.see(&["init", root.path("my dir").to_str().unwrap()]);
    let dir = "'ROOT/my dir";
    for line in [
        format!("  handoffd run --root {dir}' &\n"),
        format!("  cp {dir}/examples/hello.json' {dir}/handoffs/pending/'\n"),
        format!("  cat {dir}/handoffs/completed/hello.json'\n"),
    ] {
        assert!(told.contains(&line), "{told}");
    }
}

#[test]
fn a_pipe_gets_no_escape_codes_from_a_watch() {
    let root = Root::new();
    let mut child = root
        .command(&["status", "--watch"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // Two pages.
    let heads = |line: &String| line.starts_with("no daemon");
    let seen: Vec<String> = lines.by_ref().map(Result::unwrap).take(8).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        seen.iter().filter(|line| heads(line)).count() > 1,
        "{seen:?}"
    );
    assert!(!seen.concat().contains('\u{1b}'), "{seen:?}");
}

#[test]
fn a_log_in_json_is_nothing_else() {
    let root = Root::new();
    let output = root.run(&["run", "--drain", "--log-format", "json"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("specialists: @coder"), "{said}");
    for line in said.lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
    }
}

#[test]
fn of_two_files_with_one_id_none_is_dropped() {
    let root = Root::new();
    let request = r#"{"handoff_id": "twin", "target": {"agent_id": "@coder"}}"#;
    for name in ["one.json", "two.json"] {
        fs::write(root.path(name), request).unwrap();
    }
    let files = ["one.json", "two.json"].map(|name| root.path(name));
    let told = root.see(&[
        "submit",
        files[0].to_str().unwrap(),
        files[1].to_str().unwrap(),
    ]);
    assert!(told.contains("two files have the id twin"), "{told}");
    assert!(told.ends_with("exit 1\n"), "{told}");
    assert_eq!(
        fs::read_dir(root.path("handoffs/pending")).unwrap().count(),
        0
    );
}
