//! Attempts that are given to the keeper before a slot is free: as many at once as may be, in
//! their order, once each, and as free to be moved, edited and cancelled as any other.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::{Daemon, Dice, Root, ended, kill_keeper, text, wait_until};

const QUICK: &str = r#"
cd "$HANDOFF_ROOT/marks"
mkdir "alive-$HANDOFF_ID"
set -- alive-*
echo "$HANDOFF_ID $#" >>runs
rmdir "alive-$HANDOFF_ID"
"#;

/// A root whose specialist @quick notes its runs, and how many are alive with it.
fn root(slots: usize) -> Root {
    let root = Root::with(&format!(
        "daemon.max_concurrent = {slots}\nspecialists.'@quick'.command = ['sh', 'quick.sh']"
    ));
    // In the root, and so not to be changed while it is read.
    fs::write(root.path("quick.sh"), QUICK).unwrap();
    root
}

fn quick() -> Value {
    json!({ "target": { "agent_id": "@quick" } })
}

fn start(root: &Root) -> Daemon {
    Daemon::start_with(root, |command| {
        command.env("HANDOFFD_LOG", "debug");
    })
}

/// Stops it: nothing is left of what was under way, and the audit log is sound.
fn stop(daemon: Daemon, root: Root) -> Root {
    assert_eq!(daemon.terminate(), Some(0));
    assert!(root.names(".handoffd/tmp").is_empty());
    root.assert_audit_is_sound();
    root
}

/// How many were given ahead so far.
fn given_ahead(root: &Root) -> usize {
    root.log().matches("given ahead").count()
}

/// Does it again until some were given ahead: on a machine that is busy enough, attempts take too
/// long for that.
fn until_some_are_given_ahead(test: impl Fn() -> Root) {
    for _ in 0..10 {
        if given_ahead(&test()) > 0 {
            return;
        }
    }
    panic!("none was given ahead");
}

/// The lines of marks/runs: who, and how many were alive then.
fn runs(root: &Root) -> Vec<(String, usize)> {
    let text = fs::read_to_string(root.path("marks/runs")).unwrap_or_default();
    let run = |line: &str| {
        let (id, alive) = line.split_once(' ').unwrap();
        (id.to_owned(), alive.parse().unwrap())
    };
    text.lines().map(run).collect()
}

#[test]
fn no_more_run_at_once_than_there_are_slots_and_each_once() {
    for slots in [1, 2, 9] {
        until_some_are_given_ahead(|| {
            let root = root(slots);
            let daemon = start(&root);
            let ids: Vec<String> = (0..120).map(|n| format!("q{n:03}")).collect();
            for id in &ids {
                root.drop_request(id, &quick());
            }
            for id in &ids {
                let record = root.completed(id);
                let began = text(&record["started_at"]);
                assert_eq!(
                    began,
                    text(&record["handoffd"]["attempts"][0]["started_at"])
                );
                assert!(began <= text(&record["completed_at"]));
            }
            let runs = runs(&root);
            assert!(runs.iter().all(|(_, alive)| *alive <= slots), "{runs:?}");
            let mut ran: Vec<&str> = runs.iter().map(|(id, _)| id.as_str()).collect();
            ran.sort_unstable();
            assert_eq!(ran, ids);
            stop(daemon, root)
        });
    }
}

#[test]
fn short_ones_that_bring_files_have_them_delivered() {
    until_some_are_given_ahead(|| {
        let root = root(2);
        let brings = r#"
if [ "${HANDOFF_ID#f}" = "$HANDOFF_ID" ]; then exit 0; fi
printf %s "$HANDOFF_ID" >"$HANDOFF_ROOT/artifacts/$HANDOFF_ID.txt"
echo "{\"artifacts\": [{\"path\": \"artifacts/$HANDOFF_ID.txt\"}]}"
"#;
        fs::write(root.path("quick.sh"), brings).unwrap();
        let daemon = start(&root);
        let ids: Vec<String> = (0..40).map(|n| format!("f{n:02}")).collect();
        for id in &ids {
            root.drop_request(id, &quick());
            root.drop_request(&id.replace('f', "plain"), &quick());
        }
        for id in &ids {
            let output = &root.completed(id)["output"]["artifacts"];
            assert_eq!(text(&output[0]["path"]), format!("artifacts/{id}.txt"));
            root.completed(&id.replace('f', "plain"));
        }
        stop(daemon, root)
    });
}

#[test]
fn one_that_starts_when_a_slot_is_free_has_that_time_in_its_record() {
    let root = root(1);
    let daemon = start(&root);
    for n in 0..20 {
        root.drop_request(&format!("a{n:02}"), &quick());
    }
    let starts: Vec<String> = (0..20)
        .map(|n| text(&root.completed(&format!("a{n:02}"))["started_at"]))
        .collect();
    // With one slot, a start that was told before its turn would be no later than the one before.
    let mut sorted = starts.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), starts.len(), "{starts:?}");
    drop(daemon);
}

