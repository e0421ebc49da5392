//! Attempts that could not be started: for a reason that passes, or until somebody corrects something.

use std::io;

use crate::engine::attempt::Running;
use crate::engine::world::World;
use crate::policy::judge::Failure;
use crate::policy::next::refusal;
use crate::policy::starts;
use crate::protocol::agent::AgentName;
use crate::protocol::error::ErrorCode;

/// Whether the system may well start it a moment later.
pub fn is_passing(world: &World, running: &Running, errno: i32) -> bool {
    let config = world.config();
    let limits = config.specialist(&running.agent).map(|it| it.rlimits);
    starts::is_passing(errno, &limits.unwrap_or_default())
}

/// The failure of one that will not start by itself.
pub fn not_started(errno: i32, what: &str, agent: &AgentName) -> Failure {
    let system = if errno == 0 {
        String::new()
    } else {
        format!(": {}", io::Error::from_raw_os_error(errno))
    };
    let mut told = refusal(
        ErrorCode::ProcessingError,
        format!("can't start the command of {agent} ({what}){system}"),
        vec![format!(
            "Correct [specialists.\"{agent}\"] in handoffd.toml and send the daemon SIGHUP, or \
             install what is missing; then retry"
        )],
    );
    told.retryable = true;
    told
}
