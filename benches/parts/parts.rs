//! The parts of a handoff's way, each as something that can be done over and over.

use std::hint::black_box;
use std::path::{Path, PathBuf};

use handoffd::clock::{Now, Wall};
use handoffd::config::Config;
use handoffd::durable::Durability;
use handoffd::engine::story;
use handoffd::keeper::frame::{self, Inbox};
use handoffd::keeper::wire::{Exit as KeptExit, Key, Order, Report, Start};
use handoffd::policy::intake::{Needs, Terms, plan};
use handoffd::policy::judge::{Ended, Exit, Limits, judge};
use handoffd::policy::next::{Facts, conclude};
use handoffd::policy::receive::{Findings, Rules, receive};
use handoffd::policy::schedule::{AgentLimits, Pick, Schedule};
use handoffd::policy::task::{MAX_SUMMARY_TOKENS, summary};
use handoffd::protocol::agent::AgentName;
use handoffd::protocol::attempt::Attempt;
use handoffd::protocol::document::{Document, parse};
use handoffd::protocol::id::HandoffId;
use handoffd::protocol::lifecycle::State;
use handoffd::protocol::name::Ext;
use handoffd::protocol::record::Record;
use handoffd::protocol::request::{Priority, Request};
use handoffd::protocol::result::Output;
use handoffd::protocol::task::{TaskId, TaskState};
use handoffd::protocol::view::View;
use handoffd::runner::launch::{AttemptPaths, Briefing, environment};
use handoffd::store::audit::AuditLog;
use serde_json::json;

use crate::sample::{AGENT, ids, request, request_in_yaml};

/// Does its part once.
type Turn = Box<dyn FnMut()>;

pub struct Part {
    pub name: &'static str,
    /// How often it is done for one count, so that what does not belong to it vanishes.
    pub times: u64,
    /// Prepares everything; the folder is empty and the part's own.
    pub prepare: fn(&Path) -> Turn,
}

const ID: &str = "bench-0000001-9e3779b97f4a7c15";
const PACKAGE: &str = include_str!("../../examples/package.yaml");
const NOW: Now = Now {
    wall: Wall(1_767_225_600_000),
    boot_ms: 1_000_000,
};

pub const ALL: [Part; 18] = [
    part("parse a request, JSON", 500, |_| {
        let text = request(ID, AGENT);
        turn(move || parse(text.as_bytes(), Ext::Json))
    }),
    part("parse a request, YAML", 200, |_| {
        let text = request_in_yaml(ID, AGENT);
        turn(move || parse(text.as_bytes(), Ext::Yaml))
    }),
    part("parse a package, YAML", 200, |_| {
        turn(|| parse(PACKAGE.as_bytes(), Ext::Yaml))
    }),
    part("read what a request asks for", 500, |_| {
        let (document, id) = (document(), id());
        turn(move || Request::from_document(&document.map, &id))
    }),
    part("plan a request", 2000, |_| {
        let (asked, config) = (asked(), config());
        turn(move || plan(&asked, &config, &Needs::default(), NOW))
    }),
    part("receive a request", 500, |_| {
        let document = document();
        turn(move || receive_one(&View::of_document(&document.map)))
    }),
    part("receive a package", 500, |_| {
        let package = parse(PACKAGE.as_bytes(), Ext::Yaml).expect("the example parses");
        turn(move || receive_one(&View::of_document(&package.map)))
    }),
    part("serialise a record", 500, |_| {
        let record = running();
        turn(move || record.to_bytes())
    }),
    part("read a record", 500, |_| {
        let bytes = running().to_bytes();
        turn(move || Record::read(&bytes))
    }),
    part("read a result", 500, |_| {
        let bytes = result();
        turn(move || Output::read(&bytes))
    }),
    part("judge an outcome and conclude it", 300, |_| {
        let (ended, record, asked, config) = (ended(), running(), asked(), config());
        let retry = Terms::of(&asked, None, &config).retry;
        turn(move || {
            let mut record = record.clone();
            let facts = Facts {
                now: NOW,
                boot: "boot",
                retry,
                chance: 0.5,
                max_interruptions: 5,
                exit: Exit::Code(0),
                log: None,
                ran_ms: 12,
                cancelled: "",
                id: ID,
                config: &config,
            };
            let decision = conclude(&mut record, judge(&ended), &facts);
            (record, decision)
        })
    }),
    part("write an audit line with its hash", 300, |folder| {
        let record = running();
        let (mut log, _) =
            AuditLog::open(folder, Durability::Relaxed, NOW.wall).expect("the log opens");
        turn(move || {
            let (from, to) = (State::InProgress, State::Completed);
            let line = story::transition(&record, ID, "completed", from, to, NOW.wall);
            log.append(&[line]).and_then(|()| log.sync())
        })
    }),
    part("schedule: push and pick among 1,000", 1000, |_| {
        scheduled(1_000)
    }),
    part("schedule: push and pick among 100,000", 1000, |_| {
        scheduled(100_000)
    }),
    part("summary of a task with 10,000 decisions", 50, |_| {
        let state = decided(10_000);
        turn(move || summary(&state, MAX_SUMMARY_TOKENS))
    }),
    part("environment of an attempt", 500, |_| {
        let config = config();
        let agent = AgentName::parse(AGENT).expect("a name");
        let root = PathBuf::from("/srv/queue");
        let paths = AttemptPaths::new(&root.join("run").into(), &root.join("logs").into(), ID, 1);
        turn(move || {
            let briefing = Briefing {
                id: ID,
                key: None,
                attempt: 1,
                max_attempts: 4,
                deadline: NOW.wall.to_string(),
                record: root.join("handoffs/in-progress/x.json"),
                root: &root,
                context: root.join("context"),
                state_file: None,
                artifact: None,
                summary: None,
                last_error: None,
                paths: &paths,
            };
            let specialist = config.specialist(&agent).expect("it is configured");
            environment(&briefing, specialist, |_| Some("/usr/bin".into()))
        })
    }),
    part("keeper: encode a start", 500, |_| {
        let order = start();
        turn(move || frame::encode(&order))
    }),
    part("keeper: decode a start and an end", 500, |_| {
        let start = frame::encode(&start()).expect("it encodes");
        let report = Report::Ended {
            key: Key::new(ID, 1),
            exit: KeptExit::Code(0),
            why: None,
        };
        let report = frame::encode(&report).expect("it encodes");
        let mut inbox = Inbox::default();
        turn(move || {
            inbox.push(&start, []);
            let order: Option<Order> = inbox.pop().expect("it decodes");
            inbox.push(&report, []);
            let report: Option<Report> = inbox.pop().expect("it decodes");
            (order, report)
        })
    }),
];

