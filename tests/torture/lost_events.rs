//! More files at once than events are kept for, while nobody reads: none is missed.
//!
//! The daemon is stopped, the kernel's queue is filled with events that mean nothing, and then
//! files are dropped of which no event is kept; and the same with a daemon that only ever looks
//! by the clock.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::common::{Daemon, Root, ended, wait_until};
use crate::report::{Row, times};

/// Every so many is run; the others are refused for want of a specialist, which is quicker.
const RUN: usize = 20;

#[test]
fn a_burst_larger_than_the_event_queue_is_all_ended() {
    burst(
        "files dropped while events are lost",
        "inotify",
        times("lost_events", 1_000, 100_000),
    );
}

#[test]
fn a_burst_is_all_ended_without_any_events() {
    burst(
        "files dropped where there are no events",
        "poll",
        times("lost_events", 1_000, 100_000),
    );
}

fn burst(fault: &'static str, watch: &str, count: usize) {
    let mut row = Row::new(fault);
    let root = Root::with(&format!(
        "daemon.watch = '{watch}'\ndaemon.durability = 'relaxed'\ndaemon.max_concurrent = 8\n\
         specialists.'@true'.command = ['/bin/true']"
    ));
    let daemon = Daemon::start_with(&root, |command| {
        // A hundred thousand refusals are no news.
        command.env("HANDOFFD_LOG", "error");
    });
    daemon.signal(Signal::STOP);
    fill_the_queue(&root);
    for n in 0..count {
        let agent = if n % RUN == 0 { "true" } else { "nobody" };
        let request = json!({ "target": { "agent_id": agent } }).to_string();
        root.drop_bytes(&format!("b{n}.json"), request.as_bytes());
    }
    daemon.signal(Signal::CONT);
    // The count may take longer than any one wait may: it must only never stand still.
    let mut done = 0;
    while done < count {
        let before = done;
        done = wait_until(&format!("more than {before} of {count} ended"), || {
            Some(ended(&root)).filter(|now| *now > before)
        });
        std::thread::sleep(Duration::from_millis(200));
    }
    row.tried_many(count);
    let runs = count.div_ceil(RUN);
    let completed = root.names("handoffs/completed").len();
    if completed != runs {
        row.broke([format!("{completed} of {runs} completed")]);
    }
    if !root.names("handoffs/pending").is_empty() {
        row.broke(["something is left in pending/".to_owned()]);
    }
    if daemon.terminate() != Some(0) {
        row.broke(["the daemon did not leave in peace".to_owned()]);
    }
    let found = handoffd::inspect::deep::examine_root(root.dir()).unwrap();
    row.broke(found.breaches.iter().map(|breach| format!("{breach:?}")));
    row.finish();
}

/// As many events as the kernel keeps for a reader that does not read, and some more: a producer's
/// temporary file, renamed to and fro.
fn fill_the_queue(root: &Root) {
    let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap_or_default();
    let most: usize = most.trim().parse().unwrap_or(16_384);
    let (a, b) = (root.pending(".a.tmp"), root.pending(".b.tmp"));
    fs::write(&a, "").unwrap();
    for _ in 0..=most / 2 {
        fs::rename(&a, &b).unwrap();
        fs::rename(&b, &a).unwrap();
    }
    fs::remove_file(a).unwrap();
}
