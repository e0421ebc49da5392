//! Schemas and documents that mean harm: each must end, soon, with an answer.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Checked;
use super::schemas_tests::{Folder, lines, told};

/// Runs on a stack as small as that of a worker, and says what was told and how long it took.
fn timed(schema: Value, document: Value) -> (Vec<String>, Duration) {
    std::thread::Builder::new()
        .stack_size(2 * 1024 * 1024)
        .spawn(move || {
            let start = Instant::now();
            (lines(schema, &document), start.elapsed())
        })
        .unwrap()
        .join()
        .unwrap()
}

fn nested(levels: usize, inner: Value) -> Value {
    (0..levels).fold(inner, |inner, _| json!({"c": inner}))
}

#[test]
fn an_expression_that_backtracks_ends_with_an_error_that_names_it() {
    let text = format!("{}!", "a".repeat(60));
    let pattern = r"^(a|a)*\1b";
    for (schema, document) in [
        (json!({"pattern": pattern}), json!(text)),
        (
            json!({"properties": {"x": {"pattern": pattern}}}),
            json!({"x": text}),
        ),
        (
            json!({"patternProperties": {pattern: false}}),
            json!({text.clone(): 1}),
        ),
        (json!({"anyOf": [{"pattern": pattern}]}), json!(text)),
        (json!({"not": {"pattern": pattern}}), json!(text)),
        (
            json!({"if": {"pattern": pattern}, "then": false}),
            json!(text),
        ),
    ] {
        let (told, took) = timed(schema.clone(), document);
        let named = format!("the pattern '{pattern}' takes too long to match ");
        assert!(
            told.len() == 1 && told[0].contains(&named),
            "{schema}: {told:?}"
        );
        assert!(took < Duration::from_secs(5), "{schema}: {took:?}");
    }
    // Where the answer is the same either way, it is known.
    let (told, _) = timed(
        json!({"patternProperties": {pattern: {}}}),
        json!({text: 1}),
    );
    assert!(told.is_empty(), "{told:?}");
}

