//! `handoffd workspace`: a command in a git worktree of its own.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use handoffd_agents::workspace::run::Printed;
use handoffd_agents::workspace::{Order, run};

use crate::cli::{Failed, Global, Outcome, out};
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
    let mut stdout = out::lock();
    let ended = run(&order, &record, &mut stdout)?;
    stdout.flush().context("can't write the result")?;
    Ok(ended.code)
}

fn read_result(bytes: &[u8]) -> Printed {
    match Output::read(bytes) {
        Output::Result {
            result,
            text,
            remark,
        } => Printed::Result {
            result,
            text,
            remark,
        },
        Output::Text(text) => Printed::Text { text, remark: None },
        Output::Unreported { why, text } => Printed::Text {
            text,
            remark: Some(why),
        },
        Output::Broken { why, text } => Printed::Broken { why, text },
        Output::TooLarge => Printed::Unusable,
        Output::Nothing => Printed::Nothing,
    }
}
