//! A root on the real disk with a daemon on it, and the files that are dropped there.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::sample::{AGENT, request};

/// Set by a signal: whoever waits gives up, and everything is cleared away.
pub static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// A root that is removed when it is dropped, and its daemon killed.
pub struct Rig {
    pub root: PathBuf,
    pub command: Vec<String>,
    daemon: Option<Child>,
}

/// How the daemon is set up.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub max_concurrent: usize,
    pub durability: &'static str,
    /// The specialist's process stays.
    pub resident: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            max_concurrent: 2,
            durability: "full",
            resident: false,
        }
    }
}

/// Where roots are made: on the disk that the build is on.
pub fn roots() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench-roots")
}

/// Removes what runs that were killed have left.
pub fn sweep() {
    for entry in fs::read_dir(roots()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.rsplit('-').next().unwrap_or_default();
        if !Path::new("/proc").join(pid).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

pub fn program() -> String {
    std::env::var("HANDOFFD_BENCH_BIN")
        .unwrap_or_else(|_| env!("CARGO_BIN_EXE_handoffd").to_owned())
}

/// Starts a program that is told to stop when this one dies, however that happens.
pub fn spawn_bound(command: &mut Command) -> io::Result<Child> {
    // SAFETY: prctl may be called between fork and exec, and touches no memory of ours.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            Ok(())
        });
    }
    command.spawn()
}

impl Rig {
    pub fn new(name: &str, command: &[&str], setup: Setup) -> io::Result<Self> {
        let root = roots().join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(root.join("handoffs/pending"))?;
        fs::create_dir_all(root.join("staging"))?;
        let rig = Self {
            root,
            command: command.iter().map(ToString::to_string).collect(),
            daemon: None,
        };
        rig.configure(setup)?;
        Ok(rig)
    }

    pub fn configure(&self, setup: Setup) -> io::Result<()> {
        let Setup {
            max_concurrent,
            durability,
            resident,
        } = setup;
        let command = &self.command;
        let mode = if resident {
            format!("mode = \"resident\"\nmax_concurrent = {max_concurrent}\n")
        } else {
            String::new()
        };
        let text = format!(
            "[daemon]\nmax_concurrent = {max_concurrent}\ndurability = \"{durability}\"\n\
             shutdown_grace = \"1s\"\n[defaults]\ntimeout = \"6h\"\n\
             [specialists.\"{AGENT}\"]\ncommand = {command:?}\n{mode}"
        );
        fs::write(self.root.join("handoffd.toml"), text)
    }

    /// Whether the daemon knows all that is configured.
    pub fn takes_configuration(&self) -> io::Result<bool> {
        let mut check = Command::new(program());
        check.args(["check", "--root"]).arg(&self.root);
        let output = check.stdin(Stdio::null()).output()?;
        Ok(output.status.code() != Some(2))
    }

    /// Starts the daemon, which takes its time.
    pub fn start(&mut self) -> io::Result<()> {
        let log = File::options()
            .append(true)
            .create(true)
            .open(self.root.join("daemon.log"))?;
        let mut command = Command::new(program());
        command.args(["run", "--root"]).arg(&self.root);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        self.daemon = Some(spawn_bound(command.stderr(log))?);
        Ok(())
    }

    /// Until it has taken the root; an earlier daemon's word must be gone before it starts.
    pub fn wait_ready(&mut self) {
        let file = self.root.join(".handoffd/daemon.json");
        let daemon = &mut self.daemon;
        wait_until(Duration::from_secs(120), "the daemon to start", || {
            let ended = daemon.as_mut().map(Child::try_wait);
            assert!(
                !matches!(ended, Some(Ok(Some(_)))),
                "the daemon did not stay"
            );
            file.exists()
        });
    }

    pub fn pid(&self) -> u32 {
        self.daemon.as_ref().map_or(0, Child::id)
    }

