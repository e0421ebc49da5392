//! Frames on a Unix stream socket: a length (u32, big-endian), a JSON document, and for some
//! of them descriptors.
//!
//! Descriptors ride on the `sendmsg` of their frame and are queued by the receiver in the order
//! in which they come, so whoever reads the frame takes them from the front of the queue. That
//! only holds if none is ever lost on the way; where the system had to drop some (the receiver
//! is out of descriptors) the connection is given up as a whole, because guessing would give an
//! attempt the files of another.
//!
//! The socket is reached through `/proc/self/fd/<folder>/`, because its real path may be longer
//! than the 108 bytes that an address holds.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::json_text;

/// The socket's name in the run folder. A keeper with other words would listen elsewhere.
pub const SOCKET: &str = "keeper.v1.sock";

/// More than any environment or inventory takes; a length beyond it is not ours.
const MAX_FRAME: usize = 64 << 20;
/// How many descriptors may come with one frame.
pub const MAX_FDS: usize = 4;

/// A message as the bytes of its frame.
pub fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(1024);
    bytes.extend([0; 4]);
    json_text::append(&mut bytes, message)?;
    let length = bytes.len() - 4;
    if length > MAX_FRAME {
        return Err(io::Error::other("a message is too large for its socket"));
    }
    let length = u32::try_from(length).map_err(io::Error::other)?;
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    Ok(bytes)
}

/// How much is read at once.
const PIECE: usize = 64 << 10;

/// What to do where nothing has arrived.
#[derive(Debug, Clone, Copy)]
pub enum Wait {
    UntilSomething,
    /// Fail with `WouldBlock`.
    Never,
}

/// What has arrived and not been taken yet.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Where the socket is read into; kept, because clearing it costs more than reading.
    piece: Vec<u8>,
    bytes: Vec<u8>,
    /// How much of `bytes` was taken already.
    taken: usize,
    fds: VecDeque<OwnedFd>,
}

impl Inbox {
    pub fn push(&mut self, bytes: &[u8], fds: impl IntoIterator<Item = OwnedFd>) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
        self.fds.extend(fds);
    }

    /// The next whole message, if it is all here.
    pub fn pop<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let rest = &self.bytes[self.taken..];
        let Some((length, rest)) = rest.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length > MAX_FRAME {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a frame's length is out of range",
            ));
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let message = serde_json::from_slice(body)?;
        self.taken += 4 + length;
        Ok(Some(message))
    }

    /// The descriptors of the message popped last, which needs to know how many it has.
    pub fn take_fds<const N: usize>(&mut self) -> Option<[OwnedFd; N]> {
        if self.fds.len() < N {
            return None;
        }
        let fds: Vec<OwnedFd> = self.fds.drain(..N).collect();
        fds.try_into().ok()
    }

    /// Whether more waits here than `bytes`, or more descriptors than one frame has.
    pub fn exceeds(&self, bytes: usize) -> bool {
        self.bytes.len() - self.taken > bytes || self.fds.len() > MAX_FDS
    }

    /// Reads once from the socket; false at its end.
    pub fn fill(&mut self, socket: impl AsFd, wait: Wait) -> io::Result<bool> {
        let flags = match wait {
            Wait::UntilSomething => RecvFlags::CMSG_CLOEXEC,
            Wait::Never => RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
        };
        self.piece.resize(PIECE, 0);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut self.piece)],
            &mut control,
            flags,
        )?;
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(io::Error::other("descriptors were lost on the way"));
        }
        let piece = std::mem::take(&mut self.piece);
        self.push(&piece[..received.bytes], fds);
        self.piece = piece;
        Ok(received.bytes > 0)
    }
}

/// Sends a frame and its descriptors, waiting as long as it takes. Never raises SIGPIPE.
pub fn send(socket: impl AsFd, frame: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut rest = frame;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors for one frame"));
    }
    while !rest.is_empty() {
        let iov = [IoSlice::new(rest)];
        match rustix::net::sendmsg(&socket, &iov, &mut control, SendFlags::NOSIGNAL) {
            Ok(sent) => {
                rest = &rest[sent..];
                control.clear();
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn address(run_dir: impl AsFd) -> io::Result<SocketAddrUnix> {
    let mut path = OsString::from("/proc/self/fd/");
    path.push(run_dir.as_fd().as_raw_fd().to_string());
    path.push("/");
    path.push(SOCKET);
    Ok(SocketAddrUnix::new(&*path)?)
}

fn socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        flags,
        None,
    )?)
}

