//! How long to wait when an agent has used up its quota.

use std::time::{Duration, SystemTime};

/// The wait where the agent does not say when its quota is back: it doubles with each hold in a row.
const FIRST: u64 = 60;
const LONGEST: u64 = 3600;

/// A little more than what the agent said, so that the next attempt does not come a second early.
const MARGIN: u64 = 5;

/// The longest limits end after a month. A time beyond that is a mistake, and as good as none.
const MOST: Duration = Duration::from_secs(32 * 24 * 3600);

/// Seconds to wait. `until` is when the agent says that it can go on.
pub fn wait_seconds(until: Option<SystemTime>, now: SystemTime, holds_before: u32) -> u64 {
    let said = until.and_then(|until| until.duration_since(now).ok());
    match said {
        Some(left) if left > Duration::ZERO && left < MOST => left.as_secs() + MARGIN,
        _ => FIRST
            .saturating_mul(1_u64.checked_shl(holds_before.min(20)).unwrap_or(u64::MAX))
            .min(LONGEST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_agent_says_counts_and_else_the_wait_doubles() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let at = |seconds: u64| Some(now + Duration::from_secs(seconds));
        for (until, holds, expected) in [
            (None, 0, 60),
            (None, 1, 120),
            (None, 5, 1920),
            (None, 6, 3600),
            (None, 4_000_000_000, 3600),
            (at(900), 9, 905),
            (at(0), 2, 240),
            (Some(SystemTime::UNIX_EPOCH), 0, 60),
            (at(40 * 24 * 3600), 0, 60),
        ] {
            assert_eq!(
                wait_seconds(until, now, holds),
                expected,
                "{until:?} {holds}"
            );
        }
    }
}
