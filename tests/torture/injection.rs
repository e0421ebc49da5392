//! Text in every field that a shell, an argument list, an environment or a terminal might take
//! for more than text.
//!
//! Specialists write down what they were called with. In the end the command line shows all of
//! it, into a pipe and on a terminal, and nothing that moves a cursor may be in there.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::canary::Outside;
use crate::common::{Daemon, Root, wait_until};
use crate::report::{Row, is_full, times};

/// What is tried in every place. `CANARY` is a file outside that no command may make.
const TEXTS: [&str; 32] = [
    "$(touch CANARY)",
    "`touch CANARY`",
    "; touch CANARY #",
    "| touch CANARY",
    "&& touch CANARY",
    "'; touch CANARY; '",
    "\"; touch CANARY; \"",
    "x\ntouch CANARY\n",
    "x\r\ntouch CANARY",
    "${IFS}$PATH",
    "-rf",
    "--help",
    "--root=CANARY",
    "-c id",
    "LD_PRELOAD=CANARY",
    "PATH=CANARY",
    "HANDOFF_ID=evil",
    "A=b\nLD_PRELOAD=CANARY",
    "nul\0byte",
    "%s%n%x {} {0}",
    "../../CANARY",
    "\u{1b}[2J\u{1b}[31m",
    "\u{1b}]0;title\u{7}",
    "\u{1b}]8;;http://x\u{1b}\\link",
    "\u{1b}P$q\u{1b}\\",
    "\u{9b}31m\u{9d}0;x\u{9c}",
    "\u{202e}gpj.exe\u{202c}",
    "\u{2066}isolate\u{2069}\u{200f}\u{61c}",
    "zero\u{200b}width\u{feff}\u{ad}",
    "lines\u{2028}and\u{2029}more\u{85}",
    "bell\u{7}back\u{8}\u{8}\u{7f}\r",
    "tag\u{e0041}\u{e007f}",
];

/// Writes down its arguments and its environment, says what it was told to say.
const SCRIPT: &str = r#"
echo "$#" > "marks/$HANDOFF_ID.args"
cat /proc/$$/environ > "marks/$HANDOFF_ID.env"
[ ! -e "marks/$HANDOFF_ID.say" ] || cat "marks/$HANDOFF_ID.say" >&2
[ ! -e "marks/$HANDOFF_ID.result" ] || cat "marks/$HANDOFF_ID.result" > "$HANDOFF_RESULT"
[ ! -e "marks/$HANDOFF_ID.fail" ] || exit 1
exit 0
"#;

/// The variables that an attempt may have, besides those of the contract.
const USUAL: [&str; 10] = [
    "PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "SHELL", "PWD", "OLDPWD", "SHLVL",
];

/// Puts one text into one place of a request, and says whether it ends under this id.
type Place = fn(&Root, &str, &str) -> bool;

fn plain() -> Value {
    json!({ "target": { "agent_id": "@any" }, "retry_policy": { "max_retries": 0 } })
}

#[rustfmt::skip]
const PLACES: [(&str, Place); 9] = [
    ("agent", |root, id, text| {
        root.drop_request(id, &json!({ "target": { "agent_id": text }, "retry_policy": { "max_retries": 0 } }));
        true
    }),
    ("file name", |root, id, text| {
        let name = format!("{}{text}.json", &id[..1]).replace(['/', '\0'], "_");
        fs::write(root.pending(&format!(".{id}.tmp")), plain().to_string()).unwrap();
        fs::rename(root.pending(&format!(".{id}.tmp")), root.pending(&name)).unwrap();
        false
    }),
    ("id", |root, id, text| {
        let mut request = plain();
        request["handoff_id"] = json!(text);
        root.drop_request(id, &request);
        true
    }),
    ("task", |root, id, text| {
        let mut request = plain();
        request["context"] = json!({ "task_id": text, "phase": text, "summary": text });
        root.drop_request(id, &request);
        true
    }),
    ("fields", |root, id, text| {
        let mut request = plain();
        request["input"] = json!({ "data": { text: text } });
        request["context"] = json!({ "summary": text, text: [text] });
        request["source"] = json!({ "agent_id": text });
        request[text] = json!(text);
        root.drop_request(id, &request);
        true
    }),
    ("wrong fields", |root, id, text| {
        let mut request = plain();
        request["priority"] = json!(text);
        request["input"] = json!({ "schema": text });
        request["expected_output"] = json!({ "destination": format!("artifacts/{text}"), "artifact_type": text });
        root.drop_request(id, &request);
        true
    }),
    ("result", |root, id, text| {
        let result = json!({
            "status": "complete", "summary": text, "next_steps": [text], "warnings": [text],
            "output": { text: text }, "metadata": { "by": text }, "acknowledgment": { "questions": [text] },
        });
        fs::write(root.path(&format!("marks/{id}.result")), result.to_string()).unwrap();
        root.drop_request(id, &plain());
        true
    }),
    ("failure and stderr", |root, id, text| {
        let result = json!({ "status": "failed", "error": { "code": text, "message": text } });
        fs::write(root.path(&format!("marks/{id}.result")), result.to_string()).unwrap();
        fs::write(root.path(&format!("marks/{id}.say")), text).unwrap();
        fs::write(root.path(&format!("marks/{id}.fail")), "").unwrap();
        root.drop_request(id, &plain());
        true
    }),
    ("command", |root, id, text| {
        let mut request = plain();
        request["not_before"] = json!("2999-01-01T00:00:00Z");
        root.drop_request(id, &request);
        root.record("waiting", id);
        root.command(&format!("{id}.json"), &json!({
            "action": "cancel", "handoff_id": id, "by": text, "comment": text, "choice": text,
        }));
        true
    }),
];

