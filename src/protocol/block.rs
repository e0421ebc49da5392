//! Taking fields out of the daemon's own block in a record, and putting them back.
//!
//! What is the daemon's own is read by serde. What somebody else wrote and the block only keeps
//! (`submitted`, `previous`, `returns`, the requests of `spawns`) is moved as it is: serde would
//! write its numbers in its own way, 1.10 as 1.1, 1e400 as 1e+400, and forty digits as a power of
//! ten.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::record::RecordError;

pub(super) fn take<T: DeserializeOwned + Default>(
    map: &mut Map<String, Value>,
    key: &str,
) -> Result<T, RecordError> {
    match map.shift_remove(key) {
        None | Some(Value::Null) => Ok(T::default()),
        Some(value) => serde_json::from_value(value)
            .map_err(|error| RecordError::BadMeta(format!("{key}: {error}"))),
    }
}

/// An object as it is, or an empty one.
pub(super) fn take_map(
    map: &mut Map<String, Value>,
    key: &str,
) -> Result<Map<String, Value>, RecordError> {
    match map.shift_remove(key) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(found)) => Ok(found),
        Some(_) => Err(RecordError::BadMeta(format!("{key}: not an object"))),
    }
}

/// A list as it is, or an empty one.
pub(super) fn take_list(
    map: &mut Map<String, Value>,
    key: &str,
) -> Result<Vec<Value>, RecordError> {
    match map.shift_remove(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(found)) => Ok(found),
        Some(_) => Err(RecordError::BadMeta(format!("{key}: not an array"))),
    }
}

/// Puts an object in as it is, if there is anything in it.
pub(super) fn put_map(map: &mut Map<String, Value>, key: &str, value: &Map<String, Value>) {
    if !value.is_empty() {
        map.insert(key.to_owned(), value.clone().into());
    }
}

/// Puts a list in as it is, if there is anything in it.
pub(super) fn put_list(map: &mut Map<String, Value>, key: &str, list: &[Value]) {
    if !list.is_empty() {
        map.insert(key.to_owned(), Value::Array(list.to_vec()));
    }
}

pub(super) fn put<T: Serialize + PartialEq + Default>(
    map: &mut Map<String, Value>,
    key: &str,
    value: &T,
) {
    if *value != T::default() {
        let value = serde_json::to_value(value).unwrap_or(Value::Null);
        map.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::json;

    fn block(text: &str) -> Map<String, Value> {
        let Ok(Value::Object(map)) = json::parse_own(text) else {
            panic!("{text}")
        };
        map
    }

    #[test]
    fn what_is_only_kept_is_not_rewritten() {
        let text = r#"{"m":{"a":1.10,"b":1E400},"l":[120000000000000000000000000000000000000001]}"#;
        let mut map = block(text);
        let (object, list) = (
            take_map(&mut map, "m").unwrap(),
            take_list(&mut map, "l").unwrap(),
        );
        assert!(map.is_empty());
        put_map(&mut map, "m", &object);
        put_list(&mut map, "l", &list);
        assert_eq!(Value::Object(map).to_string(), text);
    }

    #[test]
    fn nothing_is_left_out_and_the_wrong_kind_is_said() {
        let mut map = block(r#"{"m":null,"n":[],"l":{},"t":3}"#);
        assert_eq!(take_map(&mut map, "m"), Ok(Map::new()));
        assert_eq!(take_list(&mut map, "absent"), Ok(Vec::new()));
        for (key, error) in [
            ("n", take_map(&mut map, "n").err()),
            ("l", take_list(&mut map, "l").err()),
            ("t", take::<String>(&mut map, "t").err()),
        ] {
            assert!(error.unwrap().to_string().contains(&format!("{key}: ")));
        }
        put_map(&mut map, "m", &Map::new());
        put_list(&mut map, "l", &[]);
        assert!(map.is_empty());
    }
}
