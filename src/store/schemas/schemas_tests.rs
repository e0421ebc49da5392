//! Schemas as their authors write them: drafts, references, sentences, changes.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{Checked, MOST_KEPT, Schemas};

/// A folder of schemas.
pub(super) struct Folder {
    dir: tempfile::TempDir,
    pub schemas: Schemas,
}

impl Folder {
    pub fn new(files: &[(&str, Value)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let schemas = Schemas::new(&dir.path().join("schemas"));
        let folder = Self { dir, schemas };
        for (name, schema) in files {
            folder.write(name, &schema.to_string());
        }
        folder
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("schemas").join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub fn check(&self, name: &str, document: &Value) -> Checked {
        self.schemas.check(name, document)
    }
}

/// What a document hears of one schema, a line for each error: `field|error|schema_path`.
pub(super) fn lines(schema: Value, document: &Value) -> Vec<String> {
    let folder = Folder::new(&[("x.json", schema)]);
    told(folder.check("x.json", document))
}

pub(super) fn told(checked: Checked) -> Vec<String> {
    match checked {
        Checked::Valid => Vec::new(),
        Checked::Invalid(errors) => errors
            .into_iter()
            .map(|each| {
                let path = each.schema_path.unwrap_or_default();
                format!("{}|{}|{path}", each.field, each.error)
            })
            .collect(),
        Checked::Missing(sentence) => vec![format!("missing: {sentence}")],
        Checked::Broken(sentence) => vec![format!("broken: {sentence}")],
    }
}

#[test]
fn every_rule_is_said_in_a_sentence() {
    for (schema, document, line) in [
        (
            json!({"required": ["type"]}),
            json!({}),
            "|missing required field 'type'|#/required",
        ),
        (
            json!({"type": "string"}),
            json!(7),
            "|expected string, found integer 7|#/type",
        ),
        (
            json!({"type": ["string", "null"]}),
            json!(1.5),
            "|expected null or string, found number 1.5|#/type",
        ),
        (
            json!({"type": "object"}),
            json!([1]),
            "|expected object, found array|#/type",
        ),
        (
            json!({"type": "integer"}),
            json!("a\u{1b}\"b"),
            "|expected integer, found string \"a\\u{1b}\\\"b\"|#/type",
        ),
        (
            json!({"enum": ["a", "b", 3]}),
            json!("c"),
            "|must be one of \"a\", \"b\", 3, found \"c\"|#/enum",
        ),
        (
            json!({"const": {"a": 1}}),
            json!(null),
            "|must be {\"a\":1}, found null|#/const",
        ),
        (
            json!({"pattern": "^a+$"}),
            json!("b"),
            "|\"b\" does not match the pattern '^a+$'|#/pattern",
        ),
        (
            json!({"minimum": 3}),
            json!(2),
            "|must be at least 3, found 2|#/minimum",
        ),
        (
            json!({"maximum": 3}),
            json!(4),
            "|must be at most 3, found 4|#/maximum",
        ),
        (
            json!({"exclusiveMinimum": 3}),
            json!(3),
            "|must be more than 3, found 3|#/exclusiveMinimum",
        ),
        (
            json!({"exclusiveMaximum": 3}),
            json!(3),
            "|must be less than 3, found 3|#/exclusiveMaximum",
        ),
        (
            json!({"multipleOf": 2}),
            json!(3),
            "|must be a multiple of 2, found 3|#/multipleOf",
        ),
    ] {
        assert_eq!(lines(schema.clone(), &document), [line], "{schema}");
    }
}

#[test]
fn rules_for_what_has_parts_are_said_too() {
    for (schema, document, line) in [
        (
            json!({"minLength": 2}),
            json!("é"),
            "|at least 2 characters needed, has 1|#/minLength",
        ),
        (
            json!({"maxLength": 2}),
            json!("abc"),
            "|at most 2 characters allowed, has 3|#/maxLength",
        ),
        (
            json!({"minItems": 1}),
            json!([]),
            "|at least 1 item needed, has 0|#/minItems",
        ),
        (
            json!({"maxProperties": 0}),
            json!({"a": 1}),
            "|at most 0 fields allowed, has 1|#/maxProperties",
        ),
        (
            json!({"uniqueItems": true}),
            json!([1, 1]),
            "|has two equal items|#/uniqueItems",
        ),
        (
            json!({"additionalProperties": false}),
            json!({"x": 1}),
            "|unknown field 'x'|#/additionalProperties",
        ),
        (
            json!({"unevaluatedProperties": false}),
            json!({"x": 1, "y": 2}),
            "|unknown fields 'x', 'y'|#/unevaluatedProperties",
        ),
        (
            json!({"not": {"type": "null"}}),
            json!(null),
            "|null matches what `not` forbids|#/not",
        ),
        (
            json!({"properties": {"a": false}}),
            json!({"a": 1}),
            "a|is not allowed here|#/properties/a",
        ),
        (
            json!({"propertyNames": {"pattern": "^[a-z]+$"}}),
            json!({"A": 1}),
            "|has a field with a name that is not allowed: \"A\" does not match the pattern '^[a-z]+$'|#/propertyNames/pattern",
        ),
        (
            json!({"oneOf": [{"type": "integer"}, {"minimum": 1}]}),
            json!(2),
            "|matches the alternatives 1, 2 of 2, but must match exactly one|#/oneOf",
        ),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "format": "date-time"}),
            json!("noon"),
            "|\"noon\" is not a valid date-time|#/format",
        ),
    ] {
        assert_eq!(lines(schema.clone(), &document), [line], "{schema}");
    }
}

