//! Every file of the state folders, read once: what is wrong with each by itself, and what the
//! other checks need to know of it.
//!
//! Of a record only a few words are kept, so that a hundred thousand of them fit into memory;
//! reading is shared between threads.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde_json::Value;

use super::{Breach, Fault, Invariant, Report, outcome, record};
use crate::inspect::owners;
use crate::policy::task::Completed;
use crate::protocol::lifecycle::State;
use crate::protocol::name::{Name, classify};
use crate::protocol::record::{Record, RecordError};
use crate::protocol::shown::word;
use crate::protocol::view::View;
use crate::spool::foreign::{is_forged, outcome_of, own_states};
use crate::spool::layout::Layout;
use crate::spool::look::{Identity, Looked, look};
use crate::spool::scan;
use crate::store::audit;

/// More readers than this only wait for each other.
const MOST_READERS: usize = 8;

/// Everything that stands in the state folders.
#[derive(Debug, Default)]
pub struct Seen {
    /// Each admitted id, and where it stands. More than one place is a breach.
    pub ids: HashMap<String, Vec<Standing>>,
    /// Ids of submissions.
    pub pending: HashSet<String>,
    /// Ids whose refused bytes are kept in `failed/`.
    pub rejected: HashSet<String>,
    /// Ids that the audit log speaks of; filled in by the check of the log.
    pub audited: HashSet<String>,
    /// The log goes back to its first line.
    pub log_is_complete: bool,
}

impl Seen {
    pub fn exists(&self, id: &str) -> bool {
        self.ids.contains_key(id) || self.pending.contains(id) || self.rejected.contains(id)
    }

    /// The only place of an id.
    pub fn of(&self, id: &str) -> Option<&Standing> {
        match self.ids.get(id)?.as_slice() {
            [one] => Some(one),
            _ => None,
        }
    }
}

/// One file of a state folder.
#[derive(Debug)]
pub struct Standing {
    pub state: State,
    pub path: String,
    pub identity: Option<Identity>,
    /// None where it is no record that can be read.
    pub record: Option<Digest>,
}

/// What is kept of a record.
#[derive(Debug, Default)]
pub struct Digest {
    pub revision: u64,
    pub to: Option<State>,
    pub running: Option<u32>,
    pub parent: Option<String>,
    pub children: Vec<String>,
    /// Children that are refused before they are made: no log speaks of them.
    pub refused: Vec<String>,
    pub destination: Option<String>,
    pub wait: Option<Wait>,
    /// Its outcome, if the log must have the line of it.
    pub outcome: Option<audit::Outcome>,
    /// What the state of its task must know of it.
    pub completed: Option<Completed>,
}

/// What a wait needs to be woken.
#[derive(Debug, Default)]
pub struct Wait {
    pub on: String,
    pub ids: Vec<String>,
    pub has_end: bool,
    pub artifacts: bool,
    pub agent: bool,
}

impl Digest {
    fn of(record: &Record, id: &str, state: State) -> Self {
        let links = &record.meta.links;
        Self {
            revision: record.meta.revision,
            to: record.meta.to,
            running: record.running_attempt().map(|attempt| attempt.number),
            parent: links.parent.clone(),
            children: links.children.clone(),
            refused: links
                .spawns
                .iter()
                .filter(|spawn| spawn.refused.is_some())
                .map(|spawn| spawn.id.clone())
                .collect(),
            destination: record.meta.destination.clone(),
            wait: (state == State::Waiting).then(|| Wait::of(record)),
            outcome: (state.is_final())
                .then(|| outcome_of(state, id, record))
                .flatten(),
            completed: (state == State::Completed)
                .then(|| Completed::of(record, id))
                .flatten(),
        }
    }
}

impl Wait {
    fn of(record: &Record) -> Self {
        let view = View::of_record(record);
        let waiting = record.doc.get("waiting");
        let field = |key: &str| waiting.and_then(|waiting| waiting.get(key));
        let on = field("on").and_then(Value::as_str).unwrap_or_default();
        let named = match on {
            "handoff" => field("ids"),
            _ => view.get("depends_on"),
        };
        let ids = match named {
            Some(Value::Array(ids)) => ids
                .iter()
                .filter_map(Value::as_str)
                .map(Into::into)
                .collect(),
            Some(Value::String(id)) => vec![id.clone()],
            _ => Vec::new(),
        };
        Self {
            on: on.to_owned(),
            ids,
            has_end: record.meta.timer.is_some() && field("until").is_some(),
            artifacts: view.get("requires_artifacts").is_some(),
            agent: view.agent().is_some()
                || view.dialect == crate::protocol::dialect::Dialect::Report,
        }
    }
}

