//! A document of any dialect, seen the same way: where each field that is acted on stands.

use serde_json::{Map, Value};

use super::agent::AgentName;
use super::dialect::{Dialect, dialect_as};
use super::field::{find, present};
use super::record::Record;

/// A document, with the dialect that it was written in.
#[derive(Debug, Clone, Copy)]
pub struct View<'d> {
    pub doc: &'d Map<String, Value>,
    pub dialect: Dialect,
    /// The producer's `status`, also where the daemon's own has taken its place.
    pub status: Option<&'d str>,
    handoff: Option<&'d Map<String, Value>>,
}

impl<'d> View<'d> {
    /// A document as a producer wrote it, or as an earlier run left it.
    pub fn of_document(doc: &'d Map<String, Value>) -> Self {
        let submitted = find(doc, "handoffd")
            .and_then(|own| own.get("submitted"))
            .and_then(Value::as_object);
        Self::new(doc, submitted)
    }

    pub fn of_record(record: &'d Record) -> Self {
        Self::new(&record.doc, Some(&record.meta.submitted))
    }

    fn new(doc: &'d Map<String, Value>, submitted: Option<&'d Map<String, Value>>) -> Self {
        let status = submitted
            .and_then(|submitted| find(submitted, "status"))
            .or_else(|| find(doc, "status"))
            .and_then(Value::as_str);
        let handoff = present(doc, "handoff").and_then(Value::as_object);
        let dialect = dialect_as(doc, status);
        let inside = matches!(dialect, Dialect::Package | Dialect::Report);
        Self {
            doc,
            dialect,
            status,
            handoff: handoff.filter(|_| inside),
        }
    }

    /// The object that holds `key`, and its path: `handoff` first where the dialect has one.
    pub fn holder(&self, key: &str) -> (&'d Map<String, Value>, &'static str) {
        match self.handoff {
            Some(handoff) if present(handoff, key).is_some() => (handoff, "handoff"),
            _ => (self.doc, ""),
        }
    }

    pub fn get(&self, key: &str) -> Option<&'d Value> {
        present(self.holder(key).0, key)
    }

    /// A field of an object that is acted on, such as `input` and `schema`.
    pub fn inner(&self, key: &str, field: &str) -> Option<&'d Value> {
        present(self.get(key)?.as_object()?, field)
    }

    pub fn text(&self, key: &str, field: &str) -> Option<&'d str> {
        self.inner(key, field).and_then(Value::as_str)
    }

    /// What a person may choose from, and what each means, where the document lists any. An empty
    /// list is none.
    pub fn options(&self) -> Option<Map<String, Value>> {
        let listed = match self.inner("validation_request", "options")? {
            Value::Object(options) => options.clone(),
            Value::Array(choices) => choices
                .iter()
                .filter_map(Value::as_str)
                .map(|choice| (choice.to_owned(), Value::from("")))
                .collect(),
            _ => return None,
        };
        (!listed.is_empty()).then_some(listed)
    }

    pub fn handoff(&self) -> Option<&'d Map<String, Value>> {
        self.handoff
    }

    /// A field of `context`, wherever the document has one that is an object.
    pub fn context(&self, field: &str) -> Option<&'d Value> {
        let inside = self
            .handoff
            .and_then(|handoff| find(handoff, "context")?.as_object())
            .and_then(|context| present(context, field));
        inside.or_else(|| present(find(self.doc, "context")?.as_object()?, field))
    }

    /// Where the target is named, and its path.
    pub fn target(&self) -> (Option<&'d Value>, &'static str) {
        let of = |key: &str, field: &str| present(find(self.handoff?, key)?.as_object()?, field);
        match self.dialect {
            Dialect::Package => (of("to", "agent"), "handoff.to.agent"),
            Dialect::Report => (
                self.handoff
                    .and_then(|handoff| present(handoff, "next_agent")),
                "handoff.next_agent",
            ),
            _ => {
                let target = find(self.doc, "target").and_then(Value::as_object);
                let id = target.and_then(|target| present(target, "agent_id"));
                (id, "target.agent_id")
            }
        }
    }

    /// Who it is for: the target, or, for a report that names nobody, who reported.
    pub fn agent(&self) -> Option<AgentName> {
        AgentName::parse(self.agent_written()?).ok()
    }

    /// Who it is for, as it was written.
    pub fn agent_written(&self) -> Option<&'d str> {
        let named = self.target().0.and_then(Value::as_str);
        named.or_else(|| match self.dialect {
            Dialect::Report => find(self.doc, "agent").and_then(Value::as_str),
            _ => None,
        })
    }

    /// Who it is for, in the spelling that people are shown.
    pub fn agent_shown(&self) -> Option<String> {
        self.agent_written().map(shown)
    }

    /// Who it comes from, in the spelling that people are shown.
    pub fn source_shown(&self) -> Option<String> {
        self.source().map(shown)
    }

    /// The id that the document itself carries.
    pub fn id(&self) -> Option<&'d str> {
        let inside = self.handoff.and_then(|handoff| present(handoff, "id"));
        inside
            .or_else(|| present(self.doc, "handoff_id"))
            .and_then(Value::as_str)
    }

    /// Who it comes from, as it was written.
    pub fn source(&self) -> Option<&'d str> {
        let named = match self.dialect {
            Dialect::Package => find(self.handoff?, "from")?.get("agent"),
            Dialect::Report => find(self.doc, "agent"),
            _ => find(self.doc, "source")?.get("agent_id"),
        };
        named.and_then(Value::as_str)
    }

    /// The phase that this handoff is, as text.
    pub fn phase(&self) -> Option<String> {
        let named = match self.dialect {
            Dialect::Package => {
                let to = find(self.handoff?, "to")?.as_object()?;
                present(to, "phase").or_else(|| self.get("phase"))
            }
            Dialect::Report => self
                .handoff
                .and_then(|handoff| present(handoff, "next_phase"))
                .or_else(|| present(self.doc, "phase")),
            _ => find(self.doc, "target")
                .and_then(Value::as_object)
                .and_then(|target| present(target, "phase"))
                .or_else(|| present(self.doc, "phase")),
        };
        match named? {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }
}

