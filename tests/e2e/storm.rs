//! Load and `kill -9` together: nothing lost, nothing twice, nothing at once.

use std::fs;
use std::time::Duration;

use serde_json::json;

use crate::common::{Daemon, Dice, Root, ended, kill_all, orders, outcomes, wait_until, with};

const HANDOFFS: usize = 300;
const KILLS: u64 = 10;

#[test]
fn handoffs_survive_a_daemon_that_is_killed_again_and_again() {
    storm(Daemon::start);
}

#[test]
fn handoffs_survive_it_without_cgroups_too() {
    storm(Daemon::start_without_cgroups);
}

fn storm(start: fn(&Root) -> Daemon) {
    let mut dice = Dice::thrown();
    let root = Root::with(
        "daemon.max_concurrent = 8\ndefaults.retry.max_retries = 2\ndefaults.retry.delay = '20ms'",
    );
    let ids: Vec<String> = (0..HANDOFFS).map(|n| format!("h{n}")).collect();
    for (n, id) in ids.iter().enumerate() {
        // Most succeed, some only at their second attempt, some never.
        let end = match n % 10 {
            7 => "[ $HANDOFF_ATTEMPT -ge 2 ]",
            8 => "exit 64",
            _ => "exit 0",
        };
        let mut request = orders(&format!("alone sleep 0.0{}; {end}", n % 9));
        if n % 10 == 9 {
            request = with(request, json!({ "depends_on": [ids[n - 1].clone()] }));
        }
        root.drop_request(id, &request);
    }
    let mut daemon = start(&root);
    for round in 0..KILLS {
        // Not before something was done, so that the kills are spread over the work.
        let least = ended(&root) + usize::try_from(dice.below(25)).unwrap();
        wait_until("some progress", || {
            (ended(&root) >= least.min(HANDOFFS)).then_some(())
        });
        dice.pause(Duration::from_millis(20));
        daemon.kill();
        if round % 3 == 0 {
            root.drop_request(&format!("late{round}"), &orders("alone true"));
        }
        daemon = start(&root);
    }
    let late: Vec<String> = (0..KILLS).step_by(3).map(|n| format!("late{n}")).collect();
    for id in ids.iter().chain(&late) {
        let record = wait_until(&format!("the end of {id}"), || {
            let end = ["completed", "failed"];
            end.iter().find_map(|end| root.record_in(end, id))
        });
        assert_eq!(
            root.states_of(id).len(),
            1,
            "{id}: {:?}",
            root.states_of(id)
        );
        let last = id
            .strip_prefix('h')
            .map_or(0, |n| n.parse::<usize>().unwrap() % 10);
        let expected = if last >= 8 { "failed" } else { "completed" };
        assert_eq!(record["status"], expected, "{record:#}");
        let listed = outcomes(&record);
        let Ok(notes) = fs::read_to_string(root.path("marks").join(format!("{id}.notes"))) else {
            assert_eq!(last, 9, "{id} never ran");
            continue;
        };
        assert!(!notes.contains("overlap"), "{id}: {notes}");
        // Only the daemon was killed: what had begun was adopted, what was lost had not begun.
        let starts = notes.lines().filter(|line| line.starts_with("start"));
        let begun = listed.iter().filter(|it| *it != "interrupted").count();
        assert_eq!(starts.count(), begun, "{id}: {listed:?}, but {notes}");
        let twice = last == 7 && listed[0] != "interrupted";
        assert_eq!(begun, if twice { 2 } else { 1 }, "{id}: {listed:?}");
    }
    for folder in ["pending", "in-progress", "waiting"] {
        let left = root.names(&format!("handoffs/{folder}"));
        assert!(left.is_empty(), "{folder}: {left:?}");
    }
    assert_eq!(daemon.terminate(), Some(0));
    for folder in [".handoffd/tmp", ".handoffd/aside", ".handoffd/rejecting"] {
        assert!(
            root.names(folder).is_empty(),
            "{folder}: {:?}",
            root.names(folder)
        );
    }
    root.assert_audit_is_sound();
}

