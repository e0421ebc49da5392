//! Tables for [`super::parse`]: which syntax is tried, which error is told; and properties.

use proptest::prelude::*;

use super::*;

#[test]
fn the_content_decides_the_syntax() {
    let report = "# Report\n\n```json\n{\"a\":0}\n```\n\n```json\n{\"a\":1}\n```\nBye.\n";
    for (ext, text, syntax) in [
        (Ext::Json, "{\"a\":1}", Syntax::Json),
        (Ext::Json, "\u{feff} \n{\"a\":1}\n", Syntax::Json),
        (Ext::Json, "a: 1\n", Syntax::Yaml),
        (Ext::Yaml, "{\"a\":1}", Syntax::Json),
        (Ext::Yaml, "{\"a\":1,}", Syntax::Yaml),
        (Ext::Yml, "\u{feff}a: 1\n", Syntax::Yaml),
        (Ext::Yml, "{a: 1}", Syntax::Yaml),
        (Ext::Markdown, "{\"a\":1}", Syntax::Json),
        (Ext::Markdown, report, Syntax::Markdown),
    ] {
        let document = parse(text.as_bytes(), ext).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(document.syntax, syntax, "{text}");
        assert_eq!(Value::Object(document.map).to_string(), r#"{"a":1}"#);
    }
}

type Place = (Option<usize>, Option<usize>);

const NOWHERE: Place = (None, None);

fn at(line: usize, column: usize) -> Place {
    (Some(line), Some(column))
}

fn check_error(ext: Ext, bytes: &[u8], kind: Kind, part: &str, place: Place) {
    let shown = String::from_utf8_lossy(bytes);
    let error = parse(bytes, ext).unwrap_err();
    assert_eq!(error.kind, kind, "{shown}: {error}");
    assert!(error.message.contains(part), "{shown}: {error}");
    assert_eq!((error.line, error.column), place, "{shown}: {error}");
}

#[test]
fn text_that_holds_nothing() {
    for (ext, bytes, kind, part, place) in [
        (Ext::Json, &b""[..], Kind::Empty, "empty", NOWHERE),
        (
            Ext::Yaml,
            b"\xef\xbb\xbf \n\t",
            Kind::Empty,
            "empty",
            NOWHERE,
        ),
        (Ext::Yaml, b"# only\n", Kind::Empty, "comments", NOWHERE),
        (
            Ext::Json,
            b"{\"a\":\n\"\xc3\xa9\xff\"}",
            Kind::NotUtf8,
            "UTF-8",
            at(2, 3),
        ),
        (
            Ext::Json,
            b"\xff\xfe{\0}\0",
            Kind::NotUtf8,
            "UTF-8",
            at(1, 1),
        ),
    ] {
        check_error(ext, bytes, kind, part, place);
    }
}

#[test]
fn broken_syntax_has_a_place() {
    for (ext, text, part, place) in [
        (Ext::Json, "{\"a\":1,}", "trailing comma", at(1, 8)),
        (Ext::Json, "{'a':1}", "key must be a string", at(1, 2)),
        (Ext::Json, "{\"a\":1} x", "trailing", at(1, 9)),
        (Ext::Json, "[1,", "not valid JSON", at(1, 3)),
        (Ext::Json, "a: b: c", "expected a JSON object", at(1, 5)),
        (Ext::Yaml, "{\"a\":1,\"a\":2}", "appears twice", at(1, 8)),
        (
            Ext::Markdown,
            "# A\n```json\n{\n\"a\":}\n```\n",
            "expected value",
            at(4, 5),
        ),
    ] {
        check_error(ext, text.as_bytes(), Kind::Syntax, part, place);
    }
}

#[test]
fn what_is_not_an_object_is_named() {
    for (ext, text, part) in [
        (Ext::Json, "[1]", "found an array"),
        (Ext::Json, "\"a\"", "found text"),
        (Ext::Json, "7", "found a number"),
        (Ext::Json, "hello", "expected a JSON object"),
        (Ext::Json, "[1,]", "expected a JSON object"),
        (Ext::Yaml, "- 1\n", "found an array"),
    ] {
        check_error(ext, text.as_bytes(), Kind::NotAnObject, part, NOWHERE);
    }
}

#[test]
fn markdown_without_a_document() {
    for (text, kind, part, place) in [
        ("# No block\n", Kind::NoBlock, "fenced block", NOWHERE),
        (
            "# A\n```json\n\n```\n",
            Kind::Empty,
            "empty",
            (Some(3), None),
        ),
        (
            "# A\n```json\n[1]\n```\n",
            Kind::NotAnObject,
            "an array",
            (Some(3), None),
        ),
    ] {
        check_error(Ext::Markdown, text.as_bytes(), kind, part, place);
    }
}

fn any_ext() -> impl Strategy<Value = Ext> {
    prop::sample::select(&Ext::ALL[..])
}

/// Compact JSON in any of its spellings, including the odd ones.
fn any_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,5})?([eE][-+]?[0-9]{1,4})?",
        any::<String>().prop_map(|s| Value::String(s).to_string()),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(|v| format!("[{}]", v.join(","))),
            any_object(inner),
        ]
    })
}

