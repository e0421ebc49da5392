//! Tables: which keys were asked for, which nobody knows.
//!
//! A [`Section`] remembers every key that the reading code asks for. What is left over at the
//! end is unknown, so the list of known keys can't drift from the code that reads them.
//! Problems are collected in [`Findings`] and reading goes on with the default.

use std::cell::RefCell;
use std::ops::Range;

use toml::de::DeTable;

use super::error::Problem;
use super::value::Value;
use crate::protocol::nearest::nearest;

/// The problems found so far.
#[derive(Default)]
pub(super) struct Findings(RefCell<Vec<Finding>>);

struct Finding {
    place: Range<usize>,
    key: String,
    message: String,
}

impl Findings {
    pub(super) fn add(&self, place: Range<usize>, key: &str, message: String) {
        self.0.borrow_mut().push(Finding {
            place,
            key: key.to_owned(),
            message,
        });
    }

    /// In the order of the file, whatever the order of reading was.
    pub(super) fn into_problems(self, text: &str) -> Vec<Problem> {
        let mut findings = self.0.into_inner();
        findings.sort_by_key(|finding| finding.place.start);
        findings
            .into_iter()
            .map(|found| Problem::at(text, found.place, found.key, found.message))
            .collect()
    }
}

/// A table with a fixed set of keys.
pub(super) struct Section<'a> {
    table: &'a DeTable<'a>,
    path: String,
    place: Range<usize>,
    known: RefCell<Vec<&'static str>>,
    findings: &'a Findings,
}

impl<'a> Section<'a> {
    pub(super) fn root(table: &'a DeTable<'a>, findings: &'a Findings) -> Self {
        Self::new(table, String::new(), 0..0, findings)
    }

    pub(super) fn new(
        table: &'a DeTable<'a>,
        path: String,
        place: Range<usize>,
        findings: &'a Findings,
    ) -> Self {
        Self {
            table,
            path,
            place,
            known: RefCell::default(),
            findings,
        }
    }

    /// Reads the section and then reports the keys that `body` did not ask for.
    pub(super) fn read<T>(self, body: impl FnOnce(&Self) -> T) -> T {
        let read = body(&self);
        let known = self.known.borrow();
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                let message = format!("unknown key; {}", suggestion(name, &known));
                let path = join(&self.path, name);
                self.findings.add(key.span(), &path, message);
            }
        }
        read
    }

    /// The value of a key, where there is one.
    pub(super) fn get(&self, key: &'static str) -> Option<Value<'a>> {
        debug_assert!(!self.known.borrow().contains(&key), "{key} is read twice");
        self.known.borrow_mut().push(key);
        let (name, value) = self.table.get_key_value(key)?;
        Some(Value::new(
            value,
            join(&self.path, key),
            name.span(),
            self.findings,
        ))
    }

    /// Whether the key is written, whatever its value is.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Reports a key that must be there.
    pub(super) fn missing(&self, key: &str, hint: &str) {
        let path = join(&self.path, key);
        let message = format!("missing; {hint}");
        self.findings.add(self.place.clone(), &path, message);
    }

    /// Overwrites `target` where the key is there and right.
    pub(super) fn set<T>(
        &self,
        key: &'static str,
        target: &mut T,
        read: impl FnOnce(&Value<'a>) -> Option<T>,
    ) {
        if let Some(value) = self.get(key).and_then(|value| read(&value)) {
            *target = value;
        }
    }

    /// Like [`Self::set`], for what has no default.
    pub(super) fn set_some<T>(
        &self,
        key: &'static str,
        target: &mut Option<T>,
        read: impl FnOnce(&Value<'a>) -> Option<T>,
    ) {
        self.set(key, target, |value| read(value).map(Some));
    }

    /// The value of a key that must be there. `hint` says what to write.
    pub(super) fn require<T>(
        &self,
        key: &'static str,
        hint: &str,
        read: impl FnOnce(&Value<'a>) -> Option<T>,
    ) -> Option<T> {
        let value = self.get(key);
        if value.is_none() {
            self.missing(key, hint);
        }
        value.and_then(|value| read(&value))
    }

    /// Reads a table below this one, where there is one.
    pub(super) fn section(&self, key: &'static str, body: impl FnOnce(&Section<'a>)) {
        if let Some(value) = self.get(key) {
            value.table(body);
        }
    }
}

/// A dotted key as it would be written, quoted where TOML wants it quoted.
pub(super) fn join(path: &str, key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let key = if !key.is_empty() && key.chars().all(bare) {
        key.to_owned()
    } else {
        format!("{key:?}")
    };
    if path.is_empty() {
        key
    } else {
        format!("{path}.{key}")
    }
}

/// The nearest known key, or all of them where none is near.
fn suggestion(unknown: &str, known: &[&'static str]) -> String {
    let unknown = unknown.to_lowercase().replace('-', "_");
    match nearest(&unknown, known.iter().copied()) {
        Some(key) => format!("did you mean `{key}`?"),
        None => format!("known here: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_suggested_and_a_far_one_is_not() {
        let known = ["timeout", "max_timeout", "kill_grace"];
        for (unknown, expected) in [
            ("timeot", "did you mean `timeout`?"),
            ("max-timeout", "did you mean `max_timeout`?"),
            ("KillGrace", "did you mean `kill_grace`?"),
            ("colour", "known here: timeout, max_timeout, kill_grace"),
        ] {
            assert_eq!(suggestion(unknown, &known), expected);
        }
    }

    #[test]
    fn keys_are_quoted_where_toml_wants_it() {
        assert_eq!(join("", "daemon"), "daemon");
        assert_eq!(join("specialists", "@x"), r#"specialists."@x""#);
        assert_eq!(join("env", ""), r#"env."""#);
    }
}
