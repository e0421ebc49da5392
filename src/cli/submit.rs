//! `handoffd submit`: checks requests as intake would, and drops them.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::{IsTerminal, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::json;

use crate::cli::compose::{self, Fields};
use crate::cli::out::Telling;
use crate::cli::style::safe;
use crate::cli::{Failed, Global, Outcome, complete, duration, out, validate, wait};
use crate::config::Config;
use crate::durable;
use crate::durable::owner::Owner;
use crate::inspect::daemon::Daemon;
use crate::inspect::prefix;
use crate::inspect::summary::Place;
use crate::protocol::document::{self, Document, Kind, Syntax};
use crate::protocol::id::HandoffId;
use crate::protocol::name::Ext;
use crate::protocol::request::Request;
use crate::protocol::view::View;
use crate::spool::layout::{Layout, make_folder};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  handoffd submit request.json\n  handoffd submit --to coder \
                        --input '{\"task\": \"fix the tests\"}' --wait\n  handoffd submit --to coder \
                        --input @task.json --priority high --depends-on build-7\n  handoffd submit \
                        --id nightly-$(date +%F) request.json\n  make-request | handoffd submit -"
)]
pub struct Options {
    /// Requests, or `-` for stdin
    #[arg(value_name = "FILE", required_unless_present = "to")]
    files: Vec<PathBuf>,
    /// Make a request for this agent instead of reading one
    #[arg(long, value_name = "AGENT", conflicts_with = "files", add = complete::agents())]
    to: Option<String>,
    /// The `input.data` of that request, as JSON, or @FILE
    #[arg(long, value_name = "JSON", requires = "to")]
    input: Option<String>,
    /// The id of the handoff; an id that exists already is refused [default: the document's, else a new one]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    #[command(flatten)]
    fields: Fields,
    /// Wait for the outcomes and print them: a line each on a terminal, else the records
    #[arg(long)]
    wait: bool,
    /// The longest wait
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "wait")]
    timeout: Option<Duration>,
}

/// A request that may be dropped.
pub(super) struct Checked {
    id: HandoffId,
    name: OsString,
    bytes: Vec<u8>,
}

/// What requests are held against. Where the file on disk is broken and a daemon runs, that daemon has a
/// configuration that is not on disk any more, and judges by it.
pub(super) enum Rules {
    Of(Box<Config>),
    OfTheDaemon,
}

impl Rules {
    pub fn load(global: &Global, layout: &Layout) -> Result<Self, Failed> {
        let error = match global.load_config() {
            Ok(config) => return Ok(Self::Of(Box::new(config))),
            Err(error) => error,
        };
        if !Daemon::of(layout).may_run() {
            return Err(error);
        }
        out::talk!("warning: {}", safe(&format!("{:#}", error.error), true));
        out::talk!(
            "warning: the configuration is broken, so only the request itself is checked here; the running daemon checks the rest with the configuration that it has"
        );
        Ok(Self::OfTheDaemon)
    }
}

pub fn submit(global: &Global, options: &Options) -> Outcome {
    // A configuration makes a root of a folder. Only what this needs is made in it: whoever submits
    // may perhaps write to pending/, and no more.
    let layout = global.layout()?;
    if layout.root().join("handoffd.toml").is_file() {
        make_folder(layout.pending())?;
    }
    let layout = global.existing_layout()?;
    let rules = Rules::load(global, &layout)?;
    if options.wait {
        wait::may_wait(&layout)?;
    }
    let named = named(options)?;
    let mut checked = Vec::new();
    if let Some(agent) = &options.to {
        let mut map = compose::request(agent, options.input.as_deref())?;
        options.fields.write(&mut map);
        let document = Document {
            map,
            syntax: Syntax::Json,
        };
        let from = Path::new("--to");
        checked.push(check(
            global,
            &layout,
            &rules,
            document,
            named.as_ref(),
            None,
            from,
        )?);
    }
    for file in &options.files {
        let (bytes, ext) = read(file)?;
        let mut document = parse(file, &bytes, ext)?;
        // With other fields it is another document, which is dropped as JSON.
        let original = options.fields.is_empty().then_some((bytes, ext));
        options.fields.write(&mut document.map);
        checked.push(check(
            global,
            &layout,
            &rules,
            document,
            named.as_ref(),
            original,
            file,
        )?);
    }
    tell_of_missing(&layout, &options.fields.depends_on, &checked);
    refuse_twins(&checked)?;
    let mut telling = Telling::default();
    for (at, request) in checked.iter().enumerate() {
        if let Err(error) = drop_into(&layout, request) {
            // Those before it were to be told with their outcomes.
            for dropped in checked[..at].iter().filter(|_| options.wait) {
                out::talk!("dropped {}", dropped.id);
            }
            return Err(error);
        }
        if !options.wait {
            let id = request.id.as_str();
            let told = if global.json {
                telling.tell(json!({ "id": id }))
            } else {
                telling.tell(id)
            };
            if !told {
                // Nobody would know of it.
                out::talk!("dropped {id}");
            }
        }
    }
    if !options.wait {
        wait::tell_if_stopping(&layout, &Daemon::of(&layout));
        return telling.over();
    }
    out::ends_with_its_reader();
    let ids: Vec<String> = checked
        .iter()
        .map(|request| request.id.to_string())
        .collect();
    let form = if std::io::stdout().is_terminal() && !global.json {
        wait::Form::Line
    } else {
        wait::Form::Record
    };
    let waited = wait::until_ended(&layout, &ids, options.timeout, form);
    if waited.is_err() {
        for id in &ids {
            out::talk!("dropped {id}");
        }
    }
    waited
}