/// A name with its `@`, however it was written; what can't be a name stays as it is.
fn shown(written: &str) -> String {
    AgentName::parse(written).map_or_else(|_| written.to_owned(), |name| name.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_read_inside_handoff_first() {
        let package = json!({
            "priority": "low", "timeout_seconds": 5, "context": {"task_id": "top"},
            "handoff": {"from": {"agent": "a"}, "to": {"agent": "b", "phase": 3},
                        "priority": "high", "context": {"summary": "s"}},
        });
        let view = View::of_document(package.as_object().unwrap());
        assert_eq!(view.get("priority"), Some(&json!("high")));
        assert_eq!(view.get("timeout_seconds"), Some(&json!(5)));
        assert_eq!(view.context("task_id"), Some(&json!("top")));
        assert_eq!(view.agent().unwrap().bare(), "b");
        assert_eq!(view.source(), Some("a"));
        assert_eq!(view.phase().as_deref(), Some("3"));
    }

    #[test]
    fn an_agent_is_shown_in_one_spelling() {
        for (written, shown) in [
            ("coder", "@coder"),
            ("@coder", "@coder"),
            ("@human", "human"),
            ("", ""),
        ] {
            let request = json!({
                "target": {"agent_id": written}, "source": {"agent_id": written},
            });
            let view = View::of_document(request.as_object().unwrap());
            assert_eq!(view.agent_shown().as_deref(), Some(shown));
            assert_eq!(view.source_shown().as_deref(), Some(shown));
        }
    }

    #[test]
    fn a_reports_status_is_the_producers_also_later() {
        let report = json!({"status": "blocked", "handoff": {}, "agent": "dev"});
        let doc = report.as_object().unwrap();
        assert_eq!(View::of_document(doc).dialect, Dialect::Report);
        let mut record = Record::admit(doc.clone(), "x", None);
        record.set("status", "waiting");
        let view = View::of_record(&record);
        assert_eq!(
            (view.dialect, view.status),
            (Dialect::Report, Some("blocked"))
        );
        assert_eq!(view.agent().unwrap().bare(), "dev");
        let again: Value = serde_json::from_slice(&record.to_bytes()).unwrap();
        let view = View::of_document(again.as_object().unwrap());
        assert_eq!(view.dialect, Dialect::Report);
    }
}
