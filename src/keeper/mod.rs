//! The keeper: the process that owns attempts and outlives the daemon.
//!
//! One per root, one thread, no runtime. It is the parent of every attempt, so the daemon may
//! be killed or upgraded without costing one: the keeper goes on watching, keeps deadlines,
//! ends trees, writes down each exit before it reaps, and tells the next daemon. If it is
//! killed itself, the attempts live on, and the next keeper takes them over from the journal.
//!
//! ```text
//!  daemon ── client ──socket── serve ── books ──┬─ spawn ── cgroup   ├─ tree
//!                     (frame, wire)             ├─ minder (no cgroup)┘ (clone, confine, outside)
//!                     (proof, peer)             └─ journal ── recover (the next keeper)
//! ```
//!
//! It is this same program, started as `handoffd keeper`. It leaves when it has nothing to keep
//! and no daemon, and it does not listen to SIGTERM, which a service manager may send to
//! everyone. A manager that sends SIGKILL to everyone kills the attempts, too; a unit for the
//! daemon has to say `KillMode=process`.
//!
//! Nothing here knows what a handoff is; of an attempt it knows a key, a command and a
//! deadline.

mod attempt;
mod books;
mod cgroup;
pub mod client;
mod clone;
pub mod confine;
pub mod frame;
pub mod journal;
mod launch;
mod minder;
mod outside;
mod peer;
mod pool;
mod proc;
mod proof;
mod reap;
mod recover;
mod serve;
mod spawn;
mod tree;
pub mod turn;
pub mod wire;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::process::Resource;

pub use client::{Client, Launch, Reader, Setup};
pub use outside::unclaimed;
pub use proc::{Stray, Users, alive_outside, is_alive};

const LOCK: &str = "keeper.v1.lock";
/// What its process calls itself.
const NAME: &str = "handoffd-keeper";
/// What attempts create with at least, and so does the keeper.
const UMASK: u32 = 0o027;

const LOG: &str = "keeper.log";

/// Closes this process to the others of its user: they can neither trace it nor read its environment,
/// its memory or its descriptors below /proc. It leaves no core dump then. Root needs none of that: it
/// sees everything, and nobody else sees what is root's.
pub fn forbid_tracing() {
    use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior};
    if !geteuid().is_root()
        && let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable)
    {
        books::log(format_args!("other processes can trace this one: {error}"));
    }
}

/// What a keeper is told on its command line.
struct Options {
    run_dir: PathBuf,
    root: PathBuf,
    tag: String,
    no_cgroup: bool,
}

impl Options {
    fn parse(args: &[OsString]) -> Result<Self, String> {
        let (mut run_dir, mut root, mut tag, mut no_cgroup) = (None, None, None, false);
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or("a value is missing");
            match arg.to_str() {
                Some("--run-dir") => run_dir = Some(PathBuf::from(value()?)),
                Some("--root") => root = Some(PathBuf::from(value()?)),
                Some("--root-tag") => tag = value()?.to_str().map(str::to_owned),
                Some("--no-cgroup") => no_cgroup = true,
                _ => return Err(format!("unknown: {}", arg.display())),
            }
        }
        Ok(Self {
            run_dir: run_dir.ok_or("--run-dir is missing")?,
            root: root.ok_or("--root is missing")?,
            tag: tag
                .filter(|tag| !tag.is_empty() && tag.bytes().all(|b| b.is_ascii_hexdigit()))
                .ok_or("--root-tag must be hex digits")?,
            no_cgroup,
        })
    }
}

/// `handoffd keeper …`, with the arguments after these two words. Must be called before anything
/// starts a thread.
///
/// Returns once a keeper, this one or another, is listening, with the keeper itself in a
/// process of its own.
pub fn main(args: &[OsString]) -> ExitCode {
    let failed = |what: &dyn std::fmt::Display| {
        let _ = writeln!(io::stderr(), "handoffd keeper: {what}");
        ExitCode::FAILURE
    };
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(what) => return failed(&what),
    };
    match detach(&options) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(what)) => failed(&what),
        Err(error) => failed(&error),
    }
}

/// Starts the keeper in a process that has nothing to do with whoever started us, and waits
/// for its word that it listens.
fn detach(options: &Options) -> io::Result<Result<(), String>> {
    let spared = lineage();
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    if spawn::fork()? == 0 {
        drop(read);
        let _ = rustix::process::setsid();
        // Not a session leader, so no terminal can become ours.
        if matches!(spawn::fork(), Ok(0)) {
            let mut ready = File::from(write);
            if let Err(error) = keep(options, spared, &mut ready) {
                books::log(format_args!("this keeper ends: {error}"));
                let _ = write!(ready, "{error}");
            }
        }
        std::process::exit(0);
    }
    drop(write);
    let mut word = String::new();
    let mut first = [0];
    let mut ready = File::from(read);
    // The first byte is all that comes of a keeper that goes on to serve.
    if ready.read(&mut first)? == 1 && first[0] == b'\n' {
        return Ok(Ok(()));
    }
    word.push(char::from(first[0]));
    ready.read_to_string(&mut word)?;
    Ok(Err(word))
}

