//! What a handoff costs, against the least it could cost, measured in the same run.
//!
//! Machines differ and are never quiet, so what counts is the ratio to something that stands
//! beside it: the two take turns, several rounds each, and the medians are compared.
//!
//! ```text
//! cargo bench                          everything, in ten to fifteen minutes
//! cargo bench -- throughput pickup     some of it: the names are in SECTIONS below
//! cargo bench -- --write docs          and writes docs/performance.md and its charts
//! cargo bench -- render --write docs   the document alone, from what was measured before
//! cargo bench -- --up-to 1000000       backlogs and histories up to this size, not 100,000
//! cargo bench -- --quick               all in a minute or two, for a look
//! ```
//!
//! Also `--rounds N`, `--count N` (handoffs in a round) and `--idle SECONDS`. The figures are kept
//! in `target/bench/results.json`, by section, until they are measured anew.
//!
//! Roots are made below `target/bench-roots`, so on the disk that the build is on, and removed
//! afterwards. `HANDOFFD_BENCH_BIN` names another handoffd to measure, to compare two builds;
//! `HANDOFFD_BENCH_PYTHON` a Python that has huey and dirq.

mod backlog;
mod bare;
mod chart;
mod document;
mod durability;
mod floods;
mod history;
mod idle;
mod limits;
mod options;
mod peers;
mod pickup;
mod queues;
mod recovery;
mod resident;
mod results;
mod rig;
#[path = "../common/sample.rs"]
mod sample;
mod throughput;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

use options::Options;
use results::{Results, Section};
use rig::INTERRUPTED;

/// In this order: some hold their figures against those of sections before them.
const SECTIONS: [&str; 11] = [
    "limits",
    "throughput",
    "durability",
    "pickup",
    "resident",
    "recovery",
    "backlog",
    "history",
    "floods",
    "idle",
    "peers",
];

fn main() -> io::Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // This program is also the specialist and the bare program that it is compared with.
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--stamp", socket] => return bare::stamp(socket).map(|()| ExitCode::SUCCESS),
        ["--resident"] => return bare::answer().map(|()| ExitCode::SUCCESS),
        ["--bare-pickup", folder, socket] => {
            return bare::watch(folder, socket).map(|()| ExitCode::SUCCESS);
        }
        _ => {}
    }
    let options = Options::read(&args)?;
    let unknown = |name: &&String| !SECTIONS.contains(&name.as_str()) && *name != "render";
    if let Some(name) = options.wanted.iter().find(unknown) {
        eprintln!("{name}: there is no such section; there are {SECTIONS:?} and render");
        return Ok(ExitCode::from(2));
    }
    watch_signals()?;
    rig::sweep();
    let mut results = Results::load();
    let mut failed = Vec::new();
    for name in SECTIONS {
        let is_wanted = options.wanted.is_empty() || options.wanted.iter().any(|it| it == name);
        if !is_wanted || INTERRUPTED.load(Ordering::Relaxed) {
            continue;
        }
        let (section, is_whole) = measure(name, &options, &results);
        if INTERRUPTED.load(Ordering::Relaxed) {
            break;
        }
        if !is_whole {
            failed.push(name);
        }
        println!("\n## {name}\n\n{}", section.table());
        results.put(section);
        results.save()?;
    }
    if let Some(folder) = &options.write {
        document::write(folder, &results)?;
    }
    if INTERRUPTED.load(Ordering::Relaxed) {
        eprintln!("interrupted; what was measured is kept");
        return Ok(ExitCode::from(130));
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("not measured, or not to the end: {}", failed.join(", "));
    Ok(ExitCode::FAILURE)
}

/// One section fails by itself, and says why: the others are measured all the same.
fn measure(name: &str, options: &Options, before: &Results) -> (Section, bool) {
    eprintln!("{name}:");
    let begin = Instant::now();
    let mut section = Section {
        name: name.to_owned(),
        taken: document::taken(options),
        ..Section::default()
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| match name {
        "limits" => limits::run(options, &mut section),
        "throughput" => throughput::run(options, &mut section),
        "durability" => durability::run(&mut section, before),
        "pickup" => pickup::run(options, &mut section),
        "resident" => resident::run(options, &mut section, before),
        "recovery" => recovery::run(options, &mut section),
        "backlog" => backlog::run(options, &mut section),
        "history" => history::run(options, &mut section),
        "floods" => floods::run(options, &mut section),
        "idle" => idle::run(options, &mut section),
        _ => peers::run(options, &mut section),
    }));
    let why = match outcome {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(panic) => Some(
            panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
                .unwrap_or_default(),
        ),
    };
    let is_whole = why.is_none();
    if let Some(why) = why {
        section.note(format!("Given up: {why}."));
    }
    section.seconds = begin.elapsed().as_secs_f64();
    (section, is_whole)
}

/// The first signal ends what is being measured, in order; a second one ends this program.
fn watch_signals() -> io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([libc::SIGINT, libc::SIGTERM])?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            if INTERRUPTED.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        }
    });
    Ok(())
}
