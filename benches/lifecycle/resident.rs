//! Specialists whose process stays: what is left of a handoff's cost when nothing is started.

use std::io;

use crate::options::Options;
use crate::results::{Aim, Figure, Results, Section, median, per_second};
use crate::rig::{Rig, Setup};
use crate::throughput::round;

/// A handoff is written twice: when it is claimed, and with its outcome.
const FILES: f64 = 2.0;

pub fn run(options: &Options, section: &mut Section, before: &Results) -> io::Result<()> {
    let own = std::env::current_exe()?;
    let own = own.to_str().ok_or(io::ErrorKind::InvalidInput)?;
    let mut cases = Vec::new();
    for at_once in [2, 8] {
        for durability in ["full", "relaxed"] {
            let setup = Setup {
                max_concurrent: at_once,
                durability,
                resident: true,
            };
            let name = format!("resident-{at_once}-{durability}");
            let mut rig = Rig::new(&name, &[own, "--resident"], setup)?;
            if !rig.takes_configuration()? {
                section.note("Left out: this handoffd has no resident specialists.");
                return Ok(());
            }
            rig.start()?;
            rig.wait_ready();
            round(&rig, "warm", 50)?;
            cases.push((setup, rig, Vec::new()));
        }
    }
    for n in 0..options.rounds {
        for (_, rig, seconds) in &mut cases {
            seconds.push(round(rig, &format!("round{n}"), options.count)?);
        }
    }
    for (setup, _, seconds) in &mut cases {
        let is_durable = setup.durability == "full";
        let (word, limit, said) = if is_durable {
            (
                "durable",
                "limit.synced.8",
                "synced writes, 8 threads, by two",
            )
        } else {
            ("relaxed", "limit.renamed", "writes without fsync, by two")
        };
        let at_once = setup.max_concurrent;
        let rate = per_second(options.count, median(seconds));
        let what = format!("handoffs, resident, {at_once} at once, {word}");
        let figure = Figure::new(format!("resident.{at_once}.{word}"), what, rate, "/s");
        section.add(match before.value(limit) {
            Some(limit) if at_once == 8 => {
                figure.beside(said, limit / FILES).aim(Aim::AtLeast(0.7))
            }
            Some(limit) => figure.beside(said, limit / FILES),
            None => figure,
        });
    }
    Ok(())
}
