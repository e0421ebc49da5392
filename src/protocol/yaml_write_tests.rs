//! What is written is read back the same, and looks as a person would write it.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::protocol::document;
use crate::protocol::name::Ext;
use crate::protocol::yaml;

fn reread(value: &Value) -> Value {
    let text = write(value);
    yaml::parse(&text).unwrap_or_else(|error| panic!("{error} in:\n{text}"))
}

#[test]
fn strings_are_plain_only_where_nobody_reads_them_as_something_else() {
    for (string, written) in [
        ("hello", "hello"),
        (
            "3 epics, 12 user stories [done]",
            "3 epics, 12 user stories [done]",
        ),
        ("<Dashboard> & co", "<Dashboard> & co"),
        (".project/02/US-001.md", ".project/02/US-001.md"),
        ("größer — als", "größer — als"),
        ("C:\\temp", "C:\\temp"),
        ("a#b:c", "a#b:c"),
        ("", r#""""#),
        ("@coder", r#""@coder""#),
        ("~", r#""~""#),
        ("NULL", r#""NULL""#),
        ("yes", r#""yes""#),
        ("Off", r#""Off""#),
        ("1.0", r#""1.0""#),
        ("-1", r#""-1""#),
        ("0x1f", r#""0x1f""#),
        ("007", r#""007""#),
        ("1_000", r#""1_000""#),
        ("12:30:45", r#""12:30:45""#),
        ("2026-01-13", r#""2026-01-13""#),
        ("2026-01-13T10:00:00Z", r#""2026-01-13T10:00:00Z""#),
        (".inf", r#"".inf""#),
        ("...", r#""...""#),
        ("---", r#""---""#),
        ("<<", r#""<<""#),
        ("=", r#""=""#),
        ("a: b", r#""a: b""#),
        ("a:", r#""a:""#),
        ("a #b", r#""a #b""#),
        (" a", r#"" a""#),
        ("a ", r#""a ""#),
        ("a\u{a0}", "\"a\u{a0}\""),
        ("say \"hi\"", "say \"hi\""),
        ("\"hi\"", r#""\"hi\"""#),
        ("a\tb", r#""a\tb""#),
        ("a\u{1b}[0m", r#""a\x1B[0m""#),
        ("a\u{85}\u{2028}\u{feff}b", r#""a\x85\u2028\uFEFFb""#),
        ("\u{e0001}", r#""\U000E0001""#),
    ] {
        let value = json!({ "v": string });
        assert_eq!(write(&value), format!("v: {written}\n"));
        assert_eq!(reread(&value), value, "{written}");
        let key = json!({ string: [{ string: string }] });
        assert_eq!(reread(&key), key, "{written}");
    }
}

#[test]
fn numbers_stand_as_written() {
    for (number, written) in [
        ("1.0", "1.0"),
        ("-0", "-0"),
        ("12345678901234567890123", "12345678901234567890123"),
        ("1.5e+3", "1.5e+3"),
        ("1e400", "!!float 1e400"),
        ("1.0E5", "!!float 1.0E5"),
    ] {
        let value = Value::Number(Number::from_string_unchecked(number.to_owned()));
        assert_eq!(write(&value), format!("{written}\n"));
        assert_eq!(reread(&value).to_string(), number);
    }
}

#[test]
fn a_document_looks_as_a_person_would_write_it() {
    let value = json!({
        "handoff": {
            "id": "HO-1",
            "context": {
                "summary": "First line\n\n  indented\nlast\n",
                "notes": "no line feed\nat the end",
                "odd": ["trailing space \nkept", " leading\nspace", "a\n\n", "a\n \nb", "\ta\nb"],
            },
            "steps": [1, [2, [], ["x\ny"]], {"a": {}, "b": [true, null]}],
        },
        "k: v": {"": "long key below"},
        "x".repeat(101): {"in": ["it"]},
    });
    let expected = format!(
        r#"handoff:
  id: HO-1
  context:
    summary: |
      First line

        indented
      last
    notes: |-
      no line feed
      at the end
    odd:
      - |-
        trailing space 
        kept
      - " leading\nspace"
      - "a\n\n"
      - "a\n \nb"
      - "\ta\nb"
  steps:
    - 1
    - - 2
      - []
      - - |-
          x
          y
    - a: {{}}
      b:
        - true
        - null
"k: v":
  "": long key below
? {}
:
  in:
    - it
"#,
        "x".repeat(101)
    );
    assert_eq!(write(&value), expected);
    assert_eq!(reread(&value), value);
}

#[test]
fn very_long_strings_and_keys_survive() {
    let long = "a b: \u{1}\"".repeat(20_000);
    let lines = "line # 1: -\n- \n".repeat(20_000);
    let value = json!({ "v": long, "l": lines, long.clone(): {lines.clone(): [lines, long]} });
    assert_eq!(reread(&value), value);
}

#[test]
fn depth_is_bounded_by_the_reader_alone() {
    for leaf in [json!([]), json!("a\nb"), json!({"k": 1})] {
        let mut value = leaf;
        for level in 1..document::MAX_LEVELS - 1 {
            value = if level % 3 == 0 {
                json!([1, value])
            } else {
                json!({ "k": value })
            };
        }
        assert_eq!(reread(&value), value);
    }
}

fn string() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        8 => "[a-z]{1,5}",
        3 => prop::sample::select(vec![
            " ", "  ", "\n", "\n\n", "\t", "\r", ":", ": ", " #", "#", "-", "- ", "?", "? ", ",", "[",
            "]", "{", "}", "&", "*", "!", "|", ">", "'", "\"", "%", "@", "`", "\\", "~", "<<", "=",
            "---", "...", "\u{0}", "\u{7f}", "\u{85}", "\u{a0}", "\u{2028}", "\u{2029}", "\u{feff}",
            "\u{fffe}", "\u{202e}", "\u{3000}", "😀", "é", "0x", "1e5", "null", "true", "2026-01-13",
            "12:30", ".5", "+", ".inf", "0o7", "_",
        ]).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
        1 => "[0-9]{1,4}",
    ];
    let words = vec![
        "",
        "null",
        "~",
        "no",
        "On",
        "-1.5e3",
        "2026-01-13 10:00:00",
        ".NaN",
        "0b1",
    ];
    prop_oneof![
        6 => prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat()),
        1 => prop::sample::select(words).prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let number = "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,5})?([eE][-+]?[0-9]{1,3})?";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        number.prop_map(|text| Value::Number(Number::from_string_unchecked(text))),
        string().prop_map(Value::String),
        string().prop_map(Value::String),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::vec((string(), inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_value_survives(value in value()) {
        let text = write(&value);
        let read = yaml::parse(&text);
        // Text first: it tells 1.0 from 1.00, and one order of keys from another.
        prop_assert_eq!(read.map(|read| read.to_string()), Ok(value.to_string()), "{}", text);
        if value.is_object() {
            let document = document::parse(text.as_bytes(), Ext::Yaml);
            prop_assert_eq!(document.map(|document| Value::Object(document.map)), Ok(value));
        }
    }
}
