//! The `question` of a result that needs a review: what a person is asked, and what the answer does.

use serde_json::{Map, Value};

/// What a person may say.
pub const ON_APPROVE: &[&str] = &["complete", "rerun"];
pub const ON_REJECT: &[&str] = &["fail", "rerun"];

/// A question as its result asks it. What is not said has the default of the contract: approving
/// completes, rejecting fails.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inquiry {
    pub text: Option<String>,
    /// What a person may choose from, and what each means. Empty where any choice will do.
    pub options: Map<String, Value>,
    /// The work is not done: approving runs it again with the answer.
    pub approve_reruns: bool,
    /// Whether rejecting runs it again; none where the question does not say.
    pub reject_reruns: Option<bool>,
}

impl Inquiry {
    /// The question of a result, if it has one.
    pub fn of_result(result: &Map<String, Value>) -> Option<Self> {
        match result.get("question")? {
            Value::String(text) => Some(Self {
                text: nonempty(text),
                ..Self::default()
            }),
            Value::Object(question) => {
                let word = |key: &str| question.get(key).and_then(Value::as_str);
                Some(Self {
                    text: word("text").and_then(nonempty),
                    options: options(question.get("options")),
                    approve_reruns: word("on_approve") == Some("rerun"),
                    reject_reruns: word("on_reject").map(|word| word == "rerun"),
                })
            }
            _ => None,
        }
    }

    /// What a choice must be one of, if the question lists that. Options that are called like the
    /// answers themselves say what each answer means.
    pub fn choices(&self) -> Option<&Map<String, Value>> {
        let is_answer = |option: &String| ["approve", "reject", "ask"].contains(&option.as_str());
        let listed = !self.options.keys().all(is_answer);
        listed.then_some(&self.options)
    }

    /// What an answer means in the words of the question.
    pub fn meaning(&self, answer: &str) -> Option<String> {
        let words = self
            .options
            .get(answer)
            .filter(|_| self.choices().is_none());
        words.and_then(Value::as_str).and_then(nonempty)
    }

    /// The question of a record that waits for a review, as its last result asks it.
    pub fn of_record(doc: &Map<String, Value>) -> Option<Self> {
        let waiting = doc.get("waiting")?;
        let is_review = waiting.get("kind").and_then(Value::as_str) == Some("review");
        Self::of_result(doc.get("result")?.as_object()?).filter(|_| is_review)
    }
}

fn nonempty(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Options as a list of words, a list of objects, or each with what it means.
fn options(listed: Option<&Value>) -> Map<String, Value> {
    let named = |option: &Value| match option {
        Value::String(option) => Some((option.clone(), Value::from(""))),
        Value::Object(option) => {
            let text = |keys: &[&str]| keys.iter().find_map(|key| option.get(*key)?.as_str());
            let name = text(&["option", "name", "id", "label"])?;
            let meaning = text(&["description", "meaning", "text"]).unwrap_or_default();
            Some((name.to_owned(), meaning.into()))
        }
        _ => None,
    };
    match listed {
        Some(Value::Object(options)) => options.clone(),
        Some(Value::Array(options)) => options.iter().filter_map(named).collect(),
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(question: Value) -> Option<Inquiry> {
        Inquiry::of_result(&Map::from_iter([("question".to_owned(), question)]))
    }

    #[test]
    fn a_question_is_read_in_every_form() {
        assert_eq!(asked(json!(null)), None);
        assert_eq!(
            asked(json!(" Ship it? ")).unwrap().text.unwrap(),
            "Ship it?"
        );
        let plain = asked(json!({"text": "Ship it?"})).unwrap();
        assert!(!plain.approve_reruns && plain.reject_reruns.is_none());
        let both = asked(json!({"on_approve": "rerun", "on_reject": "rerun"})).unwrap();
        assert!(both.approve_reruns && both.reject_reruns == Some(true));
        let other = asked(json!({"on_approve": "complete", "on_reject": "fail"})).unwrap();
        assert!(!other.approve_reruns && other.reject_reruns == Some(false));
        for (listed, names) in [
            (json!(["a", "b"]), vec!["a", "b"]),
            (json!({"a": "first"}), vec!["a"]),
            (json!([{"name": "a", "description": "first"}, 7]), vec!["a"]),
            (json!("a"), vec![]),
        ] {
            let options = asked(json!({"options": listed})).unwrap().options;
            let found: Vec<&String> = options.keys().collect();
            assert_eq!(found, names);
        }
    }

    #[test]
    fn options_that_are_answers_say_what_each_means() {
        let asked = asked(json!({"options": {"approve": "permit it", "reject": ""}})).unwrap();
        assert_eq!(asked.choices(), None);
        assert_eq!(asked.meaning("approve").as_deref(), Some("permit it"));
        assert_eq!(asked.meaning("reject"), None);
        let asked = super::tests::asked(json!({"options": ["red", "approve"]})).unwrap();
        assert_eq!(asked.choices().unwrap().len(), 2);
        assert_eq!(asked.meaning("approve"), None);
        assert_eq!(Inquiry::default().choices(), None);
    }

    #[test]
    fn only_a_review_has_the_question_of_its_result() {
        for (kind, has) in [("review", true), ("gate", false), ("task", false)] {
            let doc =
                json!({"waiting": {"on": "human", "kind": kind}, "result": {"question": "?"}});
            assert_eq!(Inquiry::of_record(doc.as_object().unwrap()).is_some(), has);
        }
    }
}
