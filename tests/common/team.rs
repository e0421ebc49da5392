//! Specialists of a test's own, each a line or two of sh.

use std::fmt::Write as _;
use std::fs;

use serde_json::{Value, json};

use super::{Root, text};

/// The words that they have: `mark NAME` leaves a line, `await NAME` waits for a mark.
const PRELUDE: &str = r#"
mark() { echo "$HANDOFF_ATTEMPT $$" >>"$HANDOFF_ROOT/marks/$HANDOFF_ID.$1"; }
await() { until [ -e "$HANDOFF_ROOT/marks/$1" ]; do sleep 0.05; done; }
"#;

/// A configuration with a script for each specialist.
fn commands(config: &str, specialists: &[(&str, &str)]) -> String {
    let mut text = format!("{config}\n");
    for (name, _) in specialists {
        writeln!(text, "specialists.'@{name}'.command = ['sh', '{name}.sh']").unwrap();
    }
    text
}

impl Root {
    /// A root with these lines of configuration and these specialists.
    pub fn team(config: &str, specialists: &[(&str, &str)]) -> Self {
        let root = Self::with(&commands(config, specialists));
        root.write_scripts(specialists);
        root
    }

    /// The same in this folder.
    pub fn team_at(dir: &std::path::Path, config: &str, specialists: &[(&str, &str)]) -> Self {
        let root = Self::at(dir, &commands(config, specialists));
        root.write_scripts(specialists);
        root
    }

    fn write_scripts(&self, specialists: &[(&str, &str)]) {
        for (name, sh) in specialists {
            let script = format!("{PRELUDE}\n{sh}\n");
            fs::write(self.path(&format!("{name}.sh")), script).unwrap();
        }
    }

    /// Waits until the record stands in `waiting/` and says what for.
    pub fn waiting(&self, id: &str) -> Value {
        self.record_that("waiting", id, |record| record["waiting"].is_object())
    }

    /// Answers a record that waits for a person.
    pub fn answer(&self, action: &str, id: &str, more: Value) {
        let command = super::with(
            json!({ "action": action, "handoff_id": id, "by": "ann" }),
            more,
        );
        self.command(&format!("{action}-{id}.json"), &command);
    }
}

/// A request to a specialist.
pub fn ask(agent: &str) -> Value {
    json!({ "target": { "agent_id": agent } })
}

/// What a record has set in motion, in order.
pub fn children(record: &Value) -> Vec<String> {
    let ids = record["handoffd"]["children"].as_array();
    ids.into_iter().flatten().map(text).collect()
}

/// The only one.
pub fn child(record: &Value) -> String {
    let ids = children(record);
    assert_eq!(ids.len(), 1, "{record:#}");
    ids.into_iter().next().unwrap()
}
