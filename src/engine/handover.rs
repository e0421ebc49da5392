//! Handing over: what an attempt is told beside its record, and giving it to the keeper.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use crate::clock::Now;
use crate::config::Specialist;
use crate::engine::attempt::{Running, ms};
use crate::engine::confine::{self, Home};
use crate::engine::event::Event;
use crate::engine::tasks;
use crate::engine::world::World;
use crate::keeper::Launch;
use crate::keeper::turn::Turn;
use crate::keeper::wire::{self, Key};
use crate::protocol::lifecycle::State;
use crate::protocol::request::Request;
use crate::runner::launch::{AttemptPaths, Briefing, environment, working_dir};
use crate::runner::slots::Slot;
use crate::spool::look::open_quietly;

/// What the keeper is to start.
pub struct Order<'a> {
    pub key: &'a Key,
    pub argv: Vec<OsString>,
    /// The file that it reads.
    pub stdin: &'a Path,
    pub slot: Slot,
    pub last_error: Option<String>,
    /// It is given ahead: when it is to start, and the file with its content.
    pub turn: Option<(Box<Turn>, OwnedFd)>,
}

/// Gives a command of an attempt to the keeper, and says to which. A keeper that is gone is
/// noticed by its reader, which finds that this one never began.
pub fn hand_over(
    world: &World,
    running: &Running,
    request: &Request,
    specialist: &Specialist,
    order: Order<'_>,
    now: Now,
) -> u64 {
    let key = order.key;
    let id = running.key.id.as_str();
    let (keeper, count) = world.counted_keeper();
    let launch = self::order(world, running, request, specialist, order, now);
    if let Err(error) = launch.and_then(|launch| keeper.start_quietly(launch)) {
        tracing::warn!(
            handoff_id = id,
            "the keeper did not take the attempt: {error}"
        );
        if error.kind() != io::ErrorKind::BrokenPipe {
            world.tell(Event::Keeper(wire::Report::StartFailed {
                key: key.clone(),
                errno: error.raw_os_error().unwrap_or(0),
                what: error.to_string(),
            }));
        }
    }
    count
}

/// All that the keeper needs to start it.
pub fn order(
    world: &World,
    running: &Running,
    request: &Request,
    specialist: &Specialist,
    order: Order<'_>,
    now: Now,
) -> io::Result<Launch> {
    let Order {
        key,
        argv,
        stdin,
        slot,
        last_error,
        turn,
    } = order;
    let root = world.layout.root();
    let destination = running.record.meta.destination.as_deref();
    let (confine, home) = confine::hold(
        world,
        specialist,
        key,
        &argv,
        (stdin, destination),
        Some(&slot),
    )?;
    let paths = world.paths(&key.id, key.attempt);
    let timeout_ms = ms(running.terms.timeout);
    let briefing = brief(
        world,
        running,
        request,
        (key, &paths),
        home.as_ref(),
        last_error,
        now,
    );
    let stdin = home.as_ref().map_or(stdin, |home| &home.record);
    let inherited = |name: &str| match home.as_ref().and_then(|home| home.variable(name)) {
        None => std::env::var_os(name),
        own => own,
    };
    Ok(Launch {
        key: key.clone(),
        argv,
        env: environment(&briefing, specialist, inherited),
        cwd: working_dir(specialist, root),
        deadline_boot_ms: now.boot_ms.saturating_add(timeout_ms),
        grace_ms: ms(running.terms.kill_grace),
        note: running.note(slot.number),
        stdio: [
            open_quietly(stdin)?.into(),
            slot.stdout.into(),
            slot.stderr.into(),
        ],
        fsize: confine::largest_file(&world.config(), specialist),
        confine,
        turn,
    })
}

/// What an attempt, or the command that verifies it, is told beside its record.
pub fn brief<'a>(
    world: &'a World,
    running: &'a Running,
    request: &Request,
    (key, paths): (&'a Key, &'a AttemptPaths),
    home: Option<&Home>,
    last_error: Option<String>,
    now: Now,
) -> Briefing<'a> {
    let id = running.key.id.as_str();
    let root = world.layout.root();
    let timeout_ms = i64::try_from(ms(running.terms.timeout)).unwrap_or(i64::MAX);
    let state_of = |task: &String| {
        world
            .layout
            .context()
            .join("state")
            .join(format!("{task}.json"))
    };
    let destination = running.record.meta.destination.as_deref();
    let task = request.task_id.as_ref();
    Briefing {
        id,
        key: (key.id != id).then_some(key.id.as_str()),
        attempt: key.attempt,
        max_attempts: running.terms.retry.max_retries.saturating_add(1),
        deadline: now.wall.plus_ms(timeout_ms).to_string(),
        record: home.map_or_else(
            || world.layout.record(State::InProgress, id),
            |home| home.record.clone(),
        ),
        root,
        artifact: match home {
            Some(home) => home.artifact.clone(),
            None => destination.map(|path| root.join(path)),
        },
        context: world.layout.context(),
        state_file: task.map(state_of),
        summary: task.and_then(|task| tasks::told(world, task)),
        last_error,
        paths,
    }
}
