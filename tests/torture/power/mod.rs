//! Power cuts: a daemon works on a disk that remembers every write and flush; then the power is
//! cut at many points of that, and what stands on the disk is mounted and worked off.
//!
//! A cut in order keeps all writes up to a point. A cut out of order keeps what was flushed before
//! it, and of the writes after the flush any, whole or torn. Each is a new boot: the boot's name
//! is another one. Whatever was promised to somebody before the cut must hold after it.
//!
//! What is not promised: the files that a specialist writes itself are as safe as it made them,
//! and with `durability = "relaxed"` nothing is. So the work here hands its artifacts to the
//! daemon, and runs with `full`.

mod verdict;
mod workload;

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::common::{Dice, kill_keeper_at};
use crate::disk::logged::Op;
use crate::disk::{self, BTRFS, EXT4, Kind, Mounted, XFS};
use crate::report::{Row, times};
use workload::Tape;

/// How many cuts one recording is good for.
const CUTS_EACH: usize = 250;
/// What is copied of an image at once; parts that were never written are left out.
const CHUNK: usize = 64 << 10;
/// How long a daemon may take to work off a few handoffs before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Kept,
    Lost,
}

#[test]
fn power_cuts_in_order_on_ext4_lose_nothing_that_was_told() {
    let cuts = times("power", 10, 2000);
    cut_power("power cut, writes in order, ext4", EXT4, Order::Kept, cuts);
}

#[test]
fn power_cuts_out_of_order_on_ext4_lose_nothing_that_was_told() {
    let cuts = times("power", 10, 2000);
    cut_power(
        "power cut, any of the unflushed writes, ext4",
        EXT4,
        Order::Lost,
        cuts,
    );
}

#[test]
fn power_cuts_on_xfs_lose_nothing_that_was_told() {
    let cuts = times("power_xfs", 0, 200);
    cut_power("power cut, writes in order, xfs", XFS, Order::Kept, cuts);
    cut_power(
        "power cut, any of the unflushed writes, xfs",
        XFS,
        Order::Lost,
        cuts,
    );
}

#[test]
fn power_cuts_on_btrfs_lose_nothing_that_was_told() {
    let cuts = times("power_btrfs", 0, 200);
    cut_power(
        "power cut, writes in order, btrfs",
        BTRFS,
        Order::Kept,
        cuts,
    );
    cut_power(
        "power cut, any of the unflushed writes, btrfs",
        BTRFS,
        Order::Lost,
        cuts,
    );
}

fn cut_power(fault: &'static str, kind: Kind, order: Order, cuts: usize) {
    if cuts == 0 {
        return;
    }
    let mut row = Row::new(fault);
    if let Some(why) = disk::unavailable() {
        eprintln!("{fault}: not tried here: {why}");
        row.note(format!("not tried here: {why}"));
        row.finish();
        return;
    }
    let mut dice = Dice::thrown();
    let mut writes = 0;
    let mut left = cuts;
    while left > 0 {
        let some = left.min(CUTS_EACH);
        let recorded =
            std::thread::scope(|scope| scope.spawn(|| record(kind, &mut dice)).join().unwrap());
        let tape = match recorded {
            Ok(tape) => tape,
            Err(why) => {
                eprintln!("{fault}: not tried here: {why}");
                row.note(format!("not tried here: {why}"));
                break;
            }
        };
        writes += tape.ops.len();
        let cuts = choose(&tape, order, some, &mut dice);
        let broken = replay(kind, &tape, &cuts);
        row.tried_many(cuts.len());
        row.broke(broken);
        left -= some;
        row.note(format!(
            "{writes} writes and flushes recorded; files that specialists write themselves are \
             not synced by the daemon"
        ));
    }
    row.finish();
}

fn record(kind: Kind, dice: &mut Dice) -> Result<Tape, String> {
    disk::private_mounts().map_err(|error| error.to_string())?;
    let folder = disk::scratch();
    workload::record(kind, folder.path(), dice)
}

/// Where the power is cut, and what chance does to the writes that were not flushed.
#[derive(Debug, Clone, Copy)]
struct Cut {
    at: usize,
    order: Order,
    seed: u64,
}

fn choose(tape: &Tape, order: Order, count: usize, dice: &mut Dice) -> Vec<Cut> {
    let mut cuts: Vec<Cut> = (0..count)
        .map(|_| Cut {
            at: usize::try_from(dice.below(tape.ops.len() as u64 + 1)).unwrap(),
            order,
            seed: dice.below(u64::MAX - 1) + 1,
        })
        .collect();
    // Images grow; they are never taken back.
    cuts.sort_by_key(|cut| cut.at);
    cuts
}

/// Tries the cuts, on as many threads as there are processors.
fn replay(kind: Kind, tape: &Tape, cuts: &[Cut]) -> Vec<String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let broken = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let broken = &broken;
            scope.spawn(move || {
                disk::private_mounts().unwrap();
                let bench = Bench::new(kind, tape);
                let mine = cuts.iter().skip(thread).step_by(threads);
                let found = bench.try_all(mine);
                broken.lock().unwrap().extend(found);
            });
        }
    });
    broken.into_inner().unwrap()
}

/// Where one thread mounts what is left after a cut.
struct Bench<'a> {
    kind: Kind,
    tape: &'a Tape,
    folder: tempfile::TempDir,
    /// Stands for the kernel's own name of this boot.
    boot_id: PathBuf,
    _boot_id: Mounted,
}

