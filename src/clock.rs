//! The one source of time, and its manual twin for tests.
//!
//! Two clocks are read together. The wall clock is what people and records see; the boot clock
//! (monotonic, counting suspend) is what timers trust while the machine stays up, so that a
//! jump of the wall clock neither fires nor stalls anything. Whoever decides something takes a
//! [`Now`] as an argument and never asks for the time itself.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use chrono::{DateTime, NaiveDateTime, SecondsFormat, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An instant of the wall clock, in milliseconds since 1970, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Wall(pub i64);

impl Wall {
    /// Reads RFC 3339; an instant without an offset is read as UTC.
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(at) = DateTime::parse_from_rfc3339(text) {
            return Some(Self(at.timestamp_millis()));
        }
        ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f"]
            .iter()
            .find_map(|format| NaiveDateTime::parse_from_str(text, format).ok())
            .map(|at| Self(at.and_utc().timestamp_millis()))
    }

    /// This instant, `ms` later (or earlier), never wrapping.
    #[must_use]
    pub fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// The UTC day, as `YYYY-MM-DD`.
    pub fn day(self) -> String {
        self.to_string().chars().take(10).collect()
    }
}

impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DateTime::<Utc>::from_timestamp_millis(self.0) {
            Some(at) => f.write_str(&at.to_rfc3339_opts(SecondsFormat::Millis, true)),
            None => f.write_str("9999-12-31T23:59:59.999Z"),
        }
    }
}

impl Serialize for Wall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Wall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not an RFC 3339 instant"))
    }
}

/// Both clocks, read at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    pub wall: Wall,
    /// Milliseconds since this boot, suspend included.
    pub boot_ms: u64,
}

/// Where time comes from: the system, or a test's hand.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    #[default]
    System,
    Manual(Arc<Mutex<Now>>),
}

impl Clock {
    /// A clock that stands still until a test moves it.
    pub fn manual(wall: Wall, boot_ms: u64) -> Self {
        Self::Manual(Arc::new(Mutex::new(Now { wall, boot_ms })))
    }

    pub fn now(&self) -> Now {
        match self {
            Self::System => system_now(),
            Self::Manual(now) => *now
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner),
        }
    }

    /// Moves a manual clock; both hands move together. The system's clock ignores it.
    pub fn advance_ms(&self, ms: u64) {
        if let Self::Manual(now) = self {
            let mut now = now
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            now.boot_ms += ms;
            now.wall = now.wall.plus_ms(i64::try_from(ms).unwrap_or(i64::MAX));
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the room that may read the clock"
)]
fn system_now() -> Now {
    let wall = Wall(Utc::now().timestamp_millis());
    Now {
        wall,
        boot_ms: boot_ms(),
    }
}

/// Milliseconds since boot, suspend included where the system can tell.
pub fn boot_ms() -> u64 {
    #[cfg(target_os = "linux")]
    let id = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let id = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(id);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Names this boot of this machine. Boot-clock readings of another boot mean nothing here.
pub fn boot_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_or_else(|_| "unknown".to_owned(), |id| id.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_utc_with_milliseconds() {
        for (text, shown) in [
            ("2026-01-13T10:00:00Z", "2026-01-13T10:00:00.000Z"),
            ("2026-01-13T10:00:00.1239+02:00", "2026-01-13T08:00:00.123Z"),
            ("2026-01-13T10:00:00", "2026-01-13T10:00:00.000Z"),
            ("2026-01-13 10:00:00.5", "2026-01-13T10:00:00.500Z"),
        ] {
            assert_eq!(Wall::parse(text).unwrap().to_string(), shown, "{text}");
        }
        assert_eq!(Wall::parse("tomorrow"), None);
    }

    #[test]
    fn a_manual_clock_moves_only_by_hand() {
        let clock = Clock::manual(Wall(1000), 5);
        clock.advance_ms(20);
        assert_eq!(
            clock.now(),
            Now {
                wall: Wall(1020),
                boot_ms: 25
            }
        );
    }
}
