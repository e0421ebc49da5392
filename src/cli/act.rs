//! `handoffd cancel` and `handoffd retry`: acting, by way of `control/`. A person's answers go
//! the same way from [`crate::cli::answer`].
//!
//! The commands only drop files there, as any script can. So the same works while no daemon
//! runs, and is carried out when one comes back; the commands say which it was.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use crate::cli::list::Filters;
use crate::cli::style::safe;
use crate::cli::{Failed, Global, Outcome, again, bulk, complete, out, person, whole_ids};
use crate::durable;
use crate::inspect::daemon::Daemon;
use crate::inspect::list::rows;
use crate::inspect::newest;
use crate::inspect::summary::Row;
use crate::protocol::agent::AgentName;
use crate::protocol::error::ErrorCode;
use crate::protocol::lifecycle::State;
use crate::spool::layout::{Layout, make_folder};

/// How long to watch a running daemon take up a command.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  handoffd cancel build-7\n  handoffd cancel build-7 --comment \
                        'wrong branch'\n  handoffd cancel --agent coder --since 1h         # shows \
                        what it would do\n  handoffd cancel --agent coder --since 1h --yes"
)]
pub struct CancelOptions {
    #[arg(value_name = "ID", add = complete::live_ids())]
    ids: Vec<String>,
    /// Instead of ids: every handoff that has not ended and matches these filters
    #[command(flatten)]
    filters: Filters,
    /// Don't ask before a bulk cancel
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    words: Words,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  handoffd retry build-7\n  handoffd retry --code TIMEOUT --since \
                        1h          # shows what it would do\n  handoffd retry --code TIMEOUT --since \
                        1h --yes\n  handoffd retry --again build-7                  # prints the new id"
)]
pub struct RetryOptions {
    #[arg(value_name = "ID", add = complete::failed_ids())]
    ids: Vec<String>,
    /// Instead of ids: every failed handoff (with --again: every completed one) that matches these filters
    #[command(flatten)]
    filters: Filters,
    /// Submit the request of a completed handoff anew, as ID.again-1; the record stays
    #[arg(long, conflicts_with_all = ["by", "comment"])]
    again: bool,
    /// Don't ask before a bulk retry
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    words: Words,
}

#[derive(Debug, Args)]
pub(super) struct Words {
    /// The name of the human [default: the user's name]
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
    /// The reason; for the audit log, and for the record of a cancelled or answered handoff
    #[arg(long, value_name = "TEXT")]
    pub comment: Option<String>,
}

pub fn cancel(global: &Global, options: &CancelOptions) -> Outcome {
    let layout = global.existing_layout()?;
    let words = &options.words;
    if !bulk::is_meant(&options.ids, &options.filters)? {
        let ids = whole_ids(&layout, &options.ids)?;
        return send(global, &layout, "cancel", &ids, words, None);
    }
    let mut filter = options.filters.to_filter()?;
    if filter.states.is_empty() {
        filter.states = vec![State::Pending, State::InProgress, State::Waiting];
    }
    let places = newest::all(&layout, &filter)?;
    let matching = rows(&layout, places, &filter).map(|(_, row)| row);
    let (ended, found): (Vec<Row>, Vec<Row>) = matching.partition(|row| row.state.is_final());
    if !ended.is_empty() {
        let count = ended.len();
        out::talk!("left out: {count} that ended already; there is nothing to cancel");
    }
    bulk::act(found, "cancel", options.yes, |ids| {
        send(global, &layout, "cancel", ids, words, None)
    })
}

pub fn retry(global: &Global, options: &RetryOptions) -> Outcome {
    let layout = global.existing_layout()?;
    if options.again {
        return run_again(global, &layout, options);
    }
    let words = &options.words;
    if !bulk::is_meant(&options.ids, &options.filters)? {
        let ids = whole_ids(&layout, &options.ids)?;
        return send(global, &layout, "retry", &ids, words, None);
    }
    let mut filter = options.filters.to_filter()?;
    if filter.states.is_empty() {
        filter.states.push(State::Failed);
    }
    let places = newest::all(&layout, &filter)?;
    let matching = rows(&layout, places, &filter).map(|(_, row)| row);
    // A configuration that can't be read is the daemon's to judge by.
    let config = global.load_config().ok();
    let (found, left_out) = worth_retrying(matching, |agent| {
        AgentName::parse(agent).is_ok_and(|agent| {
            let config = config.as_ref();
            agent.is_human() || config.is_none_or(|config| config.specialist(&agent).is_some())
        })
    });
    if let Some(told) = left_out.told() {
        out::talk!("{told}");
        if found.is_empty() {
            out::talk!("retried nothing");
            return Ok(0);
        }
    }
    bulk::act(found, "retry", options.yes, |ids| {
        send(global, &layout, "retry", ids, words, None)
    })
}

fn run_again(global: &Global, layout: &Layout, options: &RetryOptions) -> Outcome {
    if !bulk::is_meant(&options.ids, &options.filters)? {
        return again::rerun(global, layout, &options.ids);
    }
    let mut filter = options.filters.to_filter()?;
    if filter.states.is_empty() {
        filter.states.push(State::Completed);
    }
    let places = newest::all(layout, &filter)?;
    let matching = rows(layout, places, &filter).map(|(_, row)| row);
    let found = matching
        .filter(|row| row.state == State::Completed)
        .collect();
    bulk::act(found, "rerun", options.yes, |ids| {
        again::rerun(global, layout, ids)
    })
}

/// How many a bulk retry leaves out.
#[derive(Debug, Default, PartialEq, Eq)]
struct LeftOut {
    refused: usize,
    untargeted: usize,
    duplicates: usize,
}

