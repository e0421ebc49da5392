//! The examples, run as a reader would run them: `examples/` is copied and a daemon works on the
//! copy. Every file in it is listed here with its outcome, so none can be added or break unseen.
//!
//! Where an interpreter is missing, what needs it is left out, and said so.

#![expect(
    clippy::disallowed_methods,
    reason = "these tests play producers, who rename as they like"
)]

#[expect(
    dead_code,
    unused_imports,
    reason = "the harness of the end-to-end tests; the examples need little of it"
)]
#[path = "../common/mod.rs"]
mod common;

mod dialects;
mod example;
mod producers;
mod returns;
mod specialists;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::Root;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A copy of the examples, as a root.
fn copied() -> Root {
    let root = Root::new();
    let copied = Command::new("cp")
        .arg("-r")
        .arg(repository().join("examples/."))
        .arg(root.dir())
        .status();
    assert!(copied.unwrap().success());
    root
}

/// Whether a program can be started here; if not, says what is left out.
fn is_here(program: &str, needed_for: &str) -> bool {
    let here = Command::new(program)
        .arg(if program == "go" {
            "version"
        } else {
            "--version"
        })
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !here {
        println!("{program} is not here: {needed_for} is left out");
    }
    here
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().path().is_file())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Drops a file of the copy under an id.
fn drop_file(root: &Root, file: &str, id: &str) {
    let ext = Path::new(file).extension().unwrap().to_str().unwrap();
    let bytes = fs::read(root.path(file)).unwrap();
    root.drop_bytes(&format!("{id}.{ext}"), &bytes);
}

fn read(root: &Root, file: &str) -> String {
    fs::read_to_string(root.path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}
