//! Lists: newest first, filtered, and cheap where only the first page is wanted.
//!
//! Files are sorted by their times, which costs a look at each, and read only as far as the
//! page goes; so a hundred thousand records cost a moment and not a minute.

use crate::clock::Wall;
use crate::inspect::summary::{Place, Row};
use crate::protocol::agent::AgentName;
use crate::protocol::lifecycle::State;
use crate::spool::layout::Layout;

/// What to show. Empty fields let everything through.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub states: Vec<State>,
    pub agent: Option<AgentName>,
    pub code: Option<String>,
    pub since: Option<Wall>,
    /// A part of the id or of the error's message.
    pub text: Option<String>,
    /// What it waits for.
    pub waiting: Option<String>,
}

impl Filter {
    fn wants(&self, row: &Row) -> bool {
        let agent = || {
            row.agent
                .as_deref()
                .and_then(|agent| AgentName::parse(agent).ok())
        };
        let code = row.error.as_ref().map(|(code, _)| code.as_str());
        let has_text = |text: &String| {
            let text = text.to_lowercase();
            let message = row
                .error
                .as_ref()
                .map(|(_, message)| message.to_lowercase());
            row.id.to_lowercase().contains(&text)
                || message.is_some_and(|message| message.contains(&text))
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

/// Every handoff that the filter's cheap half lets through, newest first.
pub fn places(layout: &Layout, filter: &Filter) -> std::io::Result<Vec<Place>> {
    let mut places = Vec::new();
    for state in State::ALL {
        if !filter.states.is_empty() && !filter.states.contains(&state) {
            continue;
        }
        let folder = layout.state(state);
        crate::spool::scan::names(&folder, |name| {
            if let Some(place) = Place::of(&folder, state, &name)
                && filter.since.is_none_or(|since| place.modified >= since)
            {
                places.push(place);
            }
        })?;
    }
    places.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| a.id.cmp(&b.id)));
    Ok(places)
}

/// The rows of a page, read only as far as needed.
pub fn rows<'a>(
    places: &'a [Place],
    filter: &'a Filter,
) -> impl Iterator<Item = (&'a Place, Row)> + 'a {
    places
        .iter()
        .map(|place| (place, place.row()))
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
        assert!(!wants(text("other")));
        let waiting = |on: &str| Filter {
            waiting: Some(on.to_owned()),
            ..Filter::default()
        };
        assert!(wants(waiting("human")));
        assert!(!wants(waiting("retry")));
    }
}