#[test]
fn text_stays_text() {
    let mut row = Row::new("text that looks like more");
    let outside = Outside::new();
    let canary = outside.path("made-by-a-command");
    let root = Root::with("specialists.'*'.command = ['sh', 'wild.sh']");
    fs::write(root.path("wild.sh"), SCRIPT).unwrap();
    let daemon = Daemon::start(&root);
    let texts = times("injection", 12, TEXTS.len());
    let mut ids = Vec::new();
    for (number, text) in TEXTS.iter().rev().take(texts).enumerate() {
        let text = text.replace("CANARY", canary.to_str().unwrap());
        for (at, (_, place)) in PLACES.iter().enumerate() {
            let id = format!("c{number}-{at}");
            ids.extend(place(&root, &id, &text).then_some(id));
            row.tried(None);
        }
    }
    for id in &ids {
        wait_until(&format!("{id} to end"), || {
            ["completed", "failed"]
                .iter()
                .find_map(|state| root.record_in(state, id))
        });
    }
    wait_until("pending/ to be empty", || {
        root.names("handoffs/pending").is_empty().then_some(())
    });
    row.tried(outside.broken(root.dir(), &[]));
    let mut started = 0;
    for name in root.names("marks") {
        let path = root.path("marks").join(&name);
        match name.rsplit_once('.') {
            Some((_, "args")) => {
                started += 1;
                let words = fs::read_to_string(path).unwrap();
                row.tried((words != "0\n").then(|| format!("{name}: arguments: {words}")));
            }
            Some((_, "env")) => {
                let strange = strange_variables(&fs::read(path).unwrap());
                row.tried(strange.map(|it| format!("{name}: {it}")));
            }
            _ => {}
        }
    }
    assert!(started > texts, "only {started} were started");
    save_hostile_state(&root);
    look_at_all(&root, &ids, &mut row);
    assert!(!canary.exists());
    root.assert_audit_is_sound();
    daemon.terminate();
    row.finish();
}

fn strange_variables(environ: &[u8]) -> Option<String> {
    let pairs = environ
        .split(|byte| *byte == 0)
        .filter(|pair| !pair.is_empty());
    let names: BTreeSet<String> = pairs
        .map(|pair| {
            let name = pair.split(|byte| *byte == b'=').next().unwrap();
            String::from_utf8_lossy(name).into_owned()
        })
        .collect();
    let own = [
        "ID",
        "FILE",
        "ROOT",
        "ATTEMPT",
        "MAX_ATTEMPTS",
        "DEADLINE",
        "RESULT",
        "HEARTBEAT",
        "CONTEXT_DIR",
        "ARTIFACT",
        "STATE_FILE",
        "SUMMARY",
        "LAST_ERROR",
    ];
    names.into_iter().find(|name| {
        let of_contract = name
            .strip_prefix("HANDOFF_")
            .is_some_and(|it| own.contains(&it));
        !of_contract && !USUAL.contains(&name.as_str())
    })
}

