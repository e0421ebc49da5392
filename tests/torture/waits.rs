//! Waits that nobody is there to end: what stands in the folders decides, not what was heard.

use std::fs;

use serde_json::json;

use crate::common::{Daemon, Root, orders, wait_until, with};
use crate::report::{Row, times};

/// A retry is not tried early because its daemon was killed.
#[test]
fn a_retry_keeps_its_time_whoever_is_killed() {
    let mut row = Row::new("kill -9 while retries wait for their time");
    let root = Root::with("daemon.max_concurrent = 4\ndefaults.retry.delay = '4s'");
    let mut daemon = Daemon::start(&root);
    let count = times("waits", 4, 100);
    let ids: Vec<String> = (0..count).map(|n| format!("t{n}")).collect();
    for id in &ids {
        root.drop_request(id, &orders("[ $HANDOFF_ATTEMPT -ge 2 ]"));
    }
    let due: Vec<String> = ids
        .iter()
        .map(|id| {
            let waits = |record: &serde_json::Value| record["waiting"]["on"] == "retry";
            let record = root.record_that("waiting", id, waits);
            record["waiting"]["until"].as_str().unwrap().to_owned()
        })
        .collect();
    for _ in 0..2 {
        daemon.kill();
        daemon = Daemon::start(&root);
    }
    for (id, due) in ids.iter().zip(due) {
        let record = root.completed(id);
        let begun = record["handoffd"]["attempts"][1]["started_at"].as_str();
        let begun = begun.unwrap_or_default();
        let early =
            (begun < due.as_str()).then(|| format!("{id} was due at {due}, ran at {begun}"));
        row.tried(early);
    }
    daemon.terminate();
    row.finish();
}

/// A daemon that is killed between the end of a handoff and the word of it leaves this behind.
#[test]
fn a_dependency_that_ended_unheard_ends_the_wait() {
    let mut row = Row::new("dependencies that end while nobody listens");
    let root = Root::new();
    let daemon = Daemon::start(&root);
    let count = times("waits", 4, 100);
    for n in 0..count {
        root.drop_request(&format!("d{n}"), &orders("await go"));
        let after = json!({ "depends_on": [format!("d{n}")] });
        root.drop_request(&format!("w{n}"), &with(orders("exit 0"), after));
    }
    let waiting: Vec<Vec<u8>> = (0..count)
        .map(|n| {
            let id = format!("w{n}");
            root.record("waiting", &id);
            fs::read(root.state("waiting", &id)).unwrap()
        })
        .collect();
    root.allow("go");
    for n in 0..count {
        root.completed(&format!("w{n}"));
    }
    daemon.terminate();
    for (n, record) in waiting.into_iter().enumerate() {
        let id = format!("w{n}");
        fs::remove_file(root.state("completed", &id)).unwrap();
        fs::write(root.state("waiting", &id), record).unwrap();
    }
    let daemon = Daemon::start(&root);
    for n in 0..count {
        wait_until(&format!("w{n} to be woken"), || {
            root.record_in("completed", &format!("w{n}"))
        });
        row.tried([]);
    }
    daemon.terminate();
    row.finish();
}
