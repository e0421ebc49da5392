//! Random `kill -9` under load: of the daemon, of the keeper, of both. Afterwards every handoff
//! has ended once, no two attempts of one ran at once, and the root keeps every promise.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::{Daemon, Dice, Root, ended, kill_all, kill_keeper, orders, wait_until, with};
use crate::report::{Row, times};

/// How many handoffs come in each round.
const EACH: usize = 8;

/// What is dropped, by turns, and how it must end.
const KINDS: [(&str, &str); 8] = [
    ("alone sleep 0.02; exit 0", "completed"),
    ("alone sleep 0.08; exit 0", "completed"),
    ("alone true; result '{\"summary\": \"done\"}'", "completed"),
    // Only the second attempt succeeds.
    ("alone true; [ $HANDOFF_ATTEMPT -ge 2 ]", "completed"),
    ("alone sleep 0.01; exit 64", "failed"),
    // Waits for the one before, which fails.
    ("alone exit 0", "failed"),
    ("alone sleep 0.04; echo words; exit 0", "completed"),
    // No request at all.
    ("", "failed"),
];

#[test]
fn handoffs_survive_a_thousand_kills() {
    let mut row = Row::new("kill -9 of daemon and keeper under load");
    let kills = times("storm", 10, 1000);
    row.tried_many(kills);
    let (broken, note) = storm(kills);
    row.broke(broken);
    row.note(note);
    row.finish();
}

fn id_of(round: usize, kind: usize) -> String {
    format!("s{round}-{kind}")
}

fn drop_some(root: &Root, round: usize) {
    for (kind, (sh, _)) in KINDS.iter().enumerate() {
        let id = id_of(round, kind);
        match kind {
            5 => {
                let after = json!({ "depends_on": [id_of(round, 4)] });
                root.drop_request(&id, &with(orders(sh), after));
            }
            7 => root.drop_bytes(&format!("{id}.json"), b"{\"target\": "),
            _ => root.drop_request(&id, &orders(sh)),
        }
    }
}

fn storm(kills: usize) -> (Vec<String>, String) {
    let mut dice = Dice::thrown();
    let root = Root::with(
        "daemon.max_concurrent = 8\ndaemon.max_interruptions = 1000000\n\
         defaults.retry.max_retries = 3\ndefaults.retry.delay = '20ms'",
    );
    let mut daemon = Daemon::start(&root);
    let (mut keepers, mut rounds) = (0, 0);
    for _ in 0..kills {
        // Neither a backlog that only grows nor idleness: kills should hit work.
        if rounds * EACH < ended(&root) + 3 * EACH {
            drop_some(&root, rounds);
            rounds += 1;
        }
        dice.pause(Duration::from_millis(150));
        match dice.below(8) {
            0 => {
                kill_keeper(&root);
                keepers += 1;
            }
            1 => {
                kill_all(&root, daemon);
                keepers += 1;
                daemon = Daemon::start(&root);
            }
            // The next one may be killed before it is up.
            2 => {
                daemon.kill();
                let early = Daemon::spawn(&root, |_| {});
                dice.pause(Duration::from_millis(60));
                early.kill();
                daemon = Daemon::start(&root);
            }
            _ => {
                daemon.kill();
                daemon = Daemon::start(&root);
            }
        }
        thin_out_logs(&root);
    }
    drain(&root, rounds * EACH);
    let mut broken: Vec<String> = (0..rounds)
        .flat_map(|round| {
            (0..EACH)
                .filter_map(|kind| judge(&root, round, kind))
                .collect::<Vec<_>>()
        })
        .collect();
    if ended(&root) != rounds * EACH {
        broken.push(format!("{} ended of {}", ended(&root), rounds * EACH));
    }
    if daemon.terminate() != Some(0) {
        broken.push("the last daemon did not leave in peace".to_owned());
    }
    let found = handoffd::inspect::deep::examine_root(root.dir()).unwrap();
    broken.extend(found.breaches.iter().map(|breach| format!("{breach:?}")));
    let handoffs = rounds * EACH;
    (
        broken,
        format!("{handoffs} handoffs; {keepers} of the kills hit the keeper"),
    )
}

/// Waits for the end of all; that may take longer than any one wait may, but not stand still.
fn drain(root: &Root, all: usize) {
    let mut done = ended(root);
    while done < all {
        let before = done;
        done = wait_until(&format!("more than {before} of {all} ended"), || {
            Some(ended(root)).filter(|now| *now > before)
        });
    }
}

/// A thousand daemons that say everything fill a disk; the last few are what is looked at.
fn thin_out_logs(root: &Root) {
    let mut names = root.names("daemon-log");
    names.sort_by_key(|name| (name.len(), name.clone()));
    for name in names.iter().rev().skip(20) {
        // Emptied and not removed: their number names the next one.
        let _ = fs::write(root.path("daemon-log").join(name), "");
    }
}

/// How one handoff ended, if not as it should have.
fn judge(root: &Root, round: usize, kind: usize) -> Option<String> {
    let id = id_of(round, kind);
    let states = root.states_of(&id);
    let expected = KINDS[kind].1;
    if states != [expected] {
        return Some(format!("{id} stands in {states:?}, not in {expected}"));
    }
    let record = root.record_in(expected, &id)?;
    let notes = fs::read_to_string(root.path("marks").join(format!("{id}.notes")));
    let notes = notes.unwrap_or_default();
    if notes.contains("overlap") {
        return Some(format!("two attempts of {id} at once: {notes}"));
    }
    let attempts = record["handoffd"]["attempts"].as_array();
    let of = |outcome: &str| {
        let is_it = |attempt: &&Value| attempt["outcome"] == outcome;
        attempts.into_iter().flatten().filter(is_it).count()
    };
    if expected == "completed" && of("completed") != 1 {
        return Some(format!(
            "{id} completed {} times: {record}",
            of("completed")
        ));
    }
    None
}
