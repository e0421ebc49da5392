//! `handoffd check`: the configuration and the root, each finding with what to do.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
#[cfg(target_os = "linux")]
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use clap::Args;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::cli::{Failed, Global, Outcome, out, person};
use crate::clock::{Clock, Wall};
use crate::config::Config;
use crate::engine::findings::{self, Finding};
use crate::engine::{folders, rights};
use crate::inspect::deep::{self, Examined};
use crate::inspect::owners;
use crate::protocol::lifecycle::State;
use crate::protocol::shown::{self, safe};
use crate::spool::layout::Layout;
use crate::watch::filesystem;

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all fine, 1 --deep found damaged data, 2 the configuration or the root is unusable.\n\nExamples:\n  \
                  handoffd check\n  handoffd check --deep --json"
)]
pub struct Options {
    /// Also read all stored data and check every invariant
    #[arg(long)]
    deep: bool,
}

pub fn check(global: &Global, options: &Options) -> Outcome {
    let config = global.load_config()?;
    let layout = global.existing_layout()?;
    let file = global.config_path()?;
    let (user, is_other) = daemons_user(&layout, &file);
    let found = findings::of_config(user, &layout, &file, &config);
    let (mut findings, mut notes) = (found.wrong, found.notes);
    if is_other {
        let name = person::name_of(user).unwrap_or_else(|| format!("uid {user}"));
        notes.push(format!(
            "{name} owns this root, so this checks it for a daemon that runs as {name}; root's own \
             daemon would refuse it"
        ));
    }
    notes.extend(rights::above(user, layout.root()).map(|wrong| wrong.to_string()));
    check_root(&layout, &config, &mut findings);
    check_system(&mut findings, &mut notes);
    let deep = match options.deep.then(|| deep::examine(&layout)).transpose() {
        Ok(deep) => deep,
        // What was found so far says more than this error.
        Err(error) if !findings.is_empty() => {
            findings.push(Finding {
                what: format!("could not read everything: {error}"),
                do_this: "fix what is listed above, then check again".to_owned(),
            });
            None
        }
        Err(error) => return Err(error.into()),
    };
    report(global, &findings, &notes, deep.as_ref())?;
    let is_sound = deep.is_none_or(|deep| deep.is_sound());
    Ok(match (findings.is_empty(), is_sound) {
        (false, _) => 2,
        (true, false) => 1,
        (true, true) => 0,
    })
}

/// The user that the daemon of this root runs as, and whether that is somebody else: root may look
/// after the root of a user who owns the folder and its configuration.
fn daemons_user(layout: &Layout, file: &Path) -> (u32, bool) {
    let me = rustix::process::geteuid();
    let owner_of = |path: &Path| path.metadata().ok().map(|found| found.uid());
    match owner_of(layout.root()) {
        Some(owner) if me.is_root() && owner != 0 => {
            let is_theirs = owner_of(file).is_none_or(|it| it == owner);
            (if is_theirs { owner } else { 0 }, is_theirs)
        }
        _ => (me.as_raw(), false),
    }
}

/// The path itself, or what stands nearest above it.
fn nearest(path: &Path) -> &Path {
    let mut above = path.ancestors();
    above
        .find(|path| path.symlink_metadata().is_ok())
        .unwrap_or(path)
}

/// Whether a daemon could make the folders that are missing. They are not made here: who checks a
/// root does not want it changed.
fn could_be_made(layout: &Layout) -> io::Result<()> {
    let states = State::ALL.map(|state| layout.state(state).to_owned());
    let others = [
        layout.refused_control(),
        layout.audit(),
        layout.context(),
        layout.artifacts(),
        layout.run().to_path_buf(),
        layout.tmp().to_owned(),
    ];
    for folder in states.iter().chain(&others) {
        let stands = nearest(folder);
        let usable = if !stands.is_dir() {
            Err(Errno::NOTDIR)
        } else if stands == folder {
            Ok(())
        } else {
            access(stands, Access::WRITE_OK | Access::EXEC_OK)
        };
        usable.map_err(|error| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("{}: {error}", stands.display()))
        })?;
    }
    Ok(())
}

