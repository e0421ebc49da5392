//! That it is the very text that `serde_json` would have written.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};

use super::*;
use crate::protocol::json;

fn compact(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = b"before".to_vec();
    let _ = append(&mut bytes, value);
    assert!(bytes.starts_with(b"before"));
    bytes.split_off(6)
}

fn check(value: &impl Serialize) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    assert_eq!(
        text(compact(value)),
        serde_json::to_string(value).unwrap_or_default()
    );
    assert_eq!(
        text(indented(value).unwrap_or_default()),
        serde_json::to_string_pretty(value).unwrap_or_default()
    );
}

#[derive(Serialize)]
enum Shape {
    Unit,
    New(u8),
    Pair(i64, Option<bool>),
    Named { a: f64, b: Vec<Shape> },
    Empty {},
}

#[derive(Serialize)]
struct Wide {
    chars: char,
    least: i64,
    most: u64,
    unit: (),
    small: i8,
    float: f32,
}

#[test]
fn every_shape_is_written_as_serde_json_does() {
    check(&json!({"a": [], "b": {}, "c": [1, {"d": null}], "e": [[[]]], "f": true, "": -0.5}));
    check(&Shape::Named {
        a: 1e300,
        b: vec![
            Shape::Unit,
            Shape::New(255),
            Shape::Pair(i64::MIN, None),
            Shape::Empty {},
        ],
    });
    check(&Shape::Pair(-1, Some(false)));
    for float in [0.0, -1.5, 1e21, 0.1, f64::NAN, f64::INFINITY] {
        check(&float);
    }
    check(&Wide {
        chars: '\u{1f600}',
        least: i64::MIN,
        most: u64::MAX,
        unit: (),
        small: -128,
        float: 0.1,
    });
    check(&BTreeMap::from([('a', 1), ('"', 2)]));
    check(&BTreeMap::from([
        (1, "numbers as keys"),
        (-2, "become text"),
    ]));
    check(&BTreeMap::from([(true, 1), (false, 2)]));
    check(&BTreeMap::from([(vec![1], "what is no key is nothing")]));
    check(&BTreeMap::from([((), "neither is this")]));
}

#[test]
fn numbers_stay_as_they_were_written() {
    for text in [
        "1e400",
        "1E5",
        "1.10",
        "-0",
        "12345678901234567890123",
        "[7,{\"a\":-0.0}]",
    ] {
        let value = json::parse(text).unwrap();
        assert_eq!(compact(&value), text.as_bytes());
        check(&value);
    }
}

#[test]
fn every_character_is_escaped_where_it_must_be() {
    let all: String = (0..0x2_0000).filter_map(char::from_u32).collect();
    check(&all);
    // At every place of a group of eight, with neighbours that a borrow could carry into.
    for special in [
        '"', '\\', '\n', '\0', '\x1f', '\x7f', 'é', ' ', '!', '#', '[',
    ] {
        for before in 0..20 {
            for neighbour in ['x', '!', ' ', '\x01', '\u{80}'] {
                let mut text = "x".repeat(before);
                text.push(special);
                text.push(neighbour);
                text.push_str("yyyyyyyy");
                check(&text);
            }
        }
    }
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_value_is_written_as_serde_json_does(value in values()) {
        check(&value);
    }
}