/// This process and all that it descends from.
fn lineage() -> HashSet<i32> {
    let mut pids = HashSet::new();
    let mut next = Some(rustix::process::getpid().as_raw_pid());
    while let Some(pid) = next.filter(|&pid| pid > 0 && pids.insert(pid)) {
        next = proc::Stat::read(pid).map(|stat| stat.ppid);
    }
    pids
}

/// The keeper's life.
fn keep(options: &Options, mut spared: HashSet<i32>, ready: &mut File) -> io::Result<()> {
    let folder = File::open(&options.run_dir)?;
    // Through the descriptor, so that it stays ours if the root is moved.
    let run_dir = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    detach_files(&run_dir)?;
    forbid_tracing();
    spawn::ignore_signals();
    // Attempts inherit it: what they make is not everybody's, unless their `umask` says so. What
    // the daemon's own takes away stays taken.
    let least = rustix::fs::Mode::from_raw_mode(UMASK);
    let inherited = rustix::process::umask(least);
    rustix::process::umask(inherited | least);
    let _ = rustix::thread::set_name(&std::ffi::CString::new(NAME)?);
    let Some(_lock) = lock(&run_dir, &folder)? else {
        return ready.write_all(b"\n"); // another one is there
    };
    rustix::process::chdir("/")?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    spared.insert(rustix::process::getpid().as_raw_pid());
    let base = if options.no_cgroup {
        None
    } else {
        cgroup::base(&options.tag)
            .inspect_err(|error| {
                books::log(format_args!(
                    "can't use cgroups; using minders instead: {error}"
                ));
            })
            .ok()
    };
    let (journal, entries) = journal::Journal::open(&run_dir)?;
    let mut books = books::Books {
        root: options.root.clone(),
        run_dir,
        base,
        journal,
        attempts: BTreeMap::new(),
        over: BTreeMap::new(),
        children: HashMap::new(),
        unidentified: VecDeque::new(),
        waiting: VecDeque::new(),
        nofile: raise_limit(),
        reports: Vec::new(),
        leftover: Vec::new(),
        pool: pool::Pool::new(),
    };
    proof::sweep(&books.run_dir);
    recover::take_over(&mut books, entries);
    recover::clear_cgroups(&books);
    recover::end_strays(&books, &spared);
    let listener = frame::listen(&folder)?;
    let server = serve::Server::new(books, listener)?;
    ready.write_all(b"\n")?;
    let books = server.run()?;
    // Before the lock is let go: the next keeper makes its own.
    if let Some(base) = &books.base {
        let _ = cgroup::remove(base);
    }
    Ok(())
}

/// Takes the lock that makes a keeper the only one. None if another has it and listens.
fn lock(run_dir: &Path, folder: impl AsFd) -> io::Result<Option<File>> {
    let file = File::options()
        .append(true)
        .create(true)
        .open(run_dir.join(LOCK))?;
    // One that has the lock and does not listen is about to, or about to leave.
    for _ in 0..1500 {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if frame::connect(&folder).is_ok() {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(io::Error::other(
        "another keeper holds the lock but does not listen",
    ))
}

/// Lets go of the starter's terminal and pipes. Complaints go to a file in the run folder.
fn detach_files(run_dir: &Path) -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let log = File::options()
        .append(true)
        .create(true)
        .open(run_dir.join(LOG))?;
    if log.metadata()?.len() > 1 << 20 {
        log.set_len(0)?;
    }
    spawn::replace_stdio([null.as_fd(), null.as_fd(), log.as_fd()])
}

/// Three descriptors an attempt are soon too many for the usual limit. Gives back what it was,
/// for the attempts.
fn raise_limit() -> Option<libc::rlimit> {
    let mut before = rustix::process::getrlimit(Resource::Nofile);
    let raw = |value: Option<u64>| value.unwrap_or(libc::RLIM_INFINITY);
    let limit = libc::rlimit {
        rlim_cur: raw(before.current),
        rlim_max: raw(before.maximum),
    };
    before.current = before.maximum;
    rustix::process::setrlimit(Resource::Nofile, before).ok()?;
    Some(limit)
}

/// A short name for a root, for cgroups: the same for as long as its run folder is, and no
/// other's, also not that of the same path in another container.
fn tag_of(run_dir: &Path) -> io::Result<OsString> {
    use sha2::Digest;
    use std::fmt::Write as _;
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(run_dir)?;
    let digest = sha2::Sha256::digest(format!("{}:{}", meta.dev(), meta.ino()));
    let mut tag = String::new();
    for byte in digest.iter().take(6) {
        let _ = write!(tag, "{byte:02x}");
    }
    Ok(OsStr::new(&tag).to_owned())
}

/// Whether attempts can have a cgroup each here; if not, why.
pub fn can_use_cgroups() -> io::Result<()> {
    let probe = cgroup::base(&format!("check-{}", std::process::id()))?;
    cgroup::remove(&probe)
}

/// When a process started, in ticks since boot: with its pid, what a process is known by.
pub fn start_time(pid: i32) -> Option<u64> {
    proc::Stat::read(pid).map(|stat| stat.starttime)
}
