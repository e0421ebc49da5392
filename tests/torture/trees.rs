//! Trees of processes that run away: they hop, leave their session, ignore signals, hold on to
//! stdout, or start more while they are being ended. However an attempt ends, when its outcome
//! shows nothing of its tree is alive.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use handoffd::keeper::journal::{self, Held};
use serde_json::json;

use crate::common::{Daemon, Root, ask, is_alive, wait_until, with};
use crate::report::{Row, is_full, times};

/// How long they run before they are timed out, from SIGTERM to SIGKILL, and what the rest of
/// an end may take on a machine that has nothing else to do.
const TIMEOUT: Duration = Duration::from_secs(3);
const GRACE: Duration = Duration::from_millis(500);
const SLACK: Duration = Duration::from_secs(1);
const AT_ONCE: usize = 6;

/// What runs away, by the words of a shell. `$mine` is a path that tells whose it is.
const KINDS: [(&str, &str); 13] = [
    ("plain", "sleep 600 & sleep 600 &"),
    ("hops", "setsid sh hop.sh $mine &"),
    (
        "swift",
        "./hop $mine.steps & for n in 1 2 3 4; do ./hop $mine.steps$n & done; sleep 0.1",
    ),
    (
        "far",
        "setsid setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' $mine &",
    ),
    ("double", "( ( sleep 600 & ) & ( setsid sleep 600 & ) & )"),
    (
        "deaf",
        "trap '' TERM HUP INT; ( ( ( sleep 600; sleep 600 ) & sleep 600 ) & sleep 600 ) &",
    ),
    ("holder", "setsid sleep 600 & exec 3>&1; sleep 600 >&3 &"),
    (
        "writer",
        "setsid sh -c 'trap \"\" TERM; while :; do echo words; done' $mine &",
    ),
    ("many", "for n in $(seq 200); do sleep 600 & done"),
    (
        "chain",
        "sh links.sh 30 $mine & setsid sh links.sh 30 $mine &",
    ),
    ("breeds", "setsid sh breed.sh 3 $mine & sleep 0.1"),
    (
        "stopped",
        "setsid sh -c 'kill -STOP $$; sleep 600' $mine & sh -c 'kill -STOP $$' $mine &",
    ),
    (
        "nameless",
        "env -i setsid sh -c 'trap \"\" TERM; sleep 600; sleep 600' $mine &",
    ),
];

const SCRIPTS: [(&str, &str); 3] = [
    // Each step is a new process, and leaves before it could be asked anything.
    ("hop.sh", "trap '' TERM HUP\nsh \"$0\" \"$1\" &\nexit"),
    (
        "links.sh",
        "[ \"$1\" -gt 0 ] && exec sh \"$0\" $(($1 - 1)) \"$2\"\nexec sleep 600",
    ),
    // Asked to end, it starts more of its kind.
    (
        "breed.sh",
        "[ \"$1\" -gt 0 ] || exec sleep 600\n\
         more() { for n in 1 2 3; do setsid sh \"$0\" $((left - 1)) \"$mine\" & done; }\n\
         left=$1 mine=$2\ntrap more TERM\nsleep 600 &\nwhile :; do wait; done",
    ),
];

/// How an attempt comes to its end.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    TimeOut,
    Cancel,
    /// Its main process just leaves.
    Exit,
}

const ENDS: [End; 3] = [End::TimeOut, End::Cancel, End::Exit];

#[test]
fn of_no_tree_anything_is_left() {
    let mut row = Row::new("runaway process trees");
    let all = times("trees", 10, 500);
    let mut slowest = (Duration::ZERO, "");
    let mut notes = Vec::new();
    for (start, number) in [
        (Daemon::start as fn(&Root) -> Daemon, all / 2),
        (Daemon::start_without_cgroups, all - all / 2),
    ] {
        let root = forest();
        let has_swift = root.path("hop").exists();
        let _daemon = start(&root);
        // Where few are tried, they are spread over the kinds.
        let step = if number < KINDS.len() * ENDS.len() {
            7
        } else {
            1
        };
        let tries: Vec<(usize, usize, End)> = (0..number)
            .map(|n| (n, (n * step) % KINDS.len(), ENDS[n % ENDS.len()]))
            .filter(|(_, kind, _)| has_swift || KINDS[*kind].0 != "swift")
            .collect();
        for some in tries.chunks(AT_ONCE) {
            for tree in grow(&root, some) {
                row.tried(tree.fell(&root, &mut slowest));
            }
        }
        let held = held_by(&root);
        notes.push(format!("{} held by {held}", tries.len()));
        if !has_swift {
            notes.push("no C compiler, so no swift hoppers".to_owned());
        }
    }
    notes.push(format!(
        "the slowest end took {:?} ({})",
        slowest.0, slowest.1
    ));
    row.note(notes.join("; "));
    row.finish();
}

