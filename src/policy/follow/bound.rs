//! Bounds of a follow-up: lists that a chain has accumulated go along as far as they fit.

use serde_json::{Map, Value};

use crate::config::Config;
use crate::policy::window::{LastEntries, fit};
use crate::protocol::lifecycle::State;
use crate::protocol::links::Links;
use crate::protocol::record::{Meta, Record};

/// Its own record adds to a request: what the receiver acknowledges, the attempts, the task.
const ROOM: usize = 8;

/// Replaces what does not fit by a count and the path of the parent's record, which has it.
pub(super) fn bound(
    request: &mut Map<String, Value>,
    written: &Map<String, Value>,
    carried: &mut Map<String, Value>,
    (parent, id): (&Record, &str),
    config: &Config,
) {
    let most = config.context.most_tokens();
    let links = Links {
        written: written.clone(),
        carried: std::mem::take(carried),
        // The daemon makes this request.
        mark: Some(String::new()),
        ..Links::default()
    };
    let mut record = Record {
        doc: std::mem::take(request),
        meta: Meta {
            links,
            ..Meta::default()
        },
    };
    let folder = match parent.meta.to {
        Some(State::Completed) | None => State::Completed,
        Some(State::Failed) => State::Failed,
        // It waits for those that it asks.
        Some(_) => State::Waiting,
    };
    let path = format!("handoffs/{}/{id}.json", folder.folder());
    // The receiver holds the last entries against its schema first.
    fit(&mut record, most - most / ROOM, &path, LastEntries::Stay);
    *request = record.doc;
    *carried = record.meta.links.carried;
}
