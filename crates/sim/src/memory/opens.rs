//! Who has a file open, with locks and leases.

use std::io;

use handoffd_sys::fs::{Lease, Lock, Open};

use super::tree::errno;

/// One open file of one process.
#[derive(Debug)]
struct Opened {
    handle: u64,
    process: u64,
    is_writer: bool,
    lock: Option<Lock>,
    lease: Option<Lease>,
}

#[derive(Debug, Default)]
pub(super) struct Opens(Vec<Opened>);

impl Opens {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `WouldBlock` where a lease is in the way.
    pub fn open(&mut self, handle: u64, process: u64, how: Open) -> io::Result<()> {
        let is_writer = matches!(how, Open::Write | Open::Create | Open::Update);
        let breaks = |lease| lease == Lease::Write || is_writer;
        if self.0.iter().any(|other| other.lease.is_some_and(breaks)) {
            return Err(errno(libc::EAGAIN));
        }
        self.0.push(Opened {
            handle,
            process,
            is_writer,
            lock: None,
            lease: None,
        });
        Ok(())
    }

    pub fn close(&mut self, handle: u64) {
        self.0.retain(|it| it.handle != handle);
    }

    /// The processes up to this one are gone, and with them all that they had open.
    pub fn end(&mut self, last: u64) {
        self.0.retain(|it| it.process > last);
    }

    pub fn lock(&mut self, handle: u64, lock: Lock) -> io::Result<()> {
        let is_in_the_way = |other: &Opened| match (other.lock, lock) {
            (None, _) | (Some(Lock::Shared), Lock::Shared) => false,
            (Some(_), _) => other.handle != handle,
        };
        if self.0.iter().any(is_in_the_way) {
            return Err(errno(libc::EAGAIN));
        }
        self.of(handle)?.lock = Some(lock);
        Ok(())
    }

    pub fn lease(&mut self, handle: u64, lease: Option<Lease>) -> io::Result<()> {
        let is_in_the_way = |other: &Opened| match lease {
            None => false,
            Some(Lease::Read) => other.is_writer,
            Some(Lease::Write) => other.handle != handle,
        };
        if self.0.iter().any(is_in_the_way) {
            return Err(errno(libc::EAGAIN));
        }
        self.of(handle)?.lease = lease;
        Ok(())
    }

    fn of(&mut self, handle: u64) -> io::Result<&mut Opened> {
        let mut all = self.0.iter_mut();
        all.find(|it| it.handle == handle)
            .ok_or_else(|| errno(libc::EBADF))
    }
}
