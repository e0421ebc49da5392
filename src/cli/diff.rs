//! `handoffd diff`: what a handoff changed in its worktree, also while it runs and after the worktree is gone.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use handoffd_agents::workspace::list;
use serde_json::{Map, Value, json};

use crate::cli::access::find;
use crate::cli::style::safe;
use crate::cli::{Failed, Global, Outcome, complete, out};
use crate::config::Config;
use crate::protocol::view::View;
use crate::spool::layout::Layout;

#[derive(Debug, Args)]
#[command(
    after_help = "For specialists with `workspace = \"worktree\"`. Of a handoff that runs, it shows the files as they are now, without new ones that are not committed yet."
)]
pub struct Options {
    #[arg(value_name = "ID", add = complete::ids())]
    id: String,
    /// Only the files and how much of each
    #[arg(long)]
    stat: bool,
    /// The repository, if handoffd.toml no longer names it
    #[arg(long, value_name = "DIR")]
    repository: Option<PathBuf>,
}

/// What to compare, and where.
struct Change {
    place: PathBuf,
    branch: Option<String>,
    base: String,
    /// None: the files of the worktree as they are.
    commit: Option<String>,
}

pub fn diff(global: &Global, options: &Options) -> Outcome {
    let layout = global.existing_layout()?;
    let place = find(&layout, &options.id)?;
    let id = &place.id;
    let doc = place.read().map(|(doc, _)| doc).unwrap_or_default();
    let repository = options
        .repository
        .clone()
        .or_else(|| configured(global.load_config().ok().as_ref(), &layout, &doc));
    let Some(change) = change(&layout, id, &doc, repository.as_deref())? else {
        let error = anyhow::anyhow!(
            "{id} has no work in a worktree (no output.branch in its record, and no worktree of its own)"
        );
        return Err(Failed::thing("NO_WORKTREE", error));
    };
    let Change {
        place,
        branch,
        base,
        commit,
    } = change;
    let patch = list::diff(&place, &base, commit.as_deref(), options.stat)
        .map_err(|error| Failed::thing("WORKSPACE", error))?;
    let text = String::from_utf8_lossy(&patch);
    if global.json {
        out::tell(json!({"branch": branch, "base": base, "commit": commit, "diff": text}))?;
    } else if std::io::stdout().is_terminal() {
        out::put(safe(&text, true))?;
    } else {
        // A patch, for `git apply`: every byte as git printed it.
        out::put(patch)?;
    }
    Ok(0)
}

/// What its record says; else what stands in its worktree.
fn change(
    layout: &Layout,
    id: &str,
    doc: &Map<String, Value>,
    repository: Option<&std::path::Path>,
) -> Result<Option<Change>, Failed> {
    let last = || {
        doc.get("handoffd")?
            .get("last_result")?
            .get("result")?
            .get("output")
    };
    let text = |output: Option<&Value>, key: &str| output?.get(key)?.as_str().map(str::to_owned);
    let is_running = doc.get("status").and_then(Value::as_str) == Some("in_progress");
    for output in [doc.get("output"), last()] {
        let (branch, base) = (text(output, "branch"), text(output, "base"));
        let (Some(branch), Some(base), Some(commit), false) =
            (branch, base, text(output, "commit"), is_running)
        else {
            continue;
        };
        let trees = list::all(&layout.worktrees());
        let of_tree = trees.into_iter().find(|tree| tree.branch == branch);
        let place = of_tree.map(|tree| tree.path);
        let Some(place) = place.or_else(|| repository.map(Into::into)) else {
            let error = anyhow::anyhow!(
                "the worktree of {branch} is gone, and handoffd.toml names no repository for its \
                 specialist; name it with --repository"
            );
            return Err(Failed::thing("NO_WORKTREE", error));
        };
        return Ok(Some(Change {
            place,
            branch: Some(branch),
            base,
            commit: Some(commit),
        }));
    }
    let own = doc.get("handoffd");
    let line = own
        .and_then(|own| own.get("worktree")?.get("line"))
        .or_else(|| own?.get("chain"))
        .and_then(Value::as_str)
        .unwrap_or(id);
    let found = repository
        .and_then(|repository| list::unfinished_work(&layout.worktrees(), line, repository, id));
    Ok(found.map(|(base, place)| Change {
        place,
        branch: None,
        base,
        commit: None,
    }))
}

/// The repository of the specialist that a record is for.
fn configured(
    config: Option<&Config>,
    layout: &Layout,
    doc: &Map<String, Value>,
) -> Option<PathBuf> {
    let agent = View::of_document(doc).agent()?;
    let workspace = config?.specialist(&agent)?.workspace.as_ref()?;
    Some(layout.root().join(&workspace.repository))
}
