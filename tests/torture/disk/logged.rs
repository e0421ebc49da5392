//! A disk that remembers every write and every flush in order, and can be told to fail.
//!
//! It is one file, `disk.img`, in a file system that this process serves itself by the kernel's
//! FUSE protocol; a block device is put on that file. Only what a block device asks for is
//! answered. Writes reach us as they are made, since nothing is cached for writing in between.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Mounted, block_device};

const FORGET: u32 = 2;
const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const RELEASEDIR: u32 = 29;
const ACCESS: u32 = 34;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;

const IN_HEADER: usize = 40;
const WRITE_HEADER: usize = 40;
const ROOT_NODE: u64 = 1;
const DISK_NODE: u64 = 2;
const MOST_PAGES: u32 = 256;
const MOST_WRITTEN: u32 = MOST_PAGES * 4096;
const BIG_WRITES: u32 = 1 << 5;
const MAX_PAGES: u32 = 1 << 22;
/// Names and sizes stay as they are for this many seconds: for ever.
const VALID: u64 = 1 << 30;

/// What a disk was asked to do.
#[derive(Debug, Clone)]
pub enum Op {
    Write {
        at: usize,
        data: Box<[u8]>,
    },
    /// All writes before are on the platter.
    Flush,
}

#[derive(Debug, Default)]
pub struct Disk {
    pub image: Vec<u8>,
    pub log: Vec<Op>,
    /// Every request is answered with an error,
    pub dead: bool,
    /// except for writes in these parts; where there are any, flushes and reads work too.
    pub spared: Vec<Range<usize>>,
}

/// A disk that is plugged in: its contents, and the block device that it is seen as.
pub struct Logged {
    disk: Arc<Mutex<Disk>>,
    pub device: PathBuf,
    // In the order in which they must go.
    _device: File,
    _mounted: Mounted,
}

impl Logged {
    /// An empty disk of this size, served below `folder`.
    pub fn plug_in(folder: &Path, bytes: u64) -> io::Result<Self> {
        let disk = Arc::new(Mutex::new(Disk {
            image: vec![0; usize::try_from(bytes).unwrap()],
            ..Disk::default()
        }));
        let channel = File::options().read(true).write(true).open("/dev/fuse")?;
        let at = folder.join("disk");
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
            channel.as_raw_fd()
        );
        let mounted = Mounted::device(Path::new("logged-disk"), &at, "fuse", &options)?;
        let served = Arc::clone(&disk);
        std::thread::Builder::new()
            .name("disk".to_owned())
            .spawn(move || serve(channel, &served))?;
        let (handle, device) = block_device(&at.join("disk.img"))?;
        Ok(Self {
            disk,
            device,
            _device: handle,
            _mounted: mounted,
        })
    }

    pub fn disk(&self) -> MutexGuard<'_, Disk> {
        lock(&self.disk)
    }

    /// How much was asked so far: whatever was acknowledged by now comes before this.
    pub fn position(&self) -> usize {
        self.disk().log.len()
    }
}

fn lock(disk: &Mutex<Disk>) -> MutexGuard<'_, Disk> {
    disk.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers the kernel until the file system is gone.
fn serve(mut channel: File, disk: &Mutex<Disk>) {
    let mut buffer = vec![0_u8; MOST_WRITTEN as usize + 8192];
    loop {
        let length = match channel.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => length,
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ENOENT)) => {
                continue;
            }
            Err(_) => return,
        };
        let request = &buffer[..length];
        let unique = &request[8..16];
        let opcode = number(request, 4);
        if matches!(opcode, FORGET | BATCH_FORGET | INTERRUPT) {
            continue;
        }
        let (error, answer) = match reply(opcode, request, disk) {
            Ok(answer) => (0, answer),
            Err(errno) => (-errno, Vec::new()),
        };
        let total = u32::try_from(16 + answer.len()).unwrap();
        let mut message = Vec::with_capacity(16 + answer.len());
        message.extend_from_slice(&total.to_ne_bytes());
        message.extend_from_slice(&error.to_ne_bytes());
        message.extend_from_slice(unique);
        message.extend_from_slice(&answer);
        // A request that was given up meanwhile has nobody to hear it.
        let _ = channel.write(&message);
        if opcode == DESTROY {
            return;
        }
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn reply(opcode: u32, request: &[u8], disk: &Mutex<Disk>) -> Result<Vec<u8>, i32> {
    let node = long(request, 16);
    let body = &request[IN_HEADER..];
    let mut disk = lock(disk);
    match opcode {
        INIT => Ok(init()),
        LOOKUP if body == b"disk.img\0" => {
            let mut entry = [DISK_NODE, 0, VALID, VALID, 0]
                .iter()
                .flat_map(|word| word.to_ne_bytes())
                .collect::<Vec<_>>();
            entry.extend(attributes(DISK_NODE, disk.image.len()));
            Ok(entry)
        }
        LOOKUP => Err(libc::ENOENT),
        GETATTR | SETATTR => {
            let mut answer = [VALID, 0]
                .iter()
                .flat_map(|word| word.to_ne_bytes())
                .collect::<Vec<_>>();
            answer.extend(attributes(node, disk.image.len()));
            Ok(answer)
        }
        OPEN | OPENDIR => Ok(vec![0; 16]),
        STATFS => Ok(vec![0; 80]),
        RELEASE | RELEASEDIR | FLUSH | ACCESS | DESTROY => Ok(Vec::new()),
        READ | FSYNC if disk.dead && disk.spared.is_empty() => Err(libc::EIO),
        READ => {
            let from = usize::try_from(long(body, 8))
                .unwrap()
                .min(disk.image.len());
            let to = (from + number(body, 16) as usize).min(disk.image.len());
            Ok(disk.image[from..to].to_vec())
        }
        WRITE => {
            let at = usize::try_from(long(body, 8)).unwrap();
            if disk.dead && !disk.spared.iter().any(|part| part.contains(&at)) {
                return Err(libc::EIO);
            }
            let data = &body[WRITE_HEADER..WRITE_HEADER + number(body, 16) as usize];
            let Some(place) = disk.image.get_mut(at..at + data.len()) else {
                return Err(libc::ENOSPC);
            };
            place.copy_from_slice(data);
            disk.log.push(Op::Write {
                at,
                data: data.into(),
            });
            let mut answer = number(body, 16).to_ne_bytes().to_vec();
            answer.extend([0; 4]);
            Ok(answer)
        }
        FSYNC => {
            disk.log.push(Op::Flush);
            Ok(Vec::new())
        }
        _ => Err(libc::ENOSYS),
    }
}

/// Version 7.31, large writes, and nothing else that is special.
fn init() -> Vec<u8> {
    let mut answer = Vec::with_capacity(64);
    for word in [
        7,
        31,
        0,
        BIG_WRITES | MAX_PAGES,
        0,
        MOST_WRITTEN,
        1,
        MOST_PAGES,
    ] {
        answer.extend(u32::to_ne_bytes(word));
    }
    answer.resize(64, 0);
    answer
}

fn attributes(node: u64, size: usize) -> Vec<u8> {
    let (mode, links, size) = if node == ROOT_NODE {
        (libc::S_IFDIR | 0o755, 2, 0)
    } else {
        (libc::S_IFREG | 0o600, 1, u64::try_from(size).unwrap())
    };
    let mut answer = Vec::with_capacity(88);
    for word in [node, size, size / 512, 0, 0, 0] {
        answer.extend(word.to_ne_bytes());
    }
    for word in [0, 0, 0, mode, links, 0, 0, 0, 4096, 0] {
        answer.extend(u32::to_ne_bytes(word));
    }
    answer
}