#[test]
fn refusals_waits_and_originals_survive_it_too() {
    const EACH: usize = 40;
    let mut dice = Dice::thrown();
    let root = Root::with("daemon.settle = '10ms'\nspecialists.'@true'.command = ['/bin/true']");
    let yaml = |n: usize| format!("# {n}\ntarget: {{agent_id: 'true'}}\n");
    let broken = |n: usize| format!("{{ \"broken\": {n}");
    let request = json!({ "target": { "agent_id": "true" } });
    let soon = chrono::Utc::now() + chrono::Duration::seconds(2);
    for n in 0..EACH {
        root.drop_bytes(&format!("y{n}.yaml"), yaml(n).as_bytes());
        root.drop_bytes(&format!("b{n}.json"), broken(n).as_bytes());
        root.drop_request(
            &format!("u{n}"),
            &json!({ "target": { "agent_id": "nobody" } }),
        );
        let later = json!({ "not_before": soon.to_rfc3339() });
        root.drop_request(&format!("t{n}"), &with(request.clone(), later));
        root.drop_bytes(&format!("bad name {n}"), b"");
    }
    let mut daemon = Daemon::spawn(&root, |_| {});
    for round in 0..12 {
        dice.pause(Duration::from_millis(140));
        daemon.kill();
        root.drop_request(&format!("y{round}"), &request);
        daemon = Daemon::spawn(&root, |_| {});
    }
    let bytes_of = |path: String| wait_until(&path, || fs::read_to_string(root.path(&path)).ok());
    for n in 0..EACH {
        // Its twin of the other extension may have come first; then it is the duplicate.
        let id = format!("y{n}");
        root.completed(&id);
        let original = wait_until("its original", || {
            [format!("{id}.yaml"), format!("{id}~2.yaml")]
                .iter()
                .find_map(|name| {
                    fs::read_to_string(root.path(".handoffd/originals").join(name)).ok()
                })
        });
        assert_eq!(Some(original.as_str()), Some(yaml(n).as_str()), "{id}");
        if n < 12 {
            assert_eq!(root.failed(&format!("{id}~2")).1, "DUPLICATE_ID");
        }
        assert_eq!(root.failed(&format!("b{n}")).1, "SCHEMA_VALIDATION_FAILED");
        assert_eq!(
            bytes_of(format!("handoffs/failed/b{n}.rejected")),
            broken(n)
        );
        assert_eq!(root.failed(&format!("u{n}")).1, "UNKNOWN_AGENT");
        let record = root.completed(&format!("t{n}"));
        assert!(record["started_at"].as_str().unwrap() >= &soon.to_rfc3339()[..23]);
    }
    wait_until("all bad names are gone", || {
        root.names("handoffs/pending").is_empty().then_some(())
    });
    // Notices and bytes in pairs: nothing was refused twice, and nothing was invented.
    let rejected = |end: &'static str| move |name: &&String| name.ends_with(end);
    wait_until("the last bytes", || {
        let names = root.names("handoffs/failed");
        (names.iter().filter(rejected(".rejected")).count() == 2 * EACH).then_some(())
    });
    let names = root.names("handoffs/failed");
    assert_eq!(
        names.iter().filter(rejected(".json")).count(),
        3 * EACH + 12,
        "{names:?}"
    );
    assert_eq!(root.names("handoffs/completed").len(), 2 * EACH);
    assert_eq!(daemon.terminate(), Some(0));
    for folder in [".handoffd/tmp", ".handoffd/aside", ".handoffd/rejecting"] {
        assert!(
            root.names(folder).is_empty(),
            "{folder}: {:?}",
            root.names(folder)
        );
    }
    root.assert_audit_is_sound();
}

fn storm_with_keepers(start: fn(&Root) -> Daemon) {
    const FEW: usize = 100;
    let root = Root::with("daemon.max_concurrent = 8\ndaemon.max_interruptions = 1000");
    let ids: Vec<String> = (0..FEW).map(|n| format!("k{n}")).collect();
    for (n, id) in ids.iter().enumerate() {
        root.drop_request(id, &orders(&format!("alone sleep 0.{}; exit 0", n % 4)));
    }
    let mut daemon = start(&root);
    for round in 0..6 {
        let least = (ended(&root) + 5 + 2 * round).min(FEW);
        wait_until("some progress", || (ended(&root) >= least).then_some(()));
        kill_all(&root, daemon);
        daemon = start(&root);
    }
    for id in &ids {
        let record = root.completed(id);
        assert_eq!(root.states_of(id), ["completed"]);
        let notes = root.mark(&format!("{id}.notes"));
        assert!(!notes.contains("overlap"), "{id}: {notes}");
        assert_eq!(outcomes(&record).last().unwrap(), "completed");
    }
    assert_eq!(daemon.terminate(), Some(0));
    root.assert_audit_is_sound();
}

#[test]
fn handoffs_survive_a_keeper_that_is_killed_with_the_daemon() {
    storm_with_keepers(Daemon::start);
}

#[test]
fn handoffs_survive_that_without_cgroups_too() {
    storm_with_keepers(Daemon::start_without_cgroups);
}
