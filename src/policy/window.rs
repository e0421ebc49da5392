//! What one agent is handed fits its context window.
//!
//! A record grows by what the daemon adds to it: outcomes of earlier runs, returns of helpers, the
//! last result, and the lists that a chain accumulates. Where the record is larger than an agent
//! should be handed, entries of these are taken out, the largest and oldest first, and a reference
//! to the file that has them stays in their place. The entries of the last result go last. What a
//! producer wrote, and the words of a result, are never taken.
//!
//! The bound is in tokens. No more text is counted than the bound allows: the entries that stay are
//! added up, not those that go.

mod places;

use serde_json::{Map, Value, json};

pub use self::places::LastEntries;
use self::places::{Place, list, note_taken, taken_from};
use crate::policy::task::{count_up_to, one_line};
use crate::protocol::record::Record;

/// What a reference and its summary take at most, roughly.
const REFERENCE: usize = 120;
/// The most characters of one entry in a summary.
const SHOWN: usize = 80;
/// How many entries a summary names.
const NAMED: usize = 3;

/// The key of a reference that says how many entries it stands for.
pub const COUNT: &str = "count";
/// How many of the outcomes that a reference stands for ended in a resubmission: a session of an agent
/// belongs to one submission.
const RESUBMITTED: &str = "resubmitted";
/// The key that names the file.
pub const REF: &str = "ref";

/// What was taken out of one place, in its order.
#[derive(Debug, Clone, PartialEq)]
pub struct Cut {
    /// Where it stood, as a path in the record.
    pub part: &'static str,
    pub entries: Vec<Value>,
    /// How many entries of this part the file has from earlier.
    pub before: usize,
}

/// A record that an agent can be handed.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    pub bytes: Vec<u8>,
    pub cut: Vec<Cut>,
    /// What nothing may be taken from is above the bound by itself.
    pub is_over: bool,
}

/// One entry that may be taken out.
struct Candidate {
    place: Place,
    at: usize,
    value: Value,
    /// The exponent of its size: what is about as large goes by age.
    size: u32,
}

/// Cuts a record to `most` tokens. What it loses is to be kept in the file `file`.
pub fn fit(record: &mut Record, most: usize, file: &str, last: LastEntries) -> Fitted {
    forget_unused(record, file);
    let bytes = record.to_bytes();
    if fits(&bytes, most) {
        return Fitted {
            bytes,
            cut: Vec::new(),
            is_over: false,
        };
    }
    let mut cut = record.clone();
    let mut fitted = cut_to(&mut cut, most, file, LastEntries::Stay);
    if fitted.is_over && last == LastEntries::Go {
        cut = record.clone();
        fitted = cut_to(&mut cut, most, file, last);
    }
    *record = cut;
    fitted
}

/// The same for a record that does not fit.
fn cut_to(record: &mut Record, most: usize, file: &str, last: LastEntries) -> Fitted {
    let mut candidates = candidates(record, file, last);
    // Those that stay first: the small ones, and of these the latest.
    candidates.sort_by_key(|it| (it.size, std::cmp::Reverse((it.place.age(), it.at))));
    let mut kept = 0;
    let has_some = |place: &Place| candidates.iter().any(|it| it.place == *place);
    let references = Place::ALL.into_iter().filter(has_some).count() * REFERENCE;
    let bare = without(record, &candidates).to_bytes();
    let mut room = most.saturating_sub(count(&bare, most).saturating_add(references));
    while let Some(candidate) = candidates.get(kept) {
        let text = serde_json::to_string_pretty(&candidate.value).unwrap_or_default();
        let cost = count_up_to(&text, room).saturating_add(2);
        if cost > room {
            break;
        }
        room -= cost;
        kept += 1;
    }
    // Tokens of parts don't add up to those of the whole, so the whole is what counts.
    loop {
        let mut cut = record.clone();
        let parts = take_out(&mut cut, &candidates[kept..], file);
        let bytes = cut.to_bytes();
        let is_over = !fits(&bytes, most);
        if is_over && kept > 0 {
            kept -= kept.div_ceil(8);
            continue;
        }
        *record = cut;
        return Fitted {
            bytes,
            cut: parts,
            is_over,
        };
    }
}

/// A token is one byte at least, so short text needs no counting.
fn fits(bytes: &[u8], most: usize) -> bool {
    bytes.len() <= most || count(bytes, most) <= most
}

fn count(bytes: &[u8], most: usize) -> usize {
    std::str::from_utf8(bytes).map_or(bytes.len(), |text| count_up_to(text, most))
}

