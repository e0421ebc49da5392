//! How each of the other queues is started, given a job, waited for and stopped.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::peers::{Place, call};
use crate::pickup::Servant;
use crate::rig::{spawn_bound, wait_until};

pub struct Queue {
    pub name: &'static str,
    /// What it comes in.
    pub package: &'static str,
    /// Each of these must run without complaint.
    probe: &'static [&'static [&'static str]],
    /// As many as it can do in a few seconds.
    pub jobs: usize,
    pub start: fn(&mut Place) -> io::Result<()>,
    pub add: fn(&mut Place, &[&str]) -> io::Result<()>,
    pub wait: fn(&mut Place, usize) -> io::Result<()>,
    pub stop: fn(&mut Place),
}

pub const ALL: &[Queue] = &[
    Queue {
        name: "task-spooler",
        package: "apt: task-spooler",
        probe: &[&["tsp", "-h"]],
        jobs: 500,
        start: |place| call(tsp(place).args(["-S", "2"])),
        add: |place, words| call(tsp(place).arg("-n").args(words)),
        wait: |place, jobs| {
            // With two at once, the last but one may be the last to end.
            for id in [jobs - 2, jobs - 1] {
                call(tsp(place).args(["-w", &id.to_string()]))?;
            }
            Ok(())
        },
        stop: |place| {
            let _ = call(tsp(place).arg("-K"));
        },
    },
    Queue {
        name: "nq",
        package: "apt: nq",
        // Without arguments it explains itself, and fails.
        probe: &[&["sh", "-c", "command -v nq"]],
        jobs: 300,
        start: |place| {
            fs::create_dir(place.path("0"))?;
            fs::create_dir(place.path("1"))
        },
        // One queue does one at a time, so there are two of them.
        add: |place, words| {
            let lane = match words {
                [.., lane @ ("0" | "1")] => usize::from(*lane == "1"),
                _ => usize::from(place.path("turn").exists()),
            };
            if lane == 1 {
                let _ = fs::remove_file(place.path("turn"));
            } else {
                fs::write(place.path("turn"), "")?;
            }
            call(nq(place, lane).args(words))
        },
        wait: |place, _| {
            call(nq(place, 0).arg("-w"))?;
            call(nq(place, 1).arg("-w"))
        },
        stop: |place| {
            let _ = call(nq(place, 0).arg("-w"));
            let _ = call(nq(place, 1).arg("-w"));
        },
    },
    Queue {
        name: "pueue",
        package: "cargo: pueue",
        probe: &[&["pueue", "--version"], &["pueued", "--version"]],
        jobs: 30,
        start: start_pueue,
        add: |place, words| call(pueue(place).args(["add", "--"]).args(words)),
        wait: |place, _| call(pueue(place).args(["wait", "--quiet"])),
        stop: |place| {
            let _ = call(pueue(place).arg("shutdown"));
        },
    },
    Queue {
        name: "huey",
        package: "pip: huey",
        probe: &[&["python3", "-c", "import huey"]],
        jobs: 500,
        start: |place| start_python(place, "huey", 1),
        add: Place::tell,
        wait: wait_counted,
        stop: |_| {},
    },
    Queue {
        name: "dirq",
        package: "pip: dirq",
        probe: &[&["python3", "-c", "import dirq"]],
        jobs: 500,
        start: |place| start_python(place, "dirq", 2),
        add: Place::tell,
        wait: wait_counted,
        stop: |_| {},
    },
];

impl Queue {
    pub fn is_here(&self) -> bool {
        self.probe.iter().all(|probe| {
            let mut command = match probe {
                ["python3", rest @ ..] => {
                    let mut command = Command::new(python());
                    command.args(rest);
                    command
                }
                [program, rest @ ..] => {
                    let mut command = Command::new(program);
                    command.args(rest);
                    command
                }
                [] => return true,
            };
            let status = command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            status.is_ok_and(|status| status.success())
        })
    }
}

fn tsp(place: &Place) -> Command {
    let mut command = Command::new("tsp");
    command.env("TS_SOCKET", place.socket());
    command.env("TMPDIR", &place.folder);
    command
}

fn nq(place: &Place, lane: usize) -> Command {
    let mut command = Command::new("nq");
    command.env("NQDIR", place.path(&lane.to_string()));
    command.current_dir(&place.folder);
    command
}

fn pueue(place: &Place) -> Command {
    let mut command = Command::new("pueue");
    command.arg("-c").arg(place.path("pueue.yml"));
    command
}

fn start_pueue(place: &mut Place) -> io::Result<()> {
    let (folder, socket) = (place.path("pueue"), place.socket());
    fs::create_dir(&folder)?;
    let (folder, shown) = (folder.display(), socket.display());
    let config = format!(
        "shared:\n  pueue_directory: {folder}\n  runtime_directory: {folder}\n  \
         use_unix_socket: true\n  unix_socket_path: {shown}\n"
    );
    fs::write(place.path("pueue.yml"), config)?;
    let mut daemon = Command::new("pueued");
    daemon.arg("-c").arg(place.path("pueue.yml"));
    daemon.stdin(Stdio::null()).stdout(Stdio::null());
    place
        .servants
        .push(Servant(spawn_bound(daemon.stderr(Stdio::null()))?));
    wait_until(Duration::from_secs(20), "pueued", || {
        call(pueue(place).arg("status")).is_ok()
    });
    call(pueue(place).args(["parallel", "2"]))
}

/// A Python that has them: another one than the first in the path may be named.
fn python() -> String {
    std::env::var("HANDOFFD_BENCH_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// Waits for what the workers have counted.
#[expect(clippy::unnecessary_wraps, reason = "others may fail at it")]
fn wait_counted(place: &mut Place, jobs: usize) -> io::Result<()> {
    wait_until(Duration::from_secs(120), "the jobs", || {
        place.counted() >= jobs
    });
    Ok(())
}

/// The first servant submits; the others work.
fn start_python(place: &mut Place, kind: &str, workers: usize) -> io::Result<()> {
    let script = place.path("peers.py");
    fs::write(&script, include_str!("peers.py"))?;
    let command = |role: &str, script: &Path| {
        let mut command = Command::new(python());
        command.arg(script).args([kind, role]).arg(&place.folder);
        command.stdin(Stdio::piped()).stderr(Stdio::null());
        command
    };
    let mut servants = vec![Servant::start(&mut command("submit", &script))?];
    for _ in 0..workers {
        servants.push(Servant::start(&mut command("work", &script))?);
    }
    place.servants = servants;
    Ok(())
}
