//! Files in `in-progress/` or `waiting/` that are no records of ours: made into one, or set
//! aside.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::engine::event::Event;
use crate::engine::intake::{
    Destination, apply, dependency_states, destination, refused, transition,
};
use crate::engine::moves::write;
use crate::engine::recovery::Found;
use crate::engine::world::World;
use crate::policy::intake::plan;
use crate::policy::next::{fail, refusal};
use crate::protocol::document;
use crate::protocol::error::ErrorCode;
use crate::protocol::id::HandoffId;
use crate::protocol::lifecycle::State;
use crate::protocol::name::Ext;
use crate::protocol::record::Record;
use crate::protocol::request::Request;
use crate::spool::commit::Change;
use crate::spool::look::Identity;
use crate::spool::recover::Stands;
use crate::spool::reject::Rejection;

/// Makes a record of a file that is none of ours, and lets it run.
pub fn readmit(
    world: &World,
    folder: State,
    id: &str,
    path: PathBuf,
    identity: Identity,
    bytes: &[u8],
    stands: &Stands,
) -> Found {
    let now = world.now();
    let doc = match stands {
        Stands::Ours(record) => Record::document(&record.to_bytes()),
        _ => document::parse(bytes, Ext::Yaml)
            .or_else(|_| document::parse(bytes, Ext::Markdown))
            .ok()
            .map(|document| document.map),
    };
    let Some(doc) = doc else {
        reject(world, path, identity, id, "not a request");
        return Found::UnderWay;
    };
    let Ok(stem) = HandoffId::parse_made(id) else {
        reject(world, path, identity, id, "its name can't be an id");
        return Found::UnderWay;
    };
    let mut record = Record::admit(doc, id, None);
    let request = Request::from_document(&record.doc, &stem);
    let destination = match &request {
        // Only a duplicate is taken out of pending/ under a numbered id.
        _ if *stands == Stands::Raw && id.contains('~') => Some(Destination::Duplicate),
        Err(errors) => Some(refused(errors)),
        Ok(request) => {
            let config = world.config();
            let dependencies = dependency_states(&world.layout, request);
            destination(plan(request, &config, &dependencies, now), request, &config)
        }
    };
    let destination = destination.unwrap_or_else(|| Destination::Wait {
        on: "retry",
        length_ms: Some(0),
        ids: Vec::new(),
        reason: format!("found in {} without an attempt", folder.folder()),
    });
    apply(world, &mut record, id, &request, destination);
    write(world, id, &record, folder, "recovered", || {});
    Found::UnderWay
}

/// Sends bytes that are no record to `failed/`.
pub fn reject(world: &World, source: PathBuf, identity: Identity, id: &str, why: &str) {
    let now = world.now();
    let told = refusal(
        ErrorCode::SchemaValidationFailed,
        format!("found in {}: {why}", world.layout.relative(&source)),
        vec!["Compare the bytes that are kept with what was dropped".to_owned()],
    );
    let mut notice = Record::admit(Map::<String, Value>::new(), id, None);
    fail(&mut notice, &told, 0, now.wall);
    let line = transition(
        &notice,
        id,
        "refused",
        State::Waiting,
        State::Failed,
        now.wall,
    );
    let wanted = id.to_owned();
    let rejection = Rejection {
        source,
        identity,
        wanted,
        notice,
        id: String::new(),
    };
    let (events, id) = (world.events.clone(), id.to_owned());
    world
        .committer
        .submit(Change::Reject(Box::new(rejection)), vec![line], move |_| {
            let _ = events.send(Event::Unmoved { id });
        });
}
