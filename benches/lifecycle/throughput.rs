//! Handoffs per second through the whole lifecycle, with a specialist that does nothing.

use std::io;
use std::time::{Duration, Instant};

use crate::bare;
use crate::rig::{Rig, Setup, ids};
use crate::table::{Table, median};

const ROUNDS: usize = 5;
const COUNT: usize = 1000;

pub fn run(table: &mut Table) -> io::Result<()> {
    eprintln!("throughput: {ROUNDS} rounds of {COUNT}");
    let mut cases = Vec::new();
    for (at_once, durability) in [(2, "full"), (2, "relaxed"), (8, "full"), (8, "relaxed")] {
        let setup = Setup {
            max_concurrent: at_once,
            durability,
        };
        let name = format!("throughput-{at_once}-{durability}");
        let mut rig = Rig::new(&name, &["/bin/true"], setup)?;
        rig.start()?;
        rig.wait_ready();
        round(&rig, "warm", 50)?;
        cases.push((setup, rig, Vec::new(), Vec::new()));
    }
    for n in 0..ROUNDS {
        for (setup, rig, ours, bare) in &mut cases {
            bare.push(bare::spawn_loop(COUNT, setup.max_concurrent));
            ours.push(round(rig, &format!("round{n}"), COUNT)?);
        }
    }
    for (setup, _, ours, bare) in &mut cases {
        #[expect(clippy::cast_precision_loss, reason = "a small count")]
        let rate = |seconds: &mut [f64]| COUNT as f64 / median(seconds);
        let (ours, bare) = (rate(ours), rate(bare));
        table.row(
            &format!(
                "handoffs/s, {} at once, {}",
                setup.max_concurrent, setup.durability
            ),
            format!("{ours:.0}"),
            format!("{bare:.0} bare spawns/s"),
            Some(ours / bare),
        );
    }
    Ok(())
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
