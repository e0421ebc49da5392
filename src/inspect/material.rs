//! What a handoff is about, as far as its record has it: what came in, what is to come out, and what
//! is still open. A person who is asked finds it here, and not only that somebody asks.

use serde_json::{Map, Value, json};

use crate::protocol::dialect::Dialect;
use crate::protocol::view::View;

/// How many entries of a list are shown.
const MOST: usize = 50;

/// The keys that say in a few words what is to be done.
const IN_WORDS: [&str; 9] = [
    "question",
    "task",
    "summary",
    "title",
    "description",
    "prompt",
    "instructions",
    "text",
    "context",
];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Material {
    /// The work as its producer wrote it.
    pub input: Option<Value>,
    /// Why it was sent to this target.
    pub sent_because: Option<String>,
    pub open_questions: Vec<String>,
    pub pending_decisions: Vec<String>,
    pub deliverable: Option<String>,
    /// Paths, each with what it is where that is said.
    pub artifacts: Vec<String>,
}

impl Material {
    pub fn of(doc: &Map<String, Value>) -> Self {
        let view = View::of_document(doc);
        let result = doc.get("result").and_then(Value::as_object);
        let data = view.inner("input", "data").and_then(Value::as_object);
        Self {
            input: input(&view),
            sent_because: view.text("to", "reason").map(str::to_owned),
            open_questions: open_questions(&view, result, data),
            pending_decisions: pending_decisions(&view, result, data),
            deliverable: deliverable(&view, data),
            artifacts: artifacts(&view, result, data),
        }
    }

    /// What it is about, in one sentence.
    pub fn subject(&self) -> Option<String> {
        let text = |value: &Value| {
            let text = value.as_str()?.trim();
            (!text.is_empty()).then(|| text.to_owned())
        };
        let in_input = || {
            let input = self.input.as_ref()?;
            let found = |map: &Value| IN_WORDS.iter().find_map(|key| text(map.get(*key)?));
            text(input)
                .or_else(|| found(input))
                .or_else(|| found(input.get("context")?))
        };
        self.sent_because
            .clone()
            .or_else(|| self.open_questions.first().cloned())
            .or_else(in_input)
            .or_else(|| self.deliverable.clone())
    }

    /// The parts that have something in them, each under its name and on one line.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let list = |list: &[String]| (!list.is_empty()).then(|| list.join("; "));
        let parts = [
            ("sent because", self.sent_because.clone()),
            ("open questions", list(&self.open_questions)),
            ("pending decisions", list(&self.pending_decisions)),
            ("deliverable", self.deliverable.clone()),
            ("artifacts", list(&self.artifacts)),
            ("input", self.input.as_ref().map(plain)),
        ];
        let parts = parts.into_iter();
        parts
            .filter_map(|(name, text)| Some((name, text?)))
            .collect()
    }

    /// Its fields for machines.
    pub fn to_json(&self) -> Map<String, Value> {
        [
            ("to_reason", json!(self.sent_because)),
            ("open_questions", json!(self.open_questions)),
            ("pending_decisions", json!(self.pending_decisions)),
            ("deliverable", json!(self.deliverable)),
            ("artifacts", json!(self.artifacts)),
            ("input", json!(self.input)),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
    }
}

