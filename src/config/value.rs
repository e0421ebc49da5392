//! Single values: a type, a range, and what to write instead.
//!
//! Every reader returns `None` after it has reported what is wrong, so callers keep their
//! default and go on to find the next problem.

use std::net::SocketAddrV4;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::reader::{Findings, Section, join};
use super::types::{AnchorTo, Rate};
use super::units::{self, Shown};
use crate::protocol::agent::AgentName;

/// No setting may be longer: far above any use, and far below what overflows a clock.
pub(super) const LONGEST: Duration = Duration::from_secs(100 * 31_557_600);

const ANCHOR_HINT: &str = "use \"journal\", \"syslog\", or \"file:\" and the whole path of a file or FIFO, \
                           like \"file:/var/log/handoffd-anchors/shop\"";

/// A value with its dotted key and its place.
pub(super) struct Value<'a> {
    raw: &'a DeValue<'a>,
    span: Range<usize>,
    pub(super) path: String,
    pub(super) key_span: Range<usize>,
    findings: &'a Findings,
}

impl<'a> Value<'a> {
    pub(super) fn new(
        value: &'a Spanned<DeValue<'a>>,
        path: String,
        key_span: Range<usize>,
        findings: &'a Findings,
    ) -> Self {
        Self {
            raw: value.get_ref(),
            span: value.span(),
            path,
            key_span,
            findings,
        }
    }

    /// Reports what was found here, and what would be right.
    pub(super) fn refuse<T>(&self, hint: &str) -> Option<T> {
        let found = match self.raw {
            DeValue::String(text) => format!("{text:?}"),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(flag) => flag.to_string(),
            DeValue::Datetime(_) => "a date or time".to_owned(),
            DeValue::Array(items) if items.is_empty() => "an empty array".to_owned(),
            DeValue::Array(_) => "an array".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
        };
        let message = format!("found {found}; {hint}");
        self.findings.add(self.span.clone(), &self.path, message);
        None
    }

    /// Reports a problem with the key itself.
    pub(super) fn refuse_key(&self, message: String) {
        let place = self.key_span.clone();
        self.findings.add(place, &self.path, message);
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        match self.raw {
            DeValue::Boolean(flag) => Some(*flag),
            _ => self.refuse("use true or false"),
        }
    }

    /// True, false, or one of these words.
    pub(super) fn flag_or<T: Copy>(&self, yes: T, no: T, words: &[(&str, T)]) -> Option<T> {
        match self.raw {
            DeValue::Boolean(flag) => Some(if *flag { yes } else { no }),
            DeValue::String(text) if words.iter().any(|(word, _)| word == text) => {
                let found = words.iter().find(|(word, _)| word == text);
                found.map(|(_, meaning)| *meaning)
            }
            _ => {
                let words: Vec<String> = words.iter().map(|(it, _)| format!("{it:?}")).collect();
                self.refuse(&format!("use true or false or {}", words.join(" or ")))
            }
        }
    }

