//! Work with some of everything, on a disk that remembers; and what an outsider may rely on at
//! which point of the disk's log.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use handoffd::clock::Clock;
use serde_json::{Value, json};

use crate::common::{Daemon, Dice, Root, kill_all, orders, wait_until, with};
use crate::disk::logged::{Logged, Op};
use crate::disk::{Kind, Mounted};

pub const CONFIG: &str = "daemon.max_concurrent = 4\ndefaults.retry.delay = '20ms'\n\
                          daemon.durability = 'full'";

/// A report of who hands on to the next.
const NEXT: &str = r#"echo '{"status": "complete", "phase": "one", "summary": "did one", "handoff": {"next_agent": "fake", "next_phase": "two", "context": "go on"}}'"#;
const DELEGATES: &str = r#"[ $HANDOFF_ATTEMPT -ge 2 ] || echo '{"status": "delegate", "handoff": {"children": [{"agent": "fake", "context": "a"}, {"agent": "fake", "context": "b", "input": {"n": 2}}]}}'"#;
pub const BROKEN: &[u8] = b"{\"target\": {\"agent_id\": \"fake\"}, ";

/// What was done, or seen, by somebody outside.
#[derive(Debug, Clone)]
pub enum Fact {
    /// A request was written and synced, with its folder. It ends in this folder.
    Dropped { id: String, ends: &'static str },
    /// `handoffd wait` printed this record.
    Ended { id: String, record: Vec<u8> },
    /// A person's answer was written and synced.
    Approved { id: String },
    /// Somebody began to move a failed one back into `pending/`.
    Resubmitting { id: String },
    /// And had synced that.
    Resubmitted { id: String },
}

/// All that happened on a disk, and when.
pub struct Tape {
    pub base: Vec<u8>,
    pub ops: Vec<Op>,
    /// Each with the position in `ops` that it came before: a disk that was cut there or later
    /// had been told all that the fact rests on.
    pub facts: Vec<(usize, Fact)>,
}

struct Recorder<'a> {
    disk: &'a Logged,
    root: &'a Root,
    facts: Mutex<Vec<(usize, Fact)>>,
}

/// Works on a new disk for a while and gives what it was told.
pub fn record(kind: Kind, folder: &Path, dice: &mut Dice) -> Result<Tape, String> {
    let told = |error: std::io::Error| error.to_string();
    let disk = Logged::plug_in(folder, kind.bytes).map_err(told)?;
    kind.make(&disk.device)?;
    let at = folder.join("root");
    let mounted = Mounted::device(&disk.device, &at, kind.name, "").map_err(told)?;
    let root = Root::at(&at, CONFIG);
    sync(&at);
    let base = {
        let mut disk = disk.disk();
        disk.log.clear();
        disk.image.clone()
    };
    let recorder = Recorder {
        disk: &disk,
        root: &root,
        facts: Mutex::default(),
    };
    let log = File::create(folder.join("daemon.log")).map_err(told)?;
    let daemon = Daemon::start_with(&root, |command| {
        command.stderr(log);
    });
    recorder.work(dice);
    let facts = recorder.facts.into_inner().unwrap();
    let ops = std::mem::take(&mut disk.disk().log);
    kill_all(&root, daemon);
    drop(root);
    drop(mounted);
    Ok(Tape { base, ops, facts })
}

/// Everything in the file system is on its disk.
fn sync(at: &Path) {
    let root = File::open(at).unwrap();
    rustix::fs::syncfs(&root).unwrap();
}

/// Writes a file as a careful producer does: it and its name are on the disk afterwards.
fn put_synced(folder: &Path, name: &str, bytes: &[u8]) {
    let temporary = folder.join(format!(".{name}.tmp"));
    fs::write(&temporary, bytes).unwrap();
    File::open(&temporary).unwrap().sync_all().unwrap();
    fs::rename(&temporary, folder.join(name)).unwrap();
    File::open(folder).unwrap().sync_all().unwrap();
}

