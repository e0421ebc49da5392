//! Forged children: answers that a producer drops under the id of somebody else's helper.
//!
//! A producer may write to `pending/` only. It must not be able to answer for a helper, whether it
//! guesses the helper's id, reads the id, or puts its own file in the place of the helper's.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use handoffd::protocol::digest::sha256;
use serde_json::{Value, json};

use crate::common::{Daemon, Root, ask, child, skip, text, with};

/// Waits at its first attempt, then delegates to these children.
fn boss(children: &Value) -> String {
    format!(
        r#"cat >"marks/boss.$HANDOFF_ATTEMPT"; echo >>"marks/boss.$HANDOFF_ATTEMPT"
        if [ $HANDOFF_ATTEMPT = 1 ]; then await go
        echo '{{"status": "delegate", "handoff": {{"children": {children}}}}}'; fi"#
    )
}

const HONEST: &str = r#"echo '{"status": "complete", "summary": "not approved"}'"#;
const FORGER: &str = r#"echo '{"status": "complete", "summary": "approved"}'"#;

/// A throw-away user and group that nobody has.
const USER: u32 = 61_753;

/// The id that 0.1 gave to the helper of `parent` with this index.
fn guess(root: &Root, parent: &str, index: usize) -> String {
    let record = root.record_that("in-progress", parent, |record| {
        record["handoffd"]["attempts"][0]["number"] == 1
    });
    let begun = text(&record["handoffd"]["attempts"][0]["started_at"]);
    let made_from = format!("{parent}\0{}\0{begun}\0{index}", 1);
    let hash = &sha256(made_from.as_bytes())[..8];
    format!("{parent}.1-{hash}")
}

/// The forged helper: it names its parent, and does what the forger wants.
fn forged(id: &str, parent: &str) -> Value {
    with(
        ask("@forger"),
        json!({
            "handoff_id": id,
            "handoffd": { "format": 1, "revision": 0, "attempts": [], "chain": parent,
                          "hop": 1, "parent": parent },
        }),
    )
}

fn summary(record: &Value, index: usize) -> Value {
    record["handoffd"]["returns"][index]["result"]["summary"].clone()
}

#[test]
fn the_id_of_a_helper_can_t_be_guessed() {
    let one = json!([{ "agent": "@reviewer", "input": { "n": 1 } }]);
    let team = [
        ("boss", boss(&one)),
        ("reviewer", HONEST.to_owned()),
        ("forger", FORGER.to_owned()),
    ];
    let team: Vec<(&str, &str)> = team.iter().map(|(name, sh)| (*name, sh.as_str())).collect();
    let root = Root::team("", &team);
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &ask("@boss"));
    let guessed = guess(&root, "x", 0);
    root.drop_request(&guessed, &forged(&guessed, "x"));
    root.completed(&guessed);
    root.allow("go");
    let record = root.completed("x");
    assert_eq!(summary(&record, 0), "not approved", "{record:#}");
    assert_ne!(child(&record), guessed);
    assert_eq!(root.completed(&child(&record))["handoffd"]["parent"], "x");
    root.assert_audit_is_sound();
}

#[test]
fn nor_that_of_a_question_to_a_person() {
    let one = json!([{ "agent": "human", "input": { "question": "may I?" } }]);
    let script = boss(&one);
    let root = Root::team("", &[("boss", &script), ("forger", FORGER)]);
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &ask("@boss"));
    let guessed = guess(&root, "x", 0);
    root.drop_request(&guessed, &forged(&guessed, "x"));
    root.completed(&guessed);
    root.allow("go");
    let waiting = root.record_that("waiting", "x", |it| it["waiting"]["on"] == "handoff");
    let asked = child(&waiting);
    root.record_that("waiting", &asked, |it| it["waiting"]["on"] == "human");
    root.answer("reject", &asked, json!({}));
    let record = root.completed("x");
    assert_eq!(record["handoffd"]["returns"][0]["status"], "failed");
}

#[test]
fn a_file_in_the_place_of_a_helper_s_is_no_answer() {
    if !rustix::process::geteuid().is_root() {
        skip("only root can be another user");
        return;
    }
    let one = json!([{ "agent": "@reviewer", "input": { "n": 1 } }]);
    let script = boss(&one);
    let busy = "await free; echo '{\"status\": \"complete\"}'";
    let team = [
        ("boss", script.as_str()),
        ("reviewer", HONEST),
        ("other", busy),
        ("forger", FORGER),
    ];
    let root = Root::team("daemon.max_concurrent = 1", &team);
    // As the documentation says: a group for producers, which may write to pending/ and nowhere else.
    for folder in ["", "handoffs"] {
        set_mode(&root.path(folder), 0o755);
    }
    std::os::unix::fs::chown(root.pending(""), None, Some(USER)).unwrap();
    set_mode(&root.pending(""), 0o2770);
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &ask("@boss"));
    root.record("in-progress", "x");
    // It takes the slot when x has delegated, so that the helper's request lies in pending/.
    root.drop_request("busy", &ask("@other"));
    root.allow("go");
    let waiting = root.record_that("waiting", "x", |it| it["waiting"]["on"] == "handoff");
    let helper = child(&waiting);
    root.record("in-progress", "busy");
    // Producers can't read it. This one has guessed all of its content.
    let asked = std::fs::read_to_string(root.pending(&format!("{helper}.json"))).unwrap();
    let forge = r#"printf %s "$1" >.forged.tmp && mv -f .forged.tmp "$0""#;
    let mut command = Command::new("sh");
    command.args(["-c", forge, &format!("{helper}.json")]);
    command.arg(asked.replace("@reviewer", "@forger"));
    let command = command.current_dir(root.pending("")).uid(USER).gid(USER);
    assert!(command.status().unwrap().success());
    root.allow("free");
    let record = root.completed("x");
    assert_ne!(summary(&record, 0), "approved", "{record:#}");
    assert_eq!(record["handoffd"]["returns"][0]["status"], "lost");
    assert_eq!(root.failed(&format!("{helper}~2")).1, "DUPLICATE_ID");
    root.assert_audit_is_sound();
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}
