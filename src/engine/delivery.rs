//! Delivery: what a successful attempt left is checked, put where it belongs and measured.
//!
//! All of it happens before the outcome is decided, and can be done again: a daemon that dies
//! in between judges the same attempt anew and finds its own files in their places. The
//! registry's lines follow once the outcome is decided.

mod comply;
pub mod reported;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::config::Config;
use crate::engine::confine::{artifact_place, fetch_artifact};
use crate::engine::destination::is_own;
use crate::engine::world::World;
use crate::policy::judge::{Compliance, Failure, MEND, Success, failure};
use crate::protocol::error::ErrorCode;
use crate::protocol::field::FieldError;
use crate::protocol::record::Record;
use crate::protocol::request::Request;
use crate::store::artifacts::{Bounds, Presence, RelPath, Unread, WriteError};

use comply::schema_of;

const RAISE_LIMIT: &str = "Make the specialist write smaller artifacts; or raise \
daemon.max_artifact_size, send the daemon SIGHUP, then retry";

/// Why nothing could be delivered.
pub enum Undelivered {
    /// What came is not what was asked for.
    Wrong(Box<Failure>),
    /// The disk refuses: to be tried again.
    Trouble(io::Error),
    /// The artifacts are too large to be read here: a thread of its own is to do it.
    Large,
    /// Reading was given up, as [`Allowance::go_on`] asked for.
    Stopped,
}

/// How much is read of what came.
pub struct Allowance<'a> {
    /// The most bytes, of all files together.
    pub most: u64,
    /// Asked while a file is read.
    pub go_on: &'a dyn Fn() -> bool,
}

impl From<io::Error> for Undelivered {
    fn from(error: io::Error) -> Self {
        Self::Trouble(error)
    }
}

/// Whether taking delivery means to read files that the specialist wrote.
pub fn brings_files(success: &Success) -> bool {
    let files = success.result.as_ref().and_then(|it| it.get("artifacts"));
    files.is_some_and(|files| !files.is_null())
}

/// Takes delivery of what a successful attempt left.
pub fn deliver(
    world: &World,
    record: &Record,
    request: &Request,
    attempt: u32,
    mut success: Success,
    allowance: Allowance<'_>,
) -> Result<Success, Undelivered> {
    let config = world.config();
    let destination = record.meta.destination.as_deref();
    let mut delivery = Delivery {
        world,
        config: &config,
        request,
        schema: schema_of(request, &config),
        attempt,
        given: given(world, record, attempt),
        allowance,
        oversized: false,
        problems: Vec::new(),
        artifacts: Vec::new(),
        seen: Vec::new(),
    };
    match destination.map(RelPath::parse) {
        Some(Ok(path)) => delivery.main(&path, &mut success)?,
        _ => delivery.kept_in_result(&mut success)?,
    }
    delivery.listed(success.result.as_ref())?;
    // A text that is only kept proves nothing.
    success.delivered.checked |= !delivery.artifacts.is_empty() && !success.delivered.text_kept;
    if success.result.is_some() && !success.delivered.text_kept {
        delivery.text(attempt, &mut success)?;
    }
    let Delivery {
        problems,
        artifacts,
        oversized,
        ..
    } = delivery;
    if !problems.is_empty() {
        let mut told = wrong_artifacts(problems, success.result);
        if oversized {
            told.actions.push(RAISE_LIMIT.to_owned());
        }
        return Err(Undelivered::Wrong(told));
    }
    if !artifacts.is_empty() {
        success
            .delivered
            .compliance
            .get_or_insert(Compliance::Unchecked);
    }
    success.delivered.artifacts = artifacts;
    Ok(success)
}

fn given(world: &World, record: &Record, attempt: u32) -> Option<PathBuf> {
    let id = record.doc.get("handoff_id")?.as_str()?;
    let path = RelPath::parse(record.meta.destination.as_deref()?).ok()?;
    let home = world.paths(id, attempt).home?;
    Some(artifact_place(&home, &path))
}

