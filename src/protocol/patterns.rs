//! Expressions for the published schemas: texts that the readers here and in other crates take.
//!
//! A schema must refuse what a reader refuses, so each of these takes what its reader takes or
//! a little less (odd notations such as `1h 90m`), and never more. They do without looking ahead
//! or behind, which not every engine can.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

/// An instant of RFC 3339; without an offset it is UTC. Knows the lengths of months.
pub const INSTANT: &str = concat!(
    "^(([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)",
    "|02-(0[1-9]|1[0-9]|2[0-8])))",
    "|([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)",
    "([T ]([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)(\\.[0-9]+)?",
    "|[Tt ]([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)(\\.[0-9]+)?",
    "([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9]))$"
);

pub const ID: &str = "^[A-Za-z0-9_@~-][A-Za-z0-9._@~-]{0,199}$";
pub const TASK: &str = "^[A-Za-z0-9_@-][A-Za-z0-9._@-]{0,199}$";
pub const AGENT: &str = "^(@[^\\x00-\\x1f\\x7f-\\x9f]{1,200}\
    |[^@\\x00-\\x1f\\x7f-\\x9f][^\\x00-\\x1f\\x7f-\\x9f]{0,199})$";
pub const DESTINATION: &str = "^artifacts(/([^/{}\\x00-\\x1f\\x7f-\\x9f]\
    |\\{(handoff_id|task_id|agent|phase|artifact_type|timestamp)\\}){1,240})+$";

/// What leads elsewhere, or nowhere.
pub const DOTS: &str = "/\\.{1,2}(/|$)";

/// A unit of time.
struct Unit {
    names: &'static str,
    nanos: u128,
    /// How many digits its number may have without being too much.
    digits: usize,
    /// Digits after a point that come out even; 0 where a point is refused.
    fraction: u32,
    /// The most of it beside a larger unit.
    most: u128,
}

const SECOND: u128 = 1_000_000_000;

#[rustfmt::skip]
const UNITS: [Unit; 10] = [
    Unit { names: "years?|yrs?|y", nanos: 31_557_600 * SECOND, digits: 10, fraction: 2, most: 0 },
    Unit { names: "months?|M", nanos: 2_630_016 * SECOND, digits: 10, fraction: 0, most: 11 },
    Unit { names: "weeks?|wks?|w", nanos: 604_800 * SECOND, digits: 10, fraction: 2, most: 4 },
    Unit { names: "days?|d", nanos: 86_400 * SECOND, digits: 10, fraction: 2, most: 30 },
    Unit { names: "hours?|hrs?|h", nanos: 3_600 * SECOND, digits: 10, fraction: 2, most: 23 },
    Unit { names: "minutes?|mins?|m", nanos: 60 * SECOND, digits: 10, fraction: 3, most: 59 },
    Unit { names: "seconds?|secs?|s", nanos: SECOND, digits: 10, fraction: 3, most: 59 },
    Unit { names: "millis|msec|ms", nanos: 1_000_000, digits: 12, fraction: 3, most: 999 },
    Unit { names: "usec|us|µs", nanos: 1_000, digits: 15, fraction: 3, most: 0 },
    Unit { names: "nanos|nsec|ns", nanos: 1, digits: 18, fraction: 0, most: 0 },
];

/// Any duration such as `30m`, `1.5h` or `1h 30m`.
pub fn duration() -> String {
    let mut parts = Vec::new();
    for unit in &UNITS {
        let fraction = match unit.fraction {
            0 => String::new(),
            most => format!("(\\.[0-9]{{1,{most}}})?"),
        };
        let (digits, names) = (unit.digits, unit.names);
        parts.push(format!("[0-9]{{1,{digits}}}{fraction} *({names})"));
    }
    format!("^( *({}))+ *$", parts.join("|"))
}

/// A duration from `least` to `most`, where it has a digit other than 0 or may be nothing.
pub fn duration_between(least: Duration, most: Duration) -> String {
    let (least, most) = (least.as_nanos(), most.as_nanos());
    let mut alternatives = Vec::new();
    for unit in &UNITS {
        let from = least.div_ceil(unit.nanos);
        let to = (most / unit.nanos).min(10_u128.pow(18) - 1);
        if from > to || to == 0 {
            continue;
        }
        let mut number = between(from, to);
        if unit.fraction > 0 && to > from {
            let whole = between(from, to - 1);
            let _ = write!(number, "|{whole}\\.[0-9]{{1,{}}}", unit.fraction);
        }
        // Below one of it, but not below the least.
        let fine = |digits: &u32| least > 0 && unit.nanos / 10_u128.pow(*digits) >= least;
        if let Some(digits) = (1..=unit.fraction).rev().find(fine) {
            let _ = write!(number, "|0\\.[0-9]{{1,{digits}}}");
        }
        alternatives.push(format!("0*({number}) *({})", unit.names));
    }
    format!(
        "^ *({}|{}) *$",
        alternatives.join("|"),
        several(least, most)
    )
}

/// Several units, from the largest down, each below one of the unit before; or none at all.
fn several(least: u128, most: u128) -> String {
    let below = |at: usize| -> u128 { UNITS[at..].iter().map(|unit| unit.most * unit.nanos).sum() };
    let mut parts = String::new();
    for (at, unit) in UNITS.iter().enumerate() {
        let room = most.saturating_sub(below(at + 1)) / unit.nanos;
        let limit = if at == 0 { room } else { unit.most.min(room) };
        if limit > 0 && unit.nanos >= least {
            let _ = write!(parts, "( *0*({}) *({}))?", between(0, limit), unit.names);
        }
    }
    parts
}

/// The decimal numbers from `least` to `most`, without leading zeros.
pub fn between(least: u128, most: u128) -> String {
    let mut stops = BTreeSet::from([most]);
    let powers = || std::iter::successors(Some(10_u128), |power| power.checked_mul(10));
    for power in powers() {
        let nines = least - least % power + (power - 1);
        if nines >= most {
            break;
        }
        stops.insert(nines);
    }
    for power in powers() {
        match ((most + 1) - (most + 1) % power).checked_sub(1) {
            Some(stop) if stop >= least && power <= most => {
                stops.insert(stop);
            }
            _ => break,
        }
    }
    let mut from = least;
    let mut parts = Vec::new();
    for stop in stops {
        parts.push(digits(from, stop));
        from = stop + 1;
    }
    format!("({})", parts.join("|"))
}

/// Two numbers of the same length, digit by digit.
fn digits(from: u128, to: u128) -> String {
    let mut pattern = String::new();
    let mut any = 0;
    for (low, high) in from.to_string().chars().zip(to.to_string().chars()) {
        match (low, high) {
            ('0', '9') => any += 1,
            _ if low == high => pattern.push(low),
            _ => {
                let _ = write!(pattern, "[{low}-{high}]");
            }
        }
    }
    match any {
        0 => {}
        1 => pattern.push_str("[0-9]"),
        _ => {
            let _ = write!(pattern, "[0-9]{{{any}}}");
        }
    }
    pattern
}

#[cfg(test)]
#[path = "patterns_tests.rs"]
mod tests;
