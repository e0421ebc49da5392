//! The step of an outcome between a claim of success and a verdict: delivery, then verification.

use std::io;

use super::{Bounds, limits};
use crate::engine::attempt::Running;
use crate::engine::delivery::{Allowance, Undelivered, deliver};
use crate::engine::reading::SMALL;
use crate::engine::world::World;
use crate::policy::judge::{Success, Verdict, unread_in_time};
use crate::policy::verify::Verified;

/// What follows from a delivery.
pub(super) enum Step {
    Judged(Box<Verdict>),
    /// The work is delivered; this command is to look at it.
    Verify(Vec<String>, Box<Success>),
    Trouble(io::Error),
    /// The artifacts are too large for this thread.
    Large,
}

/// Checks what came and puts it in its place; then whoever verifies has the word.
pub(super) fn take_delivery(
    world: &World,
    running: &Running,
    success: Success,
    said: Option<Verified>,
    bounds: Bounds<'_>,
) -> Step {
    let judged = |verdict| Step::Judged(Box::new(verdict));
    let attempt = running.key.attempt;
    let allowance = match &bounds {
        Bounds::Large(reading) => Allowance {
            most: u64::MAX,
            go_on: &|| reading.goes_on(world.now().boot_ms),
        },
        Bounds::Small | Bounds::NoFiles => Allowance {
            most: SMALL,
            go_on: &|| true,
        },
    };
    let (record, request) = (&running.record, &running.request);
    let mut success = match deliver(world, record, request, attempt, success, allowance) {
        Ok(success) => success,
        Err(Undelivered::Large) => return Step::Large,
        Err(Undelivered::Stopped) => {
            let limits = limits(&running.terms, 0);
            return judged(Verdict::Failed(unread_in_time(&limits)));
        }
        Err(Undelivered::Trouble(error)) => return Step::Trouble(error),
        Err(Undelivered::Wrong(told)) => return judged(Verdict::Failed(*told)),
    };
    let config = world.config();
    let verify = config
        .specialist(&running.agent)
        .and_then(|specialist| specialist.verify.clone());
    match (said, verify) {
        (None | Some(Verified::Again), Some(command)) => Step::Verify(command, Box::new(success)),
        (None | Some(Verified::Again), None) => judged(Verdict::Completed(success)),
        (Some(Verified::Yes(said)), _) => {
            success.delivered.checked = true;
            success.delivered.verify = Some(said);
            judged(Verdict::Completed(success))
        }
        (Some(Verified::No(mut told)), _) => {
            told.result = success.result;
            judged(Verdict::Failed(*told))
        }
        (Some(Verified::Cancelled), _) => judged(Verdict::Cancelled),
        (Some(Verified::Stopped), _) => judged(Verdict::Interrupted {
            counted: false,
            reason: "the daemon stopped while the verify command ran".to_owned(),
        }),
    }
}
