//! The verdict on the end of an attempt, from all that is known of it.

use std::io;

use super::unstarted::{is_passing, not_started};
use super::{End, human};
use crate::config::Config;
use crate::engine::attempt::Running;
use crate::engine::world::World;
use crate::policy::intake::Terms;
use crate::policy::judge::{Ended, EndedFor, Exit, Limits, Verdict, judge};
use crate::policy::resident::died;
use crate::protocol::result::Output;
use crate::runner::collect::{Collected, Heard};

/// What the end of the work means, before anybody else has looked at it.
pub(super) fn verdict(
    world: &World,
    work: &End,
    collected: Collected,
    running: &Running,
    config: &Config,
) -> Verdict {
    match work {
        End::NotStarted { errno, what } if is_passing(world, running, *errno) => {
            let system = io::Error::from_raw_os_error(*errno);
            let reason = format!("({what}): {system}");
            Verdict::Postponed { reason }
        }
        End::NotStarted { errno, what } => {
            Verdict::Failed(not_started(*errno, what, &running.agent))
        }
        End::NotBegun => Verdict::Interrupted {
            counted: false,
            reason: "it had not started when the daemon or its keeper ended".to_owned(),
        },
        End::Lost { reason } => Verdict::Interrupted {
            counted: true,
            reason: reason.clone(),
        },
        End::Answered(_) => judge(&ended(Exit::Lives, None, collected, running, config)),
        End::Died(death) => match death.why {
            Some(_) if death.fault.is_none() => {
                judge(&ended(death.exit, death.why, collected, running, config))
            }
            None if death.fault.is_none() && death.exit == Exit::Unknown => Verdict::Interrupted {
                counted: true,
                reason: "its resident process is gone and its exit code was lost".to_owned(),
            },
            _ => Verdict::Failed(died(
                death.exit,
                death.fault.as_deref(),
                &collected.stderr_tail,
            )),
        },
        End::Exited {
            exit: Exit::Code(0) | Exit::Lives,
            why: None,
        } if collected.heard == Heard::Lost && collected.result_file == Output::Nothing => {
            Verdict::Interrupted {
                counted: true,
                reason: "somebody deleted its output file while it ran".to_owned(),
            }
        }
        End::Exited { exit, why } => judge(&ended(*exit, *why, collected, running, config)),
    }
}

fn ended(
    exit: Exit,
    why: Option<EndedFor>,
    collected: Collected,
    running: &Running,
    config: &Config,
) -> Ended {
    // What is printed is counted from time to time only: it may have been too much at the end.
    let why = match why {
        None | Some(EndedFor::Linger) if collected.heard == Heard::TooMuch => Some(EndedFor::Flood),
        why => why,
    };
    Ended {
        exit,
        why,
        result_file: collected.result_file,
        stdout: collected.stdout,
        stderr_tail: collected.stderr_tail,
        limits: limits(&running.terms, config.daemon.max_output_size),
        phase: running.request.phase.clone(),
        strict: config.intake.strict,
        max_hold: config.defaults.max_hold,
    }
}

/// The limits that were in force, in words.
pub fn limits(terms: &Terms, max_output: u64) -> Limits {
    Limits {
        timeout: human(terms.timeout),
        stall_timeout: terms.stall_timeout.map(human).unwrap_or_default(),
        max_output: format!("{max_output} bytes"),
    }
}
