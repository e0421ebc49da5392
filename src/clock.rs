//! The one source of time, and its manual twin for tests.
//!
//! Two clocks are read together. The wall clock is what people and records see; the boot clock
//! (monotonic, counting suspend) is what timers trust while the machine stays up, so that a
//! jump of the wall clock neither fires nor stalls anything. Whoever decides something takes a
//! [`Now`] as an argument and never asks for the time itself.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use chrono::{DateTime, Datelike, NaiveDateTime, SecondsFormat, Timelike, Utc};
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
        self.text(|text| text.chars().take(10).collect())
    }

    /// Shows this instant as text. Every record and every line of the log holds a few of them,
    /// and nearly all are of this era: those are put together here, without an allocation.
    fn text<T>(self, show: impl FnOnce(&str) -> T) -> T {
        let Some(at) = DateTime::<Utc>::from_timestamp_millis(self.0) else {
            return show("9999-12-31T23:59:59.999Z");
        };
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let mut put = |end: usize, width: usize, mut value: u32| {
            for digit in text[end - width..end].iter_mut().rev() {
                *digit = b'0' + u8::try_from(value % 10).unwrap_or(0);
                value /= 10;
            }
            value == 0
        };
        let fits = u32::try_from(at.year()).is_ok_and(|year| put(4, 4, year))
            && put(7, 2, at.month())
            && put(10, 2, at.day())
            && put(13, 2, at.hour())
            && put(16, 2, at.minute())
            && put(19, 2, at.second())
            && put(23, 3, at.timestamp_subsec_millis());
        match std::str::from_utf8(&text) {
            Ok(text) if fits => show(text),
            _ => show(&at.to_rfc3339_opts(SecondsFormat::Millis, true)),
        }
    }
}

impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text(|text| f.write_str(text))
    }
}

impl Serialize for Wall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text(|text| serializer.serialize_str(text))
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
    fn an_instant_of_any_era_is_shown_as_chrono_shows_it() {
        const DAY: i64 = 86_400_000;
        let eras = (-5_000_000..5_000_000).step_by(9_973);
        for at in eras.map(|day| Wall(day * DAY + day % DAY * 7)) {
            let theirs = DateTime::<Utc>::from_timestamp_millis(at.0).unwrap();
            let theirs = theirs.to_rfc3339_opts(SecondsFormat::Millis, true);
            assert_eq!(at.to_string(), theirs);
            assert_eq!(serde_json::to_value(at).unwrap(), theirs.as_str());
        }
        assert_eq!(Wall(-1).day(), "1969-12-31");
        assert_eq!(Wall(i64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
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
