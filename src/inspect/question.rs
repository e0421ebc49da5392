//! The question that a waiting record puts to a person, as commands show it.

use serde_json::{Map, Value, json};

use crate::clock::Wall;
use crate::inspect::material::Material;
use crate::protocol::question::Inquiry;
use crate::protocol::view::View;

/// How many things to look at are shown of one question.
const MOST_ITEMS: usize = 50;

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about the question"
)]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Question {
    /// `review`, `gate`, `task` or `blocked`.
    pub kind: String,
    pub gate: Option<String>,
    /// Why a person is asked.
    pub reason: String,
    /// What was done so far.
    pub done: Option<String>,
    /// What to look at.
    pub items: Vec<String>,
    /// What may be chosen, and what it means.
    pub options: Vec<(String, String)>,
    /// Whether the options are the asker's own: a choice must then be one of them.
    pub own_options: bool,
    pub until: Option<Wall>,
    pub escalated_to: Option<String>,
    /// Whether an agent is said to have sent it.
    pub sent: bool,
    /// What approving and rejecting mean, in the words of the question.
    pub meanings: [Option<String>; 2],
    /// Whether a yes runs it again.
    pub goes_on: bool,
    /// Whether a no runs it again.
    pub rerun: bool,
    /// What happens when nobody answers in time, as the end of a sentence.
    pub on_expiry: String,
    /// What the handoff is about.
    pub material: Material,
}

impl Question {
    /// The question of a record, where it waits for a person.
    pub fn of(doc: &Map<String, Value>) -> Option<Self> {
        let waiting = doc.get("waiting")?;
        if waiting.get("on")?.as_str()? != "human" {
            return None;
        }
        let text = |key: &str| waiting.get(key).and_then(Value::as_str).map(str::to_owned);
        let options = match waiting.get("options") {
            Some(Value::Object(options)) => options
                .iter()
                .map(|(name, meaning)| (name.clone(), plain(meaning)))
                .collect(),
            _ => Vec::new(),
        };
        let view = View::of_document(doc);
        let kind = text("kind").unwrap_or_else(|| "review".to_owned());
        let asked = Inquiry::of_record(doc).unwrap_or_default();
        let to = view.text("gate", "escalate_to").unwrap_or("somebody else");
        Some(Self {
            goes_on: asked.approve_reruns,
            rerun: asked.reject_reruns.unwrap_or_else(|| {
                view.text("gate", "on_reject") == Some("rerun")
                    && !matches!(kind.as_str(), "gate" | "task")
            }),
            on_expiry: match view.text("gate", "on_expiry") {
                Some("approve") => "the daemon approves it".to_owned(),
                Some("escalate") => format!("the daemon asks {to}"),
                _ => "the daemon rejects it".to_owned(),
            },
            sent: view.source().is_some(),
            material: Material::of(doc),
            kind,
            gate: text("gate"),
            reason: asked
                .text
                .clone()
                .or_else(|| text("reason"))
                .unwrap_or_default(),
            done: text("done"),
            items: match waiting.get("items") {
                Some(Value::Array(items)) => items.iter().take(MOST_ITEMS).map(plain).collect(),
                Some(Value::Null) | None => Vec::new(),
                Some(other) => vec![plain(other)],
            },
            own_options: view.options().is_some() || asked.choices().is_some(),
            meanings: ["approve", "reject"].map(|answer| asked.meaning(answer)),
            options,
            until: text("until").and_then(|until| Wall::parse(&until)),
            escalated_to: text("escalated_to"),
        })
    }

    /// What is asked, in one line: the asker's reason, or what there is to look at. A task of a
    /// person's own says what the task is.
    pub fn headline(&self) -> String {
        if self.kind == "task"
            && let Some(subject) = self.material.subject()
        {
            return subject;
        }
        match (self.reason.trim(), self.items.first()) {
            ("", Some(item)) => item.clone(),
            ("", None) => self.done.clone().unwrap_or_default(),
            (reason, _) => reason.to_owned(),
        }
    }

    /// All of it in one line.
    pub fn in_one_line(&self) -> String {
        let mut line = self.headline();
        if self.own_options {
            line.push_str(" | options: ");
            line.push_str(&self.choices());
        }
        for (name, text) in self.material.lines() {
            if text != self.headline() {
                line.extend([" | ", name, ": ", &text]);
            }
        }
        line
    }