#[test]
fn a_plain_expression_never_backtracks() {
    let text = format!("{}!", "a".repeat(100_000));
    let (told, took) = timed(json!({"pattern": "^(a+)+$"}), json!(text));
    assert_eq!(told.len(), 1);
    assert!(took < Duration::from_secs(5), "{took:?}");
    for pattern in ["(((a{100}){100}){100}){100}", "(", "a{99999999}"] {
        let (told, took) = timed(
            json!({"properties": {"x": {"pattern": pattern}}}),
            json!({"x": "a"}),
        );
        assert!(told[0].starts_with("broken: "), "{told:?}");
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}

#[test]
fn references_in_a_circle_end() {
    let dynamic = "https://json-schema.org/draft/2020-12/schema";
    let draft7 = "http://json-schema.org/draft-07/schema#";
    for schema in [
        json!({"$ref": "#"}),
        json!({"$schema": draft7, "$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}),
        json!({"oneOf": [{"$ref": "#"}, {"$ref": "#"}]}),
        json!({"not": {"$ref": "#"}}),
        json!({"if": {"$ref": "#"}, "then": {"$ref": "#"}, "else": {"$ref": "#"}}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        json!({"$ref": "#/$defs/a", "$defs": {
            "a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]},
        }}),
        json!({"$schema": dynamic, "$dynamicAnchor": "n", "$dynamicRef": "#n"}),
        json!({"$schema": dynamic, "$dynamicAnchor": "n", "allOf": [{"$dynamicRef": "#n"}]}),
        json!({"$schema": dynamic, "$dynamicAnchor": "n", "unevaluatedProperties": {"$dynamicRef": "#n"},
            "allOf": [{"$dynamicRef": "#n"}]}),
        json!({"unevaluatedProperties": false, "allOf": [{"$ref": "#"}]}),
        json!({"unevaluatedItems": false, "anyOf": [{"$ref": "#"}, {"$ref": "#/anyOf/0"}]}),
        json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": true,
            "allOf": [{"$recursiveRef": "#"}], "unevaluatedProperties": false}),
        json!({"propertyNames": {"$ref": "#"}}),
        json!({"dependentSchemas": {"c": {"$ref": "#"}}}),
        json!({"contains": {"$ref": "#"}, "items": {"$ref": "#"}}),
    ] {
        for document in [
            json!(1),
            json!({"c": 1}),
            json!([[1]]),
            nested(119, json!(1)),
        ] {
            let (told, took) = timed(schema.clone(), document);
            assert!(took < Duration::from_secs(5), "{schema}: {took:?} {told:?}");
            assert!(told.len() < 102);
        }
    }
    let folder = Folder::new(&[
        ("a", json!({"allOf": [{"$ref": "b"}], "type": "string"})),
        ("b", json!({"allOf": [{"$ref": "a"}]})),
    ]);
    assert_eq!(folder.check("a", &json!("")), Checked::Valid);
    assert_eq!(
        told(folder.check("b", &json!(1))),
        ["|expected string, found integer 1|a#/type"]
    );
}

#[test]
fn a_long_chain_of_references_has_room() {
    for draft in [
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2020-12/schema",
    ] {
        for (length, levels) in [(300, 119), (3000, 20), (6000, 119), (20_000, 1)] {
            let mut defs = serde_json::Map::new();
            for index in 0..length {
                let next = format!("#/definitions/{}", index + 1);
                defs.insert(index.to_string(), json!({"$ref": next}));
            }
            defs.insert(
                length.to_string(),
                json!({"properties": {"c": {"$ref": "#/definitions/0"}}, "type": "object"}),
            );
            let schema = json!({"$schema": draft, "allOf": [{"$ref": "#/definitions/0"}], "definitions": defs});
            let (told, took) = timed(schema, nested(levels, json!(1)));
            let expected = match (length, levels) {
                (6000, 119) => "is nested too deeply to check against a schema with so many",
                (20_000, _) => "and the schemas that it refers to have more than 10000 references",
                _ => "expected object, found integer 1",
            };
            assert!(told[0].contains(expected), "{length} {levels}: {told:?}");
            assert!(took < Duration::from_secs(30), "{took:?}");
        }
    }
}

#[test]
fn alternatives_within_alternatives_end() {
    let kind = |name: &str| {
        json!({"type": "object", "properties": {
            "kind": {"const": name}, "c": {"anyOf": [{"$ref": "#/$defs/row"}, {"$ref": "#/$defs/column"}]},
        }})
    };
    let schema =
        json!({"$ref": "#/$defs/row", "$defs": {"row": kind("row"), "column": kind("column")}});
    for levels in [3, 16, 60, 119] {
        let (told, took) = timed(schema.clone(), nested(levels, json!(1)));
        assert_eq!(told.len(), 1);
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
    // The same without recursion: each definition tries the next twice.
    for rule in ["anyOf", "allOf", "oneOf"] {
        let mut defs = serde_json::Map::new();
        for index in 0..60 {
            let next = json!({"$ref": format!("#/$defs/{}", index + 1)});
            defs.insert(index.to_string(), json!({rule: [next, next]}));
        }
        defs.insert("60".to_owned(), json!({"type": "string"}));
        let schema = json!({"$ref": "#/$defs/0", "$defs": defs});
        for document in [json!(1), json!({}), json!("")] {
            let (told, took) = timed(schema.clone(), document);
            assert!(took < Duration::from_secs(10), "{rule}: {took:?} {told:?}");
        }
    }
}

#[test]
fn numbers_of_any_size_are_compared() {
    let number = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
    for (schema, document, valid) in [
        (r#"{"type": "integer"}"#, "12345678901234567890123", true),
        (r#"{"type": "integer"}"#, "1e400", true),
        (r#"{"type": "number"}"#, "1e400", true),
        (r#"{"type": "integer"}"#, "1.5", false),
        (r#"{"maximum": 10}"#, "1e400", false),
        (r#"{"maximum": 10}"#, "-1e400", true),
        (r#"{"minimum": 1e400}"#, "5", false),
        (
            r#"{"maximum": 12345678901234567890123}"#,
            "12345678901234567890124",
            false,
        ),
        (
            r#"{"const": 12345678901234567890123}"#,
            "12345678901234567890124",
            false,
        ),
        (r#"{"enum": [1e400]}"#, "1e400", true),
        (r#"{"multipleOf": 0.1}"#, "1e400", true),
        (r#"{"multipleOf": 7}"#, "1e999999999", false),
        (r#"{"type": "integer", "maximum": 1}"#, "1e999999999", false),
        (
            r#"{"uniqueItems": true}"#,
            "[1e999999999, 1e999999998]",
            true,
        ),
        (r#"{"minimum": 1e-999999999}"#, "1e-999999998", true),
    ] {
        let (told, took) = timed(number(schema), number(document));
        assert_eq!(told.is_empty(), valid, "{schema} {document}: {told:?}");
        assert!(
            took < Duration::from_secs(2),
            "{schema} {document}: {took:?}"
        );
    }
}

#[test]
fn a_broken_schema_says_where() {
    let folder = Folder::new(&[
        ("type", json!({"properties": {"a": {"type": "strnig"}}})),
        ("required", json!({"required": "a"})),
        ("array", json!([])),
        ("draft", json!({"$schema": "https://example.com/draft"})),
        ("pointer", json!({"items": {"$ref": "#/$defs/none"}})),
        ("anchor", json!({"items": {"$ref": "#none"}})),
        ("other", json!({"items": {"$ref": "type#/properties/a"}})),
        ("uri", json!({"$ref": "http://[bad"})),
        ("id", json!({"$id": "http://[bad"})),
    ]);
    folder.write("text", "{\n  \"a\": }");
    folder.write("empty", "");
    folder.write("bytes", "\"\u{fffd}");
    std::fs::write(folder.path("bytes"), [b'"', 0xff, b'"']).unwrap();
    folder.write("deep", &format!("{}{}", "[".repeat(5000), "]".repeat(5000)));
    folder.write("large", &" ".repeat(4 * 1024 * 1024 + 1));
    std::fs::create_dir(folder.path("folder")).unwrap();
    let schema = "is not a valid JSON Schema: at";
    for (name, sentence) in [
        (
            "type",
            format!(
                "the schema 'type' {schema} #/properties/a/type: matches none of 2 alternatives: (1) must be one of"
            ),
        ),
        (
            "required",
            format!(
                "the schema 'required' {schema} #/required: expected array, found string \"a\""
            ),
        ),
        (
            "array",
            format!("the schema 'array' {schema} #: expected boolean or object, found array"),
        ),
        (
            "draft",
            format!(
                "the schema 'draft' {schema} #/$schema: unknown draft 'https://example.com/draft'"
            ),
        ),
        (
            "pointer",
            "pointer (at #/items/$ref) refers to '/$defs/none', which does not exist".to_owned(),
        ),
        (
            "anchor",
            "anchor (at #/items/$ref) refers to the anchor 'none', which does not exist".to_owned(),
        ),
        (
            "other",
            format!("the schema 'type' {schema} #/properties/a/type: matches none"),
        ),
        (
            "uri",
            "the schema 'uri' has an unresolved reference: ".to_owned(),
        ),
        (
            "id",
            "the schema 'id' has an unresolved reference: ".to_owned(),
        ),
        (
            "text",
            "the schema 'text' is not JSON: expected value at line 2 column 8".to_owned(),
        ),
        ("empty", "the schema 'empty' is not JSON: EOF".to_owned()),
        (
            "bytes",
            "the schema 'bytes' is not JSON: invalid unicode code point at line 1".to_owned(),
        ),
        (
            "deep",
            "the schema 'deep' is not JSON: recursion limit exceeded at line 1 column 128"
                .to_owned(),
        ),
        (
            "large",
            "the schema 'large' is too large for a schema: 4194305 bytes".to_owned(),
        ),
        (
            "folder",
            "the schema 'folder' is a folder, not a file".to_owned(),
        ),
        (
            "../x",
            "the schema '../x' must be inside schemas/, but its name has a `..`".to_owned(),
        ),
        (
            "/etc/passwd",
            "the schema '/etc/passwd' must be a path inside schemas/".to_owned(),
        ),
    ] {
        let found = told(folder.check(name, &json!([1])));
        assert!(
            found[0].starts_with(&format!("broken: {sentence}")),
            "{name}: {found:?}"
        );
    }
}

#[test]
fn no_reference_leaves_the_folder() {
    let folder = Folder::new(&[]);
    folder.write("../secret.json", "{}");
    std::os::unix::fs::symlink("../secret.json", folder.path("link.json")).unwrap();
    for reference in [
        "../secret.json",
        "/etc/passwd",
        "%2e%2e/secret.json",
        "..%2Fsecret.json",
        "//host/x.json",
        "file:///etc/passwd",
        "link.json",
        "sub/../../secret.json",
        "sub/%2e%2e/%2e%2e/secret.json",
    ] {
        folder.write("x.json", &json!({"$ref": reference}).to_string());
        let found = told(folder.check("x.json", &json!(1)));
        assert!(found[0].starts_with("broken: "), "{reference}: {found:?}");
    }
}

#[test]
fn a_large_document_with_a_fault_in_every_value_is_answered() {
    let document = json!(vec![0; 500_000]);
    let (told, took) = timed(json!({"items": {"type": "string"}}), document);
    assert_eq!(told, ["[0]|expected string, found integer 0|#/items/type"]);
    assert!(took < Duration::from_secs(10), "{took:?}");
}
