//! Intake: reading what lies in `pending/`, where it lies.
//!
//! These are jobs: they read files and say what they found. Whether it is time to believe it
//! (a writer may still be busy) and what follows is the loop's decision; the jobs that carry
//! out a refusal or a wait are here too.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use serde_json::{Map, Value};

use crate::clock::Now;
use crate::config::Config;
use crate::engine::admit::links_of;
use crate::engine::expected::Kin;
use crate::engine::receive;
use crate::engine::world::World;
use crate::policy::intake::{Dependency, Needs, Plan, plan};
use crate::policy::judge::Failure;
use crate::policy::next::refusal;
use crate::policy::receive::Receipt;
use crate::protocol::digest::sha256;
use crate::protocol::document::{self, Syntax};
use crate::protocol::error::ErrorCode;
use crate::protocol::field::FieldError;
use crate::protocol::lifecycle::State;
use crate::protocol::name::{Ext, Name, classify};
use crate::protocol::request::Request;
use crate::protocol::view::View;
use crate::spool::foreign::own_states;
use crate::spool::layout::Layout;
use crate::spool::look::{Identity, Looked, Writer, look};

/// A document that was read and is a request.
#[derive(Debug)]
pub struct Submission {
    pub id: String,
    pub ext: Ext,
    pub syntax: Syntax,
    pub identity: Identity,
    pub arrived_ms: i64,
    pub doc: Map<String, Value>,
    pub sha256: String,
    /// The request, or what is wrong with it.
    pub request: Result<Request, Vec<FieldError>>,
    pub needs: Needs,
    /// What its receiver would say of it; absent where it is not a request at all.
    pub receipt: Option<Box<Receipt>>,
    /// The id stands in another folder.
    pub taken: bool,
    /// What it is if it names a parent.
    pub kin: Option<Kin>,
    pub writer: Writer,
}

/// Bytes that are no request.
#[derive(Debug)]
pub struct Broken {
    pub wanted: String,
    pub identity: Identity,
    pub told: Failure,
    pub writer: Writer,
    /// What could still become whole: a writer may be busy.
    pub may_mend: bool,
}

#[derive(Debug)]
pub enum Seen {
    Nothing,
    Folder,
    Changing,
    Broken(Box<Broken>),
    Submission(Box<Submission>),
}

/// Looks at one name in `pending/`.
pub fn look_at(world: &World, name: &OsStr) -> Seen {
    let (wanted, ext) = match classify(name.as_bytes()) {
        Name::Temporary => return Seen::Nothing,
        Name::Submission { id, ext } => (id, ext),
        Name::Bad { id, why } => return look_at_bad_name(world, name, id.as_str(), &why),
    };
    let broken = |identity, message: String, action: &str, writer, may_mend| {
        Seen::Broken(Box::new(Broken {
            wanted: wanted.to_string(),
            identity,
            told: refusal(
                ErrorCode::SchemaValidationFailed,
                message,
                vec![action.to_owned()],
            ),
            writer,
            may_mend,
        }))
    };
    let most = world.config().daemon.max_request_size;
    match look(&world.layout.pending().join(name), most) {
        Looked::Gone => Seen::Nothing,
        Looked::Folder => Seen::Folder,
        Looked::Changing => Seen::Changing,
        Looked::NotAFile { what, identity } => broken(
            identity,
            format!("{what}, not a file"),
            "Drop a plain file",
            Writer::Closed,
            false,
        ),
        Looked::TooLarge { identity } => broken(
            identity,
            format!(
                "{} bytes; daemon.max_request_size allows {most}",
                identity.size
            ),
            "Put large input into a file below artifacts/ and name that file in the request, or \
             raise daemon.max_request_size and send the daemon SIGHUP",
            Writer::Unknown,
            true,
        ),
        Looked::Unreadable { error, identity } => broken(
            identity,
            format!("can't read it: {error}"),
            "Make it readable for the daemon's user",
            Writer::Unknown,
            true,
        ),
        Looked::Bytes {
            bytes,
            identity,
            arrived_ms,
            writer,
        } => match document::parse(&bytes, ext) {
            Err(error) => broken(
                identity,
                format!("not a request: {error}"),
                "Fix the document at that place",
                writer,
                true,
            ),
            Ok(parsed) => {
                let request = Request::from_document(&parsed.map, &wanted);
                let needs = request
                    .as_ref()
                    .map(|request| receive::needs(&world.desk(), request))
                    .unwrap_or_default();
                let receipt = request
                    .as_ref()
                    .ok()
                    .map(|request| Box::new(received(world, &parsed.map, request, &needs)));
                Seen::Submission(Box::new(Submission {
                    taken: world.layout.is_taken(wanted.as_str()),
                    kin: Kin::of(&parsed.map, wanted.as_str(), &world.config().key),
                    id: wanted.to_string(),
                    ext,
                    syntax: parsed.syntax,
                    identity,
                    arrived_ms,
                    doc: parsed.map,
                    sha256: sha256(&bytes),
                    request,
                    needs,
                    receipt,
                    writer,
                }))
            }
        },
    }
}