impl Recorder<'_> {
    fn note(&self, fact: Fact) {
        let position = self.disk.position();
        self.facts.lock().unwrap().push((position, fact));
    }

    fn work(&self, dice: &mut Dice) {
        let soon = Clock::System.now().wall.plus_ms(400).to_string();
        let destination = |n: u32| {
            json!({ "expected_output": {
            "destination": format!("artifacts/{{handoff_id}}-{n}.json"), "artifact_type": "source" }})
        };
        let task = json!({ "context": { "task_id": "T-1", "task_title": "Login" } });
        let gate = json!({ "gate": { "type": "blocking", "name": "budget" } });
        let mut requests = vec![
            ("plain", orders("exit 0")),
            (
                "result",
                orders(r#"result '{"status": "complete", "summary": "done"}'"#),
            ),
            ("again", orders("[ $HANDOFF_ATTEMPT -ge 2 ]")),
            (
                "made",
                with(orders(r#"echo '{"artifact": {"n": 1}}'"#), destination(1)),
            ),
            (
                "after",
                with(orders("exit 0"), json!({ "depends_on": ["made"] })),
            ),
            ("next", orders(NEXT)),
            ("parent", with(orders(DELEGATES), task.clone())),
            ("task", with(orders(NEXT), task)),
            (
                "later",
                with(orders("exit 0"), json!({ "not_before": soon })),
            ),
            ("gated", with(orders("exit 0"), gate)),
            ("back", orders("exit 64")),
        ];
        for at in (1..requests.len()).rev() {
            let other = usize::try_from(dice.below(at as u64 + 1)).unwrap();
            requests.swap(at, other);
        }
        std::thread::scope(|scope| {
            for (id, request) in requests {
                let ends = if id == "back" { "failed" } else { "completed" };
                self.drop_synced(id, "json", request.to_string().as_bytes(), ends);
                scope.spawn(move || self.follow(id));
                if dice.below(3) == 0 {
                    dice.pause(Duration::from_millis(30));
                }
            }
            self.drop_synced("broken", "json", BROKEN, "failed");
            scope.spawn(|| self.wait_for("broken"));
            let yaml = b"target:\n  agent_id: fake\ninput:\n  data:\n    sh: exit 0\nmine: 1.0\n";
            self.drop_synced("yaml", "yaml", yaml, "completed");
            scope.spawn(|| self.wait_for("yaml"));
            // A producer that syncs nothing is promised nothing, and must break nothing.
            self.root.drop_request("lazy", &orders("exit 0"));
        });
        // The id is taken by one that has ended.
        self.drop_synced("plain", "json", orders("exit 0").to_string().as_bytes(), "");
        self.wait_for("plain~2");
    }

    /// What becomes of it, with what people do to it on the way.
    fn follow(&self, id: &'static str) {
        if id == "gated" {
            self.root.waiting(id);
            self.approve(id);
        }
        let record = self.wait_for(id);
        if id == "back" {
            self.resubmit(id);
        }
        if id == "next" {
            let record: Value = serde_json::from_slice(&record).unwrap();
            self.wait_for(&crate::common::child(&record));
        }
    }

    fn approve(&self, id: &str) {
        let folder = self.root.path("handoffs/control");
        let command = json!({ "action": "approve", "handoff_id": id, "by": "ann" });
        put_synced(&folder, "yes.json", command.to_string().as_bytes());
        self.note(Fact::Approved { id: id.to_owned() });
    }

    fn resubmit(&self, id: &str) {
        self.note(Fact::Resubmitting { id: id.to_owned() });
        fs::rename(
            self.root.state("failed", id),
            self.root.state("pending", id),
        )
        .unwrap();
        for folder in ["handoffs/failed", "handoffs/pending"] {
            File::open(self.root.path(folder))
                .unwrap()
                .sync_all()
                .unwrap();
        }
        self.note(Fact::Resubmitted { id: id.to_owned() });
        self.wait_for(id);
    }

    fn drop_synced(&self, id: &str, extension: &str, bytes: &[u8], ends: &'static str) {
        let name = format!("{id}.{extension}");
        put_synced(&self.root.path("handoffs/pending"), &name, bytes);
        if !ends.is_empty() {
            let id = id.to_owned();
            self.note(Fact::Dropped { id, ends });
        }
    }

    /// Asks the program to wait for the end, and notes what it says.
    fn wait_for(&self, id: &str) -> Vec<u8> {
        // Unknown at first, or on its way to be refused: asked again.
        let said = wait_until(&format!("{id} has ended"), || {
            let said = Command::new(env!("CARGO_BIN_EXE_handoffd"))
                .args(["wait", "--timeout", "60s", id, "--root"])
                .arg(self.root.dir())
                .stdin(Stdio::null())
                .output()
                .unwrap();
            (!said.stdout.is_empty()).then_some(said)
        });
        self.note(Fact::Ended {
            id: id.to_owned(),
            record: said.stdout.clone(),
        });
        said.stdout
    }
}
