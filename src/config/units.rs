//! Durations, sizes and rates as people write them.
//!
//! Each has one way to be wrong from the reader's view, so parsers return an `Option` and the
//! hint says what would be right. Bare numbers are no durations: `timeout = 30` leaves open
//! thirty what.

use std::fmt;
use std::time::Duration;

use super::types::Rate;

pub(super) const DURATION_HINT: &str = r#"use a duration like "30s" or "5m""#;
pub(super) const SIZE_HINT: &str = r#"use a size like "8MiB", or a number of bytes"#;
pub(super) const RATE_HINT: &str = r#"use a rate like "30/min" (also /s, /h, /day)"#;

pub(super) fn duration(text: &str) -> Option<Duration> {
    humantime::parse_duration(text).ok()
}

pub(super) fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim_start().to_ascii_lowercase().as_str() {
        "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

pub(super) fn rate(text: &str) -> Option<Rate> {
    let (starts, unit) = text.split_once('/')?;
    let seconds = match unit.trim() {
        "s" | "sec" | "second" => 1,
        "min" | "minute" => 60,
        "h" | "hour" => 60 * 60,
        "day" => 24 * 60 * 60,
        _ => return None,
    };
    let starts = starts.trim().parse().ok().filter(|starts| *starts > 0)?;
    Some(Rate {
        starts,
        per: Duration::from_secs(seconds),
    })
}

/// A duration for messages, without humantime's spaces: `1h30m`.
pub(super) struct Shown(pub Duration);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = humantime::format_duration(self.0).to_string();
        f.write_str(&text.replace(' ', ""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        for (text, millis) in [
            ("250ms", 250),
            ("10m", 600_000),
            ("24h", 86_400_000),
            ("30d", 2_592_000_000),
            ("1h 30m", 5_400_000),
        ] {
            assert_eq!(
                duration(text),
                Some(Duration::from_millis(millis)),
                "{text}"
            );
        }
        for bad in ["", "30", "5 parsecs", "-1s", "99999999999999999999s"] {
            assert_eq!(duration(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn sizes_are_binary_or_decimal() {
        for (text, bytes) in [
            ("8MiB", 8 << 20),
            ("16MB", 16_000_000),
            ("512KiB", 512 << 10),
            ("1 GiB", 1 << 30),
            ("2gb", 2_000_000_000),
            ("9B", 9),
        ] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for bad in ["", "8", "8M", "MiB", "1.5MiB", "-1MiB", "99999999999999GiB"] {
            assert_eq!(size(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn rates_count_starts() {
        for (text, starts, seconds) in [
            ("30/min", 30, 60),
            ("1/s", 1, 1),
            ("1/sec", 1, 1),
            ("2/second", 2, 1),
            ("5/minute", 5, 60),
            ("7/h", 7, 3600),
            ("7/hour", 7, 3600),
            ("100 / day", 100, 86_400),
        ] {
            let per = Duration::from_secs(seconds);
            assert_eq!(rate(text), Some(Rate { starts, per }), "{text}");
        }
        for bad in ["", "30", "0/min", "-1/min", "30/", "/min", "30/fortnight"] {
            assert_eq!(rate(bad), None, "{bad:?}");
        }
    }
}
