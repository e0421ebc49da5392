//! The figures of the metrics port, made from the files.
//!
//! For a root without a daemon, or with one that serves none. How things stand is read off the
//! folders, what has happened off the audit log; what only a running daemon knows (how long
//! handoffs wait for a slot, how many changes share a sync) stays empty.

use std::io;

use crate::clock::Now;
use crate::figures::families::{Figures, seconds};
use crate::inspect::status;
use crate::protocol::lifecycle::State;
use crate::spool::layout::Layout;
use crate::store::audit;

/// How much of the audit log is read, from its end.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

pub fn from_files(layout: &Layout, slots: usize, now: Now) -> io::Result<Figures> {
    let status = status::gather(layout, None, now)?;
    let mut figures = Figures {
        daemon: status.daemon.version.zip(status.daemon.since),
        problems: status.problems.len() as u64,
        slots: slots as u64,
        ..Figures::default()
    };
    for (state, count) in status.counts {
        figures.handoffs.insert(state, count as u64);
        if state == State::InProgress.status() {
            figures.slots_used = count as u64;
        }
    }
    for (on, count) in status.waiting_on {
        figures.waiting.insert(on, count as u64);
    }
    for running in status.running {
        let agent = running.row.agent.unwrap_or_default();
        *figures.running.entry(agent).or_default() += 1;
    }
    if let Some((_, age)) = status.oldest_pending {
        figures.queue_age = seconds(i64::try_from(age.as_millis()).unwrap_or(0));
    }
    let lines = audit::recent(&layout.audit(), MOST_BYTES);
    for line in lines.unwrap_or_default() {
        let id = line.handoff_id.as_deref();
        figures.counts.note(line.at, &line.event, id, &line.detail);
    }
    Ok(figures)
}
