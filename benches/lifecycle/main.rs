//! What a handoff costs, against the least it could cost, measured in the same run.
//!
//! Machines differ and are never quiet, so what counts is the ratio to a bare program that does
//! nothing but start the same processes: the two take turns, several rounds each, and the medians
//! are compared.
//!
//! ```text
//! cargo bench                      everything, in three to four minutes
//! cargo bench -- throughput        handoffs per second, 2 and 8 at once, spawned and resident
//! cargo bench -- pickup            from the rename into pending/ to the specialist's main
//! cargo bench -- memory            with 10,000 and 100,000 waiting
//! cargo bench -- backlog           the rate with 100,000 waiting, of that with 1,000
//! cargo bench -- recovery          10,000 records in in-progress/ after a kill -9
//! cargo bench -- idle [seconds]    processor time of an idle daemon and its keeper
//! ```
//!
//! Roots are made below `target/bench-roots`, so on the disk that the build is on, and removed
//! afterwards. `HANDOFFD_BENCH_BIN` names another handoffd to measure, to compare two builds.

mod backlog;
mod bare;
mod idle;
mod pickup;
mod recovery;
mod rig;
mod table;
mod throughput;

use std::io;

use table::Table;

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // This program is also the specialist and the bare program that it is compared with.
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--stamp", socket] => return bare::stamp(socket),
        ["--resident"] => return bare::answer(),
        ["--bare-pickup", folder, socket] => return bare::watch(folder, socket),
        _ => {}
    }
    let wanted: Vec<&str> = args
        .iter()
        .map(String::as_str)
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    let seconds = wanted.iter().find_map(|word| word.parse().ok());
    let is_wanted =
        |name| wanted.iter().all(|word| word.parse::<u64>().is_ok()) || wanted.contains(&name);
    let mut table = Table::default();
    if is_wanted("throughput") {
        throughput::run(&mut table)?;
    }
    if is_wanted("pickup") {
        pickup::run(&mut table)?;
    }
    if is_wanted("recovery") {
        recovery::run(&mut table)?;
    }
    if is_wanted("memory") || is_wanted("backlog") {
        backlog::run(&mut table, is_wanted("memory"))?;
    }
    if is_wanted("idle") {
        idle::run(&mut table, seconds.unwrap_or(20))?;
    }
    table.print();
    Ok(())
}
