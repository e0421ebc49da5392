//! Taking fields out of the daemon's own block in a record, and putting them back.
//!
//! What is the daemon's own is read by serde. What somebody else wrote and the block only keeps
//! (`submitted`, `previous`, `returns`, the requests of `spawns`) is moved as it is: read by serde,
//! its numbers would be written in another way, 1.10 as 1.1, 1e400 as 1e+400, and forty digits as a
//! power of ten.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde::ser::SerializeMap;
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

/// Writes a field, unless it says nothing.
pub(super) fn put<M: SerializeMap, T: Serialize + PartialEq + Default>(
    map: &mut M,
    key: &str,
    value: &T,
) -> Result<(), M::Error> {
    if *value == T::default() {
        return Ok(());
    }
    map.serialize_entry(key, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::json;
    use serde::Serializer;

    fn block(text: &str) -> Map<String, Value> {
        let Ok(Value::Object(map)) = json::parse_own(text) else {
            panic!("{text}")
        };
        map
    }

    fn written(object: &Map<String, Value>, list: &Vec<Value>) -> String {
        let mut bytes = Vec::new();
        let mut writer = serde_json::Serializer::new(&mut bytes);
        let mut map = writer.serialize_map(None).unwrap();
        put(&mut map, "m", object).unwrap();
        put(&mut map, "l", list).unwrap();
        map.end().unwrap();
        String::from_utf8(bytes).unwrap()
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
        assert_eq!(written(&object, &list), text);
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
        assert_eq!(written(&Map::new(), &Vec::new()), "{}");
    }
}