#[test]
fn daemons_and_keepers_that_are_killed_cost_nothing_and_run_nothing_twice() {
    until_some_are_given_ahead(|| {
        const HANDOFFS: usize = 240;
        let mut dice = Dice::thrown();
        let root = root(2);
        let ids: Vec<String> = (0..HANDOFFS).map(|n| format!("k{n:03}")).collect();
        for id in &ids {
            root.drop_request(id, &quick());
        }
        let mut daemon = start(&root);
        for round in 0..10 {
            let least = ended(&root) + usize::try_from(dice.below(20)).unwrap();
            wait_until("some progress", || {
                (ended(&root) >= least.min(HANDOFFS)).then_some(())
            });
            dice.pause(Duration::from_millis(15));
            if round % 2 == 0 {
                daemon.kill();
                daemon = start(&root);
            } else {
                kill_keeper(&root);
            }
        }
        for id in &ids {
            let record = root.completed(id);
            assert_eq!(root.states_of(id), ["completed"], "{record:#}");
        }
        // One whose keeper was killed may have to run again. It is told so then.
        let runs = runs(&root);
        for id in &ids {
            let record = root.completed(id);
            let ran = runs.iter().filter(|(who, _)| who == id).count();
            let listed = record["handoffd"]["attempts"].as_array().unwrap().len();
            assert!(
                (1..=listed).contains(&ran),
                "{id} ran {ran} times: {record:#}"
            );
        }
        let root = stop(daemon, root);
        assert!(root.names("handoffs/pending").is_empty());
        root
    });
}

#[test]
fn what_waits_behind_short_ones_can_be_cancelled_deleted_and_edited() {
    let root = root(1);
    let daemon = start(&root);
    for n in 0..60 {
        root.drop_request(&format!("m{n:02}"), &quick());
    }
    wait_until("the first ones", || (ended(&root) >= 3).then_some(()));
    root.command(
        "c.json",
        &json!({ "action": "cancel", "handoff_id": "m58" }),
    );
    let edited = json!({ "target": { "agent_id": "@quick" }, "edited": true });
    root.drop_request("m59", &edited);
    let _ = fs::remove_file(root.pending("m57.json"));
    for n in 0..57 {
        root.completed(&format!("m{n:02}"));
    }
    // A command may come too late, or an edit: then there is a duplicate.
    let cancelled = wait_until("the end of m58", || {
        let end = ["failed", "completed"];
        end.iter().find_map(|end| root.record_in(end, "m58"))
    });
    assert_ne!(cancelled["error"]["code"], "INTERRUPTED");
    let last = root.completed("m59");
    assert!(last["edited"] == true || root.record("failed", "m59~2")["edited"] == true);
    wait_until("nothing left in pending", || {
        root.names("handoffs/pending").is_empty().then_some(())
    });
    assert_eq!(daemon.terminate(), Some(0));
    root.assert_audit_is_sound();
}

#[test]
fn a_specialist_that_asks_for_a_pause_gets_it_and_is_not_given_ahead_any_more() {
    until_some_are_given_ahead(|| {
        const HANDOFFS: usize = 60;
        let root = root(1);
        // From its tenth run on it wants to be left alone.
        let script = format!(
            "{QUICK}\n[ $(wc -l <runs) -ge 10 ] && echo '{{\"retry_after_seconds\": 600}}'\nexit 0\n"
        );
        fs::write(root.path("quick.sh"), script).unwrap();
        let daemon = start(&root);
        for n in 0..HANDOFFS {
            root.drop_request(&format!("p{n:02}"), &quick());
        }
        wait_until("the hold to be known", || {
            root.log().contains("INFO waiting handoff_id").then_some(())
        });
        // Whatever was on its way when it asked has come to its end.
        wait_until("nothing in progress", || {
            root.names("handoffs/in-progress").is_empty().then_some(())
        });
        wait_until("what was given ahead is back", || {
            root.names(".handoffd/tmp").is_empty().then_some(())
        });
        let ran = runs(&root).len();
        let left = root.names("handoffs/pending").len();
        assert!(left > 0, "all ran, although it had asked for a pause");
        // Those that ran after it are held as well, and not failed.
        assert_eq!(root.names("handoffs/waiting").len() + left, HANDOFFS - 9);
        assert!(root.names("handoffs/failed").is_empty());
        assert_eq!(daemon.terminate(), Some(0));
        assert_eq!(runs(&root).len(), ran, "nothing ran in the pause");
        root
    });
}

#[test]
fn a_stop_in_the_middle_leaves_the_rest_where_it_was_dropped() {
    until_some_are_given_ahead(|| {
        const HANDOFFS: usize = 150;
        let root = root(2);
        let ids: Vec<String> = (0..HANDOFFS).map(|n| format!("s{n:03}")).collect();
        for id in &ids {
            root.drop_request(id, &quick());
        }
        for _ in 0..3 {
            let daemon = start(&root);
            let least = (ended(&root) + 15).min(HANDOFFS);
            wait_until("some of them", || (ended(&root) >= least).then_some(()));
            assert_eq!(daemon.terminate(), Some(0));
            assert!(root.names("handoffs/in-progress").is_empty());
            assert!(root.names(".handoffd/tmp").is_empty());
            let left = root.names("handoffs/pending").len();
            assert_eq!(left + ended(&root), HANDOFFS);
        }
        let daemon = start(&root);
        for id in &ids {
            let record = root.completed(id);
            let attempts = record["handoffd"]["attempts"].as_array().unwrap();
            assert_eq!(attempts.len(), 1, "{record:#}");
        }
        assert_eq!(runs(&root).len(), HANDOFFS);
        assert_eq!(daemon.terminate(), Some(0));
        root.assert_audit_is_sound();
        root
    });
}