/// One of two with the same id would be refused as a duplicate, when nobody is told of it any more.
fn refuse_twins(checked: &[Checked]) -> Result<(), Failed> {
    let mut seen = HashSet::new();
    match checked
        .iter()
        .find(|request| !seen.insert(request.id.as_str()))
    {
        None => Ok(()),
        Some(twin) => Err(Failed::thing(
            "DUPLICATE_ID",
            anyhow::anyhow!("two files have the id {}; dropped nothing", twin.id),
        )),
    }
}

pub(super) fn parse(file: &Path, bytes: &[u8], ext: Ext) -> Result<Document, Failed> {
    document::parse(bytes, ext).map_err(|error| Failed {
        place: error.line.zip(error.column),
        ..Failed::thing(
            "SCHEMA_VALIDATION_FAILED",
            anyhow::anyhow!("{}: {error}", file.display()),
        )
    })
}

/// The id that `--id` gives to the one request.
fn named(options: &Options) -> Result<Option<HandoffId>, Failed> {
    let Some(id) = &options.id else {
        return Ok(None);
    };
    let usage = |text: String| Failed::usage("USAGE", anyhow::anyhow!(text));
    if options.files.len() > 1 {
        let text = "--id names one request; give one file".to_owned();
        return Err(usage(text));
    }
    let parsed = HandoffId::parse(id);
    parsed
        .map(Some)
        .map_err(|error| usage(format!("--id {id:?}: {error}")))
}

/// An id that nothing has yet is waited for. That may be meant, or a slip.
fn tell_of_missing(layout: &Layout, depends_on: &[String], checked: &[Checked]) {
    for id in depends_on {
        let is_here = || checked.iter().any(|request| request.id.as_str() == id);
        if Place::find(layout, id).is_some() || is_here() {
            continue;
        }
        let near = prefix::ids(layout, id, 2).unwrap_or_default();
        let meant = match near.as_slice() {
            [one] => format!("; did you mean {one}?"),
            _ => String::new(),
        };
        let id = safe(id, false);
        out::talk!("warning: no handoff has the id {id} yet; the new handoff waits for one{meant}");
    }
}

pub(super) fn read(file: &Path) -> Result<(Vec<u8>, Ext), Failed> {
    if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes)?;
        // A name would say what it is. What is no YAML and has a block of JSON is Markdown.
        let has_block = || match document::parse(&bytes, Ext::Markdown) {
            Err(error) => error.kind != Kind::NoBlock,
            Ok(_) => true,
        };
        let is_yaml = document::parse(&bytes, Ext::Yaml).is_ok();
        let is_markdown = !is_yaml && has_block();
        let ext = if is_markdown {
            Ext::Markdown
        } else {
            Ext::Yaml
        };
        return Ok((bytes, ext));
    }
    let ext = file
        .extension()
        .and_then(|ext| ext.to_str())
        .and_then(Ext::parse)
        .ok_or_else(|| {
            let error =
                anyhow::anyhow!("{}: must end in .json, .yaml, .yml or .md", file.display());
            Failed::usage("USAGE", error)
        })?;
    let bytes = fs::read(file)
        .map_err(|error| Failed::usage("USAGE", anyhow::anyhow!("{}: {error}", file.display())))?;
    Ok((bytes, ext))
}

pub(super) fn refuse(from: &Path, code: &'static str, text: &str) -> Failed {
    Failed::thing(code, anyhow::anyhow!("{}: {text}", from.display()))
}

