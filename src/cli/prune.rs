//! `handoffd prune`: deletes what has ended and is old, and nothing else.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use crate::cli::{Failed, Global, Outcome, duration};
use crate::clock::{Clock, Wall};
use crate::inspect::chain::gather;
use crate::inspect::links::Relations;
use crate::inspect::list::{Filter, places};
use crate::protocol::lifecycle::State;
use crate::spool::layout::Layout;

#[derive(Debug, Args)]
#[command(
    after_help = "Ages that are not given come from [retention] in handoffd.toml; where that is \
                        silent too, nothing of that kind is deleted. A record that one which \
                        has not ended names, and the chain of such a one, is spared.\n\nExamples:\n  handoffd prune --dry-run --completed 30d\n  \
                        handoffd prune --completed 30d --failed 90d --logs 7d"
)]
pub struct Options {
    /// Completed records older than this
    #[arg(long, value_name = "AGE", value_parser = duration)]
    completed: Option<Duration>,
    /// Failed records, and the bytes kept beside them, older than this
    #[arg(long, value_name = "AGE", value_parser = duration)]
    failed: Option<Duration>,
    /// Logs of attempts older than this
    #[arg(long, value_name = "AGE", value_parser = duration)]
    logs: Option<Duration>,
    /// Say what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
}

pub fn prune(global: &Global, options: &Options) -> Outcome {
    let layout = global.existing_layout()?;
    let retention = global.load_config()?.retention;
    let now = Clock::System.now().wall;
    let before = |age: Option<Duration>| {
        age.map(|age| now.plus_ms(-i64::try_from(age.as_millis()).unwrap_or(i64::MAX)))
    };
    let ages = [
        (
            "completed",
            before(options.completed.or(retention.completed)),
        ),
        ("failed", before(options.failed.or(retention.failed))),
        ("logs", before(options.logs.or(retention.logs))),
    ];
    if ages.iter().all(|(_, before)| before.is_none()) {
        let text = "nothing says how old is old: give --completed, --failed or --logs an age, or \
                    set [retention] in handoffd.toml";
        return Err(Failed::usage("USAGE", anyhow::anyhow!(text)));
    }
    let spared = named_by_live(&layout)?;
    for (kind, before) in ages {
        let Some(before) = before else { continue };
        let files = match kind {
            "completed" => records(&layout, State::Completed, before, &spared)?,
            "failed" => records(&layout, State::Failed, before, &spared)?,
            _ => logs(&layout, before)?,
        };
        if !options.dry_run {
            for file in &files {
                remove(file)?;
            }
        }
        if global.json {
            let text = json!({ "kind": kind, "files": files.len(), "deleted": !options.dry_run });
            println!("{text}");
        } else {
            let verb = if options.dry_run {
                "would delete"
            } else {
                "deleted"
            };
            println!("{kind}: {verb} {} files", files.len());
        }
    }
    Ok(0)
}

/// It may be gone already: somebody moved it back into the queue, or pruned beside us.
fn remove(path: &PathBuf) -> Result<(), Failed> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(anyhow::anyhow!("{}: {error}", path.display()).into())
        }
        _ => Ok(()),
    }
}

/// Ids that a handoff which has not ended still names.
fn named_by_live(layout: &Layout) -> Result<HashSet<String>, Failed> {
    let live = Filter {
        states: vec![State::Pending, State::InProgress, State::Waiting],
        ..Filter::default()
    };
    let mut named = HashSet::new();
    let mut chained = HashSet::new();
    for place in places(layout, &live)? {
        let Some((doc, _)) = place.read() else {
            continue;
        };
        let links = Relations::of(&doc);
        named.extend(links.named().cloned());
        // A chain is kept whole while any of it is on its way.
        if links.is_linked() && chained.insert(place.id.clone()) {
            let members = gather(layout, &place.id);
            let ids = members.nodes().into_iter().map(|node| node.id.clone());
            chained.extend(ids);
        }
    }
    named.extend(chained);
    Ok(named)
}

fn records(
    layout: &Layout,
    state: State,
    before: Wall,
    spared: &HashSet<String>,
) -> Result<Vec<PathBuf>, Failed> {
    let filter = Filter {
        states: vec![state],
        ..Filter::default()
    };
    let mut files = Vec::new();
    for place in places(layout, &filter)? {
        if place.modified >= before || spared.contains(&place.id) {
            continue;
        }
        let rejected = place.path.with_extension("rejected");
        if state == State::Failed && fs::symlink_metadata(&rejected).is_ok() {
            files.push(rejected);
        }
        files.extend(originals(layout, &place.id));
        files.push(place.path);
    }
    Ok(files)
}

fn originals(layout: &Layout, id: &str) -> Vec<PathBuf> {
    ["yaml", "yml", "md"]
        .iter()
        .map(|ext| layout.originals().join(format!("{id}.{ext}")))
        .filter(|path| path.exists())
        .collect()
}

fn logs(layout: &Layout, before: Wall) -> Result<Vec<PathBuf>, Failed> {
    use std::os::unix::fs::MetadataExt;
    let mut files = Vec::new();
    for entry in fs::read_dir(layout.logs())? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_file() && Wall(metadata.mtime() * 1000) < before {
            files.push(entry.path());
        }
    }
    Ok(files)
}
