//! Tables for [`super::parse`]: scalars, places, and what YAML may not do here.

use super::*;

#[test]
fn plain_scalars_follow_the_core_schema() {
    for (yaml, json) in [
        ("", "null"),
        ("~", "null"),
        ("null", "null"),
        ("True", "true"),
        ("FALSE", "false"),
        ("yes", r#""yes""#),
        ("on", r#""on""#),
        ("1.0", "1.0"),
        ("1e400", "1e400"),
        ("1E5", "1E5"),
        ("-0", "-0"),
        ("12345678901234567890", "12345678901234567890"),
        ("+5", "5"),
        (".5", "0.5"),
        ("-.5e3", "-0.5e3"),
        ("5.", "5.0"),
        ("5.e2", "5.0e2"),
        ("0x1F", "31"),
        ("0o17", "15"),
        ("0x", r#""0x""#),
        ("-0x1", r#""-0x1""#),
        ("007", r#""007""#),
        ("1.2.3", r#""1.2.3""#),
        ("1_000", r#""1_000""#),
        ("1e", r#""1e""#),
        ("1e+", r#""1e+""#),
        (".", r#"".""#),
        ("+", r#""+""#),
        ("12:30", r#""12:30""#),
        ("2026-01-13", r#""2026-01-13""#),
        ("\"1.0\"", r#""1.0""#),
        ("'true'", r#""true""#),
        ("!!str 1.0", r#""1.0""#),
        ("!!int 5", "5"),
        ("!!float 5", "5"),
        ("!!bool true", "true"),
        ("!!map {a: 1}", r#"{"a":1}"#),
    ] {
        let text = format!("v: {yaml}\n");
        let value = parse(&text).unwrap_or_else(|e| panic!("{yaml}: {e}"));
        assert_eq!(value.to_string(), format!(r#"{{"v":{json}}}"#), "{yaml}");
    }
}

#[test]
fn documents_keep_their_shape_and_order() {
    for (yaml, json) in [
        (
            "z: 1\na:\n  - x\n  - {b: [], c: {}}\n",
            r#"{"z":1,"a":["x",{"b":[],"c":{}}]}"#,
        ),
        ("---\na: 1\n...\n", r#"{"a":1}"#),
        (
            "# c\na: |\n  x\n  y\nb: >-\n  x\n  y\n",
            r#"{"a":"x\ny\n","b":"x y"}"#,
        ),
        ("? a\n: 1\n? b\n", r#"{"a":1,"b":null}"#),
        ("\"<<\": 1\n\"1\": 2\non: 3", r#"{"<<":1,"1":2,"on":3}"#),
        ("- 1\n- [2]", "[1,[2]]"),
        ("text", r#""text""#),
    ] {
        assert_eq!(parse(yaml).unwrap().to_string(), json, "{yaml}");
    }
}

#[test]
fn refusals_name_the_place() {
    for (yaml, part, line, column) in [
        ("a: 1\nb: 2\na: 3\n", r#""a" appears twice"#, 3, 1),
        ("x:\n  a: 1\n  'a': 3\n", r#""a" appears twice"#, 3, 3),
        ("a: 1\n---\nb: 1\n", "more than one", 2, 1),
        ("a: &x 1\n", "anchors", 1, 7),
        ("a: 1\nb: *x\n", "anchor", 2, 4),
        ("a: {c: 1}\n<<: {b: 2}\n", "merge keys", 2, 1),
        ("a: !new x\n", "tag", 1, 9),
        ("a: !!binary aGk=\n", "tag", 1, 13),
        ("a: !!set {b}\n", "tag", 1, 10),
        ("a: !!int x\n", "does not fit", 1, 10),
        ("1: a\n", "must be a string", 1, 1),
        ("a: 1\ntrue: a\n", "must be a string", 2, 1),
        ("~: a\n", "must be a string", 1, 1),
        ("? [a]\n: 1\n", "must be a string", 1, 3),
        ("{a: 1}: 1\n", "must be a string", 1, 1),
        ("a: .inf\n", ".inf", 1, 4),
        ("a: -.Inf\n", ".inf", 1, 4),
        ("a:\n - .NaN\n", ".nan", 2, 4),
        ("a: 0xffffffffffffffffffffffffffffffffff\n", "quotes", 1, 4),
        ("$serde_json::private::Number: '1'\n", "reserved", 1, 1),
        ("a: [1\n", "not valid YAML", 1, 4),
        ("a: b: c\n", "not valid YAML", 1, 5),
        ("a: \"x\n", "not valid YAML", 2, 1),
    ] {
        let error = parse(yaml).unwrap_err();
        assert!(error.message.contains(part), "{yaml}: {error}");
        assert_eq!(
            (error.line, error.column),
            (Some(line), Some(column)),
            "{yaml}: {error}"
        );
    }
}

#[test]
fn nothing_but_comments_is_empty() {
    assert_eq!(parse("# a\n").unwrap_err().kind, Kind::Empty);
}

#[test]
fn nesting_is_bounded_and_quickly_refused() {
    let flow = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    assert!(parse(&flow(MAX_LEVELS)).is_ok());
    for deep in [
        flow(MAX_LEVELS + 1),
        flow(100_000),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
        "? ".repeat(100_000),
    ] {
        let error = parse(&deep).unwrap_err();
        assert_eq!(error.kind, Kind::Syntax, "{error}");
    }
}
