//! Signs of life of a running attempt, and what their absence means.
//!
//! The attempt's limit in time is the keeper's business. Seen from here: output that grows
//! past its limit, a whole result with nobody leaving, and silence where a specialist has a
//! `stall_timeout`. Sampling is I/O and happens elsewhere; this decides.

use std::time::Duration;

/// What one look at an attempt found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// Size and modification time of the result file, if there is one.
    pub result: Option<(u64, i128)>,
    pub heartbeat: Option<(u64, i128)>,
    /// Processor time of the whole tree, where it was asked for.
    pub cpu_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
pub struct VitalLimits {
    pub max_output: u64,
    pub linger: Duration,
    pub stall: Option<Duration>,
}

/// stderr is a log and is cut, not judged; only a flood of it ends an attempt.
pub const STDERR_FLOOD_FACTOR: u64 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    Fine,
    Flood,
    /// A result stands and nothing changed for `linger`: worth a look whether it is whole.
    Lingering,
    Stalled,
}

/// What is remembered of an attempt between two looks.
#[derive(Debug, Clone, Default)]
pub struct Vitals {
    last: Sample,
    moved_at_ms: u64,
    result_since_ms: u64,
    lingering: bool,
}

impl Vitals {
    pub fn new(now_ms: u64) -> Self {
        Self {
            last: Sample::default(),
            moved_at_ms: now_ms,
            result_since_ms: now_ms,
            lingering: false,
        }
    }

    /// Whether the last look found a result that stands still.
    pub fn is_lingering(&self) -> bool {
        self.lingering
    }

    pub fn look(&mut self, sample: Sample, limits: VitalLimits, now_ms: u64) -> Finding {
        if sample.result != self.last.result {
            self.result_since_ms = now_ms;
        }
        if self.shows_life(sample) {
            self.moved_at_ms = now_ms;
        }
        self.last = Sample {
            cpu_ms: sample.cpu_ms.or(self.last.cpu_ms),
            ..sample
        };
        if sample.stdout_bytes > limits.max_output
            || sample.stderr_bytes > limits.max_output.saturating_mul(STDERR_FLOOD_FACTOR)
        {
            return Finding::Flood;
        }
        let over = |since: u64, limit: Duration| {
            u128::from(now_ms.saturating_sub(since)) >= limit.as_millis()
        };
        self.lingering = sample.result.is_some_and(|(size, _)| size > 0)
            && over(self.result_since_ms, limits.linger);
        if self.lingering {
            return Finding::Lingering;
        }
        if limits
            .stall
            .is_some_and(|stall| over(self.moved_at_ms, stall))
        {
            return Finding::Stalled;
        }
        Finding::Fine
    }

    /// A few milliseconds of processor time are what waiting costs; more is work.
    fn shows_life(&self, sample: Sample) -> bool {
        let worked = match (self.last.cpu_ms, sample.cpu_ms) {
            (Some(before), Some(now)) => now > before + 5,
            (None, Some(now)) => now > 0,
            _ => false,
        };
        worked
            || sample.stdout_bytes != self.last.stdout_bytes
            || sample.stderr_bytes != self.last.stderr_bytes
            || sample.result != self.last.result
            || sample.heartbeat != self.last.heartbeat
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: VitalLimits = VitalLimits {
        max_output: 1000,
        linger: Duration::from_secs(30),
        stall: Some(Duration::from_secs(10)),
    };

    #[test]
    fn silence_is_a_stall_and_any_sign_of_life_is_not() {
        let quiet = Sample {
            cpu_ms: Some(3),
            ..Sample::default()
        };
        for (sign, sample) in [
            (
                "output",
                Sample {
                    stdout_bytes: 1,
                    ..quiet
                },
            ),
            (
                "stderr",
                Sample {
                    stderr_bytes: 1,
                    ..quiet
                },
            ),
            (
                "heartbeat",
                Sample {
                    heartbeat: Some((0, 7)),
                    ..quiet
                },
            ),
            (
                "cpu",
                Sample {
                    cpu_ms: Some(500),
                    ..quiet
                },
            ),
        ] {
            let mut vitals = Vitals::new(0);
            assert_eq!(vitals.look(quiet, LIMITS, 1_000), Finding::Fine);
            assert_eq!(vitals.look(sample, LIMITS, 9_000), Finding::Fine);
            assert_eq!(vitals.look(sample, LIMITS, 18_999), Finding::Fine, "{sign}");
            assert_eq!(
                vitals.look(sample, LIMITS, 19_000),
                Finding::Stalled,
                "{sign}"
            );
        }
    }

    #[test]
    fn without_a_limit_nothing_stalls() {
        let limits = VitalLimits {
            stall: None,
            ..LIMITS
        };
        let mut vitals = Vitals::new(0);
        assert_eq!(
            vitals.look(Sample::default(), limits, u64::MAX),
            Finding::Fine
        );
    }

    #[test]
    fn a_result_that_stands_still_lingers() {
        let limits = VitalLimits {
            stall: None,
            ..LIMITS
        };
        let mut vitals = Vitals::new(0);
        let result = |stamp| Sample {
            result: Some((20, stamp)),
            ..Sample::default()
        };
        assert_eq!(vitals.look(result(1), limits, 5_000), Finding::Fine);
        assert_eq!(
            vitals.look(result(2), limits, 34_000),
            Finding::Fine,
            "it changed"
        );
        assert_eq!(vitals.look(result(2), limits, 63_999), Finding::Fine);
        assert_eq!(vitals.look(result(2), limits, 64_000), Finding::Lingering);
    }

    #[test]
    fn a_flood_is_seen_at_once() {
        let mut vitals = Vitals::new(0);
        let sample = Sample {
            stdout_bytes: 1001,
            ..Sample::default()
        };
        assert_eq!(vitals.look(sample, LIMITS, 1), Finding::Flood);
        let log = Sample {
            stderr_bytes: 8000,
            ..Sample::default()
        };
        assert_eq!(Vitals::new(0).look(log, LIMITS, 1), Finding::Fine);
    }
}
