//! `context_summary`: what a state says of itself in a few lines, for whoever opens it.
//!
//! Bounded by construction: each line has a longest form, and all of them together stay below
//! the limit. It is not the summary for the next agent, which counts tokens.

use std::fmt::Write as _;

use super::words::one_line;
use crate::protocol::task::TaskState;

pub const MAX_CONTEXT_CHARS: usize = 2000;

const TITLE: usize = 200;
const PHASE: usize = 60;
const DECISIONS: usize = 5;
const DECISION: usize = 200;
const REASON: usize = 100;

pub fn context_summary(state: &TaskState) -> String {
    let phase = state.phase().map_or("none yet".to_owned(), |p| p.name());
    let decisions = state.decisions().len();
    let mut text = format!(
        "{}\nPhase: {}; artifacts: {}; decisions: {}",
        one_line(state.title(), TITLE),
        one_line(&phase, PHASE),
        state.artifacts().len(),
        decisions,
    );
    let recent = state.decisions().skip(decisions.saturating_sub(DECISIONS));
    for decision in recent {
        let _ = write!(text, "\n- {}", one_line(decision.what(), DECISION));
        let why = one_line(decision.why(), REASON);
        if !why.is_empty() {
            let _ = write!(text, ": {why}");
        }
    }
    text
}
