//! What stands beside the state folders: artifacts, states of tasks, and the folders themselves.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::gather::Seen;
use super::{Fault, Invariant, Report};
use crate::inspect::artifacts::{self as registry, Status};
use crate::policy::task::{Completed, contradiction};
use crate::protocol::id::HandoffId;
use crate::protocol::lifecycle::State;
use crate::protocol::shown::word;
use crate::protocol::task::{MAX_APPLIED, TaskId};
use crate::spool::layout::Layout;
use crate::store::tasks::Store;

/// The folders that records move between are there, are folders, and are not everybody's. On a
/// root that no daemon has run on, those that are missing are yet to be made.
pub fn folders(layout: &Layout, report: &mut Report) {
    let is_new = fs::symlink_metadata(layout.own()).is_err();
    let is_due = |folder: &PathBuf| !is_new || fs::symlink_metadata(folder).is_ok();
    let ours = State::ALL
        .into_iter()
        .filter(|state| *state != State::Pending)
        .map(|state| layout.state(state).to_owned())
        .chain([
            layout.own().to_owned(),
            layout.run().to_path_buf(),
            layout.tmp().to_owned(),
            layout.audit(),
        ]);
    for folder in ours.filter(is_due) {
        check_folder(layout, &folder, true, report);
    }
    // Producers write here; who they are is the administrator's business.
    let shared = [layout.pending().to_owned(), layout.control()];
    for folder in shared.into_iter().filter(is_due) {
        check_folder(layout, &folder, false, report);
    }
}

fn check_folder(layout: &Layout, folder: &PathBuf, alone: bool, report: &mut Report) {
    let shown = layout.relative(folder);
    let fault = match fs::metadata(folder) {
        Err(error) => Fault::new(
            Invariant::Folders,
            format!("can't read the folder: {error}"),
            "start the daemon, which creates missing folders, or correct its permissions",
        ),
        Ok(found) if !found.is_dir() => Fault::new(
            Invariant::Folders,
            "it is not a folder",
            "move it away and start the daemon, which creates the folder",
        ),
        Ok(_) if layout.leads_out(folder) => Fault::new(
            Invariant::Folders,
            "it is a symlink that leads out of the root",
            format!(
                "replace it with a folder that has the same files: rm {}",
                word(&shown)
            ),
        ),
        Ok(found) => {
            let mode = found.permissions().mode();
            if mode & 0o700 != 0o700 {
                Fault::new(
                    Invariant::Folders,
                    format!("its owner can't use it (mode {:o})", mode & 0o7777),
                    format!("chmod u+rwx {shown}"),
                )
            } else if alone && mode & 0o002 != 0 && mode & 0o1000 == 0 {
                Fault::new(
                    Invariant::Folders,
                    format!("it is writable by everybody (mode {:o})", mode & 0o7777),
                    format!("chmod o-w {shown}: only the daemon moves files here"),
                )
            } else {
                return;
            }
        }
    };
    report.breaches.push(fault.at(shown, None));
}

/// Every line of the registry can be read, and the newest of each path holds.
pub fn artifacts(layout: &Layout, seen: &Seen, report: &mut Report) -> io::Result<()> {
    let artifacts = registry::of(layout.root());
    // Who has not ended may be writing its artifact anew right now.
    let in_the_making: HashSet<&str> = seen
        .ids
        .values()
        .flatten()
        .filter(|standing| !standing.state.is_final())
        .filter_map(|standing| standing.record.as_ref()?.destination.as_deref())
        .collect();
    let registry_file = layout.artifacts().join("registry.jsonl");
    let skipped = registry::newest_of_paths(&artifacts, |entry| {
        report.examined.artifacts += 1;
        if in_the_making.contains(entry.path.as_str()) {
            return;
        }
        let what = match registry::check(&artifacts, &entry) {
            Status::Unchanged => return,
            Status::Changed(_) => "has changed since it was registered".to_owned(),
            Status::Missing => "is missing".to_owned(),
            Status::Unreadable(why) => why,
        };
        let fault = Fault::new(
            Invariant::Artifacts,
            format!(
                "the artifact {} of {} {what}",
                entry.artifact_id, entry.handoff_id
            ),
            remake(layout, &entry.handoff_id),
        );
        report.breaches.push(fault.at(entry.path, None));
    })?;
    if skipped.broken > 0 {
        let fault = Fault::new(
            Invariant::Artifacts,
            format!("can't read {} lines of the registry", skipped.broken),
            "compare the file with a backup; readable lines still count",
        );
        report
            .breaches
            .push(fault.at(layout.relative(&registry_file), None));
    }
    Ok(())
}

/// How an artifact comes to be what was registered. What has completed is not retried, and nobody
/// else may write where it wrote, but it may be submitted once more.
fn remake(layout: &Layout, id: &str) -> String {
    let record = layout.record(State::Completed, id);
    if HandoffId::parse(id).is_err() || !record.exists() {
        return "restore it from a backup".to_owned();
    }
    format!(
        "restore it from a backup; or run {id} and its follow-ups again: mv {} handoffs/pending/",
        word(&layout.relative(&record))
    )
}

/// Every state of a task can be read, its history has every version, and its phase follows from the
/// outcomes of its handoffs.
pub fn tasks(layout: &Layout, seen: &Seen, report: &mut Report) -> io::Result<()> {
    let store = Store::for_reading(layout.root());
    let mut outcomes: HashMap<&TaskId, Vec<(&str, &Completed)>> = HashMap::new();
    for (id, standing) in &seen.ids {
        let [only] = standing.as_slice() else {
            continue;
        };
        if let Some(completed) = only.record.as_ref().and_then(|it| it.completed.as_ref()) {
            let of_task = outcomes.entry(&completed.task).or_default();
            of_task.push((id, completed));
        }
    }
    let tasks = store.tasks().map_err(io::Error::other)?;
    for task in &tasks {
        report.examined.tasks += 1;
        let path = store.path(task);
        let fault = match store.load(task) {
            Err(error) => Some(unreadable(layout, &path, &error.to_string())),
            Ok(None) => None,
            Ok(Some(state)) => match store.history(task) {
                Err(error) => Some(unreadable(layout, &path, &error.to_string())),
                Ok(history) => {
                    let versions = history.iter().map(|change| change.version);
                    if versions.eq(1..=state.version()) {
                        let own = outcomes.entry(task).or_default();
                        own.sort_by_key(|(id, completed)| (completed.at, *id));
                        contradiction(&state, &history, own, MAX_APPLIED).map(|what| {
                            let then = format!(
                                "compare it with handoffd state history {task} and the records, \
                                 then set the phase: handoffd state handoff {task} --to AGENT \
                                 --phase PHASE"
                            );
                            Fault::new(Invariant::Tasks, what, then)
                        })
                    } else {
                        let what = format!(
                            "it is version {} of {task}, but its history has {} versions",
                            state.version(),
                            history.len()
                        );
                        let then = format!("see its history: handoffd state history {task}");
                        Some(Fault::new(Invariant::Tasks, what, then))
                    }
                }
            },
        };
        if let Some(fault) = fault {
            report.breaches.push(fault.at(layout.relative(&path), None));
        }
    }
    Ok(())
}

fn unreadable(layout: &Layout, path: &Path, error: &str) -> Fault {
    // The path is told beside it.
    let what = error.replace(&format!("{} ", path.display()), "it ");
    let then = format!(
        "restore {} from a backup, or delete it and start the task again",
        layout.relative(path)
    );
    Fault::new(Invariant::Tasks, what, then)
}