/// Drops the notes about parts that the record no longer refers to.
fn forget_unused(record: &mut Record, file: &str) {
    if record.meta.compacted.is_empty() {
        return;
    }
    let is_used = |part: &Value| {
        let place = Place::ALL
            .into_iter()
            .find(|place| part.get("part").and_then(Value::as_str) == Some(place.name()));
        place.is_some_and(|place| match place {
            Place::LastResult => {
                is_reference(&Value::Object(record.meta.last_result.clone()), file)
            }
            _ => {
                list(record, place).is_some_and(|list| list.iter().any(|it| is_reference(it, file)))
            }
        })
    };
    let used: Vec<Value> = record
        .meta
        .compacted
        .iter()
        .filter(|it| is_used(it))
        .cloned()
        .collect();
    record.meta.compacted = used;
}

/// The most bytes of results that stand in `handoffd.returns` itself.
const MOST_RETURNED: usize = 256 * 1024;

/// Puts a reference to the helper's own record in the place of results that are too large, the
/// largest first.
pub fn refer_to_helpers(returns: &mut [Value]) {
    let size = |it: &Value| {
        it.get("result")
            .map_or(0, |result| result.to_string().len())
    };
    let mut sizes: Vec<(usize, usize)> = returns.iter().map(size).zip(0..).collect();
    let mut total: usize = sizes.iter().map(|(size, _)| size).sum();
    sizes.sort_by_key(|(size, at)| (std::cmp::Reverse(*size), *at));
    for (size, at) in sizes {
        if total <= MOST_RETURNED {
            break;
        }
        let text = |key: &str| returns[at].get(key).and_then(Value::as_str);
        let (Some(id), Some(status @ ("completed" | "failed"))) = (text("id"), text("status"))
        else {
            continue;
        };
        let path = format!("handoffs/{status}/{id}.json");
        let Some(returned) = returns[at].as_object_mut() else {
            continue;
        };
        let Some(result) = returned.shift_remove("result") else {
            continue;
        };
        returned.insert("summary".to_owned(), in_a_line(&result).into());
        returned.insert("size_bytes".to_owned(), size.into());
        returned.insert(REF.to_owned(), path.into());
        total -= size;
    }
}

/// A result in a line.
fn in_a_line(result: &Value) -> String {
    let error = result.get("error").and_then(|error| error.get("message"));
    let said = result.get("summary").or(error).and_then(Value::as_str);
    one_line(said.unwrap_or("it has no summary"), 2 * SHOWN)
}

fn is_reference(value: &Value, file: &str) -> bool {
    value.get(REF).and_then(Value::as_str) == Some(file)
}

/// All that may be taken out of a record.
fn candidates(record: &Record, file: &str, last: LastEntries) -> Vec<Candidate> {
    let mut found = Vec::new();
    let mut add = |place: Place, at: usize, value: &Value| {
        if !is_reference(value, file) {
            let size = value.to_string().len().max(1).ilog2();
            found.push(Candidate {
                place,
                at,
                value: value.clone(),
                size,
            });
        }
    };
    for place in Place::ALL {
        if place == Place::LastResult {
            if let Some(result) = record.meta.last_result.get("result") {
                add(place, 0, result);
            }
            continue;
        }
        let entries = list(record, place).unwrap_or_default();
        let count = taken_from(record, place, last).min(entries.len());
        for (at, value) in entries.iter().take(count).enumerate() {
            add(place, at, value);
        }
    }
    found
}

/// The record without any of these.
fn without(record: &Record, candidates: &[Candidate]) -> Record {
    let mut bare = record.clone();
    for place in Place::ALL {
        remove(&mut bare, place, candidates);
    }
    bare
}

/// Removes those of one place.
fn remove(record: &mut Record, place: Place, candidates: &[Candidate]) {
    let mut gone: Vec<usize> = candidates
        .iter()
        .filter(|it| it.place == place)
        .map(|it| it.at)
        .collect();
    if gone.is_empty() {
        return;
    }
    if place == Place::LastResult {
        record.meta.last_result.shift_remove("result");
        return;
    }
    gone.sort_unstable();
    note_taken(record, place, &gone);
    if let Some(list) = places::list_mut(record, place) {
        let mut at = 0;
        list.retain(|_| {
            at += 1;
            gone.binary_search(&(at - 1)).is_err()
        });
    }
}

