//! What a list shows: filters, and rows that are read only as far as somebody looks.
//!
//! In which order handoffs come, and at what cost, is decided in [`crate::inspect::newest`].

use serde_json::Value;

use crate::clock::Wall;
use crate::inspect::summary::{Place, Row};
use crate::protocol::agent::AgentName;
use crate::protocol::lifecycle::State;
use crate::spool::layout::Layout;
use crate::store::audit::Line;

/// What to show. Empty fields let everything through.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub states: Vec<State>,
    pub agent: Option<AgentName>,
    pub code: Option<String>,
    pub since: Option<Wall>,
    /// Only what changed before this.
    pub before: Option<Wall>,
    /// A part of the id, or of the error's code or message.
    pub text: Option<String>,
    /// What it waits for.
    pub waiting: Option<String>,
}

impl Filter {
    pub fn has_state(&self, state: State) -> bool {
        self.states.is_empty() || self.states.contains(&state)
    }

    pub fn has_time(&self, modified: Wall) -> bool {
        self.since.is_none_or(|since| modified >= since)
            && self.before.is_none_or(|before| modified < before)
    }

    /// Whether it takes the record to tell if a handoff is wanted.
    pub fn asks_for_content(&self) -> bool {
        self.agent.is_some() || self.code.is_some() || self.text.is_some() || self.waiting.is_some()
    }

    /// Whether a handoff may be wanted that this line was the last to tell of. Saves reading
    /// its record; where in doubt, it may.
    pub fn may_match(&self, line: &Line) -> bool {
        let text = |key: &str| line.detail.get(key).and_then(Value::as_str);
        let other_code = self.code.as_deref().zip(text("code"));
        let other_agent = self.agent.as_ref().zip(text("agent"));
        other_code.is_none_or(|(wanted, code)| wanted == code)
            && !other_agent.is_some_and(|(wanted, agent)| {
                AgentName::parse(agent).is_ok_and(|agent| agent != *wanted)
            })
    }

    fn wants(&self, row: &Row) -> bool {
        let agent = || {
            row.agent
                .as_deref()
                .and_then(|agent| AgentName::parse(agent).ok())
        };
        let code = row.error.as_ref().map(|(code, _)| code.as_str());
        let has_text = |text: &String| {
            let text = text.to_lowercase();
            let has = |said: &str| said.to_lowercase().contains(&text);
            let error = row.error.as_ref();
            has(&row.id) || error.is_some_and(|(code, message)| has(code) || has(message))
        };
        self.agent
            .as_ref()
            .is_none_or(|wanted| agent().as_ref() == Some(wanted))
            && self
                .code
                .as_deref()
                .is_none_or(|wanted| code == Some(wanted))
            && self.text.as_ref().is_none_or(has_text)
            && (self.waiting.is_none() || self.waiting == row.waiting_on)
    }
}

/// The rows that the filter wants, each read only when it is asked for. Files that somebody else put
/// among the outcomes have none.
pub fn rows<'a>(
    layout: &'a Layout,
    places: impl Iterator<Item = Place> + 'a,
    filter: &'a Filter,
) -> impl Iterator<Item = (Place, Row)> + 'a {
    places
        .filter_map(|place| {
            let row = place.own_row(layout)?;
            Some((place, row))
        })
        .filter(|(_, row)| filter.wants(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, agent: &str, error: Option<(&str, &str)>) -> Row {
        Row {
            id: id.to_owned(),
            state: State::Failed,
            agent: Some(agent.to_owned()),
            priority: crate::protocol::request::Priority::Normal,
            attempts: 1,
            updated_at: Wall(0),
            error: error.map(|(code, message)| (code.to_owned(), message.to_owned())),
            refused: false,
            waiting_on: Some("human".to_owned()),
            until: None,
            reason: None,
            question: None,
        }
    }

    #[test]
    fn filters_narrow_and_an_empty_one_lets_all_through() {
        let row = row("job-7", "@coder", Some(("TIMEOUT", "ran past its limit")));
        let wants = |filter: Filter| filter.wants(&row);
        assert!(wants(Filter::default()));
        let agent = |name: &str| Filter {
            agent: AgentName::parse(name).ok(),
            ..Filter::default()
        };
        assert!(wants(agent("coder")));
        assert!(!wants(agent("tester")));
        let code = |code: &str| Filter {
            code: Some(code.to_owned()),
            ..Filter::default()
        };
        assert!(wants(code("TIMEOUT")));
        assert!(!wants(code("BLOCKED")));
        let text = |text: &str| Filter {
            text: Some(text.to_owned()),
            ..Filter::default()
        };
        assert!(wants(text("JOB")));
        assert!(wants(text("past its")));
        assert!(wants(text("timeo")), "the code, too");
        assert!(!wants(text("other")));
        let waiting = |on: &str| Filter {
            waiting: Some(on.to_owned()),
            ..Filter::default()
        };
        assert!(wants(waiting("human")));
        assert!(!wants(waiting("retry")));
    }
}
