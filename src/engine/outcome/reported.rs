//! The report file of an attempt, where its specialist has one: read where neither stdout nor
//! `HANDOFF_RESULT` has a result.

use std::io;

use serde_json::{Map, Value};

use crate::clock::Wall;
use crate::config::Specialist;
use crate::durable::{self, Durability};
use crate::engine::attempt::Running;
use crate::engine::world::World;
use crate::protocol::report_pattern::fill;
use crate::protocol::result::Output;
use crate::runner::agents::{NO_REPORT, work_folder};
use crate::runner::collect::Collected;
use crate::runner::launch::AttemptPaths;
use crate::runner::report::{Report, newest};
use crate::spool::look::{Looked, look};

/// What a workspace adds to the output of the command that runs in it.
const OF_WORKSPACE: [&str; 4] = ["branch", "base", "commit", "diffstat"];

/// What a report file said, kept for the time after the work was verified: the command that verifies
/// may write such files, too.
#[derive(Default)]
pub(super) struct Seen(Option<Report>);

/// Adds the report file to what the attempt left, if its specialist has one.
pub(super) fn add_report(
    world: &World,
    running: &Running,
    paths: &AttemptPaths,
    collected: &mut Collected,
) -> Seen {
    let config = world.config();
    let Some(specialist) = config.specialist(&running.agent) else {
        return Seen::default();
    };
    let Some(template) = &specialist.report else {
        return Seen::default();
    };
    let mut own = None;
    let is_ours = specialist.workspace.is_some() && says_only_the_branch(&collected.stdout)
        || specialist.agent.is_some() && is_made_of_text(&collected.stdout);
    if is_ours {
        own = taken(&mut collected.stdout);
    }
    let mut seen = Seen::default();
    if lacks_result(collected) {
        let most = config.daemon.max_output_size;
        seen = match running.verify {
            Some(_) => Seen::read(paths, most),
            None => look_for(world, running, specialist, template, most),
        };
        if let Seen(Some(report)) = &seen {
            take(report, collected);
        }
    }
    if let Some(own) = own {
        give_back(own, collected);
    }
    seen
}

fn look_for(
    world: &World,
    running: &Running,
    specialist: &Specialist,
    template: &str,
    most: u64,
) -> Seen {
    let line = running.record.meta.links.line_of(&running.key.id);
    let folder = work_folder(specialist, world.layout.root(), line);
    let Some(pattern) = fill(template, &running.request.values(Wall(0))) else {
        return Seen(None);
    };
    let found = newest(&folder, &pattern, begun_ns(running), most);
    Seen(found.unwrap_or_else(|error| {
        tracing::warn!(
            handoff_id = running.key.id,
            "can't look for its report in {}: {error}",
            folder.display()
        );
        None
    }))
}

impl Seen {
    /// Keeps it in a file: its path in the first line, then its bytes.
    pub fn put_down(self, paths: &AttemptPaths) -> io::Result<()> {
        let Some(report) = self.0 else {
            return Ok(());
        };
        let bytes = [report.path.as_bytes(), b"\n", &report.bytes].concat();
        let path = paths.report();
        let temp = path.with_extension("report.tmp");
        durable::write_whole(&path, &temp, &bytes, Durability::Relaxed)
    }

