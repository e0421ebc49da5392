//! What a command in a worktree says reaches the queue as it was said, with the branch added.

use std::fs;

use serde_json::Value;

use crate::shop::{Shop, feed, record, result};

#[test]
fn text_around_a_block_stays_and_a_broken_result_stays_broken() {
    let shop = Shop::new();
    let script =
        "printf 'What I did.\\n\\n```json\\n{\"status\":\"complete\",\"summary\":\"s\"}\\n```\\n'";
    let output = feed(&mut shop.workspace(&[], script), &record("x", "x"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("What I did.\n\n```json\n"), "{text}");
    assert!(text.contains("\"branch\":\"handoffd/x\""), "{text}");
    let file = shop.root.join("result");
    let broken = "{\"status\":\"compl";
    let script = format!("printf '%s' '{broken}' > $HANDOFF_RESULT");
    let mut command = shop.workspace(&[], &script);
    command.env("HANDOFF_RESULT", &file);
    feed(&mut command, &record("x", "x"));
    assert_eq!(fs::read_to_string(&file).unwrap(), broken);
    let said = shop.run(&record("x", "x"), &[], &format!("printf '%s' '{broken}'"));
    assert_eq!(said["output"]["text"], broken);
    assert!(
        said["warnings"][0]
            .as_str()
            .unwrap()
            .contains("does not parse")
    );
}

#[test]
fn a_text_for_an_artifact_stays_around_the_result() {
    let shop = Shop::new();
    let mut command = shop.workspace(&[], "echo the report");
    command.env("HANDOFF_ARTIFACT", "/nowhere");
    let text = String::from_utf8(feed(&mut command, &record("x", "x")).stdout).unwrap();
    assert!(text.starts_with("the report\n"), "{text}");
    assert!(text.contains("\"status\":\"complete\""), "{text}");
}

#[test]
fn a_flood_of_output_goes_through_and_touches_the_heartbeat() {
    let shop = Shop::new();
    let beat = shop.root.join("beat");
    let mut command = shop.workspace(&[], "head -c 70000000 /dev/zero");
    command.env("HANDOFF_HEARTBEAT", &beat);
    let output = feed(&mut command, &record("x", "x"));
    assert_eq!(output.stdout.len(), 70_000_000);
    assert!(beat.exists());
}

#[test]
fn a_second_attempt_waits_for_the_first_instead_of_failing() {
    let shop = Shop::new();
    let go = shop.root.join("go");
    let script = format!(
        "echo first > first; touch {0}.began; until [ -e {0} ]; do sleep 0.05; done",
        go.display()
    );
    std::thread::scope(|scope| {
        let first = scope.spawn(|| shop.run(&record("x", "x"), &[], &script));
        crate::common::wait_until("the first attempt", || {
            go.with_extension("began").exists().then_some(())
        });
        let second = scope.spawn(|| feed(&mut shop.workspace(&[], "cat first"), &record("y", "x")));
        // A command that looks after trees does not wait.
        let listed = shop.cli(&["worktrees"]);
        let note = String::from_utf8_lossy(&listed.stderr).into_owned();
        assert!(
            note.contains("another process works in the worktree"),
            "{note}"
        );
        fs::write(&go, "").unwrap();
        assert_eq!(first.join().unwrap()["output"]["branch"], "handoffd/x");
        let said: Value = result(&second.join().unwrap());
        assert_eq!(said["output"]["text"], "first\n", "{said}");
    });
}

#[test]
fn a_process_left_in_the_background_holds_nothing_up() {
    let shop = Shop::new();
    // One is silent, one never stops to print.
    let script = "sleep 600 2>/dev/null & echo $! >left; yes 2>/dev/null & echo done";
    let said = shop.run(&record("x", "x"), &[], script);
    let text = said["output"]["text"].as_str().unwrap();
    assert!(text.contains("done\n"), "{} bytes", text.len());
    let silent = shop.git(&["show", "handoffd/x:left"]).parse().unwrap();
    assert!(
        crate::common::is_alive(silent),
        "the queue ends it, not this command"
    );
    // The other one has lost its reader.
    crate::common::kill(silent, rustix::process::Signal::KILL);
}

#[test]
fn what_the_set_up_changes_belongs_to_the_first_handoff() {
    let shop = Shop::new();
    let setup = ["--setup", r#"["sh", "-c", "echo locked >package.lock"]"#];
    let made = shop.run(&record("x", "x"), &setup, "echo work >work; echo '{}'");
    let output = &made["output"];
    let diffstat = output["diffstat"].as_str().unwrap();
    assert!(diffstat.starts_with("2 files changed"), "{diffstat}");
    let base = output["base"].as_str().unwrap();
    assert_eq!(base, shop.git(&["rev-parse", "main"]).trim());
    let log = shop.git(&["log", "--format=%s", &format!("{base}..handoffd/x")]);
    assert_eq!(log.trim(), "x: attempt 1\nx: set-up");
}
