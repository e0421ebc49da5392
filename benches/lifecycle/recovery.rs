//! A start after a kill -9, with many records that were in progress.

use std::io;
use std::time::{Duration, Instant};

use handoffd::clock::{Clock, boot_id};
use handoffd::protocol::attempt::Attempt;
use handoffd::protocol::document;
use handoffd::protocol::lifecycle::State;
use handoffd::protocol::name::Ext;
use handoffd::protocol::record::Record;

use crate::history::start;
use crate::options::Options;
use crate::results::{Aim, Figure, Section, grouped, median, number};
use crate::rig::{Rig, Setup, program, wait_until};
use crate::sample::{AGENT, ids, request};

pub fn run(options: &Options, section: &mut Section) -> io::Result<()> {
    let mut empty = Rig::new("start", &["/bin/true"], Setup::default())?;
    let starts: io::Result<Vec<f64>> = (0..10).map(|_| start(&mut empty)).collect();
    let ready = median(&mut starts?) * 1000.0;
    drop(empty);
    let what = "start on an empty root, until it is ready";
    section.add(Figure::new("start.empty", what, ready, "ms"));
    #[expect(clippy::cast_precision_loss, reason = "a few million bytes")]
    let size = std::fs::metadata(program())?.len() as f64 / 1e6;
    let figure = Figure::new("start.binary", "the program itself, stripped", size, "MB");
    section.add(figure.aim(Aim::ValueAtMost(12.0)));
    let rounds: io::Result<Vec<[f64; 2]>> = (0..options.rounds.min(3))
        .map(|_| measure(options.records))
        .collect();
    let rounds = rounds?;
    for (at, key, what, most) in [
        (0, "first", "until the first dispatch", 1.0),
        (1, "all", "until all are recovered", 5.0),
    ] {
        let mut seconds: Vec<f64> = rounds.iter().map(|round| round[at]).collect();
        let records = grouped(number(options.records));
        let what = format!("{records} in progress after a kill -9, {what}");
        let figure = Figure::new(format!("recovery.{key}"), what, median(&mut seconds), "s");
        section.add(figure.aim(Aim::ValueAtMost(most)));
    }
    Ok(())
}

/// Seconds until the first dispatch, and until all are recovered.
fn measure(records: usize) -> io::Result<[f64; 2]> {
    // Once recovered they are run again; sleeping ones don't disturb the measurement.
    let setup = Setup::default();
    let mut rig = Rig::new("recovery", &["sleep", "20000"], setup)?;
    rig.start()?;
    rig.wait_ready();
    rig.kill();
    std::fs::remove_file(rig.root.join(".handoffd/daemon.json"))?;
    for id in ids("recovery", records) {
        let path = rig.folder("in-progress").join(format!("{id}.json"));
        std::fs::write(path, in_progress(&id)?)?;
    }
    crate::backlog::sync(&rig);
    let begin = Instant::now();
    rig.start()?;
    let keeper = rig.root.join(".handoffd/run");
    let (mut first, mut all) = (None, None);
    let limit = Duration::from_secs(240);
    wait_until(limit, "the records to be recovered", || {
        // Listing ten thousand is work, too.
        std::thread::sleep(Duration::from_millis(20));
        if first.is_none() && dispatched(&keeper) {
            first = Some(begin.elapsed());
        }
        if all.is_none() && rig.count("in-progress") <= setup.max_concurrent {
            all = Some(begin.elapsed());
        }
        first.is_some() && all.is_some()
    });
    Ok([first, all].map(|it| it.unwrap_or_default().as_secs_f64()))
}

/// Whether the keeper was told to start anything.
fn dispatched(run: &std::path::Path) -> bool {
    (0..2).any(|n| {
        std::fs::read_to_string(run.join(format!("attempts.{n}.jsonl")))
            .is_ok_and(|text| text.contains("\"start\""))
    })
}

/// A record as a daemon leaves it that was killed right after the claim.
fn in_progress(id: &str) -> io::Result<Vec<u8>> {
    let text = request(id, AGENT);
    let parsed = document::parse(text.as_bytes(), Ext::Json).map_err(io::Error::other)?;
    let mut record = Record::admit(parsed.map, id, None);
    let now = Clock::System.now();
    record.decide(State::InProgress);
    record.set("started_at", now.wall.to_string());
    record.meta.boot = Some(boot_id().to_owned());
    record.meta.attempts.push(Attempt::begun(1, now.wall));
    Ok(record.to_bytes())
}
