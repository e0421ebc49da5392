//! What a backlog costs: the start with all of it there, memory, and the rate at which it is
//! worked off.
//!
//! The files are in `pending/` before the daemon starts, and in the page cache. The only slot is
//! taken by the first of them, which sleeps, so that the others stay until all were read; then
//! the specialist becomes one that does nothing, and two more slots are opened.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use crate::chart::{Axis, Chart, Kind, Line};
use crate::options::Options;
use crate::results::{Aim, Figure, Section, grouped, median, number, per_second};
use crate::rig::{Rig, Setup, cpu_ns, wait_until};
use crate::sample::{AGENT, ids, request};

const CLOSED: Setup = Setup {
    max_concurrent: 1,
    durability: "full",
    resident: false,
};
const OPEN: Setup = Setup {
    max_concurrent: 3,
    ..CLOSED
};
const FEW: usize = 1_000;

#[derive(Clone, Copy)]
pub struct Measured {
    first: f64,
    read: f64,
    rss: f64,
    peak: f64,
    pub rate: f64,
    /// A critical one, from its drop to its end, with all the others before it.
    critical: f64,
}

pub fn run(options: &Options, section: &mut Section) -> io::Result<()> {
    let mut few = Vec::new();
    let mut large: Vec<(usize, Measured)> = Vec::new();
    for size in options.sizes() {
        // Beside each large one a small one, because the machine changes meanwhile.
        let (first, second) = (measure(FEW)?, measure(FEW)?);
        few.extend([first.rate, second.rate]);
        large.push((size, if size == FEW { first } else { measure(size)? }));
    }
    let base = median(&mut few);
    for (size, measured) in &mut large {
        let waiting = format!("with {} waiting", grouped(number(*size)));
        let is_base = *size == FEW;
        if is_base {
            measured.rate = base;
        }
        let key = |what: &str| format!("backlog.{size}.{what}");
        let rate = Figure::new(key("rate"), format!("rate {waiting}"), measured.rate, "/s");
        section.add(if is_base {
            rate
        } else {
            let beside = format!("with {} waiting", grouped(number(FEW)));
            rate.beside(beside, base).aim(Aim::AtLeast(0.95))
        });
        let memory = Figure::new(
            key("memory"),
            format!("memory {waiting}"),
            measured.rss,
            "MB",
        );
        section.add(match *size {
            100_000 => memory.aim(Aim::ValueAtMost(25.0)),
            1_000_000 => memory.aim(Aim::ValueAtMost(200.0)),
            _ => memory,
        });
        let peak = format!("memory at its peak, {waiting}");
        section.add(Figure::new(key("peak"), peak, measured.peak, "MB"));
        let first = format!("first dispatch after a start {waiting}");
        let first = Figure::new(key("first"), first, measured.first, "s");
        section.add(first.aim(Aim::ValueAtMost(1.0)));
        let critical = format!("a critical one, dropped {waiting}, until it has ended");
        let critical = Figure::new(key("critical"), critical, measured.critical, "s");
        section.add(critical.aim(Aim::ValueAtMost(1.0)));
        let read = format!("until all are read, after a start {waiting}");
        let read = Figure::new(key("read"), read, measured.read, "s");
        section.add(if *size == 1_000_000 {
            read.aim(Aim::ValueAtMost(15.0))
        } else {
            read
        });
    }
    let line = |name: &str, of: fn(&Measured) -> f64| {
        let points = large.iter().map(|(size, it)| (number(*size), of(it)));
        Line::new(name, points.collect())
    };
    for (name, title, up, lines) in [
        (
            "backlog-rate",
            "Handoffs per second by what waits",
            "per second",
            vec![line("2 at once, durable", |it| it.rate)],
        ),
        (
            "backlog-memory",
            "Memory by what waits",
            "MB",
            vec![line("resident", |it| it.rss), line("peak", |it| it.peak)],
        ),
        (
            "backlog-start",
            "A start by what waits",
            "seconds",
            vec![
                line("first dispatch", |it| it.first),
                line("all are read", |it| it.read),
            ],
        ),
    ] {
        section.charts.push(Chart {
            name: name.to_owned(),
            title: title.to_owned(),
            across: Axis::log("waiting"),
            up: Axis {
                label: up.to_owned(),
                is_log: up == "seconds",
            },
            kind: Kind::Lines(lines),
        });
    }
    Ok(())
}

pub fn measure(waiting: usize) -> io::Result<Measured> {
    eprintln!("  … {} waiting", grouped(number(waiting)));
    let mut rig = Rig::new(&format!("backlog-{waiting}"), &["sleep", "20000"], CLOSED)?;
    let pending = rig.folder("pending");
    for id in ids("backlog", waiting + 1) {
        fs::write(pending.join(format!("{id}.json")), request(&id, AGENT))?;
    }
    sync(&rig);
    let begin = Instant::now();
    rig.start()?;
    let mut first = 0.0;
    wait_until(Duration::from_secs(300), "the first dispatch", || {
        first = begin.elapsed().as_secs_f64();
        rig.count("in-progress") > 0
    });
    let read = wait_quiet(&rig, begin);
    let (rss, peak) = (rig.memory("VmRSS"), rig.memory("VmHWM"));
    rig.command = vec!["/bin/true".to_owned()];
    rig.configure(OPEN)?;
    let completions = waiting.min(1_000);
    let begin = Instant::now();
    rig.reload();
    let mut done = 0;
    wait_until(Duration::from_secs(300), "the completions", || {
        done = rig.count("completed");
        let left = completions.saturating_sub(done) as u64;
        std::thread::sleep(Duration::from_micros((left * 200).min(100_000)));
        left == 0
    });
    let rate = per_second(done, begin.elapsed().as_secs_f64());
    Ok(Measured {
        critical: overtake(&rig)?,
        first,
        read,
        rss,
        peak,
        rate,
    })
}

/// Seconds that a critical one needs to pass all that waits.
fn overtake(rig: &Rig) -> io::Result<f64> {
    let id = "critical";
    let critical = request(id, AGENT).replace("\"normal\"", "\"critical\"");
    fs::write(rig.root.join("staging").join(id), critical)?;
    let begin = Instant::now();
    rig.drop_staged(id)?;
    let ended = rig.folder("completed").join("critical.json");
    let mut took = 0.0;
    wait_until(Duration::from_secs(300), "the critical one", || {
        took = begin.elapsed().as_secs_f64();
        ended.exists()
    });
    Ok(took)
}

/// What was written must not be written out while something is measured.
pub fn sync(rig: &Rig) {
    if let Ok(folder) = fs::File::open(&rig.root) {
        let _ = rustix::fs::syncfs(folder);
    }
}

/// Intake is over when the daemon has nothing to do any more; seconds until it last had.
fn wait_quiet(rig: &Rig, begin: Instant) -> f64 {
    let (mut last, mut busy) = (0, Instant::now());
    wait_until(Duration::from_secs(900), "the daemon to be quiet", || {
        std::thread::sleep(Duration::from_millis(20));
        let now = cpu_ns(rig.pid());
        if now - last > 1_000_000 {
            busy = Instant::now();
        }
        last = now;
        busy.elapsed() > Duration::from_millis(700)
    });
    busy.duration_since(begin).as_secs_f64()
}
