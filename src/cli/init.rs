//! `handoffd init`: a root that works at once.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Args;

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

/// Writes a file unless one is there already.
fn put(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    durable::create_for(path, text.as_bytes(), Owner::Maker)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}
