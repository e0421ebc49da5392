//! When a quota is back, in the words of an agent: "try again in 2 hours 5 minutes", "try again at Nov
//! 20th, 2026 6:40 PM", "resets 7pm (UTC)", "limit reached|1795124278".

use std::time::{Duration, SystemTime};

use chrono::{DateTime, Datelike as _, Local, NaiveDate, NaiveTime, TimeZone, Utc};

/// Words before a length of time.
const BEFORE_A_LENGTH: [&str; 6] = [
    "try again in ",
    "retry in ",
    "retry after ",
    "reset after ",
    "resets in ",
    "resets after ",
];

/// Words before a moment.
const BEFORE_A_MOMENT: [&str; 4] = ["try again at ", "resets at ", "reset at ", "resets "];

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];

/// How many words may make up a moment.
const MOST_WORDS: usize = 7;

/// The moment that a message names, if it names one.
pub fn until(said: &str, now: SystemTime) -> Option<SystemTime> {
    let said = said.to_lowercase();
    let after = |marks: &[&str]| {
        let found = marks.iter().find_map(|mark| said.split_once(mark));
        found.map(|(_, after)| after.to_owned())
    };
    let length = after(&BEFORE_A_LENGTH).and_then(|words| length(&words));
    length
        .map(|length| now + length)
        .or_else(|| moment(&after(&BEFORE_A_MOMENT)?, now))
        .or_else(|| stamp(&said))
}

/// "1 day 2 hours 5 minutes", "17h22m3s", "1.5s".
fn length(words: &str) -> Option<Duration> {
    let mut rest = words.trim_start();
    let mut sum = 0.0;
    let mut found = false;
    while let Some(end) = rest.find(|c: char| !c.is_ascii_digit() && c != '.') {
        let Ok(number) = rest[..end].parse::<f64>() else {
            break;
        };
        let after = rest[end..].trim_start();
        let unit: String = after
            .chars()
            .take_while(char::is_ascii_alphabetic)
            .collect();
        let seconds = match unit.as_str() {
            "d" | "day" | "days" => 86_400.0,
            "h" | "hr" | "hour" | "hours" => 3_600.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "ms" => 0.001,
            _ => break,
        };
        sum += number * seconds;
        found = true;
        rest = after[unit.len()..].trim_start_matches([' ', ',']);
        rest = rest.strip_prefix("and ").unwrap_or(rest);
    }
    found
        .then(|| Duration::try_from_secs_f64(sum).ok())
        .flatten()
}

/// "nov 20th, 2026 6:40 pm", "6:40 pm", "nov 20, 7pm (utc)". In this machine's time zone unless the
/// message says UTC.
fn moment(words: &str, now: SystemTime) -> Option<SystemTime> {
    let words: Vec<&str> = words
        .split([' ', ',', '\u{202f}', '\u{a0}'])
        .filter(|word| !word.is_empty())
        .take(MOST_WORDS)
        .collect();
    let mut date = Date::default();
    for (at, word) in words.iter().enumerate() {
        let word = word.trim_end_matches(['.', ')', ';', '"']);
        if let Some(month) = MONTHS.iter().position(|name| word.starts_with(name)) {
            date.month = u32::try_from(month + 1).ok();
        } else if let Some(time) = time(word, words.get(at + 1).copied().unwrap_or_default()) {
            let utc = words[at..]
                .iter()
                .any(|word| word.starts_with("(utc") || *word == "utc");
            return if utc {
                date.at(time, &DateTime::<Utc>::from(now))
            } else {
                date.at(time, &DateTime::<Local>::from(now))
            };
        } else if let Ok(year) = word.parse::<i32>()
            && year > 31
        {
            date.year = Some(year);
        } else {
            let digits: String = word.chars().take_while(char::is_ascii_digit).collect();
            date.day = digits.parse().ok().or(date.day);
        }
    }
    None
}

#[derive(Debug, Default)]
struct Date {
    year: Option<i32>,
    month: Option<u32>,
    day: Option<u32>,
}

