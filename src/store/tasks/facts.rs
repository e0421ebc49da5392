//! What is true of the files that a state speaks of.
//!
//! Paths come from agents: they are relative to the root and stay inside it, also by way of
//! links, and only plain files are read.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::path::{Component, Path};

use sha2::{Digest, Sha256};

use super::error::StoreError;
use super::file::open_plain;

/// A file as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// SHA-256, in hex.
    pub sha256: String,
    pub size: u64,
}

/// Reads the file at `path` below `root`, or says why that can't be done.
pub fn fact(root: &Path, path: &str) -> Result<Fact, String> {
    let below = Path::new(path);
    let inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if path.is_empty() || !below.components().all(inside) {
        return Err("it must be a path below the root".to_owned());
    }
    let full = root.join(below);
    let home = root.canonicalize().map_err(|error| error.to_string())?;
    match full.canonicalize() {
        Ok(real) if real.starts_with(&home) => digest(&real),
        Ok(_) => Err("it leads out of the root".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err("it is not there".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn digest(path: &Path) -> Result<Fact, String> {
    let file = open_plain(path, OpenOptions::new().read(true)).map_err(|error| match error {
        StoreError::NotAFile { what, .. } => format!("it is {what}, not a file"),
        StoreError::Io { source, .. } => source.to_string(),
        other => other.to_string(),
    })?;
    let Some(mut file) = file else {
        return Err("it is not there".to_owned());
    };
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut size = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(got) => {
                hasher.update(&buffer[..got]);
                size += got as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    let sha256 = hasher
        .finalize()
        .iter()
        .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    Ok(Fact { sha256, size })
}
