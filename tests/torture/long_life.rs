//! A long life under mixed load and small faults: the daemon and its keeper need no more memory
//! and no more open files in the second half than in the first, however many handoffs have
//! ended, and each of those has ended once.

use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::common::{
    Daemon, Dice, Root, ended, find_keeper, kill, kill_keeper, orders, wait_until, with,
};
use crate::report::{Row, times};

/// How many handoffs may be on their way.
const UNDERWAY: usize = 40;
const SAMPLE_EVERY: Duration = Duration::from_millis(200);

/// What is dropped, by turns.
#[rustfmt::skip]
const KINDS: [&str; 10] = [
    "exit 0",
    "echo words; echo more >&2",
    "result '{\"summary\": \"done\", \"output\": {\"n\": 1e400}}'",
    "[ $HANDOFF_ATTEMPT -ge 2 ]",
    "exit 64",
    "child kid; away far",
    "kill -9 $$",
    "head -c 20000 /dev/zero | tr '\\\\0' x",
    "exec sleep 600",
    "printf '{\"status\": \"comp'",
];

#[test]
fn a_long_life_needs_no_more_than_a_short_one() {
    let mut row = Row::new("mixed load and faults for a long time");
    let seconds = times("long_life", 10, 3600);
    let (broken, handoffs, note) = live(Duration::from_secs(seconds as u64));
    row.tried_many(handoffs);
    row.broke(broken);
    row.note(note);
    row.finish();
}

/// What a process holds.
#[derive(Debug, Clone, Copy)]
struct Held {
    kilobytes: u64,
    files: usize,
}

fn held_by(pid: i32) -> Option<Held> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(Held {
        kilobytes: line.trim().trim_end_matches("kB").trim().parse().ok()?,
        files: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count(),
    })
}

/// The middle of each half, which a leak shifts and a busy moment does not; the first tenth is a
/// start, and not looked at.
fn halves(samples: &[(Duration, Held)], long: Duration) -> [Held; 2] {
    let middle = |from: Duration, to: Duration| {
        let within = samples.iter().filter(|(at, _)| (from..to).contains(at));
        let (mut memory, mut files): (Vec<u64>, Vec<usize>) =
            within.map(|(_, held)| (held.kilobytes, held.files)).unzip();
        memory.sort_unstable();
        files.sort_unstable();
        assert!(
            !memory.is_empty(),
            "nothing was seen from {from:?} to {to:?}"
        );
        Held {
            kilobytes: memory[memory.len() / 2],
            files: files[files.len() / 2],
        }
    };
    [middle(long / 10, long / 2), middle(long / 2, long * 2)]
}