#[test]
fn all_errors_are_told_in_the_order_of_the_document() {
    let schema = json!({
        "type": "object",
        "properties": {
            "list": {"items": {
                "required": ["name"],
                "properties": {"props": {"properties": {"userId": {"type": "string"}}}},
            }},
            "a.b": {"type": "string"},
            "0": {"type": "string"},
        },
    });
    let mut list: Vec<Value> = (0..11).map(|_| json!({"name": 1})).collect();
    list[10] = json!({"props": {"userId": 42}});
    list[2] = json!({});
    let document = json!({"list": list, "a.b": 1, "0": 1});
    assert_eq!(
        lines(schema, &document),
        [
            "0|expected string, found integer 1|#/properties/0/type",
            "[\"a.b\"]|expected string, found integer 1|#/properties/a.b/type",
            "list[2]|missing required field 'name'|#/properties/list/items/required",
            "list[10]|missing required field 'name'|#/properties/list/items/required",
            "list[10].props.userId|expected string, found integer 42|\
             #/properties/list/items/properties/props/properties/userId/type",
        ]
    );
}

#[test]
fn beyond_a_hundred_errors_are_counted() {
    let document = json!(vec![0; 137]);
    let lines = lines(json!({"items": {"type": "string"}}), &document);
    assert_eq!(lines.len(), 101);
    assert_eq!(
        lines[99],
        "[99]|expected string, found integer 0|#/items/type"
    );
    assert_eq!(lines[100], "|and 37 more errors|");
}

#[test]
fn few_alternatives_are_all_explained_and_of_many_the_closest() {
    let kind = |name: &str| {
        json!({"required": ["kind", "size"], "properties": {
            "kind": {"const": name}, "size": {"type": "integer"},
        }})
    };
    assert_eq!(
        lines(
            json!({"anyOf": [{"type": "string"}, kind("a")]}),
            &json!({"kind": "a"})
        ),
        [
            "|matches none of 2 alternatives: (1) expected string, found object; \
          (2) missing required field 'size'|#/anyOf"
        ]
    );
    assert_eq!(
        lines(
            json!({"properties": {"x": {"oneOf": [kind("a"), kind("b"), kind("c"), kind("d")]}}}),
            &json!({"x": {"kind": "c", "size": "big"}})
        ),
        [
            "x|matches none of 4 alternatives; the closest is (3) size: expected integer, \
          found string \"big\"|#/properties/x/oneOf"
        ]
    );
}

#[test]
fn the_draft_is_told_by_the_schema() {
    // An array of `items` means a tuple up to 2019-09, and is no schema in 2020-12.
    for (draft, valid) in [
        ("http://json-schema.org/draft-07/schema#", true),
        ("https://json-schema.org/draft/2019-09/schema", true),
        ("https://json-schema.org/draft/2020-12/schema", false),
    ] {
        let folder = Folder::new(&[("x", json!({"$schema": draft, "items": [{"type": "null"}]}))]);
        let found = told(folder.check("x", &json!([1])));
        if valid {
            assert_eq!(found, ["[0]|expected null, found integer 1|#/items/0/type"]);
        } else {
            assert!(
                found[0]
                    .starts_with("broken: the schema 'x' is not a valid JSON Schema: at #/items: "),
                "{found:?}"
            );
        }
    }
    let recursive = json!({
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "$recursiveAnchor": true,
        "properties": {"a": {"$recursiveRef": "#"}, "b": {"type": "string"}},
    });
    assert_eq!(
        lines(recursive, &json!({"a": {"a": {"b": 1}}})),
        ["a.a.b|expected string, found integer 1|#/properties/b/type"]
    );
}

#[test]
fn files_refer_to_files() {
    let folder = Folder::new(&[
        (
            "a.schema.json",
            json!({"properties": {
                "b": {"$ref": "b.schema.json"},
                "c": {"$ref": "b.schema.json#/definitions/c"},
                "d": {"$ref": "sub/d.schema.json#d"},
            }}),
        ),
        (
            "b.schema.json",
            json!({"type": "string", "definitions": {"c": {"minimum": 3}}}),
        ),
        (
            "sub/d.schema.json",
            json!({"$defs": {"d": {"$anchor": "d", "$ref": "e.schema.json"}}}),
        ),
        (
            "sub/e.schema.json",
            json!({"items": {"$ref": "../b.schema.json"}}),
        ),
    ]);
    assert_eq!(
        folder.check("a.schema.json", &json!({"b": "", "c": 3, "d": [""]})),
        Checked::Valid
    );
    assert_eq!(
        told(folder.check("a.schema.json", &json!({"b": 1, "c": 2, "d": [1]}))),
        [
            "b|expected string, found integer 1|b.schema.json#/type",
            "c|must be at least 3, found 2|b.schema.json#/definitions/c/minimum",
            "d[0]|expected string, found integer 1|b.schema.json#/type",
        ]
    );
}

