//! What an attempt cost, by the specialist's own count: `metadata.usage` of a result.

use serde_json::{Map, Value};

/// How many figures are kept, and how long a word among them may be.
const MOST: usize = 32;
const MOST_BYTES: usize = 256;

/// The figures of a result that can be kept with its attempt: numbers that are not negative, and
/// short words. None if there are none.
pub fn of_result(result: &Map<String, Value>) -> Option<Map<String, Value>> {
    let usage = result.get("metadata")?.get("usage")?.as_object()?;
    let kept: Map<String, Value> = usage
        .iter()
        .filter(|(key, value)| key.len() <= MOST_BYTES && is_kept(value))
        .take(MOST)
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    (!kept.is_empty()).then_some(kept)
}

fn is_kept(value: &Value) -> bool {
    match value {
        Value::Bool(_) => true,
        Value::String(text) => text.len() <= MOST_BYTES,
        Value::Number(number) => number
            .as_f64()
            .is_some_and(|number| number.is_finite() && number >= 0.0),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Adds the figures of another attempt. Words, which can't be added, are the other's.
pub fn add(sum: &mut Map<String, Value>, more: Option<&Map<String, Value>>) {
    for (key, value) in more.into_iter().flatten() {
        let so_far = sum.get(key);
        let whole = so_far.and_then(Value::as_u64).zip(value.as_u64());
        let whole = whole.and_then(|(a, b)| a.checked_add(b));
        let parts = so_far.and_then(Value::as_f64).zip(value.as_f64());
        let added = match (whole, parts) {
            (Some(whole), _) => whole.into(),
            (None, Some((a, b))) => (a + b).into(),
            (None, None) => value.clone(),
        };
        sum.insert(key.clone(), added);
    }
}

/// One line for a person: `$0.42, 1,200 tokens in, 300 out`.
pub fn in_words(usage: &Map<String, Value>) -> Option<String> {
    let number = |key: &str| usage.get(key).and_then(Value::as_f64);
    let mut words = Vec::new();
    if let Some(cost) = number("cost_usd") {
        words.push(if cost >= 0.01 || cost == 0.0 {
            format!("${cost:.2}")
        } else {
            format!("${cost:.4}")
        });
    }
    if let Some(tokens) = number("input_tokens") {
        words.push(format!("{} tokens in", grouped(tokens)));
    }
    if let Some(tokens) = number("output_tokens") {
        words.push(format!("{} out", grouped(tokens)));
    }
    (!words.is_empty()).then(|| words.join(", "))
}

fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kept(usage: &Value) -> Option<Value> {
        let result = json!({"metadata": {"usage": usage}});
        of_result(result.as_object().unwrap()).map(Value::Object)
    }

    #[test]
    fn only_figures_and_short_words_are_kept() {
        let usage = json!({"input_tokens": 7, "cost_usd": 0.5, "model": "m", "cached": true});
        assert_eq!(kept(&usage), Some(usage));
        let huge: Value = serde_json::from_str("1e400").unwrap();
        let odd = json!({"cost_usd": -1, "turns": huge, "model": "m".repeat(999), "more": [1], "n": null});
        assert_eq!(kept(&odd), None);
        assert_eq!(kept(&json!("free")), None);
        assert_eq!(of_result(&Map::new()), None);
    }

    #[test]
    fn a_person_reads_money_and_tokens() {
        for (usage, expected) in [
            (
                json!({"cost_usd": 0.42, "input_tokens": 1_234_567, "output_tokens": 30}),
                Some("$0.42, 1,234,567 tokens in, 30 out"),
            ),
            (json!({"cost_usd": 0.0008}), Some("$0.0008")),
            (json!({"turns": 3}), None),
        ] {
            assert_eq!(in_words(usage.as_object().unwrap()).as_deref(), expected);
        }
    }
}
