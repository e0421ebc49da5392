//! Files in `in-progress/` or `waiting/` that are no records of ours: made into one, or set
//! aside.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::engine::admit::admit;
use crate::engine::divert::{Destination, apply, destination, refused};
use crate::engine::effects::said_again;
use crate::engine::event::Event;
use crate::engine::moves::write;
use crate::engine::past::Past;
use crate::engine::receive::{needs, receipt};
use crate::engine::recovery::Found;
use crate::engine::story::refusal_line;
use crate::engine::world::World;
use crate::policy::intake::{Plan, plan};
use crate::policy::next::{fail, refusal};
use crate::protocol::digest::sha256;
use crate::protocol::document::{self, Syntax};
use crate::protocol::error::ErrorCode;
use crate::protocol::id::HandoffId;
use crate::protocol::lifecycle::State;
use crate::protocol::name::{Ext, Name, classify};
use crate::protocol::record::Record;
use crate::protocol::request::Request;
use crate::protocol::view::View;
use crate::spool::change::Change;
use crate::spool::look::Identity;
use crate::spool::recover::Stands;
use crate::spool::reject::Rejection;
use crate::store::audit;

/// A file that was found.
pub struct File<'a> {
    pub folder: State,
    pub id: &'a str,
    pub path: PathBuf,
    pub identity: Identity,
}

/// Makes a record of a file that is none of ours, and lets it run. `leftover` is let go once
/// that is on disk: a crash before finds everything as it was.
pub fn readmit(
    world: &World,
    file: File<'_>,
    bytes: &[u8],
    stands: &Stands,
    leftover: Option<PathBuf>,
) -> Found {
    let File {
        folder,
        id,
        path,
        identity,
    } = file;
    let now = world.now();
    let parsed = match stands {
        Stands::Ours(_) => Record::document(bytes).map(|map| (map, Ext::Json)),
        _ => parse_any(bytes),
    };
    let Some((doc, ext)) = parsed else {
        reject(world, path, identity, id, "not a request");
        return Found::UnderWay;
    };
    // A numbered id is only ever the daemon's to give.
    let stem = match stands {
        Stands::Foreign => HandoffId::parse(id),
        _ => HandoffId::parse_made(id),
    };
    let Ok(stem) = stem else {
        reject_name(world, path, identity, id);
        return Found::UnderWay;
    };
    if ext != Ext::Json
        && let Err(error) = keep_original(world, id, ext, bytes)
    {
        return Found::Left(format!("{}/{id}.json: {error}", folder.folder()));
    }
    let mut record = admit(world, doc, id, sha256(bytes));
    let request = Request::from_record(&record, &stem);
    let destination = match &request {
        // Only a duplicate is taken out of pending/ under a numbered id.
        _ if *stands == Stands::Raw && id.contains('~') => Some(Destination::Duplicate),
        Err(errors) => Some(refused(errors)),
        Ok(request) => {
            let config = world.config();
            let needs = needs(&world.desk(), request);
            let planned = match plan(request, &config, &needs, now) {
                // What waits or runs is received when its turn comes.
                planned @ (Plan::Run
                | Plan::WaitForTime { .. }
                | Plan::WaitForDependencies { .. }) => planned,
                planned => received(world, &mut record, request, planned),
            };
            destination(planned, request, &config)
        }
    };
    let destination = destination.unwrap_or_else(|| Destination::Wait {
        on: "retry",
        length_ms: Some(0),
        ids: Vec::new(),
        reason: format!("found in {} without an attempt", folder.folder()),
    });
    let wanted = id.split_once('~').map_or(id, |(wanted, _)| wanted);
    apply(world, &mut record, wanted, &request, destination);
    write(world, id, &record, folder, "recovered", move || {
        if let Some(leftover) = leftover {
            let _ = std::fs::remove_file(leftover);
        }
    });
    Found::UnderWay
}

/// Writes into a record what its receiver says, and what follows for what was planned.
fn received(world: &World, record: &mut Record, request: &Request, planned: Plan) -> Plan {
    let view = View::of_record(record);
    let links = || record.meta.links.clone();
    let receipt = receipt(&world.desk(), &view, links, request, true);
    record.set("acknowledgment", receipt.acknowledgment);
    match (planned, receipt.refusal) {
        (Plan::Refuse(told), _) | (_, Some(told)) => Plan::Refuse(told),
        (planned, None) => planned,
    }
}

