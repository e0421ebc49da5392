//! `handoffd archive`: packs what ended long ago, where it is still found.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;

use crate::cli::out::Telling;
use crate::cli::{Failed, Global, Outcome, duration, out, unknown_id};
use crate::clock::Clock;
use crate::protocol::lifecycle::State;
use crate::retention::leave;
use crate::retention::pack::{Packer, Tally, restore};
use crate::retention::spared::Spared;
use crate::retention::sweep::{Kind, Sweep};
use crate::spool::layout::Layout;
use crate::store::archive::Archive;

#[derive(Debug, Args)]
#[command(
    after_help = "Packs the record, the request as it was dropped and the logs of attempts into archive/packed-DAY-N.jsonl.gz (readable with zcat). show, list --archived, chain, audit, export, wait and logs still find packed handoffs, their ids stay taken, and dependencies on completed ones stay met. Like prune, it keeps handoffs that unfinished handoffs refer to. It may run beside a daemon.\n\nExamples:\n  handoffd archive \
                  --dry-run\n  handoffd archive --older-than 7d --state completed\n  handoffd archive \
                  --restore build-17"
)]
pub struct Options {
    /// The minimum time since they ended
    #[arg(long, value_name = "AGE", value_parser = duration, default_value = "30d")]
    older_than: Duration,
    /// Only this state [default: both]
    #[arg(long, value_enum, value_delimiter = ',')]
    state: Vec<Ended>,
    /// Show what would be packed; pack nothing
    #[arg(long)]
    dry_run: bool,
    /// Restore this handoff to its folder instead, for example to retry it
    #[arg(long, value_name = "ID", conflicts_with_all = ["older_than", "state", "dry_run"])]
    restore: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Ended {
    Completed,
    Failed,
}

pub fn archive(global: &Global, options: &Options) -> Outcome {
    let layout = global.existing_layout()?;
    if let Some(id) = &options.restore {
        return put_back(&layout, id);
    }
    let now = Clock::System.now().wall;
    let age = i64::try_from(options.older_than.as_millis()).unwrap_or(i64::MAX);
    let archive = Archive::new(&layout.archive());
    let lock = (!options.dry_run).then(|| archive.lock()).transpose()?;
    if lock.is_some() {
        layout.ensure()?;
        leave::put_back(&layout)?;
        archive.mend()?;
    }
    let mut told = Telling::default();
    let mut spared = Spared::default();
    for (state, kind) in [
        (Ended::Completed, Kind::Completed),
        (Ended::Failed, Kind::Failed),
    ] {
        if !options.state.is_empty() && !options.state.contains(&state) {
            continue;
        }
        let sweep = Sweep {
            layout: &layout,
            kind,
            before: now.plus_ms(age.saturating_neg()),
            pause: &|| {},
        };
        let mut packer = Packer::new(&layout, now);
        sweep.run(&mut spared, |old| {
            for old in old {
                if options.dry_run {
                    packer.count(&old);
                } else {
                    packer.take(old)?;
                }
            }
            Ok(())
        })?;
        packer.flush()?;
        tell(global, kind, packer.tally, options.dry_run, &mut told);
    }
    told.over()
}

fn tell(global: &Global, kind: Kind, tally: Tally, dry_run: bool, told: &mut Telling) {
    let kind = kind.word();
    let Tally { packed, left } = tally;
    if global.json {
        let text = json!({ "kind": kind, "handoffs": packed, "left": left, "packed": !dry_run });
        told.tell(text);
        return;
    }
    let (verb, stay) = if dry_run {
        ("would pack", "would be")
    } else {
        ("packed", "were")
    };
    let noun = if packed == 1 { "handoff" } else { "handoffs" };
    told.tell(format!("{kind}: {verb} {packed} {noun}"));
    if left > 0 {
        out::talk!("{kind}: {left} {stay} left where they are: no records, or changed meanwhile");
    }
}

fn put_back(layout: &Layout, id: &str) -> Outcome {
    let archive = Archive::new(&layout.archive());
    let taken = |state: State| {
        let text = format!("{id} is already in {}", layout.record(state, id).display());
        Err(Failed::thing("TAKEN", anyhow::anyhow!(text)))
    };
    if let Some(state) = layout.states_of(id).first() {
        return taken(*state);
    }
    let found = archive.find(id)?;
    let packed = found.ok_or_else(|| unknown_id(layout, id))?;
    layout.ensure()?;
    let _lock = archive.lock()?;
    if !restore(layout, &packed)? {
        return taken(packed.state);
    }
    // Only now: killed in between, it stands in both, and the folder counts.
    archive.let_go(id)?;
    out::talk!("restored {id} to {}", packed.state);
    Ok(0)
}
