//! `handoffd retry --again`: the request of a completed handoff, submitted anew under an id of its own.
//!
//! The completed record stays. The new one names it in `handoffd.rerun_of`, which is history to show and
//! decides nothing, so a submission may bring it.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::cli::out::Telling;
use crate::cli::submit::{Rules, check, drop_into};
use crate::cli::validate::taken;
use crate::cli::{Failed, Global, Outcome, find, out};
use crate::protocol::document::{Document, Syntax};
use crate::protocol::id::HandoffId;
use crate::protocol::lifecycle::State;
use crate::spool::layout::Layout;

/// Runs completed handoffs again, and prints the new ids.
pub fn rerun(global: &Global, layout: &Layout, ids: &[String]) -> Outcome {
    // All of them are looked at before anything is submitted.
    let found: Result<Vec<_>, _> = ids.iter().map(|id| request_of(layout, id)).collect();
    let mut telling = Telling::default();
    for (of, request) in found? {
        let id = submit(global, layout, &of, request)?;
        let told = if global.json {
            telling.tell(json!({ "id": id, "rerun_of": of }))
        } else {
            telling.tell(&id)
        };
        if !told {
            out::talk!("dropped {id}");
        }
    }
    telling.over()
}

/// The whole id of a completed handoff, and its request as its producer wrote it.
fn request_of(layout: &Layout, id: &str) -> Result<(String, Map<String, Value>), Failed> {
    let place = find(layout, id)?;
    let refuse = |why: String| {
        let text = format!("can't run {} again: {why}", place.id);
        Failed::thing("NOT_COMPLETED", anyhow::anyhow!(text))
    };
    match place.state {
        State::Completed => {}
        State::Failed => {
            let why = format!("it failed; to retry it: handoffd retry {}", place.id);
            return Err(refuse(why));
        }
        _ => return Err(refuse("it has not ended yet".to_owned())),
    }
    if let Some(why) = place.why_foreign(layout) {
        return Err(refuse(why));
    }
    let Some((_, Some(record))) = place.read() else {
        return Err(refuse("its record can't be read".to_owned()));
    };
    Ok((place.id, record.into_request()))
}

/// Drops the request under the next free id.
fn submit(
    global: &Global,
    layout: &Layout,
    of: &str,
    mut request: Map<String, Value>,
) -> Result<String, Failed> {
    request["handoffd"]["rerun_of"] = of.into();
    let rules = Rules::load(global, layout)?;
    for n in 1..u32::MAX {
        // The daemon's own ids may have a character that is not for others.
        let id = format!("{}.again-{n}", of.replace('~', "-"));
        let id = HandoffId::parse(&id).map_err(|error| {
            let text = format!("can't run {of} again as {id}: {error}");
            Failed::thing("BAD_ID", anyhow::anyhow!(text))
        })?;
        if taken(layout, Path::new(of), &id).is_some() {
            continue;
        }
        name(&mut request, &id);
        let document = Document {
            map: request.clone(),
            syntax: Syntax::Json,
        };
        let from = Path::new(of);
        let checked = check(global, layout, &rules, document, Some(&id), None, from)?;
        match drop_into(layout, &checked) {
            // Somebody else was faster.
            Err(error) if error.code == "DUPLICATE_ID" => {}
            dropped => return dropped.map(|()| id.to_string()),
        }
    }
    let text = format!("{of} was run again too often");
    Err(Failed::thing("BAD_ID", anyhow::anyhow!(text)))
}

/// Where the request names its id, it names the new one.
fn name(request: &mut Map<String, Value>, id: &HandoffId) {
    if let Some(named) = request.get_mut("handoff_id") {
        *named = id.as_str().into();
    }
    let inside = request.get_mut("handoff").and_then(Value::as_object_mut);
    if let Some(named) = inside.and_then(|handoff| handoff.get_mut("id")) {
        *named = id.as_str().into();
    }
}
