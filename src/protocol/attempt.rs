//! One attempt as the record lists it: its number, its times and how it ended.
//!
//! Which process runs an attempt is not here: that stands in the run folder, for as long as it runs.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::clock::Wall;
use crate::protocol::field::FieldError;
use crate::protocol::usage;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    Completed,
    Failed,
    Timeout,
    Stalled,
    Interrupted,
    Cancelled,
    Blocked,
    NeedsReview,
    Delegated,
    Held,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    pub number: u32,
    pub started_at: Wall,
    #[serde(default)]
    pub ended_at: Option<Wall>,
    #[serde(default)]
    pub outcome: Option<AttemptOutcome>,
    #[serde(default)]
    pub exit_code: Option<i32>,
    #[serde(default)]
    pub signal: Option<i32>,
    #[serde(default)]
    pub error: Option<AttemptError>,
    /// The attempt's log, relative to the root; absent where it said nothing.
    #[serde(default)]
    pub log: Option<String>,
    /// How long it ran, by the clock that does not jump.
    #[serde(default)]
    pub milliseconds: Option<u64>,
    /// What it cost, by its own count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Map<String, Value>>,
    /// How many attempts this entry stands for, where it is more than one: holds in a row, of which it
    /// has the last one's number, times and log, and the cost of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
}

/// So many holds in a row are listed one by one.
const LISTED_HOLDS: usize = 10;

/// Makes one entry of the holds at the end of the list that are too many to be listed. A handoff whose
/// specialist is out of quota for weeks is held thousands of times, and each attempt reads the record.
/// The first `spent` entries are those of earlier budgets, and stay as they are.
pub fn sum_up_holds(attempts: &mut Vec<Attempt>, spent: usize) {
    let present = attempts.iter().skip(spent).rev();
    let in_a_row = present.take_while(|it| it.outcome == Some(AttemptOutcome::Held));
    if in_a_row.count() <= LISTED_HOLDS + 1 {
        return;
    }
    if let (Some(last), Some(sum)) = (attempts.pop(), attempts.last_mut()) {
        sum.absorb(last);
    }
}

/// How many attempts these entries stand for.
pub fn starts(attempts: &[Attempt]) -> usize {
    let of = |it: &Attempt| usize::try_from(it.count.unwrap_or(1)).unwrap_or(usize::MAX);
    attempts.iter().map(of).fold(0, usize::saturating_add)
}

impl Attempt {
    fn absorb(&mut self, last: Self) {
        let count = self.count.unwrap_or(1);
        let mut usage = self.usage.take().unwrap_or_default();
        usage::add(&mut usage, last.usage.as_ref());
        *self = Self {
            count: Some(count.saturating_add(last.count.unwrap_or(1))),
            milliseconds: match (self.milliseconds, last.milliseconds) {
                (Some(all), Some(last)) => Some(all.saturating_add(last)),
                (all, last) => all.or(last),
            },
            usage: (!usage.is_empty()).then_some(usage),
            ..last
        };
    }

    /// One that begins now; how it ends is not known yet.
    pub fn begun(number: u32, started_at: Wall) -> Self {
        Self {
            number,
            started_at,
            ended_at: None,
            outcome: None,
            exit_code: None,
            signal: None,
            error: None,
            log: None,
            milliseconds: None,
            usage: None,
            count: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptError {
    pub code: String,
    pub message: String,
    /// The fields that were wrong, for the next attempt to fix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldError>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ended(number: u32, outcome: AttemptOutcome) -> Attempt {
        let usage = json!({"cost_usd": 0.5, "input_tokens": 2, "model": format!("m{number}")});
        Attempt {
            outcome: Some(outcome),
            ended_at: Some(Wall(i64::from(number) + 1)),
            milliseconds: Some(10),
            usage: usage.as_object().cloned(),
            ..Attempt::begun(number, Wall(i64::from(number)))
        }
    }

    fn held(list: &mut Vec<Attempt>, times: u32, spent: usize) {
        for _ in 0..times {
            let number = list.last().map_or(1, |it| it.number + 1);
            list.push(ended(number, AttemptOutcome::Held));
            sum_up_holds(list, spent);
        }
    }

    #[test]
    fn holds_in_a_row_beyond_ten_are_one_entry_with_the_last_ones_times() {
        let mut list = vec![ended(1, AttemptOutcome::Failed)];
        held(&mut list, 11, 0);
        assert_eq!((list.len(), starts(&list)), (12, 12));
        assert!(list.iter().all(|it| it.count.is_none()));
        held(&mut list, 1000, 0);
        assert_eq!((list.len(), starts(&list)), (12, 1012));
        let sum = &list[11];
        assert_eq!((sum.number, sum.count), (1012, Some(1001)));
        assert_eq!(
            (sum.started_at, sum.ended_at),
            (Wall(1012), Some(Wall(1013)))
        );
        assert_eq!(sum.milliseconds, Some(10_010));
        assert_eq!(
            Value::from(sum.usage.clone().unwrap()),
            json!({"cost_usd": 500.5, "input_tokens": 2002, "model": "m1012"})
        );
        // Another outcome ends the row.
        list.push(ended(1013, AttemptOutcome::Failed));
        held(&mut list, 12, 0);
        assert_eq!((list.len(), list[23].count), (24, Some(2)));
        // A new budget begins a new row.
        let spent = list.len();
        held(&mut list, 1, spent);
        assert_eq!((list.len(), list[24].count), (25, None));
        let text = serde_json::to_value(&list[23]).unwrap();
        assert_eq!(serde_json::from_value::<Attempt>(text).unwrap(), list[23]);
    }
}
