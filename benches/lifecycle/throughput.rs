//! Handoffs per second through the whole lifecycle, with a specialist that does nothing.

use std::io;
use std::time::Instant;

use crate::bare;
use crate::chart::{Axis, Chart, Kind, Line};
use crate::options::Options;
use crate::results::{Aim, Figure, Section, median, number, per_second};
use crate::rig::{Rig, Setup, family_ns};
use crate::sample::ids;

const AT_ONCE: [usize; 4] = [1, 2, 4, 8];

/// One configuration, with what was measured of it so far.
struct Case {
    setup: Setup,
    rig: Rig,
    pids: [u32; 2],
    ours: Measured,
    bare: Measured,
}

pub fn run(options: &Options, section: &mut Section) -> io::Result<()> {
    let mut cases = Vec::new();
    for at_once in AT_ONCE {
        for durability in ["full", "relaxed"] {
            let setup = Setup {
                max_concurrent: at_once,
                durability,
                ..Setup::default()
            };
            let name = format!("throughput-{at_once}-{durability}");
            let mut rig = Rig::new(&name, &["/bin/true"], setup)?;
            rig.start()?;
            rig.wait_ready();
            round(&rig, "warm", 50)?;
            let pids = [rig.pid(), rig.keeper().ok_or(io::ErrorKind::NotFound)?];
            cases.push(Case {
                setup,
                rig,
                pids,
                ours: Measured::default(),
                bare: Measured::default(),
            });
        }
    }
    let own = [std::process::id()];
    let count = options.count;
    for n in 0..options.rounds {
        for case in &mut cases {
            let at_once = case.setup.max_concurrent;
            case.bare
                .add(&own, count, || Ok(bare::spawn_loop(count, at_once)))?;
            let rig = &case.rig;
            case.ours.add(&case.pids, count, || {
                round(rig, &format!("round{n}"), count)
            })?;
        }
    }
    let mut lines = ["bare spawn loop", "durable", "relaxed"].map(|name| Line::new(name, vec![]));
    let mut times = Vec::new();
    for case in &mut cases {
        let at_once = case.setup.max_concurrent;
        let is_durable = case.setup.durability == "full";
        let word = if is_durable { "durable" } else { "relaxed" };
        let rate = per_second(count, median(&mut case.ours.seconds));
        let bare_rate = per_second(count, median(&mut case.bare.seconds));
        let figure = Figure::new(
            format!("rate.{at_once}.{word}"),
            format!("handoffs, {at_once} at once, {word}"),
            rate,
            "/s",
        );
        let figure = figure.beside("bare spawns", bare_rate);
        section.add(match (at_once, is_durable) {
            (2, true) => figure.aim(Aim::AtLeast(0.8)),
            (2, false) => figure.aim(Aim::AtLeast(0.88)),
            (8, true) => figure.aim(Aim::AtLeast(0.75)),
            _ => figure,
        });
        let across = number(at_once);
        lines[if is_durable { 1 } else { 2 }]
            .points
            .push((across, rate));
        if is_durable {
            lines[0].points.push((across, bare_rate));
        }
        let cpu = median(&mut case.ours.cpu);
        let what = format!("processor time of one, {at_once} at once, {word}");
        let cpu = Figure::new(format!("cpu.{at_once}.{word}"), what, cpu, "ms");
        times.push(cpu.beside("a bare spawn", median(&mut case.bare.cpu)));
    }
    for time in times {
        section.add(time);
    }
    section.charts.push(Chart {
        name: "throughput".to_owned(),
        title: "Handoffs of /bin/true per second".to_owned(),
        across: Axis::log("at once"),
        up: Axis::linear("per second"),
        kind: Kind::Lines(lines.into()),
    });
    Ok(())
}

#[derive(Default)]
struct Measured {
    seconds: Vec<f64>,
    /// Milliseconds of processor time for each handoff, that of its specialist included.
    cpu: Vec<f64>,
}

impl Measured {
    fn add(
        &mut self,
        pids: &[u32],
        count: usize,
        run: impl FnOnce() -> io::Result<f64>,
    ) -> io::Result<()> {
        let used = || pids.iter().map(|pid| family_ns(*pid)).sum();
        let before: u64 = used();
        self.seconds.push(run()?);
        let after: u64 = used();
        #[expect(clippy::cast_precision_loss, reason = "a few seconds")]
        self.cpu.push((after - before) as f64 / 1e6 / number(count));
        Ok(())
    }
}

/// Seconds from the first drop until all have ended.
pub fn round(rig: &Rig, prefix: &str, count: usize) -> io::Result<f64> {
    let ids = ids(prefix, count);
    rig.stage(&ids)?;
    let begin = Instant::now();
    for id in &ids {
        rig.drop_staged(id)?;
    }
    rig.wait_drained();
    let seconds = begin.elapsed().as_secs_f64();
    let failed = rig.count("failed");
    if failed > 0 {
        return Err(io::Error::other(format!("{failed} handoffs failed")));
    }
    Ok(seconds)
}
