//! From the rename into `pending/` of an idle daemon to the specialist's first instruction.

use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::bare::monotonic_ns;
use crate::chart::{Axis, Chart, Kind, Line};
use crate::options::Options;
use crate::results::{Aim, Figure, Section, number, quantile};
use crate::rig::{Rig, Setup, spawn_bound};
use crate::sample::ids;

pub fn run(options: &Options, section: &mut Section) -> io::Result<()> {
    let stamps = Stamps::new()?;
    let mut rig = Rig::new("pickup", &stamps.command(), Setup::default())?;
    rig.start()?;
    rig.wait_ready();
    let folder = rig.root.join("bare");
    std::fs::create_dir(&folder)?;
    let bare = Servant::start(
        Command::new(&stamps.own)
            .arg("--bare-pickup")
            .arg(&folder)
            .arg(&stamps.path),
    )?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for id in &ids("pickup", options.drops) {
        ours.push(drop_one(&rig, &stamps, id)?);
        rig.stage(std::slice::from_ref(id))?;
        let begin = monotonic_ns();
        drop_at(&rig.root.join("staging").join(id), &folder.join(id))?;
        theirs.push(stamps.since(begin)?);
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(bare);
    for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("slowest", 1.0)] {
        let (ours, theirs) = (quantile(&mut ours, share), quantile(&mut theirs, share));
        let what = format!("pick-up by an idle daemon, {name}");
        let figure = Figure::new(format!("pickup.{name}"), what, ours, "ms");
        let figure = figure.beside("bare inotify + spawn", theirs);
        section.add(if name == "p50" {
            figure.aim(Aim::AtMost(1.25))
        } else {
            figure
        });
    }
    section.charts.push(Chart {
        name: "pickup".to_owned(),
        title: "Share of pick-ups that took no longer".to_owned(),
        across: Axis::log("milliseconds"),
        up: Axis::linear("share of all"),
        kind: Kind::Lines(vec![
            Line::new("handoffd", distribution(&ours)),
            Line::new("bare inotify + spawn", distribution(&theirs)),
        ]),
    });
    Ok(())
}

/// Of sorted values, the share that is not above each.
fn distribution(sorted: &[f64]) -> Vec<(f64, f64)> {
    let share = |at: usize| number(at + 1) / number(sorted.len());
    let points = sorted.iter().enumerate();
    points.map(|(at, value)| (*value, share(at))).collect()
}

/// Milliseconds for one drop by rename; waits until it has ended.
pub fn drop_one(rig: &Rig, stamps: &Stamps, id: &String) -> io::Result<f64> {
    rig.stage(std::slice::from_ref(id))?;
    let begin = monotonic_ns();
    rig.drop_staged(id)?;
    let took = stamps.since(begin)?;
    rig.wait_drained();
    Ok(took)
}

/// Where programs say that they have begun.
pub struct Stamps {
    socket: UnixDatagram,
    at: PathBuf,
    pub path: String,
    /// This program, which is also the one that is started.
    pub own: String,
}

impl Stamps {
    pub fn new() -> io::Result<Self> {
        // An address holds 108 bytes, which a root's own path may exceed.
        let at = std::env::temp_dir().join(format!("handoffd-bench-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&at);
        let socket = UnixDatagram::bind(&at)?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        let own = std::env::current_exe()?;
        let text = |path: &Path| path.to_str().map(str::to_owned);
        Ok(Self {
            socket,
            path: text(&at).ok_or(io::ErrorKind::InvalidInput)?,
            own: text(&own).ok_or(io::ErrorKind::InvalidInput)?,
            at,
        })
    }

    /// What says so.
    pub fn command(&self) -> [&str; 3] {
        [&self.own, "--stamp", &self.path]
    }

    /// Milliseconds until the next one began.
    #[expect(clippy::cast_precision_loss, reason = "a few million nanoseconds")]
    pub fn since(&self, begin: u64) -> io::Result<f64> {
        let mut stamp = [0; 8];
        self.socket.recv(&mut stamp)?;
        Ok(u64::from_le_bytes(stamp).saturating_sub(begin) as f64 / 1e6)
    }
}

impl Drop for Stamps {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.at);
    }
}

/// A program that runs beside this one, and no longer than it is wanted.
pub struct Servant(pub Child);

impl Servant {
    /// Waits until it says that it is ready.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = spawn_bound(command.stdout(Stdio::piped()))?;
        let stdout = child.stdout.take();
        let servant = Self(child);
        let mut line = String::new();
        if let Some(stdout) = stdout {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        if line.is_empty() {
            return Err(io::Error::other("it ended before it was ready"));
        }
        Ok(servant)
    }
}

impl Drop for Servant {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is a producer, not the daemon"
)]
fn drop_at(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)
}