/// Takes entries out, and leaves a reference in each place.
fn take_out(record: &mut Record, candidates: &[Candidate], file: &str) -> Vec<Cut> {
    let mut parts = Vec::new();
    for place in Place::ALL {
        let mut gone: Vec<&Candidate> = candidates.iter().filter(|it| it.place == place).collect();
        if gone.is_empty() {
            continue;
        }
        gone.sort_by_key(|it| it.at);
        let entries: Vec<Value> = gone.into_iter().map(|it| it.value.clone()).collect();
        remove(record, place, candidates);
        let before = if place == Place::LastResult {
            let last = &mut record.meta.last_result;
            last.insert("summary".to_owned(), summary(place, &entries, 1).into());
            last.insert(REF.to_owned(), file.into());
            0
        } else {
            refer(record, place, &entries, file);
            note_of(record, place).map_or(0, |at| counted(&record.meta.compacted[at], COUNT))
        };
        let note = json!({
            "part": place.name(), COUNT: before + entries.len(), REF: file,
        });
        match note_of(record, place) {
            Some(at) => record.meta.compacted[at] = note,
            None => record.meta.compacted.push(note),
        }
        parts.push(Cut {
            part: place.name(),
            entries,
            before,
        });
    }
    parts
}

/// Puts a reference at the head of a list, for these and for those that are in the file already.
fn refer(record: &mut Record, place: Place, entries: &[Value], file: &str) {
    let Some(list) = places::list_mut(record, place) else {
        return;
    };
    let earlier = list.iter().position(|it| is_reference(it, file));
    let earlier = earlier.map(|at| list.remove(at));
    let count = earlier.as_ref().map_or(0, |it| counted(it, COUNT))
        + entries.iter().map(stands_for).sum::<usize>();
    let mut reference = reference(count, summary(place, entries, count), file);
    let resubmitted = earlier
        .iter()
        .chain(entries)
        .map(resubmissions)
        .sum::<usize>();
    if resubmitted > 0 {
        reference[RESUBMITTED] = resubmitted.into();
    }
    list.insert(0, reference);
}

/// How often the handoff was submitted anew, as far as this outcome tells: only then the last result
/// is history.
fn resubmissions(outcome: &Value) -> usize {
    if outcome.get("last_result").is_some() {
        1
    } else {
        counted(outcome, RESUBMITTED)
    }
}

/// The value that stands for entries which are elsewhere.
pub fn reference(count: usize, summary: String, file: &str) -> Value {
    let mut map = Map::new();
    map.insert(COUNT.to_owned(), count.into());
    map.insert("summary".to_owned(), summary.into());
    map.insert(REF.to_owned(), file.into());
    Value::Object(map)
}

/// How many entries one value is: a reference stands for several.
fn stands_for(value: &Value) -> usize {
    if value.get(REF).is_some() {
        counted(value, COUNT).max(1)
    } else {
        1
    }
}

fn counted(value: &Value, key: &str) -> usize {
    let count = value.get(key).and_then(Value::as_u64);
    count
        .and_then(|count| usize::try_from(count).ok())
        .unwrap_or(0)
}

fn note_of(record: &Record, place: Place) -> Option<usize> {
    let is_its = |it: &Value| it.get("part").and_then(Value::as_str) == Some(place.name());
    record.meta.compacted.iter().position(is_its)
}

/// What went, in a line: how many, and the latest of them.
fn summary(place: Place, entries: &[Value], count: usize) -> String {
    if place == Place::LastResult {
        return entries.first().map(in_a_line).unwrap_or_default();
    }
    summary_of(place.noun(), entries, count)
}

/// The same for a list of `noun`s.
pub fn summary_of(noun: &str, entries: &[Value], count: usize) -> String {
    let shown: Vec<String> = entries
        .iter()
        .rev()
        .filter_map(heading)
        .take(NAMED)
        .map(|text| one_line(&text, SHOWN))
        .collect();
    let plural = if count == 1 { "" } else { "s" };
    let line = format!("{count} {noun}{plural}");
    match (shown.len(), count) {
        (0, _) => line,
        (_, 1) => format!("{line}: {}", shown[0]),
        _ => format!("{line}, the latest: {}", shown.join("; ")),
    }
}

/// What an entry is about, in its own words.
fn heading(entry: &Value) -> Option<String> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str);
    if let (Some(id), Some(status)) = (text("id"), text("status")) {
        let who = text("agent").map_or(String::new(), |agent| format!("{agent}, "));
        return Some(format!("{id} ({who}{status})"));
    }
    let code = entry
        .get("error")
        .and_then(|error| error.get("code")?.as_str());
    let keys = ["decision", "path", "question", "summary", "status"];
    let said = keys.into_iter().find_map(text);
    match (said, code) {
        (Some(said), Some(code)) => Some(format!("{said} ({code})")),
        (said, code) => said.or(code).map(str::to_owned),
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
