//! Disks that are full, out of inodes, read-only or dead, for real: the daemon stops starting work
//! and says so, never tells of an outcome that is not written, and goes on by itself.
//!
//! Each round works on a small disk of its own, takes it away in the middle, gives it back, and
//! then looks at it after it was unmounted and mounted again, so that only what is on the disk
//! counts.

use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Daemon, Root, kill_all, orders, wait_until, with};
use crate::disk::logged::Logged;
use crate::disk::{self, EXT4, Mounted};
use crate::report::{Row, times};

/// How many run at once, and how many there are.
const SLOTS: usize = 2;
const HANDOFFS: usize = 10;
/// How long it may take to go on once the cause is gone.
const GOES_ON: Duration = Duration::from_secs(30);

#[test]
fn a_full_memory_disk_is_waited_for() {
    try_all("no bytes left, tmpfs", Fault::Bytes, On::Memory);
}

#[test]
fn a_full_disk_is_waited_for() {
    try_all("no bytes left, ext4", Fault::Bytes, On::Disk);
}

#[test]
fn a_memory_disk_without_inodes_is_waited_for() {
    try_all("no inodes left, tmpfs", Fault::Inodes, On::Memory);
}

#[test]
fn a_disk_without_inodes_is_waited_for() {
    try_all("no inodes left, ext4", Fault::Inodes, On::Disk);
}

#[test]
fn a_read_only_disk_is_waited_for() {
    try_all("read-only for a while, ext4", Fault::ReadOnly, On::Disk);
}

#[test]
fn a_disk_that_fails_to_write_is_waited_for() {
    try_all(
        "EIO for every file for a while, ext4",
        Fault::Files,
        On::Disk,
    );
}