    /// The keeper of this root, known by its command line.
    pub fn keeper(&self) -> Option<u32> {
        let root = self.root.to_str()?;
        fs::read_dir("/proc")
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .find(|pid: &u32| {
                fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
                    let words: Vec<&str> = line.split('\0').collect();
                    words.get(1) == Some(&"keeper") && words.contains(&root)
                })
            })
    }

    /// Kills daemon and keeper without a word.
    pub fn kill(&mut self) {
        let keeper = self.keeper();
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        if let Some(pid) = keeper {
            signal(pid, libc::SIGKILL);
            wait_until(Duration::from_secs(5), "the keeper to be gone", || {
                self.keeper().is_none()
            });
        }
    }

    pub fn reload(&self) {
        signal(self.pid(), libc::SIGHUP);
    }

    pub fn folder(&self, state: &str) -> PathBuf {
        self.root.join("handoffs").join(state)
    }

    pub fn count(&self, state: &str) -> usize {
        fs::read_dir(self.folder(state)).map_or(0, Iterator::count)
    }

    /// Waits until nothing is pending or in progress. Looks seldom while much is left, and never
    /// at what has ended, so that looking costs nothing that shows.
    pub fn wait_drained(&self) {
        let begin = Instant::now();
        loop {
            // In the order in which a handoff passes them.
            let left = self.count("pending") + self.count("in-progress");
            if left == 0 {
                return;
            }
            assert!(!INTERRUPTED.load(Ordering::Relaxed), "interrupted");
            assert!(begin.elapsed() < Duration::from_secs(300), "{left} left");
            let pause = (left as u64 * 200).clamp(2_000, 100_000);
            std::thread::sleep(Duration::from_micros(pause));
        }
    }

    /// Ends daemon and attempts as a service manager would that is in a hurry.
    pub fn stop(&mut self) {
        let keeper = self.keeper();
        if let Some(mut daemon) = self.daemon.take() {
            let pid = daemon.id();
            signal(pid, libc::SIGTERM);
            std::thread::sleep(Duration::from_millis(20));
            signal(pid, libc::SIGTERM);
            let _ = daemon.wait();
        }
        // A keeper that has nothing to keep goes by itself, soon.
        let begin = Instant::now();
        while let Some(pid) = keeper.filter(|_| self.keeper() == keeper) {
            if begin.elapsed() > Duration::from_secs(15) {
                signal(pid, libc::SIGKILL);
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Writes requests into a folder beside the queue, to be dropped later by rename alone.
    pub fn stage(&self, ids: &[String]) -> io::Result<()> {
        for id in ids {
            fs::write(self.root.join("staging").join(id), request(id, AGENT))?;
        }
        Ok(())
    }

    /// Drops what was staged.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is a producer, not the daemon"
    )]
    pub fn drop_staged(&self, id: &str) -> io::Result<()> {
        let target = self.folder("pending").join(format!("{id}.json"));
        fs::rename(self.root.join("staging").join(id), target)
    }

    /// What `/proc` says of the daemon's memory, in megabytes.
    pub fn memory(&self, field: &str) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kilobytes =
            line.and_then(|line| line.trim_start_matches(':').split_whitespace().next());
        kilobytes
            .and_then(|text| text.parse::<f64>().ok())
            .unwrap_or(0.0)
            / 1024.0
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.root);
        let _ = self.root.parent().map(fs::remove_dir);
    }
}

fn signal(pid: u32, signal: i32) {
    if let Ok(pid) = libc::pid_t::try_from(pid) {
        // SAFETY: no memory is involved; the process is one that this program started.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Nanoseconds that all threads of a process have run.
pub fn cpu_ns(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    tasks.map_or(0, |tasks| {
        tasks
            .filter_map(|task| {
                let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
                text.split_whitespace().next()?.parse::<u64>().ok()
            })
            .sum()
    })
}

/// Nanoseconds that a process has run, with threads that have ended and children that it has
/// waited for. In steps of ten milliseconds.
pub fn family_ns(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // After the name, which may hold anything, the fields count from the third.
    let rest = stat.rsplit(')').next().unwrap_or_default();
    let ticks = rest.split_whitespace().skip(11).take(4);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks * 10_000_000
}

/// How often the threads of a process went to sleep, and so how often they woke.
pub fn sleeps(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let of_task = |path: PathBuf| {
        let status = fs::read_to_string(path.join("status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    };
    tasks.map_or(0, |tasks| {
        tasks.filter_map(|task| of_task(task.ok()?.path())).sum()
    })
}

pub fn wait_until(limit: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(!INTERRUPTED.load(Ordering::Relaxed), "interrupted");
        assert!(begin.elapsed() < limit, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
