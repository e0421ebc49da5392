//! Attempts that the system could not start for a reason that passes: it was out of descriptors,
//! processes, memory or disk space. The handoff is innocent, so nothing is counted against it: it waits,
//! each time longer, and is started again.

use crate::config::Rlimits;
use crate::protocol::attempt::{Attempt, AttemptOutcome};

const FIRST_WAIT_MS: u64 = 1_000;
const LONGEST_WAIT_MS: u64 = 60_000;

/// How the error of such an attempt begins in its record.
pub const SAID: &str = "the system could not start the attempt";

// The numbers that Linux has for these errors everywhere.
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;

/// Whether a start that failed with this error may do well a moment later. Where the specialist has a
/// limit of its own on what was short, that limit is the reason, and it does not pass.
pub fn is_passing(errno: i32, limits: &Rlimits) -> bool {
    match errno {
        EAGAIN => limits.nproc.is_none(),
        ENOMEM => limits.address_space.is_none(),
        EMFILE => limits.nofile.is_none(),
        ENFILE | ENOSPC | EDQUOT => true,
        _ => false,
    }
}

/// Whether an attempt ended like this.
pub fn is_postponed(attempt: &Attempt) -> bool {
    attempt.outcome == Some(AttemptOutcome::Interrupted)
        && attempt
            .error
            .as_ref()
            .is_some_and(|error| error.message.starts_with(SAID))
}

/// How long to wait after the last of these attempts: twice as long each time in a row.
pub fn wait_ms(attempts: &[Attempt]) -> u64 {
    let in_a_row = attempts
        .iter()
        .rev()
        .take_while(|it| is_postponed(it))
        .count();
    let doublings = u32::try_from(in_a_row.saturating_sub(1))
        .unwrap_or(u32::MAX)
        .min(16);
    LONGEST_WAIT_MS.min(FIRST_WAIT_MS << doublings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Wall;
    use crate::protocol::attempt::AttemptError;

    #[test]
    fn what_the_system_is_short_of_passes_and_what_is_configured_does_not() {
        let own = |set: fn(&mut Rlimits)| {
            let mut limits = Rlimits::default();
            set(&mut limits);
            limits
        };
        let (none, number) = (Rlimits::default(), own(|it| it.nproc = Some(9)));
        let (memory, files) = (
            own(|it| it.address_space = Some(9)),
            own(|it| it.nofile = Some(9)),
        );
        for (errno, limits, passes) in [
            (EAGAIN, &none, true),
            (EAGAIN, &number, false),
            (EAGAIN, &memory, true),
            (ENOMEM, &none, true),
            (ENOMEM, &memory, false),
            (EMFILE, &none, true),
            (EMFILE, &files, false),
            (ENFILE, &files, true),
            (ENOSPC, &none, true),
            (EDQUOT, &none, true),
            (libc::ENOENT, &none, false),
            (libc::EACCES, &none, false),
            (libc::EPERM, &number, false),
            (0, &none, false),
        ] {
            assert_eq!(is_passing(errno, limits), passes, "{errno} {limits:?}");
        }
        assert_eq!(
            [EAGAIN, ENOMEM, ENFILE, EMFILE, ENOSPC, EDQUOT],
            [
                libc::EAGAIN,
                libc::ENOMEM,
                libc::ENFILE,
                libc::EMFILE,
                libc::ENOSPC,
                libc::EDQUOT
            ]
        );
    }

    #[test]
    fn each_time_in_a_row_waits_longer_up_to_a_minute() {
        let attempt = |message: &str| {
            let mut attempt = Attempt::begun(1, Wall(0));
            attempt.outcome = Some(AttemptOutcome::Interrupted);
            attempt.error = Some(AttemptError {
                code: "INTERRUPTED".to_owned(),
                message: message.to_owned(),
                fields: Vec::new(),
            });
            attempt
        };
        let mut attempts = vec![attempt("its process is gone")];
        let waits: Vec<u64> = (0..8)
            .map(|_| {
                attempts.push(attempt(&format!("{SAID} (x): short")));
                wait_ms(&attempts)
            })
            .collect();
        assert_eq!(
            waits,
            [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]
        );
        attempts.push(attempt("its process is gone"));
        attempts.push(attempt(SAID));
        assert_eq!(wait_ms(&attempts), 1000);
    }
}