/// Writes a byte to a file that never has a name, so that nothing is left whatever happens. Where
/// there are no such files, it has a name for a moment.
fn write_unseen(folder: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if let Ok(mut file) = File::options()
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(folder)
    {
        return file.write_all(b"x");
    }
    let path = folder.join(format!(".check-{}.tmp", std::process::id()));
    let written = File::create_new(&path)?.write_all(b"x");
    std::fs::remove_file(&path).and(written)
}

fn check_root(layout: &Layout, config: &Config, findings: &mut Vec<Finding>) {
    unwritable(layout, findings);
    not_followed(layout, findings);
    if let Err(error) = could_be_made(layout).and_then(|()| layout.check_one_file_system()) {
        findings.push(Finding {
            what: format!("the root is unusable: {error}"),
            do_this: "give the daemon's user write access".to_owned(),
        });
        return;
    }
    if let Some((what, do_this)) = folders::shared(layout, config) {
        findings.push(Finding { what, do_this });
    }
    for folder in [layout.own(), layout.tmp()].map(nearest) {
        if let Err(error) = write_unseen(folder) {
            findings.push(Finding {
                what: format!("can't write to {}: {error}", folder.display()),
                do_this: "free space or inodes, or mount it writable".to_owned(),
            });
            break;
        }
    }
    if let Ok(kind) = filesystem(layout.handoffs())
        && kind.network
        && !config.daemon.allow_network_fs
    {
        findings.push(Finding {
            what: format!("the root is on {}, a network file system", kind.name),
            do_this: "use a local disk, or set daemon.allow_network_fs = true".to_owned(),
        });
    }
}

/// Links and files in the place of folders where the daemon then writes nothing.
fn not_followed(layout: &Layout, findings: &mut Vec<Finding>) {
    let context = layout.context();
    let state = context.join("state");
    let of_tasks = "no task states and no boards";
    let folders = [
        (context, of_tasks),
        (state, of_tasks),
        (layout.artifacts(), "no artifacts"),
    ];
    for (folder, nothing) in folders {
        let Ok(found) = folder.symlink_metadata() else {
            continue;
        };
        let word = shown::path(&folder);
        let (what, how) = match std::fs::read_link(&folder) {
            Ok(target) => (
                format!("a symbolic link to {}", target.display()),
                format!("replace it with a folder that has the same files: rm {word}"),
            ),
            Err(_) if !found.is_dir() => {
                ("no folder".to_owned(), format!("move it away: mv {word} ."))
            }
            Err(_) => continue,
        };
        findings.push(Finding {
            what: format!(
                "{} is {what}: the daemon writes {nothing} there",
                folder.display()
            ),
            do_this: how,
        });
    }
}

/// How many files of other owners are named.
const NAMED: usize = 10;

/// Files that stop a daemon which runs as the root's owner.
fn unwritable(layout: &Layout, findings: &mut Vec<Finding>) {
    let found = owners::unwritable(layout);
    let left_out = found.len().saturating_sub(NAMED);
    findings.extend(found.into_iter().take(NAMED).map(|it| Finding {
        what: format!(
            "{} belongs to uid {}, and the owner of the root can't write to it",
            it.path.display(),
            it.uid
        ),
        do_this: it.do_this,
    }));
    if left_out > 0 {
        findings.push(Finding {
            what: format!("the owner of the root can't write to {left_out} more files"),
            do_this: "fix the listed ones, then check again".to_owned(),
        });
    }
}

/// No record is older than the program itself.
const SENSIBLE: &str = "2024-01-01T00:00:00Z";