/// The request in a document, with every wrong field named. Without a file that names it, it has the
/// id that it carries, or gets a new one.
pub fn request_in(
    document: &Document,
    from: &Path,
    named: Option<&HandoffId>,
) -> Result<Request, Failed> {
    let map = &document.map;
    let id = match (named, View::of_document(map).id()) {
        (Some(named), _) => named.clone(),
        (None, Some(id)) => HandoffId::parse(id).map_err(|error| {
            let text = format!("the id {id:?}: {error}");
            refuse(from, "SCHEMA_VALIDATION_FAILED", &text)
        })?,
        (None, None) => new_id()?,
    };
    Request::from_document(map, &id).map_err(|errors| {
        let list: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Failed {
            field: errors.first().map(|error| error.field.clone()),
            ..refuse(from, "SCHEMA_VALIDATION_FAILED", &list.join("; "))
        }
    })
}

/// The request in a document, if it is one that can ever run.
fn well_formed(
    global: &Global,
    layout: &Layout,
    rules: &Rules,
    document: &Document,
    named: Option<&HandoffId>,
    from: &Path,
) -> Result<Request, Failed> {
    let written = View::of_document(&document.map).id();
    if let (Some(named), Some(written)) = (named, written)
        && named.as_str() != written
    {
        let text = format!("--id is {named}, but the document has the id {written:?}");
        return Err(refuse(from, "SCHEMA_VALIDATION_FAILED", &text));
    }
    let request = request_in(document, from, named)?;
    let Rules::Of(config) = rules else {
        return Ok(request);
    };
    let examined = validate::examine(layout, config, &document.map, request);
    for warning in &examined.receipt.warnings {
        out::talk!(
            "warning: {}: {}",
            from.display(),
            safe(&warning.to_string(), false)
        );
    }
    let Some(told) = examined.refusal(global) else {
        return Ok(examined.request);
    };
    Err(Failed {
        field: told.fields.first().map(|error| error.field.clone()),
        ..refuse(from, told.code.as_str(), &told.message)
    })
}

/// A request that intake would take, under this id or the one that it has.
pub(super) fn check(
    global: &Global,
    layout: &Layout,
    rules: &Rules,
    document: Document,
    named: Option<&HandoffId>,
    original: Option<(Vec<u8>, Ext)>,
    from: &Path,
) -> Result<Checked, Failed> {
    let id = well_formed(global, layout, rules, &document, named, from)?.id;
    let Document { map, syntax } = document;
    validate::is_free(layout, from, &id)?;
    let (bytes, ext) = match (original, syntax) {
        (Some((bytes, ext)), Syntax::Yaml | Syntax::Markdown) => (bytes, ext),
        // The document as it was written, also where its id is only in the file's name.
        (Some((bytes, _)), Syntax::Json) => (bytes, Ext::Json),
        (None, _) => (serde_json::to_vec_pretty(&map)?, Ext::Json),
    };
    if let Rules::Of(config) = rules {
        validate::fits(config, from, &bytes)?;
    }
    Ok(Checked {
        name: format!("{id}.{ext}").into(),
        id,
        bytes,
    })
}

fn new_id() -> Result<HandoffId, Failed> {
    Ok(HandoffId::parse(&format!(
        "h-{}",
        uuid::Uuid::now_v7().simple()
    ))?)
}

/// Writes to a temporary name and renames, as every producer should. What could not be finished is
/// removed.
pub(super) fn drop_into(layout: &Layout, request: &Checked) -> Result<(), Failed> {
    let pending = layout.pending();
    let temp = pending.join(format!(".{}.{}.tmp", request.id, std::process::id()));
    let dropped = write(pending, &temp, &request.bytes)
        .map_err(Failed::from)
        .and_then(|()| {
            let moved = durable::move_no_replace(&temp, &pending.join(&request.name));
            moved.map_err(|error| match error.kind() {
                std::io::ErrorKind::AlreadyExists => validate::duplicate(&request.id, "pending"),
                _ => error.into(),
            })
        });
    if dropped.is_err() {
        let _ = fs::remove_file(&temp);
        return dropped;
    }
    durable::sync_dir(&Layout::open_dir(pending)?, durable::Durability::Full)?;
    Ok(())
}

fn write(pending: &Path, temp: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let file = durable::create_for(temp, bytes, Owner::Maker)
        .map_err(|error| durable::at(temp, &error))?;
    if pending.metadata()?.uid() != rustix::process::geteuid().as_raw() {
        // Whoever takes it up is somebody else and must read it; its folder keeps others out.
        file.set_permissions(fs::Permissions::from_mode(0o644))?;
    }
    durable::sync_file(&file, durable::Durability::Full)
}
