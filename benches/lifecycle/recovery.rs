//! A start after a kill -9, with many records that were in progress.

use std::io;
use std::time::{Duration, Instant};

use handoffd::clock::{Clock, boot_id};
use handoffd::protocol::document;
use handoffd::protocol::lifecycle::State;
use handoffd::protocol::name::Ext;
use handoffd::protocol::record::{Attempt, Record};

use crate::rig::{Rig, Setup, ids, request, wait_until};
use crate::table::Table;

const RECORDS: usize = 10_000;

pub fn run(table: &mut Table) -> io::Result<()> {
    eprintln!("recovery: {RECORDS} records");
    let setup = Setup {
        max_concurrent: 2,
        durability: "full",
        resident: false,
    };
    // Once recovered they are run again; sleeping ones don't disturb the measurement.
    let mut rig = Rig::new("recovery", &["sleep", "100000"], setup)?;
    rig.start()?;
    rig.wait_ready();
    rig.kill();
    std::fs::remove_file(rig.root.join(".handoffd/daemon.json"))?;
    for id in ids("recovery", RECORDS) {
        let path = rig.folder("in-progress").join(format!("{id}.json"));
        std::fs::write(path, in_progress(&id)?)?;
    }
    let _ = rustix::fs::syncfs(std::fs::File::open(&rig.root)?);
    let begin = Instant::now();
    rig.start()?;
    let keeper = rig.root.join(".handoffd/run");
    let mut first = None;
    wait_until(
        Duration::from_secs(120),
        "the records to be recovered",
        || {
            if first.is_none() && dispatched(&keeper) {
                first = Some(begin.elapsed());
            }
            rig.count("in-progress") <= setup.max_concurrent
        },
    );
    let all = begin.elapsed();
    table.row(
        &format!("recovery of {RECORDS} in progress"),
        format!("{:.2} s", all.as_secs_f64()),
        format!(
            "{:.2} s to the first dispatch",
            first.unwrap_or(all).as_secs_f64()
        ),
        None,
    );
    Ok(())
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
    let text = request(id, crate::rig::AGENT);
    let parsed = document::parse(text.as_bytes(), Ext::Json).map_err(io::Error::other)?;
    let mut record = Record::admit(parsed.map, id, None);
    let now = Clock::System.now();
    record.decide(State::InProgress);
    record.set("started_at", now.wall.to_string());
    record.meta.boot = Some(boot_id().to_owned());
    record.meta.attempts.push(Attempt::begun(1, now.wall));
    Ok(record.to_bytes())
}
