//! `handoffd init`: a root that works at once.

mod agents;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use handoffd_agents::workspace::git::Repository;

use crate::cli::{Failed, Global, Outcome, out};
use crate::durable;
use crate::durable::owner::{Owner, make_top};
use crate::engine::start;
use crate::protocol::shown;
use crate::spool::layout::{Layout, make_folder};

const CONFIG: &str = include_str!("init/handoffd.toml");
const SPECIALIST: &str = include_str!("init/echo.sh");
const REQUEST: &str = include_str!("init/request.json");

#[derive(Debug, Args)]
pub struct Options {
    /// The folder [default: this folder]
    dir: Option<PathBuf>,
    /// For the coding agents that are installed: claude, codex, gemini, opencode
    #[arg(long)]
    agents: bool,
    /// With --agents: the repository that they work on [default: the one around this folder]
    #[arg(long, value_name = "DIR", requires = "agents")]
    repository: Option<PathBuf>,
}

pub fn init(global: &Global, options: &Options) -> Outcome {
    let dir = options
        .dir
        .as_deref()
        .unwrap_or_else(|| global.named_or_here());
    let root = std::path::absolute(dir)?;
    let layout = Layout::new(&root);
    if root.join("handoffd.toml").exists() {
        return Err(Failed::thing(
            "EXISTS",
            anyhow::anyhow!(
                "{} already has a handoffd.toml; changed nothing",
                root.display()
            ),
        ));
    }
    if let Some(wrong) = start::refuses(&layout)? {
        let text = format!(
            "created nothing in {}, because handoffd run would refuse it: {wrong}",
            root.display()
        );
        return Err(Failed::usage("START", anyhow::anyhow!(text)));
    }
    if options.agents {
        return for_agents(global, options, dir, &layout);
    }
    make_top(&root)?;
    layout.ensure()?;
    for folder in ["schemas", "specialists", "examples"] {
        make_folder(&root.join(folder))?;
    }
    put(&root.join("handoffd.toml"), CONFIG, 0o644)?;
    put(&root.join("specialists/echo.sh"), SPECIALIST, 0o755)?;
    put(&root.join("examples/hello.json"), REQUEST, 0o644)?;
    if global.json {
        out::tell(serde_json::json!({ "root": root }))?;
    } else {
        let word = |below: &str| shown::path(&dir.join(below));
        out::talk!("Created a root in {}. Next:", root.display());
        out::talk!("  handoffd run --root {} &", shown::path(dir));
        let (request, pending) = (word("examples/hello.json"), word("handoffs/pending/"));
        out::talk!("  cp {request} {pending}");
        out::talk!("  cat {}", word("handoffs/completed/hello.json"));
    }
    Ok(0)
}

/// A root for the agents that are installed.
fn for_agents(global: &Global, options: &Options, dir: &Path, layout: &Layout) -> Outcome {
    let root = layout.root();
    let repository = match &options.repository {
        Some(named) => Some(
            Repository::find(&std::path::absolute(named)?)
                .map_err(|error| Failed::thing("REPOSITORY", error))?,
        ),
        None => Repository::find(&std::env::current_dir()?).ok(),
    };
    if let Some(empty) = repository.as_ref().filter(|it| it.commit("HEAD").is_none()) {
        let top = empty.top.display();
        let text = format!("the repository {top} has no commit yet; create the first one");
        return Err(Failed::thing("REPOSITORY", anyhow::anyhow!(text)));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = agents::look(agents::installed(&path), repository.as_ref());
    make_top(root)?;
    layout.ensure()?;
    for folder in ["schemas", "prompts", "examples"] {
        make_folder(&root.join(folder))?;
    }
    for (name, text) in agents::FILES {
        put(&root.join(name), text, 0o644)?;
    }
    put(&root.join("handoffd.toml"), &found.config(), 0o644)?;
    let excluded = match &repository {
        Some(repository) => agents::ignore(repository, root)?,
        None => None,
    };
    let names: Vec<&str> = found.agents.iter().map(|agent| agent.name).collect();
    if global.json {
        let text = serde_json::json!({
            "root": root, "agents": names, "repository": found.repository,
        });
        out::tell(text)?;
        return Ok(0);
    }
    let word = |below: &str| shown::path(&dir.join(below));
    if let Some(file) = excluded {
        out::talk!(
            "Told git to leave the queue's folders alone, in {}",
            file.display()
        );
    }
    match &found.repository {
        Some(repository) => out::talk!(
            "Created a root in {}. Agents work in git worktrees of {}.",
            root.display(),
            repository.display()
        ),
        None => out::talk!(
            "Created a root in {}. No git repository here, so agents work in that folder; see \
             `workspace` in its handoffd.toml.",
            root.display()
        ),
    }
    let Some(first) = names.first() else {
        out::talk!("! No coding agent is in PATH. Install one, and log in once:");
        let known = agents::AGENTS.map(|agent| agent.package).join(" | ");
        out::talk!("  npm install -g {known}");
        out::talk!("  handoffd check --root {}", shown::path(dir));
        return Ok(0);
    };
    out::talk!("Found: {}. Next:", names.join(", "));
    let at = format!("--root {}", shown::path(dir));
    out::talk!("  handoffd run {at} &");
    out::talk!(
        "  handoffd submit {at} --to {first} --input '{{\"task\": \"Fix a typo in the README\"}}' --wait"
    );
    out::talk!(
        "For plan, code, your review and test: edit {}, then",
        word("examples/feature.json")
    );
    out::talk!("  handoffd submit {at} {}", word("examples/feature.json"));
    out::talk!("  handoffd list {at} --waiting human");
    Ok(0)
}

/// Writes a file unless one is there already.
fn put(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    durable::create_for(path, text.as_bytes(), Owner::Maker)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}
