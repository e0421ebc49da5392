//! `handoffd workspace`, `worktrees` and `diff`: commands in git worktrees, and looking after those.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use handoffd_agents::workspace::git::WorkspaceError;
use handoffd_agents::workspace::list::{self, Found, Pruned};
use handoffd_agents::workspace::run::Printed;
use handoffd_agents::workspace::{Order, run};
use serde_json::json;

use crate::cli::access::find;
use crate::cli::style::{Ink, columns, ink, safe};
use crate::cli::{Failed, Global, Outcome, complete, out};
use crate::inspect::chain::gather;
use crate::protocol::result::Output;

#[derive(Debug, Args)]
#[command(
    after_help = "Reads the record on stdin and prints the command's result with `output.branch`, `output.base`, `output.commit` and `output.diffstat`. Commits what the command left uncommitted, even if the command fails.\n\nIn handoffd.toml, `workspace = \
                  \"worktree\"` in a specialist is short for this command."
)]
pub struct Options {
    /// The repository of the worktrees
    #[arg(long, value_name = "DIR")]
    repository: PathBuf,
    /// The branch or commit where a first worktree begins [default: HEAD]
    #[arg(long, value_name = "REF")]
    base: Option<String>,
    /// A file to copy from the repository to a new worktree; repeatable
    #[arg(long, value_name = "FILE")]
    copy: Vec<String>,
    /// The command that prepares a new worktree, as a JSON list
    #[arg(long, value_name = "LIST")]
    setup: Option<String>,
    /// The command's output is not a result
    #[arg(long)]
    plain: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "ARGV")]
    command: Vec<String>,
}

pub fn workspace(global: &Global, options: &Options) -> Outcome {
    let setup = match &options.setup {
        None => Vec::new(),
        Some(list) => serde_json::from_str(list).map_err(|error| {
            let what = "--setup must be a JSON list of words, such as [\"npm\", \"ci\"]";
            Failed::usage("USAGE", anyhow::anyhow!("{what}: {error}"))
        })?,
    };
    let mut record = Vec::new();
    std::io::stdin()
        .read_to_end(&mut record)
        .context("can't read the record from stdin")?;
    let of_attempt = std::env::var_os("HANDOFF_ROOT").filter(|root| !root.is_empty());
    let root = match of_attempt {
        Some(root) => PathBuf::from(root),
        None => global.layout()?.root().to_owned(),
    };
    let order = Order {
        repository: root.join(&options.repository),
        root,
        base: options.base.clone(),
        copy: options.copy.clone(),
        setup,
        command: options.command.clone(),
        plain: options.plain,
        read_result,
    };
    let mut printed = Vec::new();
    let ended = run(&order, &record, &mut printed)?;
    out::put(&printed)?;
    Ok(ended.code)
}

fn read_result(bytes: &[u8]) -> Printed {
    match Output::read(bytes) {
        Output::Result { result, .. } => Printed::Result(result),
        Output::Nothing => Printed::Nothing,
        Output::Text(_) | Output::Unreported { .. } | Output::Broken { .. } | Output::TooLarge => {
            Printed::Other
        }
    }
}

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
struct PruneOptions {
    /// Only list what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Also delete branches with commits that no other branch has
    #[arg(long)]
    force: bool,
}

pub fn worktrees(global: &Global, options: &TreesOptions) -> Outcome {
    let layout = global.existing_layout()?;
    let folder = layout.root().join("worktrees");
    let found = list::all(&folder);
    match &options.what {
        None | Some(What::List) => show(global, &found),
        Some(What::Prune(options)) => {
            let ended = found.iter().filter(|tree| {
                matches!(gather(&layout, &tree.line).state(), "completed" | "failed")
            });
            prune(global, &folder, ended, options)
        }
    }
}

fn show(global: &Global, found: &[Found]) -> Outcome {
    if global.json {
        for tree in found {
            out::tell(json!({
                "line": tree.line, "path": tree.path, "branch": tree.branch,
                "repository": tree.repository, "commit": tree.commit,
                "uncommitted": tree.uncommitted,
            }))?;
        }
        return Ok(0);
    }
    if found.is_empty() {
        out::talk!("No worktrees. A specialist with `workspace = \"worktree\"` creates them.");
        return Ok(0);
    }
    let head = ["LINE", "BRANCH", "COMMIT", "UNCOMMITTED", "REPOSITORY"];
    let mut rows = vec![head.map(|word| ink(word, Ink::Bold)).to_vec()];
    rows.extend(found.iter().map(|tree| {
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
    out::put(columns(&rows))?;
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
        let (line, branch) = (safe(&tree.line, false), safe(&tree.branch, false));
        if options.dry_run {
            tell(
                global,
                &tree.line,
                "would be removed",
                &format!("{line}: would be removed"),
            )?;
            continue;
        }
        match list::prune(folder, tree, options.force) {
            Ok(Pruned::WithBranch) => tell(
                global,
                &tree.line,
                "removed",
                &format!("{line}: removed, with its branch {branch}"),
            )?,
            Ok(Pruned::KeptBranch) => tell(
                global,
                &tree.line,
                "branch kept",
                &format!("{line}: removed; kept the branch {branch}, which has commits of its own"),
            )?,
            Err(error) => {
                code = 1;
                out::talk!("handoffd: {line}: {}", safe(&error.to_string(), true));
            }
        }
    }
    if count == 0 {
        out::talk!("Nothing to remove: no worktree belongs to an ended chain.");
    }
    Ok(code)
}

fn tell(global: &Global, line: &str, what: &str, words: &str) -> Result<(), Failed> {
    if global.json {
        return out::tell(json!({"line": line, "result": what}));
    }
    out::tell(words)
}

#[derive(Debug, Args)]
#[command(after_help = "For specialists with `workspace = \"worktree\"`.")]
pub struct DiffOptions {
    #[arg(value_name = "ID", add = complete::ids())]
    id: String,
    /// Only the files and how much of each
    #[arg(long)]
    stat: bool,
    /// The repository, where the worktree is not there any more
    #[arg(long, value_name = "DIR")]
    repository: Option<PathBuf>,
}

pub fn diff(global: &Global, options: &DiffOptions) -> Outcome {
    let layout = global.existing_layout()?;
    let place = find(&layout, &options.id)?;
    let id = &place.id;
    let doc = place.read().map(|(doc, _)| doc).unwrap_or_default();
    let output = |key: &str| doc.get("output")?.get(key)?.as_str().map(str::to_owned);
    let (Some(branch), Some(base), Some(commit)) =
        (output("branch"), output("base"), output("commit"))
    else {
        let error =
            anyhow::anyhow!("{id} has no work in a worktree (no output.branch in its record)");
        return Err(Failed::thing("NO_WORKTREE", error));
    };
    let trees = list::all(&layout.root().join("worktrees"));
    let of_tree = trees.into_iter().find(|tree| tree.branch == branch);
    let repository = match (&options.repository, of_tree) {
        (Some(repository), _) => repository.clone(),
        (None, Some(tree)) => tree.path,
        (None, None) => {
            let error = anyhow::anyhow!(
                "the worktree of {branch} is not there any more; name the repository with --repository"
            );
            return Err(Failed::thing("NO_WORKTREE", error));
        }
    };
    let text = list::diff(&repository, &base, &commit, options.stat).map_err(failed)?;
    if global.json {
        out::tell(json!({"branch": branch, "base": base, "commit": commit, "diff": text}))?;
    } else {
        out::put(format!("{}\n", safe(&text, true)))?;
    }
    Ok(0)
}

fn failed(error: WorkspaceError) -> Failed {
    Failed::thing("WORKSPACE", error)
}
