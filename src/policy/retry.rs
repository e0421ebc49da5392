//! When to try again.
//!
//! The sequence is exponential backoff as the `backon` crate computes it; its jitter can pass
//! the longest wait twice over, so the jitter is added here, bounded by its own share.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

/// The first wait before a folder is listed again.
const LIST_AGAIN: Duration = Duration::from_millis(100);

/// How long to wait before a folder is listed again that could not be listed so many times in a row:
/// 100 ms, doubling. None once the rescan comes as soon.
pub fn list_again_after(failures: u32, rescan: Duration) -> Option<Duration> {
    let doublings = failures.saturating_sub(1).min(16);
    Some(LIST_AGAIN * (1 << doublings)).filter(|wait| *wait < rescan)
}

/// What holds for one handoff, after request, specialist and defaults were laid over each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    pub max_retries: u32,
    pub delay: Duration,
    pub multiplier: f64,
    pub max_delay: Duration,
    pub jitter: f64,
}

impl RetryPolicy {
    /// What holds where nobody says otherwise.
    pub fn of(defaults: &crate::config::Retry) -> Self {
        Self {
            max_retries: defaults.max_retries,
            delay: defaults.delay,
            multiplier: defaults.multiplier,
            max_delay: defaults.max_delay,
            jitter: defaults.jitter,
        }
    }

    /// The wait before retry `n` (1, 2, 3 …). `chance` is a number from 0 to 1.
    pub fn wait(&self, n: u32, chance: f64) -> Duration {
        let first = self.delay.min(self.max_delay);
        #[expect(clippy::cast_possible_truncation, reason = "the crate takes an f32")]
        let factor = self.multiplier.max(1.0) as f32;
        let base = if first.is_zero() {
            first
        } else {
            ExponentialBuilder::new()
                .with_min_delay(first)
                .with_factor(factor)
                .with_max_delay(self.max_delay)
                .without_max_times()
                .build()
                .nth(n.saturating_sub(1) as usize)
                .unwrap_or(self.max_delay)
                .min(self.max_delay)
        };
        base + base.mul_f64(self.jitter.clamp(0.0, 1.0) * chance.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> RetryPolicy {
        RetryPolicy {
            max_retries: 3,
            delay: Duration::from_secs(30),
            multiplier: 2.0,
            max_delay: Duration::from_secs(3600),
            jitter: 0.0,
        }
    }

    #[test]
    fn a_folder_is_listed_again_after_100_ms_and_then_twice_as_long() {
        let rescan = Duration::from_secs(30);
        let waits: Vec<Option<u128>> = (1..=11)
            .map(|failures| Some(list_again_after(failures, rescan)?.as_millis()))
            .collect();
        let all = [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600].map(Some);
        assert_eq!(waits[..9], all);
        assert_eq!(waits[9..], [None, None]);
        assert_eq!(list_again_after(u32::MAX, rescan), None);
        assert_eq!(list_again_after(1, Duration::from_millis(50)), None);
    }

    #[test]
    fn the_defaults_wait_30_60_120_seconds() {
        let waits: Vec<u128> = (1..=3)
            .map(|n| defaults().wait(n, 0.7).as_millis())
            .collect();
        assert_eq!(waits, [30_000, 60_000, 120_000]);
    }

    #[test]
    fn no_wait_is_longer_than_the_longest() {
        for n in [8, 100, 1000, u32::MAX] {
            let policy = RetryPolicy {
                max_retries: n,
                ..defaults()
            };
            if n <= 1000 {
                assert_eq!(policy.wait(n, 0.0), Duration::from_secs(3600), "retry {n}");
            }
        }
        let wide = RetryPolicy {
            delay: Duration::from_secs(9000),
            ..defaults()
        };
        assert_eq!(wide.wait(1, 0.0), Duration::from_secs(3600));
    }

    #[test]
    fn jitter_adds_at_most_its_share() {
        let policy = RetryPolicy {
            jitter: 0.5,
            ..defaults()
        };
        assert_eq!(policy.wait(1, 0.0), Duration::from_secs(30));
        assert_eq!(policy.wait(1, 1.0), Duration::from_secs(45));
    }

    #[test]
    fn a_delay_of_nothing_stays_nothing_and_a_factor_of_one_stays_flat() {
        let none = RetryPolicy {
            delay: Duration::ZERO,
            ..defaults()
        };
        assert_eq!(none.wait(3, 0.0), Duration::ZERO);
        let flat = RetryPolicy {
            multiplier: 1.0,
            ..defaults()
        };
        assert_eq!(flat.wait(3, 0.0), Duration::from_secs(30));
    }
}