/// A root with a specialist for each kind.
fn forest() -> Root {
    let ends = "[ -e $mine.leave ] || { mark up; until [ -e $mine.leave ]; do sleep 0.05; done; }";
    let scripts: Vec<(String, String)> = KINDS
        .iter()
        .map(|(kind, sh)| {
            let mine = "mine=$HANDOFF_ROOT/marks/$HANDOFF_ID";
            ((*kind).to_owned(), format!("{mine}\n{sh}\n{ends}\n"))
        })
        .collect();
    let team: Vec<(&str, &str)> = scripts
        .iter()
        .map(|(k, s)| (k.as_str(), s.as_str()))
        .collect();
    let root = Root::team(
        &format!(
            "daemon.max_concurrent = {AT_ONCE}\ndefaults.kill_grace = '{}ms'\n\
             defaults.retry.max_retries = 0",
            GRACE.as_millis()
        ),
        &team,
    );
    for (name, text) in SCRIPTS {
        fs::write(root.path(name), text).unwrap();
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/torture/trees/hop.c");
    let built = Command::new("cc")
        .arg("-o")
        .arg(root.path("hop"))
        .arg(source)
        .status();
    if !built.is_ok_and(|status| status.success()) {
        eprintln!("hop.c can't be compiled here; trees are tried without it");
    }
    root
}

/// How the keeper holds trees together here.
fn held_by(root: &Root) -> &'static str {
    root.drop_request("last", &ask("plain"));
    root.mark("last.up");
    let entries = journal::read(&root.path(".handoffd/run")).unwrap();
    root.allow("last.leave");
    root.completed("last");
    match entries.iter().find(|entry| entry.key.id == "last") {
        Some(entry) if matches!(entry.held, Held::Cgroup(_)) => "cgroups",
        _ => "minders",
    }
}

struct Tree {
    id: String,
    kind: &'static str,
    end: End,
    ending: Instant,
}

/// Starts these, and begins to end them once all of them stand.
fn grow(root: &Root, some: &[(usize, usize, End)]) -> Vec<Tree> {
    let mut trees = Vec::new();
    for (number, kind, end) in some {
        let kind = KINDS[*kind].0;
        let id = format!("t{number}-{kind}");
        let seconds = if *end == End::TimeOut {
            TIMEOUT.as_secs()
        } else {
            600
        };
        root.drop_request(&id, &with(ask(kind), json!({ "timeout_seconds": seconds })));
        trees.push(Tree {
            id,
            kind,
            end: *end,
            ending: Instant::now(),
        });
    }
    for tree in &mut trees {
        let id = &tree.id;
        // A busy machine may end one before it stands.
        wait_until(&format!("{id} stands"), || {
            let stands = root.path("marks").join(format!("{id}.up")).exists();
            (stands || root.state("failed", id).exists()).then_some(())
        });
        tree.ending = Instant::now();
        match tree.end {
            End::TimeOut => {}
            End::Cancel => root.answer("cancel", id, json!({})),
            End::Exit => root.allow(&format!("{id}.leave")),
        }
    }
    trees
}

impl Tree {
    /// Waits for its outcome; what is wrong then.
    fn fell(&self, root: &Root, slowest: &mut (Duration, &'static str)) -> Vec<String> {
        let Self {
            id,
            kind,
            end,
            ending,
        } = self;
        let (state, record) = wait_until(&format!("the end of {id}"), || {
            ["completed", "failed"]
                .into_iter()
                .find_map(|state| Some((state, root.record_in(state, id)?)))
        });
        let left = alive(root, id);
        let mut broken = Vec::new();
        if !left.is_empty() {
            broken.push(format!("{kind} by {end:?}: {left:?} outlived it"));
        }
        if steps(root, id) != steps_later(root, id) {
            broken.push(format!("{kind} by {end:?} hops on"));
        }
        // What floods is ended for that, whatever else was to come.
        let code = record["error"]["code"].as_str().unwrap_or_default();
        let expected = match end {
            End::TimeOut => ("failed", "TIMEOUT"),
            End::Cancel => ("failed", "CANCELLED"),
            End::Exit => ("completed", ""),
        };
        if (state, code) != expected && *kind != "writer" {
            broken.push(format!("{kind} by {end:?} ended as {state} {code}"));
        }
        let took = match end {
            End::TimeOut => {
                let ran = record["handoffd"]["attempts"][0]["milliseconds"].as_u64();
                Duration::from_millis(ran.unwrap_or(0)).saturating_sub(TIMEOUT)
            }
            End::Cancel | End::Exit => ending.elapsed(),
        };
        // Trees that are felled together wait for each other's looks; `grow` and the looks
        // count for all but the first.
        if *end == End::TimeOut {
            *slowest = (*slowest).max((took, kind));
            if is_full() && took > GRACE + SLACK {
                broken.push(format!("{kind} by {end:?} took {took:?} to end"));
            }
        }
        broken
    }
}

fn steps(root: &Root, id: &str) -> Option<Vec<u8>> {
    fs::read(root.path("marks").join(format!("{id}.steps"))).ok()
}

fn steps_later(root: &Root, id: &str) -> Option<Vec<u8>> {
    if steps(root, id).is_some() {
        std::thread::sleep(Duration::from_millis(100));
    }
    steps(root, id)
}

/// The processes that carry the id's mark in their variables or their words.
fn alive(root: &Root, id: &str) -> Vec<i32> {
    let mark: PathBuf = root.path("marks").join(id);
    let variable = format!("HANDOFF_ID={id}");
    let root_variable = [b"HANDOFF_ROOT=", root.dir().as_os_str().as_bytes()].concat();
    let is_of_it = |pid: &i32| {
        let words = words_of(*pid, "environ");
        let has = |word: &[u8]| words.iter().any(|found| found == word);
        (has(variable.as_bytes()) && has(&root_variable))
            || words_of(*pid, "cmdline")
                .iter()
                .any(|word| word.starts_with(mark.as_os_str().as_bytes()))
    };
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(is_of_it)
        .filter(|pid| is_alive(*pid))
        .collect()
}

fn words_of(pid: i32, file: &str) -> Vec<Vec<u8>> {
    let bytes = fs::read(Path::new("/proc").join(pid.to_string()).join(file));
    let bytes = bytes.unwrap_or_default();
    bytes.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}
