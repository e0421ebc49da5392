//! A daemon under test: started for real, and killed when it goes out of scope.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use super::{Root, kill, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_handoffd");

/// The program where this user can start it: a checkout may be closed to others, and then it is a copy.
/// This folder is not.
pub fn program_for(folder: &Path, user: u32) -> PathBuf {
    let asked = Command::new(PROGRAM)
        .arg("--version")
        .uid(user)
        .gid(user)
        .output();
    if asked.is_ok_and(|output| output.status.success()) {
        return PROGRAM.into();
    }
    let copy = folder.join("handoffd-for-another-user");
    if !copy.exists() {
        fs::copy(PROGRAM, &copy).unwrap();
    }
    copy
}

pub struct Daemon {
    child: Child,
    ended: Option<ExitStatus>,
}

impl Daemon {
    /// Starts one and waits until it works.
    pub fn start(root: &Root) -> Self {
        Self::start_with(root, |_| {})
    }

    /// One whose keeper does without cgroups, as on a machine that has none.
    pub fn start_without_cgroups(root: &Root) -> Self {
        Self::start_with(root, |command| {
            command.env("HANDOFFD_NO_CGROUP", "1");
        })
    }

    pub fn start_with(root: &Root, change: impl FnOnce(&mut Command)) -> Self {
        Self::spawn(root, change).started(root)
    }

    /// One of this user, who owns the root from now on. Only root can start it.
    pub fn start_as(root: &Root, user: u32, change: impl FnOnce(&mut Command)) -> Self {
        Self::start_program_as(&program_for(root.dir(), user), root, user, change)
    }

    /// The same with the program from there.
    pub fn start_program_as(
        program: &Path,
        root: &Root,
        user: u32,
        change: impl FnOnce(&mut Command),
    ) -> Self {
        let given = Command::new("chown")
            .args(["-R", &format!("{user}:{user}")])
            .arg(root.dir())
            .status();
        assert!(given.unwrap().success());
        let change = |command: &mut Command| {
            command.uid(user).gid(user);
            change(command);
        };
        Self::spawn_program(program, root, change).started(root)
    }

    fn started(mut self, root: &Root) -> Self {
        let daemon = &mut self;
        let pid = daemon.child.id();
        wait_until("the daemon's start", || {
            let ended = daemon.child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended: {ended:?}");
            let bytes = fs::read(root.path(".handoffd/daemon.json")).ok()?;
            let shown: Value = serde_json::from_slice(&bytes).ok()?;
            (shown["pid"] == pid).then_some(())
        });
        self
    }

    /// Starts one without waiting for anything.
    pub fn spawn(root: &Root, change: impl FnOnce(&mut Command)) -> Self {
        Self::spawn_program(Path::new(PROGRAM), root, change)
    }

    fn spawn_program(program: &Path, root: &Root, change: impl FnOnce(&mut Command)) -> Self {
        let logs = root.path("daemon-log");
        fs::create_dir_all(&logs).unwrap();
        let number = fs::read_dir(&logs).unwrap().count();
        let log = File::create(logs.join(format!("{number:02}.log"))).unwrap();
        let mut command = Command::new(program);
        command
            .args(["run", "--root"])
            .arg(root.dir())
            .env("HANDOFFD_LOG", "debug")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        change(&mut command);
        Self {
            child: command.spawn().unwrap(),
            ended: None,
        }
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    /// `kill -9`, and not a moment later than it is gone.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.wait();
    }

    /// SIGTERM, and the exit code that follows.
    pub fn terminate(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.exit_code()
    }

    /// Waits for it to end by itself.
    pub fn exit_code(&mut self) -> Option<i32> {
        wait_until("the daemon's end", || self.child.try_wait().unwrap());
        self.wait().code()
    }

    fn wait(&mut self) -> ExitStatus {
        let ended = self.child.wait().unwrap();
        self.ended = Some(ended);
        ended
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