/// What the machine gives: nothing here stops the daemon, but people should know.
fn check_system(findings: &mut Vec<Finding>, notes: &mut Vec<String>) {
    if let Err(error) = crate::keeper::can_use_cgroups() {
        notes.push(format!(
            "can't give attempts control groups of their own ({error}); a small process watches each attempt's tree instead. Under systemd, set Delegate=yes"
        ));
    }
    let limit = |name: &str| {
        let path = format!("/proc/sys/fs/inotify/{name}");
        std::fs::read_to_string(path)
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok())
    };
    for (name, least) in [("max_user_watches", 64), ("max_user_instances", 8)] {
        if let Some(value) = limit(name).filter(|value| *value < least) {
            findings.push(Finding {
                what: format!("fs.inotify.{name} is {value}, which is very low"),
                do_this: format!("raise it: sysctl fs.inotify.{name}={}", 128 * least),
            });
        }
    }
    let now = Clock::System.now().wall;
    if Wall::parse(SENSIBLE).is_some_and(|least| now < least) {
        findings.push(Finding {
            what: format!("the clock shows {now}"),
            do_this: "set the clock: records and waits after a reboot use it".to_owned(),
        });
    }
}

fn report(
    global: &Global,
    findings: &[Finding],
    warnings: &[String],
    deep: Option<&deep::Report>,
) -> Result<(), Failed> {
    let is_sound = deep.is_none_or(deep::Report::is_sound);
    if global.json {
        let list: Vec<_> = findings
            .iter()
            .map(|finding| json!({ "problem": finding.what, "do": finding.do_this }))
            .collect();
        let mut text = json!({
            "ok": findings.is_empty() && is_sound, "findings": list, "warnings": warnings,
        });
        if let Some(deep) = deep {
            text["deep"] = as_json(deep);
        }
        return out::tell(text);
    }
    for finding in findings {
        out::tell(format!(
            "✗ {}\n  → {}",
            safe(&finding.what, false),
            safe(&finding.do_this, false)
        ))?;
    }
    for breach in deep.iter().flat_map(|deep| &deep.breaches) {
        out::tell(format!(
            "✗ {}: {}\n  → {}",
            safe(&breach.path, false),
            safe(&breach.what, false),
            safe(&breach.do_this, false)
        ))?;
    }
    for warning in warnings {
        out::tell(format!("! {}", safe(warning, false)))?;
    }
    if findings.is_empty() {
        out::tell("✓ the configuration and the root are fine")?;
    }
    if let Some(deep) = deep {
        let Examined {
            records,
            submissions,
            audit_lines,
            artifacts,
            tasks,
            processes,
        } = deep.examined;
        let verdict = match deep.breaches.len() {
            0 if is_sound => "✓ all checks passed".to_owned(),
            1 => "✗ 1 problem found".to_owned(),
            many => format!("✗ {many} problems found"),
        };
        out::tell(format!(
            "{verdict}: {}, {}, {}, {}, {}, {}",
            counted(records, "record"),
            counted(submissions, "submission"),
            counted(audit_lines, "audit line"),
            counted(artifacts, "artifact"),
            counted(tasks, "task"),
            if processes == 1 {
                "1 process".to_owned()
            } else {
                format!("{processes} processes")
            },
        ))?;
    }
    Ok(())
}

fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}

fn as_json(deep: &deep::Report) -> Value {
    let breaches: Vec<_> = deep
        .breaches
        .iter()
        .map(|breach| {
            json!({
                "invariant": breach.invariant.word(),
                "path": breach.path,
                "problem": breach.what,
                "do": breach.do_this,
            })
        })
        .collect();
    let Examined {
        records,
        submissions,
        audit_lines,
        artifacts,
        tasks,
        processes,
    } = deep.examined;
    json!({
        "examined": {
            "records": records, "submissions": submissions, "audit_lines": audit_lines,
            "artifacts": artifacts, "tasks": tasks, "processes": processes,
        },
        "breaches": breaches,
    })
}
