//! `handoffd artifacts`: what specialists produced, and whether it is still as it was.

use std::io::Write;
use std::ops::ControlFlow;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use crate::cli::style::{Ink, columns, facts as in_facts, ink, local, safe};
use crate::cli::{Failed, Global, Outcome, complete, out};
use crate::inspect::artifacts::{self as looking, Filter, Status};
use crate::store::artifacts::{Artifacts, Entry};

/// How many rows a person gets who did not say.
const PAGE: usize = 50;

#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Artifacts in rows, newest first
    List(ListOptions),
    /// One artifact, and whether its file is unchanged
    Show(ShowOptions),
    /// Read files again and compare them with the registry
    Verify(VerifyOptions),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  handoffd artifacts list --type source\n  handoffd artifacts \
                        list --handoff build-7 --json"
)]
struct ListOptions {
    /// Only artifacts of this type; `code` means `source`
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only artifacts of this handoff
    #[arg(long, value_name = "ID", add = complete::ids())]
    handoff: Option<String>,
    /// The most rows; 0 for all [default: 50, or all with --json]
    #[arg(long, short = 'n', value_name = "N")]
    limit: Option<usize>,
}

#[derive(Debug, Args)]
struct ShowOptions {
    #[arg(value_name = "ID_OR_PATH", add = complete::artifact_ids())]
    name: String,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Without names, checks the newest line of each path. Exit code: 0 all unchanged, 1 something changed or is missing."
)]
struct VerifyOptions {
    #[arg(value_name = "ID_OR_PATH", add = complete::artifact_ids())]
    names: Vec<String>,
}

pub fn artifacts(global: &Global, options: &Options) -> Outcome {
    let layout = global.existing_layout()?;
    let artifacts = looking::of(layout.root());
    match &options.command {
        Command::List(options) => list(global, &artifacts, options),
        Command::Show(options) => show(global, &artifacts, options),
        Command::Verify(options) => verify(global, &artifacts, options),
    }
}

