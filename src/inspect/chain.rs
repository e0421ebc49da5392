//! A chain of handoffs, from any of them: up to the first, then down to all.
//!
//! A chain reads as a line of steps, each handing on to the next, with helpers below the step
//! that they help. So a workflow of a thousand steps is a long list and not a deep tree. Records
//! may be missing, and links may be made up: nothing is gone through twice, and all is bounded.

use std::collections::{HashSet, VecDeque};

use serde_json::{Value, json};

use crate::clock::Wall;
use crate::inspect::links::{Relations, thing};
use crate::inspect::question::Question;
use crate::inspect::summary::Place;
use crate::protocol::attempt::starts;
use crate::protocol::lifecycle::State;
use crate::protocol::view::View;
use crate::spool::layout::Layout;

/// How many handoffs are shown of one chain.
const MOST: usize = 20_000;
/// How far helpers of helpers are followed.
const DEEPEST: usize = 64;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    pub name: String,
    /// The steps in order. Where links are broken, what belongs to no other step comes last.
    pub steps: Vec<Node>,
    /// There is more than is shown.
    pub cut: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    pub id: String,
    pub parent: Option<String>,
    /// `None`: no folder has it.
    pub state: Option<State>,
    pub agent: Option<String>,
    pub attempts: usize,
    pub started: Option<Wall>,
    pub ended: Option<Wall>,
    /// What it waits for, in words.
    pub waits_for: Option<String>,
    pub until: Option<Wall>,
    pub error: Option<(String, String)>,
    pub summary: Option<String>,
    /// Those that were asked to help, and what they handed on.
    pub helpers: Vec<Node>,
}

/// The chain that `id` belongs to.
pub fn gather(layout: &Layout, id: &str) -> Chain {
    let (top, first) = climb(layout, id);
    let mut walk = Walk {
        layout,
        seen: HashSet::new(),
        cut: false,
    };
    // The first handoff names the chain; a link that is broken may keep us from reaching it.
    let mut steps = walk.line(&first, 0);
    for start in [top.as_str(), id] {
        if !walk.seen.contains(start) {
            steps.extend(walk.line(start, 0));
        }
    }
    Chain {
        name: first,
        steps,
        cut: walk.cut,
    }
}

/// How far up the parents lead, and the first handoff of the chain.
fn climb(layout: &Layout, id: &str) -> (String, String) {
    let mut seen = HashSet::new();
    let mut at = id.to_owned();
    let mut named = None;
    while seen.len() < MOST && seen.insert(at.clone()) {
        let doc = Place::find(layout, &at).and_then(|place| place.read());
        let Some((doc, _)) = doc else { break };
        let links = Relations::of(&doc);
        named = links.chain.or(named);
        match links.parent {
            Some(parent) if !seen.contains(&parent) && Place::find(layout, &parent).is_some() => {
                at = parent;
            }
            _ => break,
        }
    }
    let first = named.filter(|first| Place::find(layout, first).is_some());
    let first = first.unwrap_or_else(|| at.clone());
    (at, first)
}

struct Walk<'a> {
    layout: &'a Layout,
    seen: HashSet<String>,
    cut: bool,
}

impl Walk<'_> {
    /// A step and all that it handed on to.
    fn line(&mut self, start: &str, depth: usize) -> Vec<Node> {
        let mut nodes = Vec::new();
        let mut open = VecDeque::from([(start.to_owned(), None)]);
        while let Some((id, parent)) = open.pop_front() {
            if self.seen.contains(&id) {
                continue;
            }
            if self.seen.len() >= MOST || depth > DEEPEST {
                self.cut = true;
                break;
            }
            self.seen.insert(id.clone());
            let (mut node, links) = node(self.layout, &id, parent);
            for child in links.children.iter().cloned() {
                if links.is_helper(&child) {
                    let mut helped = self.line(&child, depth + 1);
                    if let Some(first) = helped.first_mut() {
                        first.parent = Some(id.clone());
                    }
                    node.helpers.extend(helped);
                } else {
                    open.push_back((child, Some(id.clone())));
                }
            }
            nodes.push(node);
        }
        nodes
    }
}

fn node(layout: &Layout, id: &str, parent: Option<String>) -> (Node, Relations) {
    let mut node = Node {
        id: id.to_owned(),
        parent,
        ..Node::default()
    };
    let Some(place) = Place::find(layout, id) else {
        return (node, Relations::default());
    };
    node.state = Some(place.state);
    let Some((doc, record)) = place.read() else {
        return (node, Relations::default());
    };
    let links = Relations::of(&doc);
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let time = |key: &str| text(doc.get(key)).and_then(|at| Wall::parse(&at));
    let is_record = place.state != State::Pending;
    node.parent = node.parent.or_else(|| links.parent.clone());
    node.agent = View::of_document(&doc).agent_shown();
    let tries = record.map(|record| record.meta.attempts);
    node.attempts = tries.as_deref().map_or(0, starts);
    if is_record {
        let first = tries.and_then(|tries| Some(tries.first()?.started_at));
        node.started = first.or_else(|| time("started_at"));
    }
    match place.state {
        State::Completed => {
            node.ended = time("completed_at");
            node.summary = text(doc.get("result").and_then(|it| it.get("summary")));
        }
        State::Failed => {
            node.ended = time("failed_at");
            node.error = place.row().error;
        }
        State::Waiting => {
            let waiting = doc.get("waiting");
            let of = |key: &str| text(waiting.and_then(|it| it.get(key)));
            let on = of("on").unwrap_or_default();
            let why = Question::of(&doc).map_or_else(
                || of("reason").unwrap_or_default(),
                |asked| asked.headline(),
            );
            let what = thing(&on);
            node.waits_for = Some(match (why.as_str(), links.awaited.len()) {
                (_, 1) => "its helper".to_owned(),
                (_, helpers @ 2..) => format!("its {helpers} helpers"),
                ("", _) => what.to_owned(),
                (why, _) => format!("{what}: {why}"),
            });
            node.until = of("until").and_then(|at| Wall::parse(&at));
        }
        State::Pending => node.waits_for = Some("a free slot".to_owned()),
        State::InProgress => {}
    }
    (node, links)
}