#[test]
fn a_dead_disk_is_worked_off_after_it_was_mounted_again() {
    try_all(
        "EIO for everything, then mounted again, ext4",
        Fault::Dead,
        On::Disk,
    );
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Bytes,
    Inodes,
    ReadOnly,
    /// No file can be written; the file system's own journal can.
    Files,
    /// Nothing can be written, and the file system gives up for good.
    Dead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum On {
    Memory,
    Disk,
}

fn try_all(name: &'static str, fault: Fault, on: On) {
    let mut row = Row::new(name);
    if let Some(why) = disk::unavailable() {
        eprintln!("{name}: not tried here: {why}");
        row.note(format!("not tried here: {why}"));
        row.finish();
        return;
    }
    let mut slowest = Duration::ZERO;
    for _ in 0..times("disks", 1, 50) {
        // Its mounts go with the thread.
        let round = std::thread::spawn(move || {
            disk::private_mounts().unwrap();
            one_round(fault, on)
        });
        let (took, broken) = round.join().unwrap();
        slowest = slowest.max(took);
        row.tried(broken);
    }
    row.note(format!(
        "all had ended at most {:.1} s after the disk was back",
        slowest.as_secs_f64()
    ));
    row.finish();
}

/// A mounted disk, and what it is made of.
struct Place {
    mounted: Option<Mounted>,
    logged: Option<Logged>,
    at: PathBuf,
}

impl Place {
    fn new(on: On, folder: &Path) -> Self {
        let at = folder.join("disk-root");
        let (mounted, logged) = match on {
            On::Memory => {
                let options = "size=8m,nr_inodes=2000";
                (Mounted::memory(&at, options).unwrap(), None)
            }
            On::Disk => {
                let logged = Logged::plug_in(folder, EXT4.bytes).unwrap();
                EXT4.make(&logged.device).unwrap();
                let mounted = Mounted::device(&logged.device, &at, EXT4.name, "").unwrap();
                (mounted, Some(logged))
            }
        };
        Self {
            mounted: Some(mounted),
            logged,
            at,
        }
    }

    /// Unmounts and mounts again: what was only in memory is gone.
    fn again(&mut self) {
        let Some(logged) = &self.logged else { return };
        self.mounted = None;
        // Whoever still held it lets go; then the same device can be mounted anew.
        let mounted = wait_until("the disk can be mounted again", || {
            Mounted::device(&logged.device, &self.at, EXT4.name, "").ok()
        });
        self.mounted = Some(mounted);
    }
}

fn one_round(fault: Fault, on: On) -> (Duration, Vec<String>) {
    let folder = disk::scratch();
    let mut place = Place::new(on, folder.path());
    let config = format!(
        "daemon.max_concurrent = {SLOTS}\ndefaults.retry.max_retries = 50\n\
         defaults.retry.delay = '20ms'\ndefaults.retry.multiplier = 1.0"
    );
    let work = place.at.join("work");
    fs::create_dir_all(&work).unwrap();
    let root = Root::at(&work, &config);
    let outside = folder.path().join("outside");
    fs::create_dir_all(&outside).unwrap();
    let log = outside.join("log");
    let _witness = Witness {
        log: log.clone(),
        work: work.clone(),
    };
    let daemon = start(&root, &log);
    root.assert_works("before");
    // What attempts and test tell each other is not on the disk.
    let sh = format!(
        "echo \"$HANDOFF_ID\" >>{out}/starts; until [ -e {out}/go ]; do sleep 0.02; done; \
         echo '{{\"artifact\": {{\"a\": 1}}}}'",
        out = outside.display()
    );
    for n in 0..HANDOFFS {
        let made = serde_json::json!({ "expected_output": {
            "destination": format!("artifacts/{n}.json"), "artifact_type": "source" } });
        root.drop_request(&format!("h{n}"), &with(orders(&sh), made));
    }
    let starts = || {
        let text = fs::read_to_string(outside.join("starts")).unwrap_or_default();
        text.lines().count()
    };
    wait_until("all slots are used", || (starts() >= SLOTS).then_some(()));
    // A producer that cares has synced what it dropped.
    rustix::fs::syncfs(File::open(&work).unwrap()).unwrap();
    let mut broken = Vec::new();
    let mut gave_back = Instant::now();
    let mut told: Vec<String> = Vec::new();
    std::thread::scope(|scope| {
        let taken = Taken::take(fault, &place, scope);
        fs::write(outside.join("go"), "").unwrap();
        let said = wait_until("status tells of the disk", || problems(&root, fault));
        let logged = fs::read_to_string(&log).unwrap_or_default();
        if !logged.contains("WARN") {
            broken.push(format!("the log does not tell of {said:?}"));
        }
        // Time for what should not happen.
        std::thread::sleep(Duration::from_millis(700));
        told = root.names("handoffs/completed");
        // Those in the slots, those who came after them before anybody knew, and no more.
        let most = HANDOFFS.min(3 * SLOTS + told.len());
        if starts() > most {
            broken.push(format!("{} were started on a broken disk", starts()));
        }
        if problems(&root, fault).is_none() {
            broken.push("status forgot the disk while it was broken".to_owned());
        }
        drop(taken);
        gave_back = Instant::now();
    });
    let daemon = if fault == Fault::Dead {
        // No file system comes back from that by itself.
        kill_all(&root, daemon);
        drop(root);
        place.again();
        gave_back = Instant::now();
        let root = Root::at(&work, &config);
        (start(&root, &log), root)
    } else {
        (daemon, root)
    };
    let (daemon, root) = daemon;
    wait_until("all have ended", || {
        (0..HANDOFFS)
            .all(|n| root.states_of(&format!("h{n}")) == ["completed"])
            .then_some(())
    });
    let took = gave_back.elapsed();
    if took > GOES_ON {
        broken.push(format!("it took {took:?} to go on"));
    }
    wait_until("status has nothing to tell", || {
        problems(&root, fault).is_none().then_some(())
    });
    root.assert_works("after");
    if daemon.terminate() != Some(0) {
        broken.push("the daemon did not leave in peace".to_owned());
    }
    crate::common::kill_keeper(&root);
    drop(root);
    place.again();
    broken.extend(judge(&work, &told));
    if !broken.is_empty() {
        let said = fs::read_to_string(&log).unwrap_or_default();
        broken.push(format!("it had said: {said}"));
    }
    (took, broken)
}

/// Tells what is known of a round that failed, before its disk is gone.
struct Witness {
    log: PathBuf,
    work: PathBuf,
}

impl Drop for Witness {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        eprintln!("--- the daemon said\n{said}");
        let shown = fs::read_to_string(self.work.join(".handoffd/daemon.json"));
        eprintln!("--- daemon.json\n{}", shown.unwrap_or_default());
        let left = Command::new("df").arg("-i").arg(&self.work).output();
        let left = left.map(|left| left.stdout).unwrap_or_default();
        eprintln!("--- its disk\n{}", String::from_utf8_lossy(&left));
    }
}

fn start(root: &Root, log: &Path) -> Daemon {
    let log = File::options().create(true).append(true).open(log).unwrap();
    Daemon::start_with(root, |command| {
        command.stderr(log).env("HANDOFFD_LOG", "info");
    })
}

/// What `handoffd status` lists, if anything.
fn problems(root: &Root, fault: Fault) -> Option<String> {
    let said = root.cli(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&said.stdout).unwrap_or_default();
    let list = status["problems"].as_array().cloned().unwrap_or_default();
    // A dead disk may not even be listed.
    if fault == Fault::Dead && !said.status.success() {
        return Some(String::from_utf8_lossy(&said.stderr).into_owned());
    }
    (!list.is_empty()).then(|| Value::Array(list).to_string())
}

