//! The wires to resident processes, and the one thread that listens to all of them.
//!
//! Whoever has a handoff for a process writes its line himself; only what the pipe does not take
//! at once is left to the thread, so that a process that does not read holds up nobody. The
//! thread reads lines, makes words of them, and tells. It starts with the first wire and sleeps
//! while nobody speaks.
//!
//! What is told of a wire after [`Said::Wrong`] or [`Said::Hung`] is only [`Said::Closed`], and
//! that only once it was asked for with [`Wires::drain`]: the process is gone by then, so all
//! that it ever wrote is there to be read.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use serde_json::{Map, Value};

use crate::runner::resident::line::{self, Word};
use crate::runner::resident::reading::Lines;

/// How much is read at once.
const PIECE: usize = 64 << 10;
/// A stderr file that is longer is emptied between two handoffs.
const EMPTIED_ABOVE: u64 = 64 << 10;

/// What is heard of one process.
#[derive(Debug)]
pub enum Said {
    Heartbeat {
        id: String,
    },
    Answer(Answer),
    /// It broke the rules; what it did, to follow "the process".
    Wrong(String),
    /// It can't be spoken with any more, and may be about to end: what it did.
    Hung(&'static str),
    /// All that it wrote has been read; this is what was left on stderr.
    Closed {
        stderr: Vec<u8>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub id: String,
    pub attempt: Option<u64>,
    pub result: Map<String, Value>,
    /// What it wrote to stderr since it was given the handoff.
    pub stderr: Vec<u8>,
}

/// The daemon's ends of a process's pipes, and its stderr.
#[derive(Debug)]
pub struct Wire {
    number: u32,
    outgoing: Mutex<Outgoing>,
    stdout: OwnedFd,
    stderr: File,
    /// How long stderr was when the present handoff was given.
    began: AtomicU64,
    /// It has been given one before.
    used: AtomicBool,
    max_output: AtomicU64,
}

#[derive(Debug)]
struct Outgoing {
    stdin: Option<Arc<OwnedFd>>,
    unsent: Vec<u8>,
}

impl Wire {
    /// Of pipes whose ends here do not block.
    pub fn new(number: u32, stdin: OwnedFd, stdout: OwnedFd, stderr: File) -> Self {
        Self {
            number,
            outgoing: Mutex::new(Outgoing {
                stdin: Some(Arc::new(stdin)),
                unsent: Vec::new(),
            }),
            stdout,
            stderr,
            began: AtomicU64::new(0),
            used: AtomicBool::new(false),
            max_output: AtomicU64::new(u64::MAX),
        }
    }

    fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the process see the end of file.
    pub fn hang_up(&self) {
        self.outgoing().stdin = None;
    }

    /// How much it wrote to stderr since it was given the handoff.
    pub fn stderr_bytes(&self) -> u64 {
        let length = self.stderr.metadata().map_or(0, |it| it.len());
        length.saturating_sub(self.began.load(Ordering::Relaxed))
    }

    /// From here on, what is written to stderr belongs to the next handoff. What was written
    /// since the last belongs to none; what the start had to say, to the first.
    fn turn_page(&self) {
        if !self.used.swap(true, Ordering::Relaxed) {
            return;
        }
        let length = self.stderr.metadata().map_or(0, |it| it.len());
        let emptied = length > EMPTIED_ABOVE && self.stderr.set_len(0).is_ok();
        let began = if emptied { 0 } else { length };
        self.began.store(began, Ordering::Relaxed);
    }

    /// What was written to stderr since it was given the handoff, of a flood only the end.
    fn page(&self) -> Vec<u8> {
        let began = self.began.load(Ordering::Relaxed);
        let end = self.stderr.metadata().map_or(0, |it| it.len());
        let most = self.max_output.load(Ordering::Relaxed);
        let start = began.max(end.saturating_sub(most));
        let length = usize::try_from(end.saturating_sub(start)).unwrap_or(0);
        if length == 0 {
            return Vec::new();
        }
        let mut bytes = vec![0; length];
        let read = self.stderr.read_at(&mut bytes, start).unwrap_or(0);
        bytes.truncate(read);
        bytes
    }
}

impl Outgoing {
    /// Writes what the pipe takes; false if some of it is left.
    fn write(&mut self) -> io::Result<bool> {
        let Some(stdin) = self.stdin.clone() else {
            self.unsent.clear();
            return Ok(true);
        };
        let mut sent = 0;
        while sent < self.unsent.len() {
            match rustix::io::write(&*stdin, &self.unsent[sent..]) {
                Ok(count) => sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.unsent.drain(..sent);
                    return Ok(false);
                }
                Err(errno) => {
                    self.unsent.clear();
                    return Err(errno.into());
                }
            }
        }
        self.unsent.clear();
        Ok(true)
    }
}

enum Order {
    Listen(Arc<Wire>),
    Drain(u32),
    /// A wire has something unsent.
    Write,
    Leave,
}

/// Whom to tell what is heard, by the number of the process.
type Tell = dyn Fn(u32, Said) + Send + Sync;

struct Shared {
    orders: Mutex<Vec<Order>>,
    wake: OwnedFd,
    tell: Arc<Tell>,
}

impl Shared {
    fn order(&self, order: Order) {
        self.orders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(order);
        // It is woken already if this fails.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

pub struct Wires {
    tell: Arc<Tell>,
    listener: Mutex<Option<Arc<Shared>>>,
}

impl Wires {
    pub fn new(tell: impl Fn(u32, Said) + Send + Sync + 'static) -> Self {
        Self {
            tell: Arc::new(tell),
            listener: Mutex::default(),
        }
    }

    fn listener(&self) -> MutexGuard<'_, Option<Arc<Shared>>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread that listens, started if there is none.
    fn started(&self) -> io::Result<Arc<Shared>> {
        let mut listener = self.listener();
        if let Some(shared) = &*listener {
            return Ok(Arc::clone(shared));
        }
        let shared = Arc::new(Shared {
            orders: Mutex::default(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            tell: Arc::clone(&self.tell),
        });
        let own = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("resident".to_owned())
            .spawn(move || Listener::default().run(&own))?;
        *listener = Some(Arc::clone(&shared));
        Ok(shared)
    }

    pub fn listen(&self, wire: &Arc<Wire>) -> io::Result<()> {
        self.started()?.order(Order::Listen(Arc::clone(wire)));
        Ok(())
    }

    /// Gives a process its next handoff.
    pub fn give(&self, wire: &Wire, line: Vec<u8>, max_output: u64) {
        wire.max_output.store(max_output, Ordering::Relaxed);
        wire.turn_page();
        let mut outgoing = wire.outgoing();
        outgoing.unsent = line;
        let written = outgoing.write();
        drop(outgoing);
        match written {
            Ok(true) => {}
            Ok(false) => self.order(Order::Write),
            Err(_) => (self.tell)(wire.number, Said::Hung("closed its stdin")),
        }
    }

    /// Reads what a process that is gone has left, and tells that it is closed.
    pub fn drain(&self, number: u32) {
        self.order(Order::Drain(number));
    }

    fn order(&self, order: Order) {
        if let Some(shared) = &*self.listener() {
            shared.order(order);
        }
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        self.order(Order::Leave);
    }
}

/// A wire as its listener knows it.
struct Heard {
    wire: Arc<Wire>,
    lines: Lines,
    /// Nothing it says counts any more.
    deaf: bool,
}

#[derive(Default)]
struct Listener {
    heard: HashMap<u32, Heard>,
    piece: Vec<u8>,
}

impl Listener {
    fn run(mut self, shared: &Shared) {
        self.piece.resize(PIECE, 0);
        loop {
            let orders =
                std::mem::take(&mut *shared.orders.lock().unwrap_or_else(PoisonError::into_inner));
            for order in orders {
                match order {
                    Order::Listen(wire) => {
                        let heard = Heard {
                            wire,
                            lines: Lines::default(),
                            deaf: false,
                        };
                        self.heard.insert(heard.wire.number, heard);
                    }
                    Order::Drain(number) => self.close(number, shared),
                    Order::Write => {}
                    Order::Leave => return,
                }
            }
            for (number, can_read, can_write) in self.wait(shared) {
                if can_write {
                    self.write_on(number, shared);
                }
                if can_read {
                    self.read_on(number, shared);
                }
            }
        }
    }

    /// Waits until somebody speaks, reads or has an order: who, and which of the first two.
    fn wait(&self, shared: &Shared) -> Vec<(u32, bool, bool)> {
        let writes: Vec<(u32, Arc<OwnedFd>)> = self
            .heard
            .values()
            .filter_map(|heard| {
                let outgoing = heard.wire.outgoing();
                let stdin = outgoing
                    .stdin
                    .clone()
                    .filter(|_| !outgoing.unsent.is_empty());
                Some((heard.wire.number, stdin?))
            })
            .collect();
        let reads = self.heard.values().filter(|heard| !heard.deaf);
        let mut sources = Vec::new();
        let mut fds = vec![PollFd::new(&shared.wake, PollFlags::IN)];
        for heard in reads {
            sources.push((heard.wire.number, true, false));
            fds.push(PollFd::new(&heard.wire.stdout, PollFlags::IN));
        }
        for (number, stdin) in &writes {
            sources.push((*number, false, true));
            fds.push(PollFd::new(&**stdin, PollFlags::OUT));
        }
        // Interrupted or out of memory: look at everything, nothing of it blocks.
        let all = poll(&mut fds, None).is_err();
        let mut count = [0; 8];
        if all || !fds[0].revents().is_empty() {
            let _ = rustix::io::read(&shared.wake, &mut count);
        }
        sources
            .into_iter()
            .zip(&fds[1..])
            .filter(|(_, fd)| all || !fd.revents().is_empty())
            .map(|(source, _)| source)
            .collect()
    }

    fn write_on(&mut self, number: u32, shared: &Shared) {
        let Some(heard) = self.heard.get(&number) else {
            return;
        };
        let mut outgoing = heard.wire.outgoing();
        if outgoing.write().is_err() {
            drop(outgoing);
            (shared.tell)(number, Said::Hung("closed its stdin"));
        }
    }

    /// Reads once and tells what came.
    fn read_on(&mut self, number: u32, shared: &Shared) {
        let Some(heard) = self.heard.get_mut(&number) else {
            return;
        };
        match rustix::io::read(&heard.wire.stdout, &mut self.piece) {
            Ok(0) => {
                heard.deaf = true;
                (shared.tell)(number, Said::Hung("closed its stdout"));
            }
            Ok(count) => {
                heard.lines.push(&self.piece[..count]);
                heard.tell_lines(shared);
            }
            Err(_) => {}
        }
    }

    /// Reads to the end of what is there.
    fn close(&mut self, number: u32, shared: &Shared) {
        let Some(mut heard) = self.heard.remove(&number) else {
            return;
        };
        while !heard.deaf {
            match rustix::io::read(&heard.wire.stdout, &mut self.piece) {
                Ok(count @ 1..) => {
                    heard.lines.push(&self.piece[..count]);
                    heard.tell_lines(shared);
                }
                Err(Errno::INTR) => {}
                Ok(0) | Err(_) => break,
            }
        }
        let stderr = heard.wire.page();
        (shared.tell)(number, Said::Closed { stderr });
    }
}

impl Heard {
    fn tell_lines(&mut self, shared: &Shared) {
        let most = self.wire.max_output.load(Ordering::Relaxed);
        let too_long = |length: usize| length as u64 > most;
        while let Some(line) = self.lines.take() {
            let word = if too_long(line.len()) {
                Word::Wrong(format!("printed a line of more than {most} bytes"))
            } else {
                line::read(&line)
            };
            let said = match word {
                Word::Nothing => continue,
                Word::Heartbeat { id } => Said::Heartbeat { id },
                Word::Answer {
                    id,
                    attempt,
                    result,
                } => Said::Answer(Answer {
                    id,
                    attempt,
                    result,
                    stderr: self.wire.page(),
                }),
                Word::Wrong(what) => Said::Wrong(what),
            };
            self.deaf = matches!(said, Said::Wrong(_));
            (shared.tell)(self.wire.number, said);
            if self.deaf {
                return;
            }
        }
        if too_long(self.lines.unfinished()) {
            self.deaf = true;
            let what = format!("printed more than {most} bytes without a line end");
            (shared.tell)(self.wire.number, Said::Wrong(what));
        }
    }
}

#[cfg(test)]
#[path = "wires_tests.rs"]
mod tests;