impl LeftOut {
    /// Both kinds in one line, each with what to do instead.
    fn told(&self) -> Option<String> {
        let mut parts = Vec::new();
        match self.refused {
            0 => {}
            1 => parts.push(
                "1 refused file, which is not a request (to fix it, see: handoffd show ID)"
                    .to_owned(),
            ),
            many => parts.push(format!(
                "{many} refused files, which are not requests (to fix one, see: handoffd show ID)"
            )),
        }
        match self.untargeted {
            0 => {}
            1 => parts.push(
                "1 request without a usable target (to fix it, see: handoffd show ID)".to_owned(),
            ),
            many => parts.push(format!(
                "{many} requests without a usable target (to fix one, see: handoffd show ID)"
            )),
        }
        match self.duplicates {
            0 => {}
            1 => parts.push("1 duplicate (if it is new work, retry it by its id)".to_owned()),
            many => parts.push(format!(
                "{many} duplicates (if one is new work, retry it by its id)"
            )),
        }
        (!parts.is_empty()).then(|| format!("left out: {}", parts.join("; ")))
    }
}

/// Who filters by time or text means work that failed. Refused bytes and requests for nobody can't be
/// run, and running a duplicate does again what its first one did.
fn worth_retrying(
    matching: impl Iterator<Item = Row>,
    is_known: impl Fn(&str) -> bool,
) -> (Vec<Row>, LeftOut) {
    let mut left_out = LeftOut::default();
    let mut found = Vec::new();
    for row in matching {
        let code = row.error.as_ref().map(|(code, _)| code.as_str());
        if row.refused {
            left_out.refused += 1;
        } else if !row.agent.as_deref().is_some_and(&is_known) {
            left_out.untargeted += 1;
        } else if code == Some(ErrorCode::DuplicateId.as_str()) {
            left_out.duplicates += 1;
        } else {
            found.push(row);
        }
    }
    (found, left_out)
}

/// Drops one command for each id, and tells what became of them.
pub(super) fn send(
    global: &Global,
    layout: &Layout,
    action: &str,
    ids: &[String],
    words: &Words,
    choice: Option<&str>,
) -> Outcome {
    let by = words.by.clone().unwrap_or_else(person::present);
    // The first daemon is perhaps yet to come.
    make_folder(&layout.control())?;
    let mut sent: Vec<(String, PathBuf)> = Vec::new();
    for id in ids {
        let name = format!("{action}-{}.json", uuid::Uuid::now_v7().simple());
        let mut command = json!({
            "action": action, "handoff_id": id, "by": by, "comment": words.comment,
        });
        if let Some(choice) = choice {
            command["choice"] = choice.into();
        }
        let path = layout.control().join(&name);
        let temp = layout.control().join(format!(".{name}.tmp"));
        let bytes = format!("{command}\n");
        durable::drop_whole(&path, &temp, bytes.as_bytes())
            .map_err(|error| durable::at(&path, &error))?;
        sent.push((id.clone(), path));
    }
    if !Daemon::of(layout).may_run() {
        if global.json {
            for (id, _) in &sent {
                out::tell(json!({ "id": id, "action": action, "status": "queued" }))?;
            }
        } else {
            out::talk!("no daemon runs on this root; the next one carries out the command");
        }
        return Ok(0);
    }
    let deadline = Instant::now() + PATIENCE;
    let mut refused = false;
    for (id, path) in sent {
        let told = outcome(&path, deadline);
        refused |= told.is_err();
        report(global, action, &id, &told)?;
    }
    Ok(u8::from(refused))
}

/// Waits until the daemon has taken the command up: gone is done, refused has a reason.
fn outcome(path: &std::path::Path, deadline: Instant) -> Result<bool, String> {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let reason = path
        .with_file_name("rejected")
        .join(format!("{name}.reason.json"));
    loop {
        if let Ok(bytes) = fs::read(&reason) {
            let told: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            let text = told
                .get("reason")
                .and_then(Value::as_str)
                .unwrap_or("no reason given");
            return Err(text.to_owned());
        }
        if !path.exists() {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn report(
    global: &Global,
    action: &str,
    id: &str,
    told: &Result<bool, String>,
) -> Result<(), Failed> {
    let status = match told {
        Ok(true) => "done",
        Ok(false) => "under_way",
        Err(_) => "refused",
    };
    if global.json {
        let reason = told.as_ref().err();
        return out::tell(
            json!({ "id": id, "action": action, "status": status, "reason": reason }),
        );
    }
    let id = safe(id, false);
    match told {
        Ok(true) => out::talk!("{action} {id}: done"),
        Ok(false) => out::talk!("{action} {id}: under way (see: handoffd explain {id})"),
        Err(reason) => out::talk!("{action} {id}: refused: {}", safe(reason, false)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_bulk_retry_leaves_out_is_told_in_one_line() {
        for (refused, untargeted, duplicates, told) in [
            (0, 0, 0, None),
            (
                1,
                0,
                0,
                Some(
                    "left out: 1 refused file, which is not a request (to fix it, see: handoffd show ID)",
                ),
            ),
            (
                0,
                1,
                0,
                Some(
                    "left out: 1 request without a usable target (to fix it, see: handoffd show ID)",
                ),
            ),
            (
                0,
                0,
                1,
                Some("left out: 1 duplicate (if it is new work, retry it by its id)"),
            ),
            (
                3,
                0,
                2,
                Some(
                    "left out: 3 refused files, which are not requests (to fix one, see: handoffd show ID); 2 duplicates (if one is new work, retry it by its id)",
                ),
            ),
        ] {
            let left_out = LeftOut {
                refused,
                untargeted,
                duplicates,
            };
            assert_eq!(left_out.told().as_deref(), told);
        }
    }
}
