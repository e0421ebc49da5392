//! A root on the real disk with a daemon on it, and the files that are dropped there.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The agent that the requests are for.
pub const AGENT: &str = "@bench";

/// A root that is removed when it is dropped, and its daemon killed.
pub struct Rig {
    pub root: PathBuf,
    pub command: Vec<String>,
    daemon: Option<Child>,
}

/// How the daemon is set up.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    pub max_concurrent: usize,
    pub durability: &'a str,
    /// The specialist's process stays.
    pub resident: bool,
}

impl Rig {
    pub fn new(name: &str, command: &[&str], setup: Setup<'_>) -> io::Result<Self> {
        let roots = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench-roots");
        let root = roots.join(format!("{name}-{}", std::process::id()));
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

    pub fn configure(&self, setup: Setup<'_>) -> io::Result<()> {
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
             [specialists.\"{AGENT}\"]\ncommand = {command:?}\n{mode}\
             [specialists.\"@sleeper\"]\ncommand = [\"sleep\", \"100000\"]\n"
        );
        fs::write(self.root.join("handoffd.toml"), text)
    }

    /// Starts the daemon and waits until it says that it is there.
    pub fn start(&mut self) -> io::Result<()> {
        let program = std::env::var("HANDOFFD_BENCH_BIN")
            .unwrap_or_else(|_| env!("CARGO_BIN_EXE_handoffd").to_owned());
        let log = File::options()
            .append(true)
            .create(true)
            .open(self.root.join("daemon.log"))?;
        let child = Command::new(program)
            .args(["run", "--root"])
            .arg(&self.root)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()?;
        self.daemon = Some(child);
        Ok(())
    }

    pub fn wait_ready(&self) {
        let file = self.root.join(".handoffd/daemon.json");
        wait_until(Duration::from_secs(60), "the daemon to start", || {
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
        // What sleeps is ended by its keeper, if that is asked by a daemon that stops.
        if let Some(daemon) = &mut self.daemon {
            let pid = daemon.id();
            signal(pid, libc::SIGTERM);
            std::thread::sleep(Duration::from_millis(20));
            signal(pid, libc::SIGTERM);
            let _ = daemon.wait();
        }
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

pub fn wait_until(limit: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < limit, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ids of up to 40 bytes.
pub fn ids(prefix: &str, count: usize) -> Vec<String> {
    (0..count)
        .map(|n| {
            format!(
                "{prefix}-{n:07}-{:016x}",
                (n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
            )
        })
        .collect()
}

/// A request of about 1.5 KB, as an agent would write it.
pub fn request(id: &str, agent: &str) -> String {
    let finding = "The endpoint answers 500 where the token has expired; the log names a missing \
                   column, and the migration that adds it has not run on this host. ";
    let files: Vec<String> = (0..12)
        .map(|n| format!("\"services/api/src/handlers/module_{n:02}.rs\""))
        .collect();
    format!(
        "{{\n  \"handoff_id\": \"{id}\",\n  \"source\": {{ \"agent_id\": \"@planner\" }},\n  \
         \"target\": {{ \"agent_id\": \"{agent}\" }},\n  \"priority\": \"normal\",\n  \
         \"context\": {{ \"summary\": \"{}\", \"files\": [{}] }},\n  \
         \"input\": {{ \"task\": \"Find the cause and propose a fix\", \"limit\": 3 }}\n}}\n",
        finding.repeat(4),
        files.join(", ")
    )
}
