//! Gathering the files that a schema is made of.
//!
//! The engine asks for addresses as it meets them; this finds the file for each: by its path, by
//! the `$id` that it gives itself, or beside the file whose `$id` the address was made from.
//! What can't be found ends the gathering with a sentence that says who asked for it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::engine;
use super::file::{self, Stamp, Unread};
use super::name::{self, Place, quoted, shortened};
use super::walk;

/// Most references and other steps in place that a schema may have with all its files; the time
/// to compile it grows with their square.
const MOST_LINKS: usize = 10_000;

/// Most files that are looked at for an `$id`.
const MOST_FILES: usize = 4096;

/// Most bytes that are read for that.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// Why a schema can't be used.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub missing: bool,
    pub sentence: String,
    /// Whether it stays so until one of the files that were read changes.
    pub settled: bool,
}

impl Failure {
    fn missing(sentence: String) -> Self {
        Self {
            missing: true,
            sentence,
            settled: false,
        }
    }

    fn broken(sentence: String) -> Self {
        Self {
            missing: false,
            sentence,
            settled: false,
        }
    }

    pub fn settled(sentence: String) -> Self {
        Self {
            missing: false,
            sentence,
            settled: true,
        }
    }
}

/// One file of a schema.
#[derive(Debug, Clone)]
pub(super) struct Document {
    pub name: String,
    /// The address that it was asked for by, and the one that it gives itself.
    pub address: String,
    pub id: String,
    pub value: Arc<Value>,
}

/// What has been gathered so far.
#[derive(Debug)]
pub(super) struct Loader {
    folder: PathBuf,
    pub documents: Vec<Document>,
    pub files: Vec<(PathBuf, Stamp)>,
    pub failure: Option<Failure>,
    pub links: usize,
    ids: Option<HashMap<String, String>>,
}

