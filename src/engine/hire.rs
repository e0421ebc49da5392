//! Giving a handoff to a resident process, which is started first where there is none.
//!
//! Nothing waits for the start: the line stands in the pipe until the process reads it. Of an
//! attempt nothing is written but its claim, which says that it was begun.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use serde_json::json;

use crate::clock::Now;
use crate::config::Specialist;
use crate::engine::attempt::{Post, Running, ms, resident_key};
use crate::engine::confine;
use crate::engine::event::Event;
use crate::engine::handover::brief;
use crate::engine::world::World;
use crate::keeper::Launch;
use crate::keeper::wire::Report;
use crate::protocol::request::Request;
use crate::runner::collect;
use crate::runner::launch::{command_line, resident_environment, working_dir};
use crate::runner::resident::line;
use crate::runner::resident::wires::Wire;

/// A process that stays has no deadline of its own; each handoff has one, with the daemon.
const NEVER_BOOT_MS: u64 = u32::MAX as u64 * 1000;

/// Gives a claimed handoff to its process, and says what is known of that now.
pub fn give(
    world: &World,
    running: &Running,
    request: &Request,
    mut post: Post,
    last_error: Option<String>,
    now: Now,
) -> Post {
    if let Some(specialist) = post.hire.take() {
        (post.wire, post.keeper) = hire(world, running, &specialist, post.number);
    }
    if let Some(wire) = &post.wire {
        let key = &running.key;
        let paths = world.paths(&key.id, key.attempt);
        let briefing = brief(
            world,
            running,
            request,
            (key, &paths),
            None,
            last_error,
            now,
        );
        let line = line::handoff(&briefing, &running.record);
        let most = world.config().daemon.max_output_size;
        world.wires.give(wire, line, most);
    }
    post
}

/// Has the keeper start a process. A keeper that is gone is noticed by its reader, which finds
/// that this one never began.
fn hire(
    world: &World,
    running: &Running,
    specialist: &Specialist,
    number: u32,
) -> (Option<Arc<Wire>>, u64) {
    let (keeper, count) = world.counted_keeper();
    let key = resident_key(number);
    let started = lay(world, number).and_then(|(wire, stdio)| {
        let wire = Arc::new(wire);
        let root = world.layout.root();
        let context = world.layout.context();
        let argv = command_line(&specialist.command, root);
        world.rubbish.discard(&world.home(&key.id, key.attempt));
        let nothing = (Path::new("/dev/null"), None);
        let (confine, home) = confine::hold(world, specialist, &key, &argv, nothing, None)?;
        let own = |name: &str| home.as_ref().and_then(|home| home.variable(name));
        world.wires.listen(&wire)?;
        let sent = keeper.start_quietly(Launch {
            argv,
            fsize: confine::largest_file(&world.config(), specialist),
            confine,
            turn: None,
            env: resident_environment(root, &context, (&key.id, number), specialist, |name| {
                own(name).or_else(|| std::env::var_os(name))
            }),
            cwd: working_dir(specialist, root),
            deadline_boot_ms: NEVER_BOOT_MS,
            grace_ms: ms(running.terms.kill_grace),
            note: json!({ "agent": running.agent.bare() }),
            key: key.clone(),
            stdio,
        });
        Ok((wire, sent))
    });
    let (wire, error) = match started {
        Ok((wire, sent)) => (Some(wire), sent.err()),
        Err(error) => (None, Some(error)),
    };
    if let Some(error) = error.filter(|error| error.kind() != io::ErrorKind::BrokenPipe) {
        world.tell(Event::Keeper(Report::StartFailed {
            key,
            errno: error.raw_os_error().unwrap_or(0),
            what: format!("a resident process: {error}"),
        }));
    }
    (wire, count)
}

/// Pipes for a process, and a file for its stderr: our ends, and its own.
fn lay(world: &World, number: u32) -> io::Result<(Wire, [OwnedFd; 3])> {
    let (stdin, our_stdin) = pipe_with(PipeFlags::CLOEXEC)?;
    let (our_stdout, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    for ours in [&our_stdin, &our_stdout] {
        rustix::fs::fcntl_setfl(ours, OFlags::NONBLOCK)?;
    }
    // A former daemon's process may still write to a file of this name; that is not ours.
    let path = stderr_path(world, number);
    let _ = std::fs::remove_file(&path);
    let stderr = File::options()
        .read(true)
        .append(true)
        .create_new(true)
        .open(path)?;
    let its_stderr = stderr.try_clone()?;
    let wire = Wire::new(number, our_stdin, our_stdout, stderr);
    Ok((wire, [stdin, stdout, its_stderr.into()]))
}

pub fn stderr_path(world: &World, number: u32) -> PathBuf {
    world.layout.run().join(format!("resident-{number}.err"))
}

/// Frees what processes write to stderr for ever, whether they have a handoff or not.
pub fn cap_logs(world: &World, numbers: &[u32]) {
    let most = world.config().daemon.max_output_size;
    for number in numbers {
        collect::cap_log(&stderr_path(world, *number), most);
    }
}

/// Removes what a process that is gone has left, and has the keeper forget it.
pub fn bury(world: &World, number: u32) {
    let _ = std::fs::remove_file(stderr_path(world, number));
    let key = resident_key(number);
    world.rubbish.discard(&world.home(&key.id, key.attempt));
    let keeper = world.keeper();
    let _ = keeper.forget(&key).and_then(|()| keeper.flush());
}