/// A task whose every text is hostile.
fn save_hostile_state(root: &Root) {
    let all = TEXTS.concat();
    let each = |key: &str, more: Value| -> Vec<Value> {
        let texts = TEXTS.iter().map(|text| {
            let mut entry = more.clone();
            entry[key] = json!(text);
            entry
        });
        texts.collect()
    };
    let state = json!({
        "task_id": "hostile", "task_title": all, "version": 1, "source_agent": all,
        "target_agent": all, "warnings": TEXTS,
        "decisions_made": each("decision", json!({ "rationale": all })),
        "blocking_issues": each("issue", json!({ "severity": "low" })),
        "artifacts": each("artifact_type", json!({ "path": "artifacts/x", "type": all })),
    });
    let file = root.path("hostile-state.json");
    fs::write(&file, state.to_string()).unwrap();
    let saved = root.cli(&["state", "save", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&saved.stderr);
    assert_eq!(saved.status.code(), Some(0), "{said}");
}

/// Shows everything in every way, and looks for what a terminal would obey.
fn look_at_all(root: &Root, ids: &[String], row: &mut Row) {
    let every = if is_full() { 1 } else { 13 };
    let mut calls: Vec<Vec<&str>> = vec![
        vec!["list", "--limit", "0"],
        vec!["status"],
        vec!["audit", "--verify"],
        vec!["tail", "-n", "500"],
        vec!["state", "show", "hostile"],
        vec!["state", "summary", "hostile"],
        vec!["state", "history", "hostile"],
        vec!["state", "receive", "hostile"],
        // What these two said was meant to reach the terminal.
        vec!["logs", "c1-7"],
        vec!["logs", "c7-7"],
        vec!["artifacts", "list"],
        vec!["check"],
        vec!["show", "no\u{1b}[31msuch"],
        vec!["state", "show", "no\u{1b}[31msuch"],
        vec!["--no\u{1b}[31msuch"],
        vec!["wait", "no\u{9b}31msuch", "--timeout", "1ms"],
    ];
    for id in ids.iter().step_by(every) {
        for command in ["show", "explain", "audit", "chain", "logs"] {
            calls.push(vec![command, id]);
        }
    }
    let mut as_it_is = 0;
    for call in calls {
        for terminal in [false, true] {
            let said = said(root, &call, terminal);
            let mut found = said.chars().find(|c| is_obeyed(*c));
            // Into a pipe, a log is as it is.
            if call[0] == "logs" && !terminal {
                as_it_is += usize::from(found.take().is_some());
            }
            row.tried(found.map(|found| format!("{call:?}: {found:?} in {said:?}")));
        }
        let told = said(root, &[&call[..], &["--json"]].concat(), false);
        let raw = told
            .chars()
            .find(|c| c.is_ascii_control() && !"\n\u{7f}".contains(*c));
        let raw = raw.filter(|_| call[0] != "logs");
        row.tried(raw.map(|found| format!("{call:?} --json: {found:?}")));
    }
    assert!(as_it_is >= 2, "no log held what it should");
}

fn is_obeyed(character: char) -> bool {
    let hidden = matches!(
        character,
        '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}'
    );
    hidden || (character.is_control() && character != '\n')
}

/// What a call prints, both streams together.
fn said(root: &Root, call: &[&str], terminal: bool) -> String {
    // One of them goes on until it is stopped.
    let mut command = Command::new("timeout");
    command
        .args(["2", env!("CARGO_BIN_EXE_handoffd")])
        .args(call)
        .arg("--root")
        .arg(root.dir())
        .env("NO_COLOR", "1")
        .env("TERM", "dumb")
        .stdin(Stdio::null());
    if !terminal {
        let output = command.output().unwrap();
        return String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    }
    let (ours, theirs) = terminal_pair();
    command
        .stdout(theirs.try_clone().unwrap())
        .stderr(theirs.try_clone().unwrap());
    let mut child = command.spawn().unwrap();
    drop((command, theirs));
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    let mut ours = File::from(ours);
    // It ends with an error, once nobody has the other side open.
    while let Ok(count @ 1..) = ours.read(&mut piece) {
        bytes.extend_from_slice(&piece[..count]);
    }
    child.wait().unwrap();
    // A terminal puts these in itself.
    String::from_utf8(bytes).unwrap().replace("\r\n", "\n")
}

fn terminal_pair() -> (OwnedFd, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    // SAFETY: both numbers are ours to be written to, and nobody else has the descriptors.
    unsafe {
        let none = std::ptr::null_mut();
        let opened = libc::openpty(
            &raw mut ours,
            &raw mut theirs,
            none,
            none.cast(),
            none.cast(),
        );
        assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
        (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
    }
}