const fn part(name: &'static str, times: u64, prepare: fn(&Path) -> Turn) -> Part {
    Part {
        name,
        times,
        prepare,
    }
}

/// What comes out is used, as far as the compiler can know.
fn turn<T>(mut work: impl FnMut() -> T + 'static) -> Turn {
    Box::new(move || {
        black_box(work());
    })
}

fn document() -> Document {
    parse(request(ID, AGENT).as_bytes(), Ext::Json).expect("the sample parses")
}

fn id() -> HandoffId {
    HandoffId::parse(ID).expect("an id")
}

fn asked() -> Request {
    Request::from_document(&document().map, &id()).expect("the sample is well-formed")
}

fn config() -> Config {
    let text = format!("[specialists.\"{AGENT}\"]\ncommand = [\"/bin/true\"]\n");
    Config::parse(&text, Path::new("handoffd.toml")).expect("the configuration is right")
}

fn receive_one(view: &View<'_>) -> handoffd::policy::receive::Receipt {
    receive(view, &Findings::default(), Rules::default())
}

/// A record whose first attempt runs.
fn running() -> Record {
    let mut record = Record::admit(document().map, ID, None);
    record.decide(State::InProgress);
    record.set("started_at", NOW.wall.to_string());
    record.meta.boot = Some("boot".to_owned());
    record.meta.attempts.push(Attempt::begun(1, NOW.wall));
    record
}

fn result() -> Vec<u8> {
    let findings: Vec<String> = ids("finding", 12);
    json!({ "status": "complete", "summary": "The migration was run; the endpoint answers 200.",
            "findings": findings, "metrics": { "tokens": 1234, "seconds": 5.5 } })
    .to_string()
    .into_bytes()
}

fn ended() -> Ended {
    Ended {
        exit: Exit::Code(0),
        why: None,
        result_file: Output::Nothing,
        stdout: Output::read(&result()),
        stderr_tail: String::new(),
        limits: Limits::default(),
    }
}

/// Always as many wait after a turn as before it.
fn scheduled(waiting: usize) -> Turn {
    let agent = AgentName::parse(AGENT).expect("a name");
    let mut schedule = Schedule::new(2);
    let mut arrival = NOW.wall.0;
    for id in ids("waiting", waiting) {
        arrival += 1;
        schedule.push(&id, &agent, Priority::Normal, arrival, AgentLimits::default);
    }
    turn(move || {
        arrival += 1;
        schedule.push(ID, &agent, Priority::High, arrival, AgentLimits::default);
        if let Pick::Start { id, .. } = schedule.pick(NOW.boot_ms, |_| true) {
            schedule.release(&id);
        }
    })
}

fn decided(count: usize) -> TaskState {
    let task = TaskId::parse("TASK-001").expect("an id");
    let mut state = TaskState::begin(task, "Mend the login", NOW.wall);
    state.append(
        "decisions_made",
        (0..count).map(|n| {
            json!({ "decision": format!("decision number {n} on the retries of the login"),
                    "rationale": "the endpoint is called by clients that don't wait" })
        }),
    );
    state
}

fn start() -> Order {
    let names = ["PATH", "HOME", "HANDOFF_ID", "HANDOFF_FILE", "HANDOFF_ROOT"];
    Order::Start(Box::new(Start {
        key: Key::new(ID, 1),
        argv: vec!["/bin/true".into()],
        env: names
            .map(|name| (name.into(), "/srv/queue/handoffs/in-progress".into()))
            .to_vec(),
        cwd: "/srv/queue".into(),
        deadline_boot_ms: NOW.boot_ms,
        grace_ms: 10_000,
        note: json!({ "agent": AGENT }),
        quiet: true,
        confine: None,
    }))
}
