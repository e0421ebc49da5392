//! JSON Schemas that requests and specialists name: `input.data` and outputs held against them.
//!
//! Schemas are files below `schemas/`, and refer to nothing else. They are compiled once and
//! again when they, or a file that they refer to, have changed; a check costs a stat for each
//! file. A schema can't harm the daemon, whatever it says: the limits are in [`engine`].
//!
//! Not here: what follows from an answer, and schemas in YAML.

mod alternatives;
mod engine;
mod file;
mod load;
mod name;
mod say;
mod show;
mod walk;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::protocol::field::FieldError;
use engine::Compiled;
use file::Stamp;
use load::Loader;

/// Schemas that are kept compiled.
const MOST_KEPT: usize = 256;

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    Valid,
    /// All errors, in the order of the document; beyond a hundred they are only counted.
    Invalid(Vec<FieldError>),
    /// A sentence: which file is not there, and who refers to it.
    Missing(String),
    /// A sentence: what is wrong with the schema or its name, and where.
    Broken(String),
}

/// The schemas of a root. Shared between threads.
#[derive(Debug)]
pub struct Schemas {
    folder: PathBuf,
    kept: Mutex<HashMap<String, Arc<Kept>>>,
    /// Counts checks, to know what was used last.
    checks: AtomicU64,
}

/// A schema as it was when its files had these stamps.
struct Kept {
    files: Vec<(PathBuf, Stamp)>,
    compiled: Result<Compiled, String>,
    used: AtomicU64,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

impl Kept {
    fn is_current(&self) -> bool {
        self.files
            .iter()
            .all(|(path, stamp)| Stamp::at(path).as_ref() == Some(stamp))
    }

    fn check(&self, document: &Value) -> Checked {
        match &self.compiled {
            Err(sentence) => Checked::Broken(sentence.clone()),
            Ok(compiled) => match compiled.check(document) {
                Ok(()) => Checked::Valid,
                Err(errors) => Checked::Invalid(errors),
            },
        }
    }
}

impl Schemas {
    /// The schemas in a folder, which need not exist.
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            kept: Mutex::default(),
            checks: AtomicU64::new(0),
        }
    }

    /// Holds `document` against the schema file `name`, a path relative to the folder.
    pub fn check(&self, name: &str, document: &Value) -> Checked {
        let name = match name::clean(name) {
            Ok(name) => name,
            Err(sentence) => return Checked::Broken(sentence),
        };
        let now = self.checks.fetch_add(1, Ordering::Relaxed);
        let kept = self.kept().get(&name).cloned();
        if let Some(kept) = kept
            && kept.is_current()
        {
            kept.used.store(now, Ordering::Relaxed);
            return kept.check(document);
        }
        let loader = Arc::new(Mutex::new(Loader::new(&self.folder)));
        let compiled = match engine::compile(&loader, &name) {
            Ok(compiled) => Ok(compiled),
            Err(failure) if failure.settled => Err(failure.sentence),
            Err(failure) => {
                self.kept().remove(&name);
                return if failure.missing {
                    Checked::Missing(failure.sentence)
                } else {
                    Checked::Broken(failure.sentence)
                };
            }
        };
        let files = std::mem::take(&mut lock(&loader).files);
        let kept = Arc::new(Kept {
            files,
            compiled,
            used: AtomicU64::new(now),
        });
        self.keep(name, Arc::clone(&kept));
        kept.check(document)
    }

    fn keep(&self, name: String, schema: Arc<Kept>) {
        let mut kept = self.kept();
        kept.insert(name, schema);
        if kept.len() > MOST_KEPT {
            let oldest = kept
                .iter()
                .min_by_key(|(_, each)| each.used.load(Ordering::Relaxed))
                .map(|(name, _)| name.clone());
            if let Some(oldest) = oldest {
                kept.remove(&oldest);
            }
        }
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<String, Arc<Kept>>> {
        lock(&self.kept)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "hostile_tests.rs"]
mod hostile_tests;
#[cfg(test)]
#[path = "schemas_tests.rs"]
mod schemas_tests;