/// A document in any syntax, and the extension that goes with it.
fn parse_any(bytes: &[u8]) -> Option<(Map<String, Value>, Ext)> {
    [Ext::Yaml, Ext::Markdown].into_iter().find_map(|ext| {
        let document = document::parse(bytes, ext).ok()?;
        let ext = if document.syntax == Syntax::Json {
            Ext::Json
        } else {
            ext
        };
        Some((document.map, ext))
    })
}

/// The producer's own YAML or Markdown is kept before the record takes its place.
fn keep_original(world: &World, id: &str, ext: Ext, bytes: &[u8]) -> std::io::Result<()> {
    let kept = world.layout.originals().join(format!("{id}.{ext}"));
    let temp = world.layout.tmp().join(format!("original-{id}"));
    crate::durable::write_whole(&kept, &temp, bytes, world.config().daemon.durability)
}

/// Sends bytes that are no record to `failed/`.
pub fn reject(world: &World, source: PathBuf, identity: Identity, id: &str, why: &str) {
    reject_under(world, source, identity, id, id, why);
}

/// Sends a file to `failed/` whose name can't be an id, under the one that is made from its name, as
/// if it had been dropped.
pub fn reject_name(world: &World, source: PathBuf, identity: Identity, id: &str) {
    let name = source.file_name().unwrap_or_default().as_bytes();
    let (wanted, why) = match classify(name) {
        Name::Bad { id, why } => (id.to_string(), why),
        _ => (id.to_owned(), "its name is not a valid id".to_owned()),
    };
    reject_under(world, source, identity, id, &wanted, &why);
}

fn reject_under(
    world: &World,
    source: PathBuf,
    identity: Identity,
    id: &str,
    wanted: &str,
    why: &str,
) {
    let now = world.now();
    let told = refusal(
        ErrorCode::SchemaValidationFailed,
        format!("found in {}: {why}", world.layout.relative(&source)),
        vec!["Compare the bytes that were kept with what was dropped".to_owned()],
    );
    let mut notice = Record::admit(Map::<String, Value>::new(), wanted, None);
    fail(&mut notice, &told, 0, now.wall);
    let lines = vec![refusal_line(&notice, wanted, now.wall)];
    reject_as(world, source, identity, id, wanted, notice, lines);
}

/// Sends bytes to `failed/` with a notice that is written already, and says so with `lines`. `id` is
/// that which is busy with it.
fn reject_as(
    world: &World,
    source: PathBuf,
    identity: Identity,
    id: &str,
    wanted: &str,
    notice: Record,
    lines: Vec<audit::Event>,
) {
    // Of what a power cut tore, the log may tell more than the disk kept.
    let lines = said_again(world, wanted, notice.meta.revision, lines);
    let rejection = Rejection {
        source,
        identity,
        wanted: wanted.to_owned(),
        notice,
        id: String::new(),
    };
    let (events, id) = (world.events.clone(), id.to_owned());
    world
        .committer
        .submit(Change::Reject(Box::new(rejection)), lines, move |_| {
            let _ = events.send(Event::Unmoved { id });
        });
}

/// Goes on with files that were being rejected.
pub fn finish_rejections(world: &World, past: &Past) -> io::Result<()> {
    let entries = fs::read_dir(world.layout.rejecting())?;
    let paths: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    let is_bytes = |path: &&PathBuf| path.extension().is_some_and(|ext| ext == "rejected");
    // Before any of the others goes on, and its notice leaves by itself.
    for path in paths.iter().filter(|path| !is_bytes(path)) {
        // A notice whose bytes never came: they are still where they were.
        if fs::symlink_metadata(path.with_extension("rejected")).is_err() {
            fs::remove_file(path)?;
        }
    }
    for path in paths.iter().filter(is_bytes).cloned() {
        let id = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let identity = Identity::at(&path)?;
        match Rejection::drafted(&path, identity)? {
            Some(notice) => {
                let lines = if past.has_told_refusal(&id, &notice) {
                    Vec::new()
                } else {
                    vec![refusal_line(&notice, &id, world.now().wall).with("recovered", true)]
                };
                reject_as(world, path, identity, &id, &id, notice, lines);
            }
            // Its line came before its notice.
            None => match Rejection::noticed(&world.layout, &id, identity)? {
                Some(notice) => reject_as(world, path, identity, &id, &id, notice, Vec::new()),
                None => reject(
                    world,
                    path,
                    identity,
                    &id,
                    "a crash interrupted its refusal",
                ),
            },
        }
    }
    Ok(())
}