impl Date {
    /// What the message leaves out is today's, or the next one that is still to come.
    fn at<Z: TimeZone>(&self, time: NaiveTime, now: &DateTime<Z>) -> Option<SystemTime> {
        let zone = now.timezone();
        let today = now.date_naive();
        let moment = |date: NaiveDate| zone.from_local_datetime(&date.and_time(time)).earliest();
        let found = match (self.month, self.day) {
            (Some(month), Some(day)) => {
                let of = |year| NaiveDate::from_ymd_opt(year, month, day).and_then(moment);
                let found = of(self.year.unwrap_or(today.year()))?;
                if self.year.is_none() && found <= *now {
                    of(today.year() + 1)?
                } else {
                    found
                }
            }
            _ => match moment(today)? {
                found if found <= *now => moment(today.succ_opt()?)?,
                found => found,
            },
        };
        Some(found.to_utc().into())
    }
}

/// "6:40 pm" in two words, "6:40pm", "7pm", "18:40".
fn time(word: &str, next: &str) -> Option<NaiveTime> {
    let half = |word: &str| {
        let word = word.replace('.', "");
        ["am", "pm"].into_iter().find(|half| word.starts_with(half))
    };
    let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit());
    let own = half(&word[digits.len()..]);
    let of = own.or_else(|| half(next));
    let (hour, minute) = match digits.split_once(':') {
        Some((hour, minute)) => (hour, minute.get(..2)?),
        None if own.is_some() => (digits, "0"),
        None => return None,
    };
    let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok()?);
    let hour = match of {
        Some("pm") if hour < 12 => hour + 12,
        Some("am") if hour == 12 => 0,
        _ => hour,
    };
    NaiveTime::from_hms_opt(hour, minute, 0)
}

/// "|1795124278": seconds since 1970, after a bar.
fn stamp(said: &str) -> Option<SystemTime> {
    let (_, after) = said.rsplit_once('|')?;
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    let seconds: u64 = digits.parse().ok().filter(|_| digits.len() == 10)?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utc(text: &str) -> SystemTime {
        DateTime::parse_from_rfc3339(text).unwrap().to_utc().into()
    }

    #[test]
    fn a_length_of_time_is_understood() {
        let now = utc("2026-11-19T12:00:00Z");
        for (said, seconds) in [
            ("Try again in 1 day 2 hours 5 minutes.", 93_900.0),
            ("try again in 5 minutes", 300.0),
            ("Please retry in 41.5s.", 41.5),
            ("Your quota will reset after 17h22m3s.", 62_523.0),
            (
                "rate limit reached; try again in 2 hours and 1 minute",
                7_260.0,
            ),
        ] {
            let expected = now + Duration::from_secs_f64(seconds);
            assert_eq!(until(said, now), Some(expected), "{said}");
        }
    }

    #[test]
    fn a_moment_is_understood() {
        let now = utc("2026-11-19T12:00:00Z");
        for (said, expected) in [
            (
                "resets Nov 20th, 2026 6:40 PM (UTC)",
                "2026-11-20T18:40:00Z",
            ),
            (
                "You've hit your 5-hour limit · resets 7pm (UTC)",
                "2026-11-19T19:00:00Z",
            ),
            ("resets 9:30am (UTC)", "2026-11-20T09:30:00Z"),
            ("resets Jan 2, 12am (UTC)", "2027-01-02T00:00:00Z"),
            ("usage limit reached|1795200000", "2026-11-20T18:40:00Z"),
        ] {
            assert_eq!(until(said, now), Some(utc(expected)), "{said}");
        }
        // In this machine's zone, whatever it is.
        let local = Local.with_ymd_and_hms(2026, 11, 20, 18, 40, 0).unwrap();
        let said =
            "visit the page to purchase more credits or try again at Nov 20th, 2026 6:40 PM.";
        assert_eq!(until(said, now), Some(local.to_utc().into()));
    }

    #[test]
    fn words_without_a_time_name_none() {
        let now = utc("2026-11-19T12:00:00Z");
        for said in [
            "429 Too Many Requests",
            "Please try again later.",
            "try again in a moment",
            "resets soon",
            "try again at your own risk",
            "try again in 99999999999999999999999 days",
            "",
        ] {
            assert_eq!(until(said, now), None, "{said}");
        }
    }
}
