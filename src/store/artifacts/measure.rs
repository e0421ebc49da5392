//! Reading and copying artifacts of any size: in blocks, within bounds, and never whole in memory.
//!
//! A file that a specialist wrote may say that it has terabytes and take no space at all. A reader
//! gives a limit and is asked between two blocks whether to go on; a copy shares the blocks of the
//! file where the file system can do that, and leaves holes as holes where it can't.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use rustix::fs::SeekFrom as Find;
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::{Measured, hex};

const BLOCK: usize = 128 * 1024;

/// How much of a file is read, and for how long.
#[derive(Clone, Copy)]
pub struct Bounds<'a> {
    /// The largest size in bytes.
    pub most: u64,
    /// Asked before each block.
    pub go_on: &'a dyn Fn() -> bool,
}

impl Bounds<'_> {
    pub const NONE: Self = Self {
        most: u64::MAX,
        go_on: &|| true,
    };
}

/// Why a file was not read to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unread {
    /// The end of a sentence about the file.
    Refused(String),
    TooLarge {
        size_bytes: u64,
    },
    /// `go_on` said no.
    Stopped,
}

impl Unread {
    pub(super) fn broken(error: &io::Error) -> Self {
        Self::Refused(format!("can't be read: {error}"))
    }
}

/// The hash and size of an open file.
pub(super) fn measure(file: &File, size: u64, bounds: Bounds<'_>) -> Result<Measured, Unread> {
    if size > bounds.most {
        return Err(Unread::TooLarge { size_bytes: size });
    }
    // The file may grow while it is read.
    let mut file = file.take(bounds.most.saturating_add(1));
    let mut digest = Sha256::new();
    let mut size_bytes = 0;
    let mut block = vec![0; BLOCK];
    loop {
        if !(bounds.go_on)() {
            return Err(Unread::Stopped);
        }
        match file.read(&mut block) {
            Ok(0) => break,
            Ok(n) => {
                digest.update(&block[..n]);
                size_bytes += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Unread::broken(&error)),
        }
    }
    if size_bytes > bounds.most {
        return Err(Unread::TooLarge { size_bytes });
    }
    Ok(Measured {
        sha256: hex(&digest.finalize()),
        size_bytes,
    })
}

/// Copies the first `size` bytes of a file into an empty one.
pub(super) fn copy(from: &File, to: &File, size: u64) -> io::Result<()> {
    if shares_blocks(from, to) {
        return to.set_len(size);
    }
    let mut at = 0;
    while at < size {
        let (begin, end) = match next_data(from, at) {
            Ok(Some((begin, end))) => (begin, end.min(size)),
            Ok(None) => break,
            // A file system without holes.
            Err(Errno::INVAL) => (at, size),
            Err(errno) => return Err(errno.into()),
        };
        if begin >= size {
            break;
        }
        let (mut from, mut to) = (from, to);
        from.seek(SeekFrom::Start(begin))?;
        to.seek(SeekFrom::Start(begin))?;
        io::copy(&mut from.take(end - begin), &mut to)?;
        at = end;
    }
    to.set_len(size)
}

/// Where the next bytes that take space begin and end.
fn next_data(file: &File, at: u64) -> Result<Option<(u64, u64)>, Errno> {
    let begin = match rustix::fs::seek(file, Find::Data(at)) {
        Ok(begin) => begin,
        Err(Errno::NXIO) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let end = rustix::fs::seek(file, Find::Hole(begin))?;
    Ok((end > begin).then_some((begin, end)))
}

#[cfg(target_os = "linux")]
fn shares_blocks(from: &File, to: &File) -> bool {
    rustix::fs::ioctl_ficlone(to, from).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn shares_blocks(_from: &File, _to: &File) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::io::Write;
    use std::os::unix::fs::{FileExt, MetadataExt};

    fn sparse() -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"begin").unwrap();
        file.write_all_at(b"end", 64 << 20).unwrap();
        file
    }

    #[test]
    fn a_copy_has_the_same_bytes_and_the_same_holes() {
        let (from, to) = (sparse(), tempfile::tempfile().unwrap());
        let size = from.metadata().unwrap().len();
        copy(&from, &to, size).unwrap();
        let metadata = to.metadata().unwrap();
        assert_eq!(metadata.len(), size);
        assert!(metadata.blocks() * 512 < 1 << 20, "{}", metadata.blocks());
        let mut ends = [[0; 5], [0; 5]];
        to.read_exact_at(&mut ends[0], 0).unwrap();
        to.read_exact_at(&mut ends[1], size - 5).unwrap();
        assert_eq!(ends, [*b"begin", *b"\0\0end"]);
        // No more than it is asked for, also of a file that has grown.
        let part = tempfile::tempfile().unwrap();
        copy(&from, &part, 3).unwrap();
        assert_eq!(part.metadata().unwrap().len(), 3);
    }

    #[test]
    fn a_file_is_read_within_its_bounds() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![b'x'; 3 * BLOCK]).unwrap();
        let size = 3 * BLOCK as u64;
        let read = |size, bounds| {
            let mut from = &file;
            from.seek(SeekFrom::Start(0)).unwrap();
            measure(&file, size, bounds)
        };
        let within = |most| Bounds {
            most,
            ..Bounds::NONE
        };
        assert_eq!(read(size, within(size)).unwrap().size_bytes, size);
        // Also where it has more than it said.
        for said in [size, 1] {
            let told = read(said, within(size - 1));
            assert_eq!(told, Err(Unread::TooLarge { size_bytes: size }));
        }
        let asked = Cell::new(0);
        let bounds = Bounds {
            most: size,
            go_on: &|| {
                asked.set(asked.get() + 1);
                asked.get() < 3
            },
        };
        assert_eq!(read(size, bounds), Err(Unread::Stopped));
        assert_eq!(asked.get(), 3);
    }
}