impl Loader {
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            documents: Vec::new(),
            files: Vec::new(),
            failure: None,
            links: 0,
            ids: None,
        }
    }

    /// The file that everything else is referred to from.
    pub fn first(&mut self, name: &str) -> Result<Arc<Value>, Failure> {
        match self.take(name, &name::address(name))? {
            Some(value) => Ok(value),
            None => Err(Failure::missing(format!(
                "no schema {} in schemas/",
                quoted(name)
            ))),
        }
    }

    /// What stands at an address; a failure is kept as well, because the engine wraps it.
    pub fn fetch(&mut self, address: &str) -> Result<Arc<Value>, Failure> {
        let address = address.split('#').next().unwrap_or(address);
        let fetched = self.find(address);
        if let Err(failure) = &fetched {
            self.failure.get_or_insert_with(|| failure.clone());
        }
        fetched
    }

    fn find(&mut self, address: &str) -> Result<Arc<Value>, Failure> {
        let place = name::place(address);
        if let Place::Inside(name) = &place
            && let Some(value) = self.take(name, address)?
        {
            return Ok(value);
        }
        if let Some(name) = self.by_id(address)
            && let Some(value) = self.take(&name, address)?
        {
            return Ok(value);
        }
        let beside = self.beside(address);
        if let Some(name) = &beside
            && let Some(value) = self.take(name, address)?
        {
            return Ok(value);
        }
        let asked = self.asker(address);
        let who = asked.as_ref().map_or_else(
            || "the schema".to_owned(),
            |asked| format!("{} (at {})", asked.name, asked.pointer),
        );
        let relative = asked.is_some_and(|asked| !asked.text.contains(':'));
        Err(match (place, beside) {
            (Place::Inside(name), _) => Failure::missing(format!(
                "{who} refers to {}, which is not in schemas/",
                quoted(&name)
            )),
            (_, Some(name)) if relative => Failure::missing(format!(
                "{who} refers to {}, which is not in schemas/",
                quoted(&name)
            )),
            (Place::Outside, _) => {
                Failure::broken(format!("{who} refers to a path that leads out of schemas/"))
            }
            (Place::Elsewhere, _) => {
                let what = if address.starts_with("http:") || address.starts_with("https:") {
                    "the network"
                } else {
                    "something other than a file"
                };
                Failure::broken(format!(
                    "{who} refers to {what}, which the daemon never reads: no file in schemas/ \
                     has {} as its $id",
                    shortened(address, 120)
                ))
            }
        })
    }

    /// Reads a file and keeps it; nothing if there is no such file.
    fn take(&mut self, name: &str, address: &str) -> Result<Option<Arc<Value>>, Failure> {
        let (bytes, stamp) = match file::read(&self.folder, name) {
            Ok(read) => read,
            Err(Unread::Gone) => return Ok(None),
            Err(Unread::Refused(why)) => {
                return Err(Failure::broken(format!(
                    "the schema {} {why}",
                    quoted(name)
                )));
            }
        };
        self.files.push((self.folder.join(name), stamp));
        let mut value: Value = serde_json::from_slice(&bytes).map_err(|error| {
            Failure::settled(format!("the schema {} is not JSON: {error}", quoted(name)))
        })?;
        if let Err((pointer, why)) = engine::check_schema(&value) {
            return Err(Failure::settled(format!(
                "the schema {} is not a valid JSON Schema: at {pointer}: {why}",
                quoted(name)
            )));
        }
        self.links += walk::links(&value);
        if self.links > MOST_LINKS {
            return Err(Failure::settled(format!(
                "the schema {} and the schemas that it refers to have more than {MOST_LINKS} \
                 references",
                quoted(name)
            )));
        }
        let id = own_id(&value)
            .and_then(|id| engine::resolve(address, id))
            .unwrap_or_else(|| address.to_owned());
        walk::meter(&mut value);
        let value = Arc::new(value);
        self.documents.push(Document {
            name: name.to_owned(),
            address: address.to_owned(),
            id,
            value: Arc::clone(&value),
        });
        Ok(Some(value))
    }

    /// The file whose `$id` is this address.
    fn by_id(&mut self, address: &str) -> Option<String> {
        let folder = &self.folder;
        let ids = self.ids.get_or_insert_with(|| ids_in(folder));
        ids.get(address).cloned()
    }

    /// The file that an address means if the folder is laid out like the `$id`s in it.
    fn beside(&self, address: &str) -> Option<String> {
        self.documents.iter().find_map(|document| {
            let (above, _) = document.id.rsplit_once('/')?;
            if document.id == document.address || above.ends_with('/') {
                return None;
            }
            let rest = address.strip_prefix(above)?.strip_prefix('/')?;
            name::beside(&document.name, rest)
        })
    }

    /// Who refers to an address.
    fn asker(&self, address: &str) -> Option<walk::Reference> {
        self.documents.iter().find_map(|document| {
            walk::find_reference(document, &|base, text| {
                engine::resolve(base, text).is_some_and(|resolved| resolved == address)
            })
        })
    }
}

/// The `$id` at the top of a schema.
pub(super) fn own_id(value: &Value) -> Option<&str> {
    value.get("$id").and_then(Value::as_str)
}

/// The `$id` of every file in the folder. What can't be read has none.
fn ids_in(folder: &Path) -> HashMap<String, String> {
    let mut ids = HashMap::new();
    let mut folders = vec![String::new()];
    let (mut seen, mut read) = (0, 0);
    while let Some(below) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(folder.join(&below)) else {
            continue;
        };
        let mut entries: Vec<_> = entries.flatten().take(MOST_FILES).collect();
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            seen += 1;
            let (Some(name), Ok(kind)) = (
                entry.file_name().to_str().map(str::to_owned),
                entry.file_type(),
            ) else {
                continue;
            };
            if seen > MOST_FILES || read > MOST_BYTES || name.starts_with('.') {
                continue;
            }
            let name = format!("{below}{name}");
            if kind.is_dir() {
                folders.push(format!("{name}/"));
                continue;
            }
            let is_json = Path::new(&name)
                .extension()
                .is_some_and(|ext| ext == "json");
            let Some(Ok((bytes, _))) = is_json.then(|| file::read(folder, &name)) else {
                continue;
            };
            read += bytes.len();
            let id = serde_json::from_slice::<Value>(&bytes)
                .ok()
                .and_then(|value| engine::resolve(&name::address(&name), own_id(&value)?));
            if let Some(id) = id {
                ids.entry(id).or_insert(name);
            }
        }
    }
    ids
}