/// Everything ended once, is on the disk, and what was seen as completed on the way still is.
fn judge(work: &Path, told: &[String]) -> Vec<String> {
    let mut broken = Vec::new();
    let completed = work.join("handoffs/completed");
    for name in told {
        if !completed.join(name).exists() {
            broken.push(format!("{name} was completed, and is not any more"));
        }
    }
    for n in 0..HANDOFFS {
        let bytes = fs::read(completed.join(format!("h{n}.json"))).unwrap_or_default();
        let record: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let attempts = record["handoffd"]["attempts"].as_array();
        let ended = attempts
            .into_iter()
            .flatten()
            .filter(|attempt| attempt["outcome"] == "completed")
            .count();
        if ended != 1 {
            broken.push(format!("h{n} completed {ended} times: {record}"));
        }
    }
    let found = handoffd::inspect::deep::examine_root(work).unwrap();
    broken.extend(found.breaches.iter().map(|breach| format!("{breach:?}")));
    broken
}

/// What was taken of a disk; given back when it goes out of scope.
struct Taken<'scope> {
    place: &'scope Place,
    fillers: PathBuf,
    filling: Option<ScopedJoinHandle<'scope, ()>>,
    over: Arc<AtomicBool>,
    read_only: Option<Mounted>,
}

impl<'scope> Taken<'scope> {
    fn take(fault: Fault, place: &'scope Place, scope: &'scope Scope<'scope, '_>) -> Self {
        let fillers = place.at.join("fillers");
        fs::create_dir_all(&fillers).unwrap();
        let mut taken = Self {
            place,
            fillers: fillers.clone(),
            filling: None,
            over: Arc::default(),
            read_only: None,
        };
        match fault {
            Fault::Bytes | Fault::Inodes => {
                let mut filler = Filler::new(fault, &fillers);
                filler.fill();
                // What is let go meanwhile is taken too.
                let over = Arc::clone(&taken.over);
                taken.filling = Some(scope.spawn(move || {
                    while !over.load(Ordering::SeqCst) {
                        filler.fill();
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }));
            }
            Fault::ReadOnly => {
                taken.read_only = Some(Mounted::read_only_over(&place.at.join("work")).unwrap());
            }
            Fault::Files => {
                let journal = journal_of(place);
                place.logged.as_ref().unwrap().disk().spared = journal;
                place.logged.as_ref().unwrap().disk().dead = true;
            }
            Fault::Dead => place.logged.as_ref().unwrap().disk().dead = true,
        }
        taken
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.read_only = None;
        if let Some(logged) = &self.place.logged {
            logged.disk().dead = false;
        }
        // Whoever still fills would take again what is given back here.
        self.over.store(true, Ordering::SeqCst);
        if let Some(filling) = self.filling.take() {
            let _ = filling.join();
        }
        if let Err(error) = fs::remove_dir_all(&self.fillers) {
            eprintln!("{} stays: {error}", self.fillers.display());
        }
    }
}

/// Where the file system's journal stands on its disk, block by block.
fn journal_of(place: &Place) -> Vec<Range<usize>> {
    let device = &place.logged.as_ref().unwrap().device;
    let said = Command::new("debugfs")
        .args(["-R", "blocks <8>"])
        .arg(device)
        .output()
        .unwrap();
    let blocks: Vec<_> = String::from_utf8_lossy(&said.stdout)
        .split_whitespace()
        .filter_map(|word| word.parse::<usize>().ok())
        .map(|block| block * 4096..(block + 1) * 4096)
        .collect();
    assert!(!blocks.is_empty(), "no journal: {said:?}");
    blocks
}

/// Takes whatever is left of a disk.
struct Filler {
    fault: Fault,
    folder: PathBuf,
    file: File,
    count: usize,
}

impl Filler {
    fn new(fault: Fault, folder: &Path) -> Self {
        Self {
            fault,
            folder: folder.to_owned(),
            file: File::create(folder.join("bytes")).unwrap(),
            count: 0,
        }
    }

    fn fill(&mut self) {
        match self.fault {
            Fault::Bytes => {
                for size in [1 << 20, 4096, 1] {
                    let some = vec![b'x'; size];
                    while self.file.write(&some).is_ok_and(|written| written > 0) {}
                }
            }
            _ => {
                while File::create(self.folder.join(self.count.to_string())).is_ok() {
                    self.count += 1;
                }
            }
        }
    }
}