fn wrong_artifacts(fields: Vec<FieldError>, result: Option<Map<String, Value>>) -> Box<Failure> {
    let list: Vec<String> = fields.iter().map(ToString::to_string).collect();
    let mut told = failure(
        ErrorCode::ValidationFailed,
        format!(
            "the work does not match what was requested: {}",
            list.join("; ")
        ),
        vec![MEND.to_owned()],
    );
    told.fields = fields;
    told.result = result;
    Box::new(told)
}

struct Delivery<'w> {
    world: &'w World,
    config: &'w Config,
    request: &'w Request,
    schema: Option<&'w str>,
    attempt: u32,
    /// Where a confined attempt was to put its artifact.
    given: Option<PathBuf>,
    allowance: Allowance<'w>,
    /// A file is larger than the configuration allows.
    oversized: bool,
    problems: Vec<FieldError>,
    artifacts: Vec<Value>,
    /// Paths that were taken already.
    seen: Vec<String>,
}

impl Delivery<'_> {
    /// Brings what a confined attempt left at its own place to where it belongs.
    fn fetch(&mut self, path: &RelPath) -> Result<Result<(), String>, Undelivered> {
        let given = self.given.as_ref().map(fs::symlink_metadata);
        if let Some(Ok(metadata)) = given
            && let Err(why) = self.weigh(path, metadata.len())?
        {
            return Ok(Err(why));
        }
        let id = self.request.id.as_str();
        let replace = is_own(self.world, path, id);
        match fetch_artifact(self.world, (id, self.attempt), path, replace) {
            Ok(_) => Ok(Ok(())),
            Err(WriteError::Io(error)) => Err(error.into()),
            Err(why) => Ok(Err(format!("{} {why}", path.as_str()))),
        }
    }

    /// The artifact at the destination: from the result, else the file that was written there,
    /// else the text of a Markdown report.
    fn main(&mut self, path: &RelPath, success: &mut Success) -> Result<(), Undelivered> {
        let artifact = artifact_of(success.result.as_ref()).cloned();
        if self.is_anothers(path)? {
            self.problem(
                "expected_output.destination",
                format!("{} belongs to another handoff now", path.as_str()),
            );
            return Ok(());
        }
        if let Err(why) = self.fetch(path)? {
            self.problem("artifact", why);
            return Ok(());
        }
        if let Some(artifact) = artifact {
            success.delivered.compliance = Some(self.comply(&artifact, success)?);
            return self.put(path, &content(&artifact, path), success);
        }
        match self.world.artifacts.presence(path) {
            Presence::File { .. } => {
                success.delivered.compliance = Some(self.comply_file(path, success)?);
                self.take(path, "expected_output.destination", None)
            }
            Presence::Missing => match (&success.result, success.text.clone()) {
                (Some(_), Some(text)) if self.schema.is_none() => {
                    success.delivered.text_kept = true;
                    self.put(path, text.as_bytes(), success)
                }
                _ => {
                    let why = format!(
                        "no artifact: the result has no `artifact`, and {} does not exist",
                        path.as_str()
                    );
                    self.problem("artifact", why);
                    Ok(())
                }
            },
            Presence::Folder => {
                self.problem("artifact", format!("{} is a folder", path.as_str()));
                Ok(())
            }
            Presence::Other(what) => {
                self.problem("artifact", format!("{} is {what}", path.as_str()));
                Ok(())
            }
        }
    }

    /// Without a destination an artifact stays in the result, but its schema holds all the same.
    fn kept_in_result(&mut self, success: &mut Success) -> Result<(), Undelivered> {
        let Some(artifact) = artifact_of(success.result.as_ref()).cloned() else {
            if self.schema.is_some() {
                success.delivered.compliance = Some(Compliance::Unchecked);
                success
                    .warnings
                    .push("no artifact to check against the output schema".to_owned());
            }
            return Ok(());
        };
        let compliance = self.comply(&artifact, success)?;
        success.delivered.compliance = Some(compliance);
        success.delivered.checked |= compliance == Compliance::Valid;
        success.warnings.push(
            "the result has an artifact, but the request has no expected_output.destination: the \
             artifact stays in result"
                .to_owned(),
        );
        Ok(())
    }

    /// Files that the specialist wrote itself and lists.
    fn listed(&mut self, result: Option<&Map<String, Value>>) -> Result<(), Undelivered> {
        let list = result.and_then(|result| result.get("artifacts")?.as_array());
        for (at, item) in list.into_iter().flatten().enumerate() {
            let named = ["path", "artifact_path"]
                .iter()
                .find_map(|key| item.get(key)?.as_str())
                .or_else(|| item.as_str());
            let field = format!("artifacts[{at}].path");
            let Some(named) = named else {
                self.problem(&field, "missing: the path of the file".to_owned());
                continue;
            };
            // HANDOFF_ARTIFACT is absolute, so specialists may name others that way too.
            let root = self.world.layout.root().display().to_string();
            let relative = named
                .strip_prefix(&root)
                .and_then(|rest| rest.strip_prefix('/'))
                .unwrap_or(named);
            let relative = relative.trim_start_matches("./");
            let kind = ["artifact_type", "type"]
                .iter()
                .find_map(|key| item.get(key)?.as_str());
            if self.given.as_deref() == Some(Path::new(named)) {
                // It was brought to its destination already.
                continue;
            }
            let path = RelPath::parse(relative).and_then(|path| match path.daemons_own() {
                Some(what) => Err(format!("{what}: list only files that the specialist made")),
                None => Ok(path),
            });
            match path {
                Ok(path) if self.seen.iter().any(|seen| seen == path.as_str()) => {}
                Ok(path) => self.take(&path, &field, kind)?,
                Err(why) => self.problem(&field, format!("{named:?} {why}")),
            }
        }
        Ok(())
    }

    /// The text of a Markdown report, which has no place of its own.
    fn text(&mut self, attempt: u32, success: &mut Success) -> Result<(), Undelivered> {
        let Some(text) = success.text.clone().filter(|text| !text.is_empty()) else {
            return Ok(());
        };
        let id = self.request.id.as_str();
        for name in [
            format!("artifacts/{id}.md"),
            format!("artifacts/{id}.{attempt}.md"),
        ] {
            let Ok(path) = RelPath::parse(&name) else {
                break;
            };
            let free = match self.world.artifacts.presence(&path) {
                Presence::Missing => true,
                Presence::File { .. } => {
                    is_own(self.world, &path, id)
                        || name.ends_with(&format!(".{attempt}.md"))
                        // Written before the work was verified.
                        || self.holds(&path, text.as_bytes())
                }
                _ => false,
            };
            if free {
                success.delivered.text_kept = true;
                return self.put_as(&path, text.as_bytes(), Some("report"));
            }
        }
        success.warnings.push(format!(
            "can't keep the text of the report as artifacts/{id}.md: another file is there"
        ));
        Ok(())
    }

    fn holds(&self, path: &RelPath, bytes: &[u8]) -> bool {
        let found = self.world.artifacts.read(path, bytes.len() as u64);
        found.is_ok_and(|found| found == bytes)
    }

    fn is_anothers(&self, path: &RelPath) -> io::Result<bool> {
        let known = self.world.artifacts.find(path.as_str())?;
        let id = self.request.id.as_str();
        Ok(known.is_some_and(|entry| entry.handoff_id != id)
            && matches!(self.world.artifacts.presence(path), Presence::File { .. }))
    }

    fn put(&mut self, path: &RelPath, bytes: &[u8], success: &Success) -> Result<(), Undelivered> {
        if self.problems.is_empty() {
            let kind = success
                .result
                .as_ref()
                .and_then(|result| result.get("artifact_type")?.as_str());
            let kind = self.request.output.artifact_type.as_deref().or(kind);
            self.put_as(path, bytes, kind.map(str::to_owned).as_deref())?;
        }
        Ok(())
    }

    fn put_as(
        &mut self,
        path: &RelPath,
        bytes: &[u8],
        kind: Option<&str>,
    ) -> Result<(), Undelivered> {
        match self.world.artifacts.write(path, bytes, true) {
            Ok(measured) => self.note(path, &measured.sha256, measured.size_bytes, kind)?,
            Err(WriteError::Io(error)) => return Err(error.into()),
            Err(WriteError::Exists) => {
                let why = format!("{} already exists", path.as_str());
                self.problem("expected_output.destination", why);
            }
            Err(WriteError::Refused(why)) => {
                let why = format!("{} {why}", path.as_str());
                self.problem("expected_output.destination", why);
            }
        }
        Ok(())
    }

    /// Measures a file that the specialist wrote.
    fn take(&mut self, path: &RelPath, field: &str, kind: Option<&str>) -> Result<(), Undelivered> {
        let own = (field == "expected_output.destination")
            .then_some(self.request.output.artifact_type.as_deref())
            .flatten();
        if let Presence::File { size_bytes } = self.world.artifacts.presence(path)
            && let Err(why) = self.weigh(path, size_bytes)?
        {
            self.problem(field, why);
            return Ok(());
        }
        let bounds = Bounds {
            most: self.most_bytes().min(self.allowance.most),
            go_on: self.allowance.go_on,
        };
        match self.world.artifacts.measure_within(path, bounds) {
            Ok(measured) => {
                self.allowance.most -= measured.size_bytes;
                let kind = kind.or(own);
                self.note(path, &measured.sha256, measured.size_bytes, kind)?;
            }
            Err(Unread::Refused(why)) => self.problem(field, format!("{} {why}", path.as_str())),
            Err(Unread::Stopped) => return Err(Undelivered::Stopped),
            Err(Unread::TooLarge { size_bytes }) => {
                // It grew while it was read.
                if let Err(why) = self.weigh(path, size_bytes)? {
                    self.problem(field, why);
                }
            }
        }
        Ok(())
    }

    fn most_bytes(&self) -> u64 {
        self.config.daemon.max_artifact_size
    }

    /// Whether a file of this size may be read: refused in words above the limit, and left to
    /// another thread where it is more than may be read here.
    fn weigh(&mut self, path: &RelPath, size: u64) -> Result<Result<(), String>, Undelivered> {
        let most = self.most_bytes();
        if size > most {
            self.oversized = true;
            return Ok(Err(format!(
                "{} has {size} bytes, and daemon.max_artifact_size allows {most}",
                path.as_str()
            )));
        }
        if size > self.allowance.most {
            return Err(Undelivered::Large);
        }
        Ok(Ok(()))
    }

    fn note(
        &mut self,
        path: &RelPath,
        sha256: &str,
        size_bytes: u64,
        kind: Option<&str>,
    ) -> io::Result<()> {
        let id = self.request.id.as_str();
        let artifact_id = self.world.artifacts.id_for(path, id)?;
        self.seen.push(path.as_str().to_owned());
        let mut entry = json!({ "artifact_id": artifact_id, "path": path.as_str() });
        if let Some(entry) = entry.as_object_mut() {
            if let Some(kind) = kind {
                entry.insert("artifact_type".to_owned(), kind.into());
            }
            entry.insert("sha256".to_owned(), sha256.into());
            entry.insert("size_bytes".to_owned(), size_bytes.into());
        }
        self.artifacts.push(entry);
        Ok(())
    }

    fn problem(&mut self, field: &str, why: String) {
        self.problems.push(FieldError::new(field, why));
    }
}

fn artifact_of(result: Option<&Map<String, Value>>) -> Option<&Value> {
    result?
        .get("artifact")
        .filter(|artifact| !artifact.is_null())
}

/// A text goes into a file as it is, unless the file is to be JSON; all else is JSON.
fn content(artifact: &Value, path: &RelPath) -> Vec<u8> {
    match artifact {
        Value::String(text) if !is_json(path) => text.clone().into_bytes(),
        _ => {
            let mut bytes = serde_json::to_vec_pretty(artifact).unwrap_or_default();
            bytes.push(b'\n');
            bytes
        }
    }
}

fn is_json(path: &RelPath) -> bool {
    let extension = std::path::Path::new(path.as_str()).extension();
    extension.is_some_and(|ext| ext.eq_ignore_ascii_case("json"))
}
