//! `handoffd prune`: deletes what has ended and is old, and nothing else.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use crate::cli::out::Telling;
use crate::cli::style::safe;
use crate::cli::{Failed, Global, Outcome, duration};
use crate::clock::Clock;
use crate::retention::leave;
use crate::retention::spared::Spared;
use crate::retention::sweep::{Kind, Sweep};

#[derive(Debug, Args)]
#[command(
    after_help = "Missing ages come from [retention] in handoffd.toml; a kind without any age is not deleted. Keeps records that unfinished handoffs refer to, with their chains.\n\nExamples:\n  handoffd prune --dry-run --completed 30d\n  \
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
    /// List the files that would be deleted; delete nothing
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
            Kind::Completed,
            before(options.completed.or(retention.completed)),
        ),
        (Kind::Failed, before(options.failed.or(retention.failed))),
        (Kind::Logs, before(options.logs.or(retention.logs))),
    ];
    if ages.iter().all(|(_, before)| before.is_none()) {
        let text = "no age given: use --completed, --failed or --logs with an age, or set [retention] in handoffd.toml";
        return Err(Failed::usage("USAGE", anyhow::anyhow!(text)));
    }
    if !options.dry_run {
        leave::put_back(&layout)?;
    }
    let mut told = Telling::default();
    let mut spared = Spared::default();
    for (kind, before) in ages {
        let Some(before) = before else { continue };
        let sweep = Sweep {
            layout: &layout,
            kind,
            before,
            pause: &|| {},
        };
        let mut files = 0;
        let mut listed = Vec::new();
        sweep.run(&mut spared, |old| {
            for old in old {
                if !options.dry_run {
                    files += old.remove(&layout)?;
                    continue;
                }
                files += old.count();
                let paths = old.paths(&layout).map(|path| layout.relative(&path));
                if global.json {
                    listed.extend(paths);
                } else {
                    for path in paths {
                        told.tell(safe(&path, false));
                    }
                }
            }
            Ok(())
        })?;
        let kind = kind.word();
        if global.json {
            let mut text = json!({ "kind": kind, "files": files, "deleted": !options.dry_run });
            if options.dry_run {
                text["paths"] = listed.into();
            }
            told.tell(text);
            continue;
        }
        let noun = if files == 1 { "file" } else { "files" };
        let verb = if options.dry_run {
            "would delete"
        } else {
            "deleted"
        };
        told.tell(format!("{kind}: {verb} {files} {noun}"));
    }
    told.over()
}
