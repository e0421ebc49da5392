//! What has ended must cost nothing: the rate and the start beside so many completed files.

use std::fs;
use std::io;
use std::time::Instant;

use crate::backlog::sync;
use crate::chart::{Axis, Chart, Kind, Line};
use crate::options::Options;
use crate::results::{Aim, Figure, Section, grouped, median, number, per_second};
use crate::rig::{Rig, Setup};
use crate::sample::{AGENT, ids, request};
use crate::throughput::round;

const STARTS: usize = 5;

pub fn run(options: &Options, section: &mut Section) -> io::Result<()> {
    let mut rates = Vec::new();
    for size in options.sizes() {
        eprintln!("  … {} completed", grouped(number(size)));
        // Both are new, so that they differ in nothing else.
        let mut empty = Rig::new("history-none", &["/bin/true"], Setup::default())?;
        let mut full = Rig::new("history-many", &["/bin/true"], Setup::default())?;
        let completed = full.folder("completed");
        fs::create_dir_all(&completed)?;
        for id in ids("history", size) {
            fs::write(completed.join(format!("{id}.json")), request(&id, AGENT))?;
        }
        sync(&full);
        let mut starting = [Vec::new(), Vec::new()];
        for _ in 0..STARTS {
            for (rig, seconds) in [&mut empty, &mut full].into_iter().zip(&mut starting) {
                seconds.push(start(rig)?);
            }
        }
        let mut working = [Vec::new(), Vec::new()];
        for n in 0..options.rounds.min(3) {
            for (rig, seconds) in [&empty, &full].into_iter().zip(&mut working) {
                seconds.push(round(rig, &format!("h{size}-{n}"), options.count)?);
            }
        }
        let [none, many] = working.map(|mut it| per_second(options.count, median(&mut it)));
        let after = format!("with {} completed", grouped(number(size)));
        let rate = format!("rate {after}");
        let rate = Figure::new(format!("history.{size}.rate"), rate, many, "/s");
        section.add(rate.beside("with none", none).aim(Aim::AtLeast(0.95)));
        let [without, with] = starting.map(|mut it| median(&mut it) * 1000.0);
        let begun = format!("start {after}");
        let begun = Figure::new(format!("history.{size}.start"), begun, with, "ms");
        section.add(begun.beside("with none", without).aim(Aim::AtMost(1.05)));
        rates.push([(number(size), many), (number(size), none)]);
    }
    section.charts.push(Chart {
        name: "history".to_owned(),
        title: "Handoffs per second by what has completed".to_owned(),
        across: Axis::log("completed files"),
        up: Axis::linear("per second"),
        kind: Kind::Lines(vec![
            Line::new("2 at once, durable", rates.iter().map(|it| it[0]).collect()),
            Line::new("with none, in turn", rates.iter().map(|it| it[1]).collect()),
        ]),
    });
    Ok(())
}

/// Seconds from the start until it is ready; leaves it running.
pub fn start(rig: &mut Rig) -> io::Result<f64> {
    rig.stop();
    let _ = fs::remove_file(rig.root.join(".handoffd/daemon.json"));
    let begin = Instant::now();
    rig.start()?;
    rig.wait_ready();
    Ok(begin.elapsed().as_secs_f64())
}