#[test]
fn files_are_found_by_their_id_and_beside_it() {
    let at = "https://example.com/schemas";
    let folder = Folder::new(&[
        (
            "a.json",
            json!({"$id": format!("{at}/a.json"), "properties": {
                "b": {"$ref": "b.json"},
                "c": {"$ref": format!("{at}/other/c")},
                "u": {"$ref": "urn:example:u"},
                "own": {"type": "null"},
            }}),
        ),
        ("b.json", json!({"type": "string"})),
        (
            "deep/c.json",
            json!({"$id": format!("{at}/other/c"), "type": "integer"}),
        ),
        ("u.json", json!({"$id": "urn:example:u", "type": "boolean"})),
        (
            "gone.json",
            json!({"$id": format!("{at}/gone.json"), "$ref": "none.json"}),
        ),
        (
            "net.json",
            json!({"items": {"$ref": "https://example.com/none.json#/x"}}),
        ),
    ]);
    assert_eq!(
        told(folder.check("a.json", &json!({"b": 1, "c": "", "u": 1, "own": 1}))),
        [
            "b|expected string, found integer 1|b.json#/type",
            "c|expected integer, found string \"\"|deep/c.json#/type",
            "own|expected null, found integer 1|#/properties/own/type",
            "u|expected boolean, found integer 1|u.json#/type",
        ]
    );
    assert_eq!(
        told(folder.check("gone.json", &json!(1))),
        ["missing: gone.json (at #/$ref) refers to 'none.json', which is not in schemas/"]
    );
    assert_eq!(
        told(folder.check("net.json", &json!(1))),
        [
            "broken: net.json (at #/items/$ref) refers to the network, which the daemon never reads: no file \
          in schemas/ has https://example.com/none.json as its $id"
        ]
    );
}

#[test]
fn what_is_missing_is_named_and_found_once_it_is_there() {
    let folder = Folder::new(&[]);
    let no = "missing: no schema 'x.json' in schemas/";
    assert_eq!(told(folder.check("x.json", &json!(1))), [no]);
    folder.write("x.json", r#"{"properties": {"a/b": {"$ref": "y.json"}}}"#);
    assert_eq!(
        told(folder.check("x.json", &json!(1))),
        [
            "missing: x.json (at #/properties/a~1b/$ref) refers to 'y.json', which is not in schemas/"
        ]
    );
    folder.write("y.json", "{}");
    assert_eq!(folder.check("./x.json", &json!(1)), Checked::Valid);
}

#[test]
fn a_change_is_noticed_in_the_file_and_in_what_it_refers_to() {
    let folder = Folder::new(&[
        ("x", json!({"$ref": "y"})),
        ("y", json!({"type": "string"})),
    ]);
    assert_eq!(folder.check("x", &json!("")), Checked::Valid);
    folder.write("y", r#"{"type": "integer"}"#);
    assert_ne!(folder.check("x", &json!("")), Checked::Valid);
    folder.write("y", "{");
    assert!(matches!(folder.check("x", &json!(1)), Checked::Broken(_)));
    assert!(matches!(folder.check("x", &json!(1)), Checked::Broken(_)));
    folder.write("y", "{}");
    assert_eq!(folder.check("x", &json!("")), Checked::Valid);
    std::fs::remove_file(folder.path("y")).unwrap();
    assert!(matches!(folder.check("x", &json!(1)), Checked::Missing(_)));
    folder.write("x", "true");
    assert_eq!(folder.check("x", &json!("")), Checked::Valid);
}

#[test]
fn only_so_many_are_kept() {
    let folder = Folder::new(&[]);
    for number in 0..MOST_KEPT + 10 {
        let name = format!("{number}");
        folder.write(&name, "{}");
        assert_eq!(folder.check(&name, &json!(1)), Checked::Valid);
        assert_eq!(folder.check("0", &json!(1)), Checked::Valid);
    }
    let kept = folder.schemas.kept();
    assert_eq!(kept.len(), MOST_KEPT);
    assert!(kept.contains_key("0") && !kept.contains_key("1"));
}

#[test]
fn data_that_looks_like_a_schema_stays_data() {
    let data = json!({"$ref": "none.json", "anyOf": [1]});
    let schema = json!({"const": data, "default": data, "examples": [data]});
    assert!(lines(schema, &data).is_empty());
    let named = json!({"properties": {"const": {"anyOf": [{"type": "string"}]}}});
    assert_eq!(
        lines(named, &json!({"const": 1})),
        [
            "const|matches none of 1 alternatives: (1) expected string, found integer 1|#/properties/const/anyOf"
        ]
    );
}
