//! Which folder is the root: the one that is named, else the nearest from here upward that looks like
//! one, as git finds its repository. `run` and `init` take this folder itself, and `run` makes a root
//! only of a folder that is named.

use std::io;
use std::path::{Path, PathBuf};

use crate::cli::{Failed, Global, config_failed};
use crate::config::Config;
use crate::durable;
use crate::spool::layout::Layout;

/// The nearest folder from here upward that is a root.
pub fn nearest() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().find(|it| is_root(it)).map(Path::to_owned)
}

fn is_root(folder: &Path) -> bool {
    folder.join("handoffd.toml").is_file() || folder.join("handoffs").is_dir()
}

impl Global {
    /// The root, or this folder where there is none.
    pub(super) fn folder(&self) -> io::Result<PathBuf> {
        match &self.root {
            Some(named) => std::path::absolute(named),
            None => nearest().map_or_else(|| std::path::absolute("."), Ok),
        }
    }

    pub(super) fn layout(&self) -> Result<Layout, Failed> {
        Ok(Layout::new(&self.folder()?))
    }

    /// The folder that `init` makes a root of, as it was written.
    pub(super) fn named_or_here(&self) -> &Path {
        self.root.as_deref().unwrap_or(Path::new("."))
    }

    /// The root of a daemon. One that is named is made where it is missing, as service units have it.
    pub(super) fn layout_to_run(&self) -> Result<Layout, Failed> {
        let folder = std::path::absolute(self.named_or_here())?;
        if self.root.is_some() || is_root(&folder) {
            return Ok(Layout::new(&folder));
        }
        let above = match nearest() {
            Some(root) => format!(
                "; to run the root above it: handoffd run --root {}",
                root.display()
            ),
            None => String::new(),
        };
        let text = format!(
            "{} is not a root: it has no handoffd.toml and no handoffs/ folder; to create a root here: handoffd init{above}",
            folder.display()
        );
        Err(Failed::usage("NO_ROOT", anyhow::anyhow!(text)))
    }

    /// The layout of a root that exists.
    pub(super) fn existing_layout(&self) -> Result<Layout, Failed> {
        let layout = self.layout()?;
        match layout.handoffs().metadata() {
            Ok(found) if found.is_dir() => return Ok(layout),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(durable::at(layout.handoffs(), &error).into());
            }
            _ => {}
        }
        let root = layout.root().display();
        let found = match self.root {
            None if !is_root(layout.root()) => {
                format!("{root} is not a root, and no folder above it is one")
            }
            _ => format!("{root} has no handoffs/ folder"),
        };
        let text =
            format!("{found}; choose a root with --root DIR, or create one: handoffd init DIR");
        Err(Failed::usage("NO_ROOT", anyhow::anyhow!(text)))
    }

    pub(super) fn config_path(&self) -> Result<PathBuf, Failed> {
        match &self.config {
            Some(named) => Ok(named.clone()),
            None => Ok(self.folder()?.join("handoffd.toml")),
        }
    }

    pub(super) fn load_config(&self) -> Result<Config, Failed> {
        let (path, root) = (self.config_path()?, self.folder()?);
        Config::load(&path, self.config.is_some(), &root).map_err(config_failed)
    }
}
