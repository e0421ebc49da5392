//! The bench of these tests: a root with a keeper, a daemon's end of the line to it, and looking at
//! processes.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use handoffd::clock::boot_ms;
use handoffd::keeper::wire::{Exit, Held, Key, Report, Why};
use handoffd::keeper::{Client, Launch, Reader, Setup, Users, alive_outside};
use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(20);
pub const FAR: u64 = 600_000;
pub const UNTIL_GO: &str = "echo $$ > ready; while ! [ -e go ]; do sleep 0.02; done; exit 7";

pub fn wait_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn key(id: &str) -> Key {
    Key::new(id, 1)
}

pub fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// The fields of a process's stat from its state on; none if it is gone or a zombie.
pub fn stat(pid: i32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<String> = text[text.rfind(')')? + 2..]
        .split(' ')
        .map(str::to_owned)
        .collect();
    (fields[0] != "Z").then_some(fields)
}

pub fn is_alive(pid: i32) -> bool {
    stat(pid).is_some()
}

/// A daemon's end of the line, with every report it has got.
pub struct Daemon {
    pub client: Client,
    pub reports: Arc<Mutex<Vec<Report>>>,
    pub lost: Arc<Mutex<bool>>,
}

impl Daemon {
    fn new((client, mut reader): (Client, Reader)) -> Self {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let lost = Arc::new(Mutex::new(false));
        let (into, gone) = (Arc::clone(&reports), Arc::clone(&lost));
        std::thread::spawn(move || {
            while let Ok(report) = reader.next() {
                into.lock().unwrap().push(report);
            }
            *gone.lock().unwrap() = true;
        });
        Self {
            client,
            reports,
            lost,
        }
    }

    pub fn find<T>(&self, what: &str, look: impl Fn(&Report) -> Option<T>) -> T {
        wait_until(what, || self.reports.lock().unwrap().iter().find_map(&look))
    }

    pub fn started(&self, id: &str) -> i32 {
        self.find(&format!("start of {id}"), |report| match report {
            Report::Started { key, pid, .. } if key.id == id => Some(*pid),
            _ => None,
        })
    }

    pub fn ended(&self, id: &str) -> (Exit, Option<Why>) {
        self.find(&format!("end of {id}"), |report| match report {
            Report::Ended { key, exit, why } if key.id == id => Some((*exit, *why)),
            Report::StartFailed { key, errno, what } if key.id == id => {
                panic!("{id} failed to start: {errno} {what}")
            }
            _ => None,
        })
    }

    pub fn failed(&self, id: &str) -> (i32, String) {
        self.find(&format!("failure of {id}"), |report| match report {
            Report::StartFailed { key, errno, what } if key.id == id => {
                Some((*errno, what.clone()))
            }
            _ => None,
        })
    }

    pub fn inventory(&self) -> Vec<Held> {
        self.reports.lock().unwrap().clear();
        self.client.inventory().unwrap();
        self.find("an inventory", |report| match report {
            Report::Inventory { entries } => Some(entries.clone()),
            _ => None,
        })
    }

    pub fn held(&self, id: &str) -> Option<Held> {
        self.inventory().into_iter().find(|held| held.key.id == id)
    }
}

/// A daemon that is killed leaves nothing but a closed socket.
pub fn drop_daemon(daemon: Daemon) {
    daemon.client.hang_up();
    drop(daemon);
}

/// A root with a keeper.
pub struct Bench {
    pub dir: tempfile::TempDir,
    pub setup: Setup,
}

impl Bench {
    pub fn new(no_cgroup: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = dir.path().join("run");
        fs::create_dir(&run_dir).unwrap();
        let setup = Setup {
            program: PathBuf::from(env!("CARGO_BIN_EXE_handoffd")),
            run_dir,
            root: dir.path().to_owned(),
            no_cgroup,
        };
        Self { dir, setup }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn connect(&self) -> Daemon {
        Daemon::new(self.setup.connect_or_start().unwrap())
    }

    pub fn launch(&self, id: &str, argv: &[&str]) -> Launch {
        let open = |name: String| -> OwnedFd {
            let mut options = File::options();
            let file = options.append(true).create(true).open(self.path(&name));
            file.unwrap().into()
        };
        let env = [
            ("PATH", std::env::var_os("PATH").unwrap()),
            ("HANDOFF_ROOT", self.dir.path().into()),
            ("HANDOFF_ID", id.into()),
            ("HANDOFF_ATTEMPT", "1".into()),
        ];
        Launch {
            key: key(id),
            argv: argv.iter().map(OsString::from).collect(),
            env: env.map(|(name, value)| (name.into(), value)).into(),
            cwd: self.dir.path().to_owned(),
            deadline_boot_ms: boot_ms() + FAR,
            grace_ms: FAR,
            note: serde_json::json!({ "of": id }),
            stdio: [
                File::open("/dev/null").unwrap().into(),
                open(format!("{id}.out")),
                open(format!("{id}.err")),
            ],
            confine: None,
            fsize: None,
            turn: None,
        }
    }

    pub fn script(&self, id: &str, script: &str) -> Launch {
        self.launch(id, &["sh", "-c", script])
    }

    /// Waits for a pid that a script wrote.
    pub fn pid_in(&self, name: &str) -> i32 {
        wait_until(name, || {
            let text = fs::read_to_string(self.path(name)).ok()?;
            text.strip_suffix('\n')?.parse().ok()
        })
    }

    /// The processes that this program runs for this root, by what they call themselves.
    pub fn named(&self, name: &str) -> Vec<i32> {
        let run_dir = self.setup.run_dir.as_os_str().as_bytes();
        fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|pid: &i32| {
                let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                read("comm") == format!("{name}\n").as_bytes()
                    && read("cmdline").split(|&b| b == 0).any(|arg| arg == run_dir)
                    && is_alive(*pid)
            })
            .collect()
    }

    /// The users whose processes may be attempts of this root.
    pub fn users(&self) -> Users {
        Users::of(&self.setup.run_dir)
    }

    pub fn kill_keeper(&self) {
        let keepers = self.named("handoffd-keeper");
        assert_eq!(keepers.len(), 1);
        kill(keepers[0], Signal::KILL);
        wait_until("the keeper's death", || {
            (!is_alive(keepers[0])).then_some(())
        });
    }

    /// Whether the keeper really uses cgroups here.
    pub fn has_cgroup(&self, pid: i32) -> bool {
        let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        !self.setup.no_cgroup && cgroup.contains("handoffd-")
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for name in ["handoffd-keeper", "handoffd-minder"] {
            for pid in self.named(name) {
                // One that has nothing to keep leaves by itself, and cleans up behind itself.
                if std::thread::panicking() || name.ends_with("minder") {
                    let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
                }
            }
        }
        for stray in alive_outside(self.dir.path(), &self.users(), None).unwrap_or_default() {
            let _ = kill_process(Pid::from_raw(stray.pid).unwrap(), Signal::KILL);
        }
    }
}