impl Chain {
    /// All nodes, as they are drawn.
    pub fn nodes(&self) -> Vec<&Node> {
        let mut all = Vec::new();
        let mut open: Vec<&Node> = self.steps.iter().rev().collect();
        while let Some(node) = open.pop() {
            all.push(node);
            open.extend(node.helpers.iter().rev());
        }
        all
    }

    /// How the chain stands: as the one that has got least far.
    pub fn state(&self) -> &'static str {
        let has = |state: State| self.nodes().iter().any(|node| node.state == Some(state));
        // A helper's failure is its step's affair.
        let failed = self.steps.iter().any(|it| it.state == Some(State::Failed));
        match () {
            () if has(State::InProgress) => "in_progress",
            () if has(State::Pending) => "pending",
            () if has(State::Waiting) => "waiting",
            () if failed => "failed",
            () => "completed",
        }
    }

    pub fn to_json(&self) -> Value {
        json!({
            "chain": self.name,
            "state": self.state(),
            "handoffs": self.nodes().len(),
            "cut": self.cut,
            "steps": self.steps.iter().map(Node::to_json).collect::<Vec<_>>(),
        })
    }
}

impl Node {
    /// From the first attempt to the end, in milliseconds.
    pub fn took_ms(&self, now: Wall) -> Option<u64> {
        let end = match self.state? {
            State::InProgress => now,
            _ => self.ended?,
        };
        u64::try_from(end.0.saturating_sub(self.started?.0)).ok()
    }

    fn to_json(&self) -> Value {
        let at = |at: Option<Wall>| at.map(|at| at.to_string());
        json!({
            "id": self.id,
            "parent": self.parent,
            "state": self.state.map_or("missing", State::status),
            "agent": self.agent,
            "attempts": self.attempts,
            "started_at": at(self.started),
            "ended_at": at(self.ended),
            "waits_for": self.waits_for,
            "until": at(self.until),
            "error": self.error.as_ref().map(|(code, message)| {
                json!({ "code": code, "message": message })
            }),
            "summary": self.summary,
            "helpers": self.helpers.iter().map(Self::to_json).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn layout(records: &[(&str, &str, Value)]) -> (tempfile::TempDir, Layout) {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        layout.ensure().unwrap();
        for (folder, id, links) in records {
            let path = layout.handoffs().join(folder).join(format!("{id}.json"));
            let doc = json!({
                "target": {"agent_id": "@a"}, "status": folder, "handoffd": links,
            });
            fs::write(path, doc.to_string()).unwrap();
        }
        (dir, layout)
    }

    /// Ids as they are drawn; those of helpers in brackets.
    fn drawn(nodes: &[Node]) -> String {
        let one = |node: &Node| match node.helpers.as_slice() {
            [] => node.id.clone(),
            helpers => format!("{}[{}]", node.id, drawn(helpers)),
        };
        nodes.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_whole_chain_is_found_from_any_of_its_handoffs() {
        let (_dir, layout) = layout(&[
            ("completed", "a", json!({"children": ["b"]})),
            (
                "completed",
                "b",
                json!({"chain": "a", "parent": "a", "children": ["h", "c"],
                       "returns": [{"id": "h", "status": "completed"}]}),
            ),
            ("completed", "h", json!({"chain": "a", "parent": "b"})),
            ("pending", "c", json!({"chain": "a", "parent": "b"})),
        ]);
        for id in ["a", "b", "h", "c"] {
            let chain = gather(&layout, id);
            assert_eq!(drawn(&chain.steps), "a b[h] c", "from {id}");
            assert_eq!((chain.name.as_str(), chain.state()), ("a", "pending"));
        }
    }

    #[test]
    fn what_is_missing_or_made_up_does_no_harm() {
        let (_dir, layout) = layout(&[
            // A circle, a child that is gone, and a name that is no id.
            (
                "completed",
                "x",
                json!({"parent": "y", "children": ["y", "gone", "../../etc/passwd"]}),
            ),
            ("completed", "y", json!({"parent": "x", "children": ["x"]})),
            // Says that it belongs to x, which knows nothing of it.
            ("pending", "forged", json!({"chain": "x", "parent": "x"})),
        ]);
        let all = drawn(&gather(&layout, "x").steps);
        assert!(all.contains("gone") && all.contains('y'), "{all}");
        assert!(drawn(&gather(&layout, "forged").steps).ends_with("forged"));
        assert_eq!(drawn(&gather(&layout, "nobody").steps), "nobody");
    }

    #[test]
    fn a_long_chain_is_a_long_list() {
        let mut records = Vec::new();
        let names: Vec<String> = (0..1001).map(|n| format!("s{n}")).collect();
        for pair in names.windows(2) {
            records.push((
                "completed",
                pair[0].as_str(),
                json!({"children": [pair[1]]}),
            ));
        }
        let (_dir, layout) = layout(&records);
        let chain = gather(&layout, "s0");
        assert_eq!(chain.steps.len(), 1001);
        assert!(!chain.cut);
    }
}