fn any_object(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    prop::collection::hash_map(any::<String>(), value, 0..5).prop_map(|map| {
        let pairs: Vec<_> = map
            .into_iter()
            .map(|(key, value)| format!("{}:{value}", Value::String(key)))
            .collect();
        format!("{{{}}}", pairs.join(","))
    })
}

/// Soup of what parsers care about.
fn any_soup() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(
        &[
            "{",
            "}",
            "[",
            "]",
            ":",
            ",",
            "\"",
            "'",
            "\\",
            "\\u00",
            "- ",
            "? ",
            "a",
            ": ",
            "\n",
            "  ",
            "1",
            "-",
            "e5",
            ".",
            "&a ",
            "*a",
            "!!",
            "!",
            "|",
            ">",
            "#",
            "%",
            "---\n",
            "...\n",
            "```",
            "json\n",
            "~~~",
            "\t",
            "\r",
            "<<",
            "é",
            "\u{feff}",
            "\0",
            "$serde_json::private::Number",
        ][..],
    );
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in any::<Vec<u8>>(), ext in any_ext()) {
        let _ = parse(&bytes, ext);
    }

    #[test]
    fn no_soup_makes_it_panic(bytes in any_soup(), ext in any_ext()) {
        let _ = parse(&bytes, ext);
    }

    #[test]
    fn json_is_accepted_exactly_where_serde_json_accepts_it(bytes in any_soup()) {
        if let Ok(text) = std::str::from_utf8(&bytes) {
            let theirs = serde_json::from_str::<Value>(text);
            match json::parse(text) {
                Ok(_) => prop_assert!(theirs.is_ok()),
                Err(ours) if theirs.is_ok() => {
                    let stricter = ["appears twice", "reserved"];
                    prop_assert!(stricter.iter().any(|part| ours.message.contains(part)));
                }
                Err(_) => {}
            }
        }
    }

    #[test]
    fn compact_json_comes_back_byte_for_byte(text in any_object(any_json())) {
        prop_assume!(serde_json::from_str::<Value>(&text).is_ok());
        for ext in [Ext::Json, Ext::Yaml] {
            let document = parse(text.as_bytes(), ext).unwrap();
            prop_assert_eq!(document.syntax, Syntax::Json);
            prop_assert_eq!(Value::Object(document.map).to_string(), &*text);
        }
    }

    /// JSON is YAML: what the JSON reader keeps, the YAML reader keeps too.
    #[test]
    fn yaml_reads_json_the_same(text in any_object(any_json())) {
        if let Ok(value) = yaml::parse(&text) {
            prop_assert_eq!(value.to_string(), &*text);
        }
    }
}
