//! `handoffd worktrees`: the git worktrees of a root, listed or removed.
//!
//! Both first commit what an interrupted attempt left uncommitted, unless somebody works in the tree.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use clap::{Args, Subcommand};
use handoffd_agents::workspace::list::{self, Found, Pruned, Settled};
use rustix::process::getuid;
use serde_json::{Value, json};

use crate::cli::style::{Ink, columns, ink, safe};
use crate::cli::{Failed, Global, Outcome, duration, out, person};
use crate::clock::Clock;
use crate::retention::trees::{Trees, told, touched};

#[derive(Debug, Args)]
pub struct TreesOptions {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The worktrees of this root
    List,
    /// Remove the worktrees of chains that have ended. Branches with commits of their own stay
    Prune(PruneOptions),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Commits what is uncommitted first. Keeps every branch with commits that no other branch has.\n\nWith `worktrees` in [retention], the daemon does the same by itself."
)]
struct PruneOptions {
    /// Only list what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Only worktrees in which nothing has happened for this long
    #[arg(long, value_name = "AGE", value_parser = duration)]
    older_than: Option<Duration>,
    /// Also delete branches with commits that no other branch has
    #[arg(long)]
    force: bool,
}

pub fn worktrees(global: &Global, options: &TreesOptions) -> Outcome {
    let layout = global.existing_layout()?;
    let folder = layout.worktrees();
    match &options.what {
        None | Some(What::List) => show(global, &folder),
        Some(What::Prune(options)) => {
            if let Some(owner) = other_owner(&folder) {
                let text = format!(
                    "the worktrees belong to {owner}, and git would leave files that {owner} can't use; \
                     run it as {owner}: sudo -u {owner} handoffd worktrees prune"
                );
                return Err(Failed::thing("OWNER", anyhow::anyhow!(text)));
            }
            let trees = Trees::of(&layout)?;
            let now = Clock::System.now().wall;
            let age = options.older_than.unwrap_or_default();
            let before = now.plus_ms(-i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
            let old = trees.ended().filter(|tree| touched(tree, now) <= before);
            prune(global, &folder, old, options)
        }
    }
}

/// The user that the worktrees belong to, if it is another one.
fn other_owner(folder: &Path) -> Option<String> {
    let uid = std::fs::metadata(folder).ok()?.uid();
    (uid != getuid().as_raw()).then(|| person::name_of(uid).unwrap_or_else(|| format!("#{uid}")))
}

/// A worktree as the list shows it.
struct Row {
    tree: Found,
    note: String,
}

/// Commits what an interrupted attempt left, and looks again at those trees.
fn rows(folder: &Path) -> Vec<Row> {
    let mine = other_owner(folder).is_none();
    let row = |tree: Found| {
        if !mine || (tree.finished && tree.uncommitted == 0) {
            let note = String::new();
            return Row { tree, note };
        }
        let mut notes = Vec::new();
        match list::settle(folder, &tree, &mut notes) {
            Settled::AtRest => {}
            Settled::HalfMade => notes.push("half-made; the next attempt makes it anew".to_owned()),
            Settled::LeftAlone(why) => notes.push(why),
        }
        Row {
            tree: list::inspect(tree.line, tree.path),
            note: notes.join("; "),
        }
    };
    list::all(folder).into_iter().map(row).collect()
}

fn show(global: &Global, folder: &Path) -> Outcome {
    let rows = rows(folder);
    if global.json {
        for Row { tree, note } in &rows {
            out::tell(json!({
                "line": tree.line, "path": tree.path, "branch": tree.branch,
                "repository": tree.repository, "commit": tree.commit,
                "uncommitted": tree.uncommitted,
                "note": if note.is_empty() { Value::Null } else { note.as_str().into() },
            }))?;
        }
        return Ok(0);
    }
    if rows.is_empty() {
        out::talk!("No worktrees. A specialist with `workspace = \"worktree\"` creates them.");
        return Ok(0);
    }
    let head = ["LINE", "BRANCH", "COMMIT", "UNCOMMITTED", "REPOSITORY"];
    let mut table = vec![head.map(|word| ink(word, Ink::Bold)).to_vec()];
    table.extend(rows.iter().map(|Row { tree, .. }| {
        let commit = tree.commit.as_deref().and_then(|commit| commit.get(..12));
        let repository = tree
            .repository
            .as_ref()
            .map(|path| path.display().to_string());
        vec![
            safe(&tree.line, false),
            safe(&tree.branch, false),
            commit.unwrap_or("-").to_owned(),
            tree.uncommitted.to_string(),
            safe(&repository.unwrap_or_else(|| "not there".to_owned()), false),
        ]
    }));
    out::put(columns(&table))?;
    for Row { tree, note } in rows.iter().filter(|row| !row.note.is_empty()) {
        out::talk!("! {}: {}", safe(&tree.line, false), safe(note, false));
    }
    Ok(0)
}

fn prune<'t>(
    global: &Global,
    folder: &Path,
    ended: impl Iterator<Item = &'t Found>,
    options: &PruneOptions,
) -> Outcome {
    let mut code = 0;
    let mut count = 0;
    for tree in ended {
        count += 1;
        if options.dry_run {
            let words = format!("{}: would be removed", tree.line);
            tell(global, tree, "would be removed", &[], &words)?;
            continue;
        }
        match list::prune(folder, tree, options.force) {
            Ok(pruned) => {
                let words = told(tree, &pruned);
                match pruned {
                    Pruned::WithBranch => tell(global, tree, "removed", &[], &words)?,
                    Pruned::KeptBranches(kept) => {
                        tell(global, tree, "branch kept", &kept, &words)?;
                    }
                }
            }
            Err(error) => {
                code = 1;
                let line = safe(&tree.line, false);
                out::talk!("handoffd: {line}: {}", safe(&error.to_string(), true));
            }
        }
    }
    if count == 0 {
        out::talk!("Nothing to remove: no worktree belongs to an ended chain.");
    }
    Ok(code)
}

fn tell(
    global: &Global,
    tree: &Found,
    what: &str,
    kept: &[String],
    words: &str,
) -> Result<(), Failed> {
    if global.json {
        return out::tell(json!({"line": tree.line, "result": what, "kept": kept}));
    }
    out::tell(safe(words, false))
}