    /// What a yes does.
    pub fn approving(&self) -> &'static str {
        match self.kind.as_str() {
            "gate" => "lets it run",
            "task" => "completes it; your comment is its result",
            "blocked" => "lets it try again",
            _ if self.goes_on => "runs it again, with your answer",
            _ => "completes it",
        }
    }

    /// What a no does.
    pub fn rejecting(&self) -> &'static str {
        if self.rerun {
            "runs it again, with your comment"
        } else {
            "fails it"
        }
    }

    /// Whether there is somebody who could answer a question back.
    pub fn may_ask(&self) -> bool {
        self.nobody_to_ask().is_none()
    }

    /// Why nobody could answer a question back.
    pub fn nobody_to_ask(&self) -> Option<&'static str> {
        match self.kind.as_str() {
            "gate" => Some("no attempt has run that could answer"),
            "task" if !self.sent => Some("no agent sent it"),
            _ => None,
        }
    }

    /// Why `choice` can't be given, with what can.
    pub fn refuses(&self, choice: &str) -> Option<String> {
        let wrong = format!("{choice:?} is not one of the options; choose from: ");
        (self.own_options && !self.has_option(choice)).then(|| wrong + &self.choices())
    }

    fn has_option(&self, choice: &str) -> bool {
        self.options.iter().any(|(name, _)| name == choice)
    }

    fn choices(&self) -> String {
        let names: Vec<&str> = self.options.iter().map(|(name, _)| name.as_str()).collect();
        names.join(", ")
    }

    pub fn to_json(&self) -> Value {
        let options: Map<String, Value> = self
            .options
            .iter()
            .map(|(name, meaning)| (name.clone(), meaning.clone().into()))
            .collect();
        let is_review = self.kind == "review";
        let mut told = json!({
            "kind": self.kind, "gate": self.gate, "reason": self.reason, "done": self.done,
            "items": self.items, "options": options,
            "until": self.until.map(|until| until.to_string()),
            "escalated_to": self.escalated_to,
            "on_approve": is_review.then_some(if self.goes_on { "rerun" } else { "complete" }),
            "on_reject": is_review.then_some(if self.rerun { "rerun" } else { "fail" }),
        });
        if let Value::Object(told) = &mut told {
            told.extend(self.material.to_json());
        }
        told
    }
}

/// A value as a person reads it: text as it is, an item by its description.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(map) => ["description", "name", "item", "title", "id"]
            .iter()
            .find_map(|key| map.get(*key)?.as_str())
            .map_or_else(|| value.to_string(), str::to_owned),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(waiting: &Value, own: &Value) -> Option<Question> {
        let doc = json!({
            "target": {"agent_id": "@x"}, "waiting": waiting, "validation_request": own,
        });
        Question::of(doc.as_object().unwrap())
    }

    #[test]
    fn only_a_wait_for_a_person_is_a_question() {
        assert_eq!(question(&json!({"on": "retry"}), &json!(null)), None);
        assert_eq!(question(&json!("human"), &json!(null)), None);
        let bare = question(&json!({"on": "human"}), &json!(null)).unwrap();
        assert_eq!(bare.kind, "review");
        assert_eq!(bare.headline(), "");
    }

    #[test]
    fn items_and_options_are_read_in_every_form() {
        let waiting = json!({
            "on": "human", "kind": "gate", "gate": "release", "reason": " ",
            "items": [{"description": "the plan"}, "the cost", 7],
            "options": {"ship": "now", "hold": ""}, "until": "2026-01-01T00:00:00.000Z",
        });
        let own = json!({"options": ["ship", "hold"]});
        let question = question(&waiting, &own).unwrap();
        assert_eq!(question.items, ["the plan", "the cost", "7"]);
        assert_eq!(question.headline(), "the plan");
        assert!(question.until.is_some() && !question.may_ask());
        assert_eq!(question.refuses("ship"), None);
        assert_eq!(
            question.refuses("sell").unwrap(),
            "\"sell\" is not one of the options; choose from: ship, hold"
        );
    }

    #[test]
    fn only_who_is_there_can_be_asked_back() {
        for (kind, source, may_ask) in [
            ("review", json!(null), true),
            ("blocked", json!(null), true),
            ("gate", json!({"agent_id": "@a"}), false),
            ("task", json!({"agent_id": "@a"}), true),
            ("task", json!(null), false),
        ] {
            let doc = json!({
                "target": {"agent_id": "human"}, "source": source,
                "waiting": {"on": "human", "kind": kind},
            });
            let question = Question::of(doc.as_object().unwrap()).unwrap();
            assert_eq!(question.may_ask(), may_ask, "{kind}, {source}");
        }
    }

    #[test]
    fn where_nobody_listed_options_any_choice_will_do() {
        let waiting = json!({"on": "human", "options": {"approve": "go on"}});
        let question = question(&waiting, &json!(null)).unwrap();
        assert_eq!(question.refuses("whatever"), None);
    }
}
