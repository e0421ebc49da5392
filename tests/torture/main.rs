//! Tries to prove the promises wrong: faults of every known kind, and after each the same
//! question, whether anything was lost, doubled, stuck or let in.
//!
//! Each module is one kind of fault. `cargo test` tries a few points of each; `just torture`
//! all of them, and prints what was tried and what broke. docs/reliability.md has the last
//! full run.

#![expect(
    clippy::disallowed_methods,
    reason = "these tests play producers, who rename, link and read clocks as they like"
)]

#[allow(
    dead_code,
    unused_imports,
    reason = "every kind of test uses its own part of it"
)]
#[path = "../common/mod.rs"]
mod common;

mod attempts;
mod bit_rot;
mod canary;
mod clock;
mod commanders;
#[cfg(target_os = "linux")]
mod disk;
#[cfg(target_os = "linux")]
mod disks;
#[cfg(target_arch = "x86_64")]
mod errors;
mod fences;
mod floods;
mod forged;
#[cfg(target_os = "linux")]
mod full;
mod hostile;
mod injection;
#[cfg(target_arch = "x86_64")]
mod kill_points;
mod long_life;
mod lost_events;
#[cfg(all(feature = "mutants", target_arch = "x86_64"))]
mod mutants;
#[cfg(target_arch = "x86_64")]
mod nested;
#[cfg(target_arch = "x86_64")]
mod order;
mod parsers;
#[cfg(target_os = "linux")]
mod power;
mod report;
mod rivals;
#[cfg(target_arch = "x86_64")]
mod scenarios;
mod storm;
mod swaps;
#[cfg(target_arch = "x86_64")]
mod tracer;
mod waits;

#[cfg(not(target_arch = "x86_64"))]
#[test]
fn faults_at_calls_are_tried_on_x86_64_only() {
    let why = "the tracer knows the registers of x86-64 only";
    eprintln!("nothing was tried: {why}");
    let mut row = report::Row::new("kill -9 before and after every call");
    row.note(why);
    row.finish();
}
mod trees;