/// Listens in the run folder, in place of whoever did before. Only our own user may connect.
pub fn listen(run_dir: impl AsFd) -> io::Result<OwnedFd> {
    use rustix::fs::{AtFlags, Mode};
    match rustix::fs::unlinkat(&run_dir, SOCKET, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    let listener = socket(SocketFlags::NONBLOCK)?;
    // Linux gives the file the mode that the socket has; setting the mask instead would race
    // with whatever else this process creates.
    rustix::fs::fchmod(&listener, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&listener, &address(run_dir)?)?;
    rustix::net::listen(&listener, 64)?;
    Ok(listener)
}

/// Connects to the keeper that listens in the run folder, blocking from then on.
pub fn connect(run_dir: impl AsFd) -> io::Result<OwnedFd> {
    let stream = socket(SocketFlags::empty())?;
    rustix::net::connect(&stream, &address(run_dir)?)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::wire::{Key, Order};
    use std::os::unix::fs::PermissionsExt;

    fn orders() -> Vec<Order> {
        let key = Key::new("x".repeat(150_000), 1);
        vec![
            Order::Hello { version: 1 },
            Order::Usage { key: key.clone() },
            Order::Inventory,
            Order::Forget { key },
        ]
    }

    #[test]
    fn frames_may_arrive_in_any_pieces() {
        let whole: Vec<u8> = orders().iter().flat_map(|o| encode(o).unwrap()).collect();
        for piece in [1, 3, 4, 5, 7, 4096, whole.len()] {
            let mut inbox = Inbox::default();
            let mut got = Vec::new();
            for bytes in whole.chunks(piece) {
                inbox.push(bytes, []);
                // A pop per byte would take a while for the long ones, but must be harmless.
                while let Some(order) = inbox.pop::<Order>().unwrap() {
                    got.push(order);
                }
            }
            assert_eq!(got, orders(), "in pieces of {piece}");
        }
    }

    #[test]
    fn nonsense_is_an_error_and_not_a_wait() {
        let mut inbox = Inbox::default();
        inbox.push(&[0xff; 8], []);
        assert!(inbox.pop::<Order>().is_err());
        let mut inbox = Inbox::default();
        inbox.push(&[0, 0, 0, 2, b'{', b'}'], []);
        assert!(inbox.pop::<Order>().is_err());
    }

    #[test]
    fn descriptors_come_with_their_frame_and_in_order() {
        let (near, far) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let files: Vec<std::fs::File> = (0..6).map(|_| tempfile::tempfile().unwrap()).collect();
        let sender = {
            let files: Vec<_> = files.iter().map(|f| f.try_clone().unwrap()).collect();
            std::thread::spawn(move || {
                for (at, order) in orders().iter().enumerate() {
                    let fds: Vec<_> = match at {
                        1 => files[..3].iter().map(AsFd::as_fd).collect(),
                        3 => files[3..].iter().map(AsFd::as_fd).collect(),
                        _ => Vec::new(),
                    };
                    send(&near, &encode(order).unwrap(), &fds).unwrap();
                }
            })
        };
        let mut inbox = Inbox::default();
        let mut inodes = Vec::new();
        let mut got = Vec::new();
        while inbox.fill(&far, Wait::UntilSomething).unwrap() {
            while let Some(order) = inbox.pop::<Order>().unwrap() {
                if matches!(order, Order::Usage { .. } | Order::Forget { .. }) {
                    let fds = inbox.take_fds::<3>().unwrap();
                    inodes.extend(fds.map(|fd| rustix::fs::fstat(fd).unwrap().st_ino));
                }
                got.push(order);
            }
        }
        sender.join().unwrap();
        assert_eq!(got, orders());
        let sent = files.iter().map(|f| rustix::fs::fstat(f).unwrap().st_ino);
        assert_eq!(inodes, sent.collect::<Vec<_>>());
    }

    #[test]
    fn a_deep_run_folder_is_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(200)).join("e".repeat(200));
        std::fs::create_dir_all(&deep).unwrap();
        let folder = std::fs::File::open(&deep).unwrap();
        assert!(connect(&folder).is_err());
        let _listener = listen(&folder).unwrap();
        let mode = std::fs::metadata(deep.join(SOCKET)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        connect(&folder).unwrap();
        let _second = listen(&folder).unwrap();
        connect(&folder).unwrap();
    }
}