fn live(long: Duration) -> (Vec<String>, usize, String) {
    let mut dice = Dice::thrown();
    let root = Root::with(
        "daemon.max_concurrent = 8\ndaemon.max_interruptions = 1000000\n\
         defaults.kill_grace = '100ms'\ndefaults.linger = '200ms'\n\
         defaults.retry.max_retries = 2\ndefaults.retry.delay = '20ms'\n\
         daemon.durability = 'relaxed'",
    );
    // Said at length, an hour would fill the disk.
    let daemon = Daemon::start_with(&root, |command| {
        command.env("HANDOFFD_LOG", "error");
    });
    let begun = Instant::now();
    let (mut of_daemon, mut of_keeper) = (Vec::new(), Vec::new());
    let (mut dropped, mut faults, mut sampled) = (0, 0, Instant::now());
    let mut done = 0;
    while begun.elapsed() < long {
        if dropped < done + UNDERWAY {
            for _ in 0..10 {
                drop_one(&root, dropped, &mut dice);
                dropped += 1;
            }
        }
        std::thread::sleep(Duration::from_millis(20));
        if dice.below(20) == 0 {
            fault(&root, &daemon, begun.elapsed() < long / 4, &mut dice);
            faults += 1;
        }
        if sampled.elapsed() > SAMPLE_EVERY {
            sampled = Instant::now();
            done = ended(&root);
            let at = begun.elapsed();
            of_daemon.extend(held_by(daemon.pid()).map(|held| (at, held)));
            let keeper = find_keeper(root.dir()).and_then(held_by);
            of_keeper.extend(keeper.map(|held| (at, held)));
        }
    }
    // Those from the last moments may still run.
    while done < dropped {
        let before = done;
        done = wait_until(&format!("more than {before} of {dropped} ended"), || {
            Some(ended(&root)).filter(|now| *now > before)
        });
    }
    let mut broken = Vec::new();
    let mut note = format!("{dropped} handoffs, {faults} faults");
    for (who, samples) in [("daemon", of_daemon), ("keeper", of_keeper)] {
        let [first, second] = halves(&samples, long);
        // A quarter more, and what an allocator may keep of a busy moment.
        if second.kilobytes > first.kilobytes * 5 / 4 + 8192 || second.files > first.files + 16 {
            broken.push(format!("the {who} grew from {first:?} to {second:?}"));
        }
        let _ = write!(
            note,
            "; {who} {} then {} KB, {} then {} files",
            first.kilobytes, second.kilobytes, first.files, second.files
        );
    }
    broken.extend((0..dropped).filter_map(|number| ended_once(&root, number)));
    if daemon.terminate() != Some(0) {
        broken.push("the daemon did not leave in peace".to_owned());
    }
    let check = root.cli(&["check", "--deep"]);
    if !check.status.success() {
        broken.push(String::from_utf8_lossy(&check.stdout).into_owned());
    }
    (broken, dropped, note)
}

fn drop_one(root: &Root, number: usize, dice: &mut Dice) {
    let id = format!("l{number}");
    let sh = KINDS[usize::try_from(dice.below(KINDS.len() as u64)).unwrap()];
    let limit = json!({ "timeout_seconds": if sh.contains("sleep") { 0.2 } else { 60.0 } });
    match dice.below(12) {
        0 => root.drop_bytes(&format!("{id}.json"), b"{\"target\": "),
        1 => root.drop_bytes(&format!("{id}.yaml"), b"target: { agent_id: '@fake' }\n"),
        2 if number > 0 => {
            let after = json!({ "depends_on": [format!("l{}", number - 1)] });
            root.drop_request(&id, &with(orders(sh), with(limit, after)));
        }
        3 => {
            let task = json!({ "context": { "task_id": format!("t{}", number % 20) } });
            root.drop_request(&id, &with(orders(sh), with(limit, task)));
        }
        _ => root.drop_request(&id, &with(orders(sh), limit)),
    }
}

/// One thing that goes wrong, besides the specialists. The keeper is killed only `early`: the
/// next one starts from nothing, and would hide what the last one had grown to.
fn fault(root: &Root, daemon: &Daemon, early: bool, dice: &mut Dice) {
    let number = dice.below(1_000_000);
    match dice.below(6) {
        0 => daemon.signal(Signal::HUP),
        1 => root.command(
            &format!("c{number}.json"),
            &json!({ "action": "cancel", "handoff_id": "nobody" }),
        ),
        2 => fs::write(
            root.path("handoffs/control")
                .join(format!("c{number}.json")),
            "{",
        )
        .unwrap(),
        3 => {
            daemon.signal(Signal::STOP);
            dice.pause(Duration::from_millis(50));
            daemon.signal(Signal::CONT);
        }
        4 if early => kill_keeper(root),
        4 => find_keeper(root.dir())
            .into_iter()
            .for_each(|keeper| kill(keeper, Signal::TERM)),
        _ => fs::write(root.pending(&format!(".half-{number}.tmp")), "{").unwrap(),
    }
}

fn ended_once(root: &Root, number: usize) -> Option<String> {
    let id = format!("l{number}");
    let states = root.states_of(&id);
    (states.len() != 1 || !["completed", "failed"].contains(&states[0]))
        .then(|| format!("{id} stands in {states:?}"))
}
