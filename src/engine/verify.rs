//! Verifying: the command that looks at an attempt's work before it counts as done.

use std::io;
use std::path::PathBuf;

use crate::durable;
use crate::engine::attempt::{Running, Verifying, verify_key};
use crate::engine::handover::{Order, hand_over};
use crate::engine::outcome::{End, limits};
use crate::engine::rights;
use crate::engine::world::World;
use crate::keeper::wire::Key;
use crate::policy::judge::{Exit, Success, Verdict};
use crate::policy::next::{Facts, conclude};
use crate::policy::verify::{Verified, judge_verify, not_started};
use crate::protocol::record::Record;
use crate::protocol::request::Request;
use crate::runner::slots::Use;
use crate::runner::vitals::Vitals;
use crate::runner::{agents, collect};

/// Starts the verify command of an attempt whose work is done. It gets the record as it will
/// be if it says yes.
pub fn start(
    world: &World,
    running: &mut Running,
    request: &Request,
    command: &[String],
    work: End,
    success: &Success,
    facts: &Facts<'_>,
) -> io::Result<()> {
    let config = world.config();
    let Some(specialist) = config.specialist(&running.agent) else {
        return Err(io::Error::other("its specialist is no longer configured"));
    };
    if let Some(wrong) = rights::specialist(world.layout.root(), specialist) {
        return Err(io::Error::other(wrong.to_string()));
    }
    let work = put_down(world, running, work)?;
    let key = verify_key(&running.key);
    let stdin = stdin_path(world, &key);
    let mut preview: Record = running.record.clone();
    conclude(&mut preview, Verdict::Completed(success.clone()), facts);
    // One that a daemon which died had written may be there.
    drop(durable::create_anew(&stdin, &preview.to_bytes())?);
    let slot = world.slots.acquire(Use::of(specialist))?;
    let paths = world.paths(&key.id, key.attempt);
    collect::clean(&paths, &world.rubbish);
    let number = slot.number;
    running.verify = Some(Verifying { work, slot: number });
    running.vitals = Vitals::new(world.now().boot_ms);
    running.cpu_ms = None;
    running.ending = None;
    let order = Order {
        key: &key,
        argv: agents::verification(specialist, command, world.layout.root()),
        stdin: &stdin,
        slot,
        last_error: None,
        turn: None,
    };
    running.keeper = hand_over(world, running, request, specialist, order, world.now());
    Ok(())
}

/// Puts an answer down before it is verified: a crash meanwhile must not cost the work.
fn put_down(world: &World, running: &Running, work: End) -> io::Result<End> {
    let End::Answered(answer) = work else {
        return Ok(work);
    };
    let Key { id, attempt } = &running.key;
    let path = world.paths(id, *attempt).result();
    let temp = path.with_extension("result.tmp");
    let bytes = serde_json::to_vec(&answer.result)?;
    durable::write_whole(&path, &temp, &bytes, durable::Durability::Relaxed)?;
    Ok(End::Exited {
        exit: Exit::Lives,
        why: None,
    })
}

fn stdin_path(world: &World, key: &Key) -> PathBuf {
    let name = format!("{}.{}.stdin", key.id, key.attempt);
    world.layout.run().join(name)
}

/// Judges a verify command that is over.
pub fn judge(world: &World, running: &Running, slot: u32, end: &End) -> Verified {
    let max_output = world.config().daemon.max_output_size;
    let key = verify_key(&running.key);
    let paths = world.paths(&key.id, key.attempt);
    let (exit, why) = match end {
        End::Exited { exit, why } => (*exit, *why),
        End::NotStarted { errno, what } => {
            let system = match errno {
                0 => String::new(),
                errno => format!(": {}", io::Error::from_raw_os_error(*errno)),
            };
            let told = not_started(&format!("{what}{system}"));
            return Verified::No(Box::new(told));
        }
        End::NotBegun | End::Lost { .. } | End::Answered(_) | End::Died(_) => (Exit::Unknown, None),
    };
    let collected = collect::collect(&world.slots, slot, &paths, max_output);
    let stdout = match collected.result_file {
        crate::protocol::result::Output::Nothing => collected.stdout,
        result => result,
    };
    let limits = limits(&running.terms, max_output);
    judge_verify(exit, why, &stdout, &collected.stderr_tail, &limits)
}

/// Puts the verify command's log away and frees what it used.
pub fn clean_up(world: &World, running: &Running, slot: u32) {
    let max_output = world.config().daemon.max_output_size;
    let key = verify_key(&running.key);
    let paths = world.paths(&key.id, key.attempt);
    if let Err(error) = collect::keep_logs(&world.slots, slot, &paths, true, max_output) {
        tracing::warn!(
            handoff_id = running.key.id,
            "can't keep the verify command's log: {error}"
        );
    }
    // The files of a confined command first: as long as its folder is there, they are known as such.
    if paths.home.is_some() {
        world.slots.retire(slot);
    } else {
        world.slots.clear(slot);
    }
    collect::clean(&paths, &world.rubbish);
    let _ = std::fs::remove_file(stdin_path(world, &key));
    world.slots.release(slot);
    // A keeper that can't be told is one that is gone; the next start forgets it.
    let _ = world.keeper().forget(&key);
}