    fn read(paths: &AttemptPaths, most: u64) -> Self {
        let Looked::Bytes { bytes, .. } = look(&paths.report(), u64::MAX - 1) else {
            return Self(None);
        };
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (path, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
        let path = String::from_utf8_lossy(path).into_owned();
        Self(Some(Report::read(
            path,
            rest.get(1..).unwrap_or_default().to_vec(),
            most,
        )))
    }
}

/// A broken or oversized result file is a failure of its own, whatever else was written.
fn lacks_result(collected: &Collected) -> bool {
    let is_result = matches!(
        &collected.result_file,
        Output::Result { .. } | Output::Broken { .. } | Output::TooLarge
    );
    !is_result && !matches!(collected.stdout, Output::Result { .. })
}

/// From when on a file counts as written by the attempt: from its claim, in the file system's own
/// time, which lags behind the clock.
fn begun_ns(running: &Running) -> i128 {
    let attempt = running.record.meta.attempts.last();
    let started = attempt.map_or(i128::MAX, |it| i128::from(it.started_at.0) * 1_000_000);
    let claimed = running.identity.map(|identity| identity.modified_ns);
    claimed.map_or(started, |claimed| claimed.min(started))
}

/// A report is read like stdout. Without a result in it, what was printed comes first.
fn take(report: &Report, collected: &mut Collected) {
    let Report { path, said, .. } = report;
    let printed = match &collected.stdout {
        Output::Text(text) | Output::Unreported { text, .. } | Output::Broken { text, .. } => {
            Some(text.clone())
        }
        _ => None,
    };
    let unreported = |why: String, text: String| Output::Unreported {
        why,
        text: printed.clone().unwrap_or(text),
    };
    match said.clone() {
        said @ Output::Result { .. } => collected.result_file = said,
        Output::Unreported { why, text } => {
            collected.stdout = unreported(format!("report file {path}: {why}"), text);
        }
        Output::Broken { why, text } => {
            let why = format!(
                "report file {path} starts like a JSON result but does not parse ({why}); kept as \
                 text"
            );
            collected.stdout = unreported(why, text);
        }
        Output::TooLarge => {
            let why = format!(
                "report file {path} is larger than daemon.max_output_size allows; ignored it"
            );
            collected.stdout = unreported(why, String::new());
        }
        text @ Output::Text(_) if printed.is_none() => collected.stdout = text,
        Output::Text(_) | Output::Nothing => {}
    }
}

/// Whether a result has nothing but what a workspace says of its branch, and the text that its
/// command printed.
fn says_only_the_branch(output: &Output) -> bool {
    let Output::Result { result, .. } = output else {
        return false;
    };
    let is_ours = |key: &String| *key == "text" || OF_WORKSPACE.contains(&key.as_str());
    result
        .keys()
        .all(|key| key == "output" || key == "warnings")
        && result
            .get("output")
            .and_then(Value::as_object)
            .is_some_and(|output| output.contains_key("branch") && output.keys().all(is_ours))
}

/// Whether a coding agent left no report, and its adapter made a result of what it said.
fn is_made_of_text(output: &Output) -> bool {
    let Output::Result { result, .. } = output else {
        return false;
    };
    let metadata = result.get("metadata");
    metadata.and_then(|it| it.get("reported")) == Some(&Value::Bool(false))
}

fn taken(output: &mut Output) -> Option<Map<String, Value>> {
    match std::mem::replace(output, Output::Nothing) {
        Output::Result { result, .. } => Some(result),
        other => {
            *output = other;
            None
        }
    }
}

/// Adds what the workspace and the adapter said to the result that was found in its place.
fn give_back(mut own: Map<String, Value>, collected: &mut Collected) {
    let Output::Result { result, .. } = &mut collected.result_file else {
        // Nobody reported anything: their word is all there is.
        let remark = match std::mem::replace(&mut collected.stdout, Output::Nothing) {
            Output::Unreported { why, .. } => Some(why),
            _ => None,
        };
        collected.stdout = Output::Result {
            result: own,
            text: None,
            remark,
        };
        return;
    };
    let mut output = match result.shift_remove("output") {
        Some(Value::Object(output)) => output,
        Some(Value::Null) | None => Map::new(),
        Some(other) => Map::from_iter([("value".to_owned(), other)]),
    };
    if let Some(Value::Object(said)) = own.shift_remove("output") {
        let of_branch = |(key, _): &(String, Value)| OF_WORKSPACE.contains(&key.as_str());
        output.extend(said.into_iter().filter(of_branch));
    }
    result.insert("output".to_owned(), Value::Object(output));
    if let Some(files) = own.shift_remove("files_modified") {
        result.entry("files_modified").or_insert(files);
    }
    if let Some(Value::Object(mut metadata)) = own.shift_remove("metadata") {
        metadata.shift_remove("reported");
        match result.get_mut("metadata") {
            Some(Value::Object(theirs)) => theirs.extend(metadata),
            _ => drop(result.insert("metadata".to_owned(), Value::Object(metadata))),
        }
    }
    if let Some(Value::Array(mut more)) = own.shift_remove("warnings") {
        more.retain(|said| !said.as_str().is_some_and(|said| said.ends_with(NO_REPORT)));
        match result.get_mut("warnings") {
            _ if more.is_empty() => {}
            Some(Value::Array(known)) => known.extend(more),
            _ => drop(result.insert("warnings".to_owned(), Value::Array(more))),
        }
    }
}