fn list(global: &Global, artifacts: &Artifacts, options: &ListOptions) -> Outcome {
    let filter = Filter {
        kind: options.kind.clone(),
        handoff_id: options.handoff.clone(),
    };
    let most = match options.limit {
        Some(0) => usize::MAX,
        Some(most) => most,
        None if global.json => usize::MAX,
        None => PAGE,
    };
    let mut out = out::lock();
    let mut written = Ok(());
    let mut table: Vec<Vec<String>> = Vec::new();
    let mut count = 0;
    looking::newest(artifacts, &filter, |entry| {
        count += 1;
        if count > most {
            return ControlFlow::Break(());
        }
        if global.json {
            written = writeln!(out, "{}", Value::Object(entry.to_json()));
        } else {
            table.push(row(&entry));
        }
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    written?;
    if global.json {
        return Ok(0);
    }
    if table.is_empty() {
        out::talk!("no artifact matches");
        return Ok(0);
    }
    let heading = ["ID", "TYPE", "BYTES", "HANDOFF", "CREATED", "PATH"]
        .map(|h| ink(h, Ink::Bold))
        .to_vec();
    table.insert(0, heading);
    out.write_all(columns(&table).as_bytes())?;
    if count > most {
        out::talk!("there are more; for all: --limit 0");
    }
    Ok(0)
}

fn row(entry: &Entry) -> Vec<String> {
    vec![
        safe(&entry.artifact_id, false),
        safe(entry.kind().unwrap_or("?"), false),
        entry.size_bytes.to_string(),
        safe(&entry.handoff_id, false),
        local(entry.created_at),
        safe(&entry.path, false),
    ]
}

fn unknown(name: &str) -> Failed {
    let name = safe(name, false);
    let text =
        format!("no artifact has the id or path {name}; to see all: handoffd artifacts list");
    Failed::thing("UNKNOWN_ARTIFACT", anyhow::anyhow!(text))
}

fn show(global: &Global, artifacts: &Artifacts, options: &ShowOptions) -> Outcome {
    let names = std::slice::from_ref(&options.name);
    let found = looking::find(artifacts, names)?.pop().flatten();
    let entry = found.ok_or_else(|| unknown(&options.name))?;
    let status = looking::check(artifacts, &entry);
    let mut out = out::lock();
    if global.json {
        writeln!(out, "{}", Value::Object(compared(&entry, &status)))?;
        return Ok(0);
    }
    writeln!(
        out,
        "{}\n",
        ink(&safe(&entry.artifact_id, false), Ink::Bold)
    )?;
    let mut facts: Vec<Vec<String>> = Vec::new();
    let mut fact = |name: &str, value: String| facts.push(vec![ink(name, Ink::Dim), value]);
    fact("file", safe(&entry.path, false));
    fact(
        "now",
        ink(&safe(&in_words(&entry, &status), false), tone(&status)),
    );
    fact(
        "type",
        safe(entry.artifact_type.as_deref().unwrap_or("?"), false),
    );
    fact("handoff", safe(&entry.handoff_id, false));
    fact("created", local(entry.created_at));
    fact("bytes", entry.size_bytes.to_string());
    fact("sha256", safe(&entry.sha256, false));
    for (key, value) in &entry.extra {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        fact(&safe(key, false), safe(&value, false));
    }
    out.write_all(in_facts(&facts).as_bytes())?;
    Ok(0)
}

fn tone(status: &Status) -> Ink {
    match status {
        Status::Unchanged => Ink::Good,
        _ => Ink::Bad,
    }
}

fn in_words(entry: &Entry, status: &Status) -> String {
    match status {
        Status::Unchanged => "unchanged".to_owned(),
        Status::Changed(found) if found.size_bytes == entry.size_bytes => {
            "changed: other content of the same size".to_owned()
        }
        Status::Changed(found) => format!(
            "changed: {} bytes now, {} when registered",
            found.size_bytes, entry.size_bytes
        ),
        Status::Missing => "missing".to_owned(),
        Status::Unreadable(why) => format!("unreadable: {why}"),
    }
}

/// The line, and how the file compares with it.
fn compared(entry: &Entry, status: &Status) -> Map<String, Value> {
    let mut line = entry.to_json();
    line.insert("status".to_owned(), status.word().into());
    match status {
        Status::Changed(found) => {
            let found = json!({ "sha256": found.sha256, "size_bytes": found.size_bytes });
            line.insert("found".to_owned(), found);
        }
        Status::Unreadable(why) => {
            line.insert("reason".to_owned(), why.as_str().into());
        }
        Status::Unchanged | Status::Missing => {}
    }
    line
}

#[derive(Default)]
struct Totals {
    ok: u64,
    changed: u64,
    missing: u64,
    unreadable: u64,
}

impl Totals {
    fn count(&mut self, status: &Status) {
        match status {
            Status::Unchanged => self.ok += 1,
            Status::Changed(_) => self.changed += 1,
            Status::Missing => self.missing += 1,
            Status::Unreadable(_) => self.unreadable += 1,
        }
    }

    fn problems(&self) -> u64 {
        self.changed + self.missing + self.unreadable
    }
}

fn verify(global: &Global, artifacts: &Artifacts, options: &VerifyOptions) -> Outcome {
    let mut totals = Totals::default();
    let mut told = Ok(());
    let mut each = |entry: Entry| {
        let status = looking::check(artifacts, &entry);
        totals.count(&status);
        if told.is_ok() {
            told = tell(global, &entry, &status);
        }
    };
    let mut first_unknown = None;
    let mut skipped = None;
    if options.names.is_empty() {
        let mut passed_over = looking::newest_of_paths(artifacts, each)?;
        if passed_over.broken > 0 {
            // Only a reading from the start knows the numbers of lines.
            passed_over = artifacts.for_each(|_| {})?;
        }
        skipped = Some(passed_over);
    } else {
        let found = looking::find(artifacts, &options.names)?;
        for (name, entry) in options.names.iter().zip(found) {
            match entry {
                Some(entry) => each(entry),
                None if first_unknown.is_none() => first_unknown = Some(unknown(name)),
                None => {}
            }
        }
    }
    told?;
    let skipped = skipped.unwrap_or_default();
    if global.json {
        let total = json!({ "total": {
            "ok": totals.ok, "changed": totals.changed, "missing": totals.missing,
            "unreadable": totals.unreadable, "broken_lines": skipped.broken,
            "torn_lines": skipped.torn,
        }});
        out::tell(total)?;
    } else {
        if skipped.broken > 0 {
            let first = skipped.first_broken_line.unwrap_or(0);
            out::tell(format!(
                "can't read {} of artifacts/registry.jsonl; the first is line {first}",
                lines(skipped.broken)
            ))?;
        }
        let torn = match skipped.torn {
            0 => String::new(),
            n => format!("; torn by a crash: {} of the registry", lines(n)),
        };
        out::tell(format!(
            "{} ok, {} changed, {} missing, {} unreadable{torn}",
            totals.ok, totals.changed, totals.missing, totals.unreadable
        ))?;
    }
    if let Some(unknown) = first_unknown {
        return Err(unknown);
    }
    Ok(u8::from(totals.problems() > 0 || skipped.broken > 0))
}

fn lines(n: u64) -> String {
    format!("{n} line{}", if n == 1 { "" } else { "s" })
}

/// To a machine all of them, to a person what is wrong.
fn tell(global: &Global, entry: &Entry, status: &Status) -> std::io::Result<()> {
    let mut out = out::lock();
    if global.json {
        return writeln!(out, "{}", Value::Object(compared(entry, status)));
    }
    if *status == Status::Unchanged {
        return Ok(());
    }
    let said = safe(&in_words(entry, status), false);
    let (path, id) = (safe(&entry.path, false), safe(&entry.artifact_id, false));
    writeln!(out, "{path} ({id}) {}", ink(&said, tone(status)))
}
