//! Every parser is given what nobody would write: none may panic, hang, or eat memory, and what
//! one takes it must keep.
//!
//! `targets.rs` has one function for each; `fuzz/` runs the same ones under coverage. An input
//! that breaks something is kept in `target/torture/inputs/` and named in the row; one that
//! takes the whole process with it is in `target/torture/inputs/last`.

mod heap;
mod mutate;
mod targets;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::common::Dice;
use crate::report::{Row, times};
use mutate::Seeds;
use targets::{ALL, Target};

/// What one input may cost: time on the processor, and memory at its most.
const MOST_TIME: Duration = Duration::from_secs(1);
const MOST_BYTES: usize = 64 << 20;
/// When something hangs, this is how long nobody hears of it.
const HANGS: Duration = Duration::from_secs(60);

fn folder() -> PathBuf {
    let tests = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let folder = tests.parent().unwrap_or(&tests).join("torture/inputs");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Time that this thread has had; a busy machine does not count.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap(),
        u32::try_from(time.tv_nsec).unwrap(),
    )
}

/// Runs inputs, and knows the one that is being run.
struct Bench {
    last: File,
    run: AtomicUsize,
}

impl Bench {
    fn new(name: &str) -> Self {
        Self {
            last: File::create(folder().join(format!("last-{name}"))).unwrap(),
            run: AtomicUsize::new(0),
        }
    }

    /// What this input breaks, if anything.
    fn breaks(&self, target: &Target, input: &[u8]) -> Option<String> {
        self.run.fetch_add(1, Ordering::Relaxed);
        let size = input.len() as u64;
        self.last.write_all_at(input, 0).unwrap();
        self.last.set_len(size).unwrap();
        let begun = processor_time();
        let ran = heap::most_of(|| catch_unwind(AssertUnwindSafe(|| (target.run)(input))));
        let took = processor_time().saturating_sub(begun);
        let (ran, most) = ran;
        let why = match ran {
            Err(panic) => format!("panicked: {}", words_of(&*panic)),
            Ok(()) if took > MOST_TIME => format!("took {took:?}"),
            Ok(()) if most > MOST_BYTES => format!("needed {most} bytes"),
            Ok(()) => return None,
        };
        let digest = handoffd::protocol::digest::sha256(input);
        let kept = folder().join(format!("{}-{}", target.name, &digest[..12]));
        fs::write(&kept, input).unwrap();
        Some(format!("{} {why}; see {}", target.name, kept.display()))
    }
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("without a word").chars().take(300).collect()
}

#[test]
fn no_input_breaks_a_parser() {
    let mut row = Row::new("mutated input to every parser");
    let all = times("parsers", 20_000, 10_000_000);
    let mut dice = Dice::thrown();
    let bench = Bench::new("mutated");
    let broken = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            for target in &ALL {
                let seeds = Seeds::of(target.name);
                let share = (all * target.share / 1_000_000).max(1);
                let plain = seeds.all().iter().cloned();
                let changed = (0..share).map(|_| seeds.input(&mut dice));
                let mut found = plain
                    .chain(changed)
                    .filter_map(|input| bench.breaks(target, &input));
                // One that breaks everywhere need not be listed a million times.
                broken.lock().unwrap().extend(found.by_ref().take(5));
            }
            targets::clean();
        });
        watch_over(&bench, || worker.is_finished());
    });
    row.tried_many(bench.run.load(Ordering::Relaxed));
    row.broke(broken.into_inner().unwrap());
    row.finish();
}

/// Ends it all where one input does not end: a thread can't be.
fn watch_over(bench: &Bench, is_finished: impl Fn() -> bool) {
    let mut seen = (0, std::time::Instant::now());
    while !is_finished() {
        std::thread::sleep(Duration::from_millis(20));
        let run = bench.run.load(Ordering::Relaxed);
        if run != seen.0 {
            seen = (run, std::time::Instant::now());
        } else if seen.1.elapsed() > HANGS {
            eprintln!("an input hangs; it is {}/last-mutated", folder().display());
            std::process::abort();
        }
    }
}

/// JSON of any shape, and text that looks like a document of ours.
fn documents() -> impl Strategy<Value = String> {
    let keys = prop::sample::select(vec![
        "target",
        "agent_id",
        "handoff",
        "from",
        "to",
        "context",
        "status",
        "handoffd",
        "attempts",
        "format",
        "task_id",
        "version",
        "result",
        "waiting",
        "timeout_seconds",
        "retry_policy",
        "depends_on",
        "not_before",
        "gate",
        "deadline",
        "input",
        "data",
        "handoff_id",
        "error",
        "",
    ]);
    let leaves = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        any::<f64>().prop_map(|value| serde_json::json!(value).to_string()),
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,5})?([eE][+-]?[0-9]{1,4})?",
        any::<String>().prop_map(|text| serde_json::json!(text).to_string()),
        prop::sample::select(vec![
            "\"@fake\"",
            "\"complete\"",
            "\"blocked\"",
            "\"2026-11-16T10:00:00Z\"",
            "\"human\"",
            "1",
            "1.0",
        ])
        .prop_map(str::to_owned),
    ];
    let value = leaves.prop_recursive(6, 60, 8, move |inner| {
        let entry =
            (keys.clone(), inner.clone()).prop_map(|(key, value)| format!("{key:?}: {value}"));
        prop_oneof![
            prop::collection::vec(inner, 0..6).prop_map(|list| format!("[{}]", list.join(", "))),
            prop::collection::vec(entry, 0..8).prop_map(|map| format!("{{{}}}", map.join(", "))),
        ]
    });
    value.prop_map(|value| format!("{{\"target\": {{\"agent_id\": \"@fake\"}}, \"x\": {value}}}"))
}

#[test]
fn no_document_of_the_right_kind_breaks_a_parser() {
    let mut row = Row::new("documents of any shape to every parser");
    let cases = times("documents", 300, 100_000);
    let bench = Bench::new("documents");
    let config = Config {
        cases: u32::try_from(cases).unwrap(),
        failure_persistence: None,
        ..Config::default()
    };
    let text = (documents(), "\\PC{0,60}(\n[-a-z: #'\"|>&*!]{0,20}){0,6}");
    let outcome = TestRunner::new(config).run(&text, |(document, words)| {
        for target in &ALL {
            for input in [
                &document,
                &words,
                &format!("{words}\n```json\n{document}\n```\n"),
            ] {
                if let Some(broken) = bench.breaks(target, input.as_bytes()) {
                    return Err(TestCaseError::fail(broken));
                }
            }
        }
        Ok(())
    });
    targets::clean();
    row.tried_many(bench.run.load(Ordering::Relaxed));
    row.broke(outcome.err().map(|error| error.to_string()));
    row.finish();
}

#[test]
fn an_input_that_breaks_something_is_found() {
    let bench = Bench::new("found");
    let seeds = Seeds::of("control");
    let mut dice = Dice::thrown();
    for (what, run) in [
        (
            "panicked",
            (|bytes| assert!(!bytes.contains(&0xff))) as fn(&[u8]),
        ),
        ("needed", |bytes| {
            if bytes.contains(&0xff) {
                drop(vec![1_u8; MOST_BYTES + 1]);
            }
        }),
    ] {
        let target = Target {
            name: "found",
            run,
            share: 0,
        };
        let found = (0..10_000).find_map(|_| bench.breaks(&target, &seeds.input(&mut dice)));
        let found = found.expect("something that breaks it");
        assert!(found.contains(what), "{found}");
    }
    for kept in fs::read_dir(folder()).unwrap() {
        let path = kept.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("found-") {
            fs::remove_file(&path).unwrap();
        }
    }
}