/// Reads all state folders. `works`: a daemon is running, and carries on what is decided.
pub fn gather(layout: &Layout, works: bool, report: &mut Report) -> io::Result<Seen> {
    let mut seen = Seen::default();
    let mut files = Vec::new();
    // In the order in which records move, so that one that moves on is seen at least once.
    for state in State::ALL {
        let folder = layout.state(state);
        let listed = scan::names(folder, |name| {
            if state == State::Pending {
                if let Name::Submission { id, .. } = classify(name.as_bytes()) {
                    report.examined.submissions += 1;
                    let path = folder.join(&name);
                    report.breaches.extend(unreadable(layout, &path));
                    seen.pending.insert(id.to_string());
                }
                return;
            }
            let refused = name.to_str().and_then(|it| it.strip_suffix(".rejected"));
            if let Some(id) = scan::record_id(&name) {
                files.push((id.to_owned(), state));
            } else if let (State::Failed, Some(id)) = (state, refused) {
                seen.rejected.insert(id.to_owned());
            } else if classify(name.as_bytes()) != Name::Temporary {
                report.breaches.push(no_record(layout, &folder.join(&name)));
            }
        });
        match listed {
            // Where a daemon has run, its absence is a breach of its own.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            listed => listed?,
        }
    }
    let readers = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(MOST_READERS);
    let share = files.len().div_ceil(readers).max(1);
    let read: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = files
            .chunks(share)
            .map(|chunk| {
                scope.spawn(move || {
                    chunk
                        .iter()
                        .filter_map(|(id, state)| Some((id, read_one(layout, id, *state, works)?)))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.collect::<Result<Vec<_>, _>>()
    })
    .map_err(|_| io::Error::other("a reader of records panicked"))?;
    for (id, (standing, breaches)) in read.into_iter().flatten() {
        report.examined.records += 1;
        report.breaches.extend(breaches);
        seen.ids.entry(id.clone()).or_default().push(standing);
    }
    where_they_are(layout, &mut seen);
    notices(layout, &seen, report);
    Ok(seen)
}

/// What lies in a folder of records, and can be none.
fn no_record(layout: &Layout, path: &std::path::Path) -> Breach {
    let shown = layout.relative(path);
    let fault = Fault::new(
        Invariant::WholeRecord,
        "its name is not <id>.json, so the daemon ignores it",
        format!("move it away: mv {} .", word(&shown)),
    );
    fault.at(shown, Identity::at(path).ok())
}

/// A submission that the daemon could never read.
fn unreadable(layout: &Layout, path: &std::path::Path) -> Option<Breach> {
    let error = crate::spool::look::open_quietly(path).err()?;
    let is_plain = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    (is_plain && error.kind() == io::ErrorKind::PermissionDenied).then(|| {
        let what = "the daemon can't read this file, so it will never run";
        Fault::new(
            Invariant::Waker,
            what,
            "give the daemon's user the right to read it",
        )
        .at(layout.relative(path), Identity::at(path).ok())
    })
}

/// Reads one record; none if it has moved on.
fn read_one(
    layout: &Layout,
    id: &str,
    state: State,
    works: bool,
) -> Option<(Standing, Vec<Breach>)> {
    let path: PathBuf = layout.record(state, id);
    let shown = layout.relative(&path);
    let aside = if state.is_final() {
        format!(
            "the daemon ignores it: fix it, or move it away: mv {} {}",
            word(&shown),
            word(&format!("{id}.json"))
        )
    } else {
        format!(
            "start the daemon, which sets it aside if it is unusable; or fix it, or move it out \
             of {}/",
            state.folder()
        )
    };
    let wrong = |what: String| Fault::new(Invariant::WholeRecord, what, aside.clone());
    let (record, identity, faults) = match look(&path, u64::MAX - 1) {
        Looked::Gone | Looked::Changing => return None,
        Looked::Folder => (None, None, vec![wrong("it is a folder".to_owned())]),
        Looked::NotAFile { what, identity } => (
            None,
            Some(identity),
            vec![wrong(format!("it is {what}, not a file"))],
        ),
        Looked::TooLarge { identity } => (None, Some(identity), Vec::new()),
        Looked::Unreadable { error, identity } => {
            let mut fault = wrong(format!("can't read it: {error}"));
            if error.kind() == io::ErrorKind::PermissionDenied {
                fault.do_this = owners::in_the_way(layout, &path).map_or_else(
                    || format!("chmod u+rw {}", word(&shown)),
                    |found| format!("as root: {}", found.do_this),
                );
            }
            (None, Some(identity), vec![fault])
        }
        Looked::Bytes {
            bytes, identity, ..
        } => match Record::read(&bytes) {
            Ok(record) => {
                let mut faults = record::check(&record, id, state, works);
                faults.extend(outcome::check(&record, state));
                (Some(Digest::of(&record, id, state)), Some(identity), faults)
            }
            Err(error @ RecordError::Newer(_)) => {
                let fault = Fault::new(
                    Invariant::WholeRecord,
                    format!("the record {error}"),
                    "use the version of handoffd that wrote it, or a newer one",
                );
                (None, Some(identity), vec![fault])
            }
            Err(error) => (
                None,
                Some(identity),
                vec![wrong(format!("the record {error}"))],
            ),
        },
    };
    let breaches = faults
        .into_iter()
        .map(|fault| fault.at(shown.clone(), identity))
        .collect();
    let standing = Standing {
        state,
        path: shown,
        identity,
        record,
    };
    Some((standing, breaches))
}

/// One that moved while the folders were listed was seen twice: where it is not any more, it
/// does not count.
fn where_they_are(layout: &Layout, seen: &mut Seen) {
    for (id, standings) in seen.ids.iter_mut().filter(|(_, all)| all.len() > 1) {
        standings.retain(|standing| {
            Identity::at(&layout.record(standing.state, id)).ok() == standing.identity
        });
    }
    seen.ids.retain(|_, standings| !standings.is_empty());
}

/// Ids in several folders at once. Where one of the files is surely the handoff's own, only the
/// others are breaches, and are left out of what is held against the other promises.
pub fn one_folder_each(layout: &Layout, seen: &mut Seen, report: &mut Report) {
    for (id, standings) in seen.ids.iter_mut().filter(|(_, all)| all.len() > 1) {
        let own = own_states(layout, id);
        let folders: Vec<&str> = standings.iter().map(|it| it.state.folder()).collect();
        let what = format!("{id} is in {} at the same time", folders.join(", "));
        // A copy of a decided outcome in an open folder is not known from one that was cut off.
        let is_surely_other = |it: &Standing| {
            !own.contains(&it.state) && (own[0].is_final() || is_forged(layout, it.state, id))
        };
        if let [own] = own.as_slice()
            && standings
                .iter()
                .all(|it| it.state == *own || is_surely_other(it))
        {
            for other in standings.extract_if(.., |it| it.state != *own) {
                // What was wrong with it by itself is the same matter.
                report.breaches.retain(|breach| breach.path != other.path);
                let fault = Fault::new(
                    Invariant::OneFolder,
                    format!(
                        "{what}, and the record of this id is in {}/: somebody else put this \
                         file here",
                        own.folder()
                    ),
                    format!(
                        "move it away: mv {} {}",
                        word(&other.path),
                        word(&format!("{id}.json"))
                    ),
                );
                report.breaches.push(fault.at(other.path, other.identity));
            }
            continue;
        }
        let first = &standings[0];
        let do_this = if standings.iter().all(|it| it.state.is_final()) {
            format!(
                "the audit log has neither outcome, and the daemon ignores both: read the log \
                 (handoffd audit {id}) and move the wrong one away, like: mv {} {}",
                word(&first.path),
                word(&format!("{id}.json"))
            )
        } else {
            "restart the daemon: the newer one stays, the other goes to .handoffd/aside/".to_owned()
        };
        let fault = Fault::new(Invariant::OneFolder, what, do_this);
        report
            .breaches
            .push(fault.at(first.path.clone(), first.identity));
    }
}

/// Refused bytes are kept beside a notice that says why.
fn notices(layout: &Layout, seen: &Seen, report: &mut Report) {
    for id in &seen.rejected {
        let notice = layout.record(State::Failed, id);
        if std::fs::symlink_metadata(&notice).is_ok() {
            continue;
        }
        let path = layout.state(State::Failed).join(format!("{id}.rejected"));
        let fault = Fault::new(
            Invariant::Outcome,
            format!(
                "the daemon refused the bytes of {id}, and the record with the reason is \
            missing"
            ),
            "inspect the bytes; drop them again under another name, or delete them",
        );
        report
            .breaches
            .push(fault.at(layout.relative(&path), Identity::at(&path).ok()));
    }
}