/// Receives a submission. What waits first is received again when its wait is over.
fn received(world: &World, doc: &Map<String, Value>, request: &Request, needs: &Needs) -> Receipt {
    let planned = plan(request, &world.config(), needs, world.now());
    let runs = !matches!(
        planned,
        Plan::WaitForDependencies { .. } | Plan::WaitForTime { .. }
    );
    let view = View::of_document(doc);
    let links = || links_of(world, doc, request.id.as_str());
    receive::receipt(&world.desk(), &view, links, request, runs)
}

impl Submission {
    /// What to do with it: as planned, unless its receiver can't make sense of it.
    pub fn plan(&self, request: &Request, config: &Config, now: Now) -> Plan {
        let refusal = self.receipt.as_ref().and_then(|it| it.refusal.clone());
        match (plan(request, config, &self.needs, now), refusal) {
            (Plan::Refuse(told), _) | (_, Some(told)) => Plan::Refuse(told),
            (planned, None) => planned,
        }
    }
}

fn look_at_bad_name(world: &World, name: &OsStr, id: &str, why: &str) -> Seen {
    let path = world.layout.pending().join(name);
    let Ok(metadata) = fs::symlink_metadata(&path) else {
        return Seen::Nothing;
    };
    if metadata.is_dir() {
        return Seen::Folder;
    }
    Seen::Broken(Box::new(Broken {
        wanted: id.to_owned(),
        identity: Identity::of(&metadata),
        told: refusal(
            ErrorCode::SchemaValidationFailed,
            format!("invalid file name for a request: {why}"),
            vec!["Rename it to <id>.json, .yaml, .yml or .md".to_owned()],
        ),
        writer: Writer::Unknown,
        may_mend: metadata.is_file(),
    }))
}

/// How the handoffs that a request depends on stand, read from the folders.
pub fn dependency_states(layout: &Layout, request: &Request) -> Vec<Dependency> {
    request
        .depends_on
        .iter()
        .map(|id| dependency_state(layout, id.as_str()))
        .collect()
}

pub fn dependency_state(layout: &Layout, id: &str) -> Dependency {
    let states = own_states(layout, id);
    let live = [State::InProgress, State::Waiting];
    if live.iter().any(|state| states.contains(state)) {
        Dependency::Live
    } else if states.contains(&State::Completed) {
        Dependency::Completed
    } else if states.contains(&State::Failed) {
        Dependency::Failed
    } else if layout.submission(id).is_some() {
        Dependency::Live
    } else {
        match layout.archived(id) {
            Some(State::Completed) => Dependency::Completed,
            Some(_) => Dependency::Failed,
            None => Dependency::Missing,
        }
    }
}