    pub(super) fn integer<T: TryFrom<u64>>(&self, range: RangeInclusive<u64>) -> Option<T> {
        let number = match self.raw {
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        let fits = number.filter(|number| range.contains(number));
        fits.and_then(|number| T::try_from(number).ok())
            .or_else(|| {
                let (from, to) = (range.start(), range.end());
                self.refuse(&format!("use a whole number from {from} to {to}"))
            })
    }

    pub(super) fn float(&self, range: RangeInclusive<f64>) -> Option<f64> {
        let number: Option<f64> = match self.raw {
            DeValue::Float(number) => number.as_str().parse().ok(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
            _ => None,
        };
        // The range has finite ends, so infinities and NaN are outside it.
        number.filter(|number| range.contains(number)).or_else(|| {
            let (from, to) = (range.start(), range.end());
            self.refuse(&format!("use a number from {from} to {to}"))
        })
    }

    pub(super) fn duration(&self, range: RangeInclusive<Duration>) -> Option<Duration> {
        let DeValue::String(text) = self.raw else {
            return self.refuse(units::DURATION_HINT);
        };
        let Some(duration) = units::duration(text) else {
            return self.refuse(units::DURATION_HINT);
        };
        if range.contains(&duration) {
            return Some(duration);
        }
        let (from, to) = (Shown(*range.start()), Shown(*range.end()));
        self.refuse(&format!("use a duration from {from} to {to}"))
    }

    /// A number of bytes, at least one KiB: below that not even an empty record fits.
    pub(super) fn size(&self) -> Option<u64> {
        let bytes = match self.raw {
            DeValue::String(text) => units::size(text),
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        match bytes {
            None => self.refuse(units::SIZE_HINT),
            Some(bytes) if bytes < 1024 => self.refuse("use at least \"1KiB\""),
            Some(bytes) => Some(bytes),
        }
    }

    /// An address that only this machine can reach: whoever asks there is not asked who he is.
    pub(super) fn loopback(&self) -> Option<SocketAddrV4> {
        const HINT: &str = "use a loopback address and a port, like \"127.0.0.1:9464\"; for \
        other machines, put a proxy with a login in front";
        let address = match self.raw {
            DeValue::String(text) => text.parse::<SocketAddrV4>().ok(),
            _ => None,
        };
        address
            .filter(|address| address.ip().is_loopback())
            .or_else(|| self.refuse(HINT))
    }

    /// Where anchors of the audit log go.
    pub(super) fn anchor(&self) -> Option<AnchorTo> {
        let DeValue::String(text) = self.raw else {
            return self.refuse(ANCHOR_HINT);
        };
        match (text.as_ref(), text.strip_prefix("file:")) {
            ("journal", _) => Some(AnchorTo::Journal),
            ("syslog", _) => Some(AnchorTo::Syslog),
            (_, Some(path)) if path.len() > 1 && path.starts_with('/') && !path.contains('\0') => {
                Some(AnchorTo::File(path.into()))
            }
            _ => self.refuse(ANCHOR_HINT),
        }
    }

    pub(super) fn rate(&self) -> Option<Rate> {
        match self.raw {
            DeValue::String(text) => units::rate(text),
            _ => None,
        }
        .or_else(|| self.refuse(units::RATE_HINT))
    }

    /// One of a few words.
    pub(super) fn one_of<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        if let DeValue::String(text) = self.raw
            && let Some((_, choice)) = choices.iter().find(|(word, _)| word == text)
        {
            return Some(*choice);
        }
        let words: Vec<_> = choices
            .iter()
            .map(|(word, _)| format!("{word:?}"))
            .collect();
        self.refuse(&format!("use {}", words.join(" or ")))
    }

    /// Text that a system call can carry. It may be empty.
    pub(super) fn text(&self) -> Option<String> {
        match self.raw {
            DeValue::String(text) if text.contains('\0') => {
                self.refuse("use text without NUL bytes")
            }
            DeValue::String(text) => Some(text.clone().into_owned()),
            _ => self.refuse("use a string in quotes"),
        }
    }

    pub(super) fn nonempty(&self) -> Option<String> {
        let text = self.text()?;
        if text.is_empty() {
            return self.refuse("use a string that is not empty");
        }
        Some(text)
    }

    /// A handoff's target: any agent or `human`, but not the wildcard, which is nobody.
    pub(super) fn agent(&self) -> Option<AgentName> {
        let text = self.text()?;
        match AgentName::parse(&text) {
            Ok(agent) if agent.is_wildcard() => self.refuse("name one agent, like \"@reviewer\""),
            Ok(agent) => Some(agent),
            Err(reason) => self.refuse(reason),
        }
    }

    /// The elements of an array; `hint` says what the array should be.
    pub(super) fn items(&self, hint: &str) -> Option<Vec<Value<'a>>> {
        let DeValue::Array(items) = self.raw else {
            return self.refuse(hint);
        };
        let item = |(index, item): (usize, &'a Spanned<DeValue<'a>>)| {
            let path = format!("{}[{index}]", self.path);
            Value::new(item, path, item.span(), self.findings)
        };
        Some(items.iter().enumerate().map(item).collect())
    }

    /// An array of strings that are not empty.
    pub(super) fn words(&self) -> Option<Vec<String>> {
        let items = self.items("use an array of strings like [\"one\", \"two\"]")?;
        items.iter().map(Value::nonempty).collect()
    }

    /// An argument vector. Arguments may be empty, the program may not.
    pub(super) fn command(&self) -> Option<Vec<String>> {
        let items = self.items(COMMAND_HINT)?;
        let Some((program, arguments)) = items.split_first() else {
            return self.refuse(COMMAND_HINT);
        };
        let mut command = vec![program.nonempty()?];
        for argument in arguments {
            command.push(argument.text()?);
        }
        Some(command)
    }

    /// A table with a fixed set of keys.
    pub(super) fn table<T>(&self, body: impl FnOnce(&Section<'a>) -> T) -> Option<T> {
        let DeValue::Table(table) = self.raw else {
            return self.refuse("use a table");
        };
        let (path, place) = (self.path.clone(), self.key_span.clone());
        Some(Section::new(table, path, place, self.findings).read(body))
    }

    /// A table whose keys the user chooses.
    pub(super) fn entries(&self) -> Option<Vec<(&'a str, Value<'a>)>> {
        let DeValue::Table(table) = self.raw else {
            return self.refuse("use a table");
        };
        let entry = |(key, value): (&'a Spanned<_>, &'a Spanned<DeValue<'a>>)| {
            let name: &'a std::borrow::Cow<'a, str> = key.get_ref();
            let path = join(&self.path, name);
            let value = Value::new(value, path, key.span(), self.findings);
            (name.as_ref(), value)
        };
        let mut entries: Vec<_> = table.iter().map(entry).collect();
        entries.sort_by_key(|(_, value)| value.key_span.start);
        Some(entries)
    }
}

pub(super) const COMMAND_HINT: &str =
    r#"use a program and its arguments like ["python3", "work.py"]"#;
