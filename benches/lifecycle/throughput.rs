//! Handoffs per second through the whole lifecycle, with a specialist that does nothing.

use std::io;
use std::time::{Duration, Instant};

use crate::bare;
use crate::rig::{Rig, Setup, family_ns, ids};
use crate::table::{Table, median};

const ROUNDS: usize = 5;
const COUNT: usize = 1000;

pub fn run(table: &mut Table) -> io::Result<()> {
    eprintln!("throughput: {ROUNDS} rounds of {COUNT}");
    let mut cases = Vec::new();
    let own_path = std::env::current_exe()?;
    let own_path = own_path.to_string_lossy();
    for (at_once, durability, resident) in [
        (2, "full", false),
        (2, "relaxed", false),
        (8, "full", false),
        (8, "relaxed", false),
        (8, "full", true),
        (8, "relaxed", true),
    ] {
        let setup = Setup {
            max_concurrent: at_once,
            durability,
            resident,
        };
        let name = format!("throughput-{at_once}-{durability}-{resident}");
        let command: &[&str] = if resident {
            &[&own_path, "--resident"]
        } else {
            &["/bin/true"]
        };
        let mut rig = Rig::new(&name, command, setup)?;
        rig.start()?;
        rig.wait_ready();
        round(&rig, "warm", 50)?;
        let pids = [rig.pid(), rig.keeper().ok_or(io::ErrorKind::NotFound)?];
        cases.push((setup, rig, pids, Measured::default(), Measured::default()));
    }
    let own = [std::process::id()];
    for n in 0..ROUNDS {
        for (setup, rig, pids, ours, bare) in &mut cases {
            bare.add(&own, || Ok(bare::spawn_loop(COUNT, setup.max_concurrent)))?;
            ours.add(pids, || round(rig, &format!("round{n}"), COUNT))?;
        }
    }
    for (setup, _, _, ours, bare) in &mut cases {
        #[expect(clippy::cast_precision_loss, reason = "a small count")]
        let rate = |measured: &mut Measured| COUNT as f64 / median(&mut measured.seconds);
        let (rate, bare_rate) = (rate(ours), rate(bare));
        table.row(
            &format!(
                "handoffs/s, {}{} at once, {}",
                if setup.resident { "resident, " } else { "" },
                setup.max_concurrent,
                setup.durability
            ),
            format!("{rate:.0}"),
            format!("{bare_rate:.0} bare spawns/s"),
            Some(rate / bare_rate),
        );
        // What it costs says more than how long it takes where others are busy, too.
        let (cpu, bare_cpu) = (median(&mut ours.cpu), median(&mut bare.cpu));
        table.row(
            "  processor time each",
            format!("{cpu:.2} ms"),
            format!("{bare_cpu:.2} ms a bare spawn"),
            Some(bare_cpu / cpu),
        );
    }
    Ok(())
}

#[derive(Default)]
struct Measured {
    seconds: Vec<f64>,
    /// Milliseconds of processor time for each handoff, that of its specialist included.
    cpu: Vec<f64>,
}

impl Measured {
    fn add(&mut self, pids: &[u32], run: impl FnOnce() -> io::Result<f64>) -> io::Result<()> {
        let used = || pids.iter().map(|pid| family_ns(*pid)).sum();
        let before: u64 = used();
        self.seconds.push(run()?);
        let after: u64 = used();
        #[expect(clippy::cast_precision_loss, reason = "a few seconds")]
        self.cpu.push((after - before) as f64 / 1e6 / COUNT as f64);
        Ok(())
    }
}

/// Seconds from the first drop until all are in completed/.
fn round(rig: &Rig, prefix: &str, count: usize) -> io::Result<f64> {
    let ids = ids(prefix, count);
    rig.stage(&ids)?;
    let before = rig.count("completed");
    let begin = Instant::now();
    for id in &ids {
        rig.drop_staged(id)?;
    }
    wait_completed(rig, before + count);
    Ok(begin.elapsed().as_secs_f64())
}

/// Looks seldom while much is left, so that looking costs nothing that shows.
pub fn wait_completed(rig: &Rig, wanted: usize) {
    let begin = Instant::now();
    loop {
        let left = wanted.saturating_sub(rig.count("completed"));
        if left == 0 {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(120), "{left} left");
        std::thread::sleep(Duration::from_micros(
            (left as u64 * 200).clamp(3_000, 100_000),
        ));
    }
}