fn input(view: &View<'_>) -> Option<Value> {
    let handoff = view.handoff();
    let inside = |key: &str| handoff?.get(key).filter(|value| !value.is_null());
    let found = match view.dialect {
        Dialect::Package => {
            let parts = ["context", "expectations"];
            let parts = parts.map(|key| Some((key.to_owned(), inside(key)?.clone())));
            Value::Object(parts.into_iter().flatten().collect())
        }
        Dialect::Report => inside("context")
            .or_else(|| view.doc.get("summary"))?
            .clone(),
        _ => view.inner("input", "data")?.clone(),
    };
    let is_empty = match &found {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    (!is_empty).then_some(found)
}

/// What a result leaves open counts alone; else what the handoff came with.
fn open_questions(
    view: &View<'_>,
    result: Option<&Map<String, Value>>,
    data: Option<&Map<String, Value>>,
) -> Vec<String> {
    let of_result = || {
        let handoff = result?
            .get("handoff")
            .and_then(|it| it.get("open_questions"));
        handoff.or_else(|| result?.get("open_questions"))
    };
    let came_with = || {
        view.context("open_questions")
            .or_else(|| view.get("open_questions"))
            .or_else(|| data?.get("open_questions"))
    };
    let found = of_result().or_else(came_with);
    entries(found.into_iter(), |entry| text_of(entry, "question"))
}

/// Decisions that say of themselves that nobody has made them yet.
fn pending_decisions(
    view: &View<'_>,
    result: Option<&Map<String, Value>>,
    data: Option<&Map<String, Value>>,
) -> Vec<String> {
    let is_pending = |entry: &Value| {
        let says = |key: &str| entry.get(key).and_then(Value::as_str);
        ["id", "status", "state"].iter().any(|key| {
            says(key).is_some_and(|said| ["pending", "open", "proposed"].contains(&said))
        })
    };
    let lists = [
        view.context("decisions"),
        data.and_then(|data| data.get("decisions")),
        result.and_then(|result| result.get("decisions")),
    ];
    entries(lists.into_iter().flatten(), |entry| {
        let decision = text_of(entry, "decision").filter(|_| is_pending(entry))?;
        let why = entry.get("rationale").and_then(Value::as_str);
        Some(why.map_or(decision.clone(), |why| format!("{decision} ({why})")))
    })
}

fn deliverable(view: &View<'_>, data: Option<&Map<String, Value>>) -> Option<String> {
    let expected = view.handoff().and_then(|it| it.get("expectations"));
    let expected = expected.or_else(|| data?.get("expectations"));
    if let Some(said) = expected.and_then(|it| it.get("deliverable")) {
        return Some(plain(said)).filter(|said| !said.is_empty());
    }
    let kind = view.text("expected_output", "artifact_type");
    let place = view.text("expected_output", "destination");
    match (kind, place) {
        (Some(kind), Some(place)) => Some(format!("{kind} at {place}")),
        (one, other) => one.or(other).map(str::to_owned),
    }
}

/// What was delivered first, then what the handoff came with.
fn artifacts(
    view: &View<'_>,
    result: Option<&Map<String, Value>>,
    data: Option<&Map<String, Value>>,
) -> Vec<String> {
    let output = view.doc.get("output").and_then(|it| it.get("artifacts"));
    let lists = [
        output.or_else(|| result?.get("artifacts")),
        view.context("artifacts"),
        data.and_then(|data| data.get("artifacts")),
    ];
    let mut known = Vec::new();
    entries(lists.into_iter().flatten(), |entry| {
        let path = text_of(entry, "path").or_else(|| text_of(entry, "artifact_path"))?;
        if known.contains(&path) {
            return None;
        }
        known.push(path.clone());
        let about = ["description", "artifact_type", "type"];
        let about = about.iter().find_map(|key| entry.get(*key)?.as_str());
        Some(about.map_or(path.clone(), |about| format!("{path} ({about})")))
    })
}

/// The entries of lists; what is no list is one entry.
fn entries<'a>(
    lists: impl Iterator<Item = &'a Value>,
    mut read: impl FnMut(&Value) -> Option<String>,
) -> Vec<String> {
    let mut found = Vec::new();
    for list in lists {
        let entries = match list {
            Value::Array(entries) => &entries[..],
            Value::Null => &[],
            one => std::slice::from_ref(one),
        };
        let texts = entries.iter().filter_map(&mut read);
        found.extend(texts.filter(|text| !text.is_empty()));
    }
    found.dedup();
    found.truncate(MOST);
    found
}

/// A text, or this field of an object.
fn text_of(entry: &Value, field: &str) -> Option<String> {
    match entry {
        Value::String(text) => Some(text.trim().to_owned()),
        entry => entry
            .get(field)?
            .as_str()
            .map(|text| text.trim().to_owned()),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.trim().to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn material(doc: &Value) -> Material {
        Material::of(doc.as_object().unwrap())
    }

    #[test]
    fn an_escalation_shows_what_is_to_be_decided() {
        let found = material(&json!({"handoff": {
            "from": {"agent": "estimation"},
            "to": {"agent": "human", "reason": "Business decision required"},
            "context": {
                "summary": "Two approaches",
                "decisions": [
                    {"id": "pending", "decision": "A or B", "rationale": "priority"},
                    {"id": "D-1", "decision": "made"},
                ],
                "open_questions": [{"question": "Which matters more?", "priority": "high"}, "And?"],
                "artifacts": [{"path": "a.md", "type": "spec"}, "b.md", {"path": "a.md"}],
            },
            "expectations": {"deliverable": "A choice"},
        }}));
        assert_eq!(found.subject().unwrap(), "Business decision required");
        let lines = found.lines();
        let line = |name: &str| &lines.iter().find(|(it, _)| *it == name).unwrap().1;
        assert_eq!(line("open questions"), "Which matters more?; And?");
        assert_eq!(line("pending decisions"), "A or B (priority)");
        assert_eq!(line("deliverable"), "A choice");
        assert_eq!(line("artifacts"), "a.md (spec); b.md");
        assert!(line("input").contains("Two approaches"));
        assert_eq!(found.to_json()["to_reason"], "Business decision required");
    }

    #[test]
    fn a_request_shows_its_input_and_what_its_result_left_open() {
        let found = material(&json!({
            "target": {"agent_id": "coder"},
            "input": {"data": {"task": "ship it", "open_questions": ["old"], "artifacts": ["in.md"]}},
            "expected_output": {"artifact_type": "report", "destination": "artifacts/x.md"},
            "result": {"handoff": {"open_questions": ["which region?"]}},
            "output": {"artifacts": [{"path": "artifacts/x.md", "artifact_type": "report"}]},
        }));
        assert_eq!(found.open_questions, ["which region?"]);
        assert_eq!(
            found.deliverable.as_deref(),
            Some("report at artifacts/x.md")
        );
        assert_eq!(found.artifacts, ["artifacts/x.md (report)", "in.md"]);
        assert_eq!(found.subject().unwrap(), "which region?");
    }

    #[test]
    fn a_report_shows_its_context_and_nothing_shows_nothing() {
        let report = json!({"status": "needs_review", "summary": "s",
            "handoff": {"context": "look at it"}});
        assert_eq!(material(&report).input, Some(json!("look at it")));
        let bare = json!({"target": {"agent_id": "human"}, "input": {"data": {}}});
        assert_eq!(material(&bare), Material::default());
        let number = json!({"target": {"agent_id": "x"}, "input": {"data": 7}});
        assert_eq!(material(&number).lines(), [("input", "7".to_owned())]);
    }
}
