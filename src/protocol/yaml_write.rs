//! YAML out: a JSON value as text that people read and that any YAML reader takes for the same.
//!
//! Block style, two spaces, one scalar per line and no line ever folded. A string is written
//! plain only where YAML 1.1 and 1.2 both read it as a string, so `no`, `2026-01-13`, `12:30`
//! and `1_000` stand in quotes although our own reader would not need them. Text of several
//! lines is a literal block where that gives back every character, else a quoted string.
//! Numbers stand as they were written; those that YAML 1.1 would read as text carry a tag.
//!
//! What can't be seen or is read differently by different readers (control characters, NEL, LS,
//! PS, byte order marks, marks of direction) is always escaped.

use std::fmt::Write;

use serde_json::{Map, Number, Value};

/// A key that is longer is written in the explicit form: readers give up on a simple key after
/// 1024 characters, of which an escape may take ten.
const LONGEST_KEY: usize = 100;

/// Plain words that one or the other version of YAML takes for something else.
const WORDS: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];

/// The value as one YAML document, with a line feed at its end.
pub fn write(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => mapping(&mut out, map, 0),
        Value::Array(list) if !list.is_empty() => sequence(&mut out, list, 0),
        scalar => inline(&mut out, scalar, 2),
    }
    out
}

/// The entries of a mapping. The cursor stands where the first key belongs.
fn mapping(out: &mut String, map: &Map<String, Value>, indent: usize) {
    for (at, (key, value)) in map.iter().enumerate() {
        if at > 0 {
            margin(out, indent);
        }
        if key.chars().nth(LONGEST_KEY).is_none() {
            text(out, key);
        } else {
            out.push_str("? ");
            text(out, key);
            out.push('\n');
            margin(out, indent);
        }
        out.push(':');
        match value {
            Value::Object(map) if !map.is_empty() => {
                out.push('\n');
                margin(out, indent + 2);
                mapping(out, map, indent + 2);
            }
            Value::Array(list) if !list.is_empty() => {
                out.push('\n');
                margin(out, indent + 2);
                sequence(out, list, indent + 2);
            }
            scalar => {
                out.push(' ');
                inline(out, scalar, indent + 2);
            }
        }
    }
}

/// The items of a sequence. The cursor stands where the first dash belongs.
fn sequence(out: &mut String, list: &[Value], indent: usize) {
    for (at, value) in list.iter().enumerate() {
        if at > 0 {
            margin(out, indent);
        }
        out.push_str("- ");
        match value {
            Value::Object(map) if !map.is_empty() => mapping(out, map, indent + 2),
            Value::Array(list) if !list.is_empty() => sequence(out, list, indent + 2),
            scalar => inline(out, scalar, indent + 2),
        }
    }
}

/// A scalar or an empty collection, and the end of its line.
fn inline(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(value) => number(out, value),
        Value::String(value) if is_literal(value) => return literal(out, value, indent),
        Value::String(value) => text(out, value),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
    }
    out.push('\n');
}

fn margin(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

fn number(out: &mut String, number: &Number) {
    let written = number.as_str();
    let exponent = written.split_once(['e', 'E']);
    // YAML 1.1 wants a point before the exponent and a sign in it.
    if exponent
        .is_some_and(|(digits, power)| !digits.contains('.') || !power.starts_with(['-', '+']))
    {
        out.push_str("!!float ");
    }
    out.push_str(written);
}

/// A string on one line.
fn text(out: &mut String, text: &str) {
    if is_plain(text) {
        out.push_str(text);
    } else {
        quoted(out, text);
    }
}

fn is_plain(text: &str) -> bool {
    let Some(first) = text.chars().next() else {
        return false;
    };
    let opens = match first {
        '0'..='9' | '.' => !looks_numeric(text),
        '<' => !text.starts_with("<<"),
        '_' | '/' | '(' | '$' => true,
        first => first.is_ascii_alphabetic() || !first.is_ascii(),
    };
    opens
        && !text.starts_with(char::is_whitespace)
        && !text.ends_with(|c: char| c.is_whitespace() || c == ':')
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.contains(['\t', '\n'])
        && !text.contains(is_hidden)
        && !WORDS.iter().any(|word| word.eq_ignore_ascii_case(text))
}

/// May be a number, a date, a time or a marker somewhere: made of nothing but what those need.
fn looks_numeric(text: &str) -> bool {
    let word = text.trim_start_matches('.');
    text.starts_with("..")
        || ["inf", "nan"]
            .iter()
            .any(|it| it.eq_ignore_ascii_case(word))
        || text
            .chars()
            .all(|c| c.is_ascii_hexdigit() || "xXoOtTzZ_:.,+- ".contains(c) || c.is_whitespace())
}

/// Not to be shown as it is: invisible, or a line break to some readers and not to others.
fn is_hidden(c: char) -> bool {
    matches!(c,
        '\u{ad}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}')
        || (c.is_control() && c != '\n' && c != '\t')
        || u32::from(c) & 0xfffe == 0xfffe
}

/// Several lines of which a literal block gives back every character.
fn is_literal(text: &str) -> bool {
    let blank = |line: &str| !line.is_empty() && line.trim().is_empty();
    text.contains('\n')
        && !text.starts_with(char::is_whitespace)
        && !text.ends_with("\n\n")
        && !text.contains(is_hidden)
        && !text
            .split('\n')
            .any(|line| blank(line) || line.starts_with('\t'))
}

fn literal(out: &mut String, text: &str, indent: usize) {
    let body = text.strip_suffix('\n');
    out.push_str(if body.is_some() { "|\n" } else { "|-\n" });
    for line in body.unwrap_or(text).split('\n') {
        if !line.is_empty() {
            margin(out, indent);
            out.push_str(line);
        }
        out.push('\n');
    }
}

fn quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if is_hidden(c) => {
                // Writing to a string does not fail.
                let _ = match u32::from(c) {
                    code @ ..=0xff => write!(out, "\\x{code:02X}"),
                    code @ ..=0xffff => write!(out, "\\u{code:04X}"),
                    code => write!(out, "\\U{code:08X}"),
                };
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
#[path = "yaml_write_tests.rs"]
mod tests;