impl<'a> Bench<'a> {
    fn new(kind: Kind, tape: &'a Tape) -> Self {
        let folder = disk::scratch();
        let boot_id = folder.path().join("boot_id");
        fs::write(&boot_id, "").unwrap();
        let kernels = Path::new("/proc/sys/kernel/random/boot_id");
        let over = Mounted::file_over(&boot_id, kernels).unwrap();
        Self {
            kind,
            tape,
            folder,
            boot_id,
            _boot_id: over,
        }
    }

    fn try_all<'c>(&self, cuts: impl Iterator<Item = &'c Cut>) -> Vec<String> {
        let mut broken = Vec::new();
        let mut image = Image::new(&self.tape.base);
        for (number, cut) in cuts.enumerate() {
            let found = self.try_one(&mut image, *cut, number);
            let told = found.into_iter().map(|what| format!("{cut:?}: {what}"));
            broken.extend(told);
        }
        broken
    }

    fn try_one(&self, image: &mut Image, cut: Cut, number: usize) -> Vec<String> {
        let before = &self.tape.ops[..cut.at];
        let flushed = before
            .iter()
            .rposition(|op| matches!(op, Op::Flush))
            .map_or(0, |at| at + 1);
        let safe = match cut.order {
            Order::Kept => cut.at,
            Order::Lost => flushed,
        };
        image.grow(&self.tape.ops, safe);
        let path = self.folder.path().join(format!("{number}.img"));
        let file = File::create(&path).unwrap();
        image.write(&file);
        let mut chance = Dice::seeded(cut.seed);
        for op in &before[safe..] {
            if let Op::Write { at, data } = op {
                lose_some(&file, *at, data, &mut chance);
            }
        }
        drop(file);
        // For a closer look: the disk as it was before anybody mounted it.
        let kept = std::env::var_os("E2E_KEEP").map(|keep| {
            let kept =
                Path::new(&keep).join(format!("{}-{}-{}.img", self.kind.name, cut.at, cut.seed));
            fs::copy(&path, &kept).unwrap();
            kept
        });
        let broken = self.after_the_cut(&path, cut, number);
        if let (true, Some(kept)) = (broken.is_empty(), kept) {
            fs::remove_file(kept).unwrap();
        }
        fs::remove_file(path).unwrap();
        broken
    }

    /// The machine comes up again, works off what is there, and is looked at.
    fn after_the_cut(&self, path: &Path, cut: Cut, number: usize) -> Vec<String> {
        fs::write(&self.boot_id, format!("boot-{number}-{}\n", cut.seed)).unwrap();
        let at = self.folder.path().join("root");
        let (_device, device) = disk::block_device(path).unwrap();
        let _mounted = match Mounted::device(&device, &at, self.kind.name, self.kind.options) {
            Ok(mounted) => mounted,
            Err(error) => return vec![format!("{} can't be mounted: {error}", self.kind.name)],
        };
        let mut drain = Command::new(env!("CARGO_BIN_EXE_handoffd"))
            .args(["run", "--drain", "--root"])
            .arg(&at)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(self.folder.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let ended = loop {
            if let Some(ended) = drain.try_wait().unwrap() {
                break Some(ended);
            }
            if begun.elapsed() > PATIENCE {
                drain.kill().unwrap();
                drain.wait().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        kill_keeper_at(&at);
        let mut said = String::new();
        let log = File::open(self.folder.path().join("log"));
        let _ = log.unwrap().read_to_string(&mut said);
        let mut broken = verdict::judge(&at, &self.tape.facts, cut.at);
        if !ended.is_some_and(|ended| ended.success()) || said.contains("panicked") {
            broken.push(format!("the daemon ended with {ended:?}"));
        }
        if !broken.is_empty() {
            broken.push(format!("it had said: {said}"));
        }
        broken
    }
}

/// Keeps a write that was not flushed, or not, or a part of it.
fn lose_some(file: &File, at: usize, data: &[u8], chance: &mut Dice) {
    let sector = if chance.below(2) == 0 { 512 } else { 4096 };
    match chance.below(4) {
        0 => {}
        1 => {
            for (n, part) in data.chunks(sector).enumerate() {
                if chance.below(2) == 0 {
                    file.write_all_at(part, (at + n * sector) as u64).unwrap();
                }
            }
        }
        _ => file.write_all_at(data, at as u64).unwrap(),
    }
}

/// The disk as it was at some point of the tape.
struct Image {
    bytes: Vec<u8>,
    /// How much of the tape is in it.
    applied: usize,
    /// Which chunks are not empty.
    used: Vec<bool>,
}

impl Image {
    fn new(base: &[u8]) -> Self {
        let empty = vec![0; CHUNK];
        Self {
            bytes: base.to_vec(),
            applied: 0,
            used: base
                .chunks(CHUNK)
                .map(|chunk| chunk != &empty[..chunk.len()])
                .collect(),
        }
    }

    fn grow(&mut self, ops: &[Op], to: usize) {
        for op in &ops[self.applied.min(to)..to] {
            if let Op::Write { at, data } = op {
                self.bytes[*at..*at + data.len()].copy_from_slice(data);
                self.used[at / CHUNK..=(at + data.len() - 1) / CHUNK].fill(true);
            }
        }
        self.applied = self.applied.max(to);
    }

    fn write(&self, file: &File) {
        file.set_len(self.bytes.len() as u64).unwrap();
        for (n, chunk) in self.bytes.chunks(CHUNK).enumerate() {
            if self.used[n] {
                file.write_all_at(chunk, (n * CHUNK) as u64).unwrap();
            }
        }
    }
}
