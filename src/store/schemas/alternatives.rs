//! Why none of several alternatives fits, or more than one.
//!
//! Few are explained one by one. Of many, the closest is: the one that a document does not rule
//! out by its type or by a constant such as a `kind`.

use serde_json::Value;

use super::engine::{Fault, Kind};
use super::name::shortened;
use super::say::sentence_within;
use super::show::{SHOWN_LIST, field, list};

/// Why none of the alternatives fits: all of them if they are few, else the closest.
pub(super) fn none_fits(
    place: &str,
    value: &Value,
    context: &[Vec<Fault<'static>>],
    levels: usize,
) -> String {
    let many = context.len();
    // Each level explains several of the next, so it has to end.
    let Some(levels) = levels.checked_sub(1) else {
        return format!("matches none of {many} alternatives");
    };
    let reason = |index: usize, faults: &[Fault<'static>]| {
        let Some(first) = faults.iter().min_by_key(|fault| severity(place, fault)) else {
            return format!("({}) it matches", index + 1);
        };
        let below = first
            .instance_path()
            .as_str()
            .strip_prefix(place)
            .unwrap_or_default();
        let path = match field(value, below) {
            path if path.is_empty() => path,
            path => format!("{path}: "),
        };
        let more = match faults.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        format!(
            "({}) {path}{}{more}",
            index + 1,
            shortened(&sentence_within(first, levels), SHOWN_LIST)
        )
    };
    if many <= 3 {
        let reasons: Vec<String> = context
            .iter()
            .enumerate()
            .map(|(index, faults)| reason(index, faults))
            .collect();
        return format!(
            "matches none of {many} alternatives: {}",
            reasons.join("; ")
        );
    }
    let closest = context.iter().enumerate().min_by_key(|(_, faults)| {
        let worst = faults.iter().map(|fault| severity(place, fault)).min();
        (std::cmp::Reverse(worst), faults.len())
    });
    match closest {
        Some((index, faults)) => format!(
            "matches none of {many} alternatives; the closest is {}",
            reason(index, faults)
        ),
        None => "matches no alternative, because there is none".to_owned(),
    }
}

/// How much a fault says that an alternative was not meant; the lower, the more.
fn severity(place: &str, fault: &Fault<'_>) -> (u8, usize) {
    let below = fault
        .instance_path()
        .as_str()
        .strip_prefix(place)
        .unwrap_or_default();
    let depth = below.matches('/').count();
    let rank = match (fault.kind(), depth) {
        (Kind::Type { .. }, 0) => 0,
        (Kind::Constant { .. } | Kind::Enum { .. }, 0 | 1) => 1,
        (Kind::Required { .. }, 0) => 2,
        _ => 3,
    };
    (rank, depth)
}

pub(super) fn several(context: &[Vec<Fault<'static>>]) -> String {
    let fitting: Vec<String> = context
        .iter()
        .enumerate()
        .filter(|(_, faults)| faults.is_empty())
        .map(|(index, _)| (index + 1).to_string())
        .collect();
    format!(
        "matches the alternatives {} of {}, but must match exactly one",
        list(fitting.into_iter()),
        context.len()
    )
}
