//! A folder for the files of one call, deleted with it.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub fn new() -> io::Result<Self> {
        let pid = std::process::id();
        let temporary = std::env::temp_dir();
        let mut last = io::Error::other("no name is free");
        for n in 0..100 {
            let path = temporary.join(format!("handoffd-agent-{pid}-{n}"));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file and says where it is.
    pub fn file(&self, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        fs::write(&path, bytes)?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left lies in the folder for temporary files.
        drop(fs::remove_dir_all(&self.path));
    }
}
