//! The keeper's loop: one thread, one poll, whoever speaks first.
//!
//! It never waits for the daemon. What is to be said to it is kept until the socket takes it,
//! and a daemon that goes away is dropped without a word: the next one asks for an inventory.
//! A connection counts only from its proof on (`proof.rs`), so that a process that merely looks
//! whether we listen, or may give no orders, does not push out the daemon; then the newer daemon wins.
//!
//! Order within a round matters: the dead are counted before orders are read, so that an
//! attempt that ended by itself is not said to have been cancelled.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::attempt::Watch;
use super::books::{Books, log};
use super::frame::{self, Inbox, Wait};
use super::proof;
use super::spawn;
use super::wire::{CONFINE, Key, Order, Report, Start, TURNS, VERSION};
use crate::clock;

/// How long to wait for the daemon that it was started for. After that one has gone it leaves as
/// soon as it has nothing to keep: the next daemon may have another sandbox, or be another program.
const FIRST_WAIT_MS: u64 = 1000;
/// How long ends are kept, to be told together, while there is enough to go on with.
const TOGETHER_MS: u64 = 5;
/// What a daemon that does not read may leave unread before it counts as gone.
const MAX_UNSENT: usize = 64 << 20;
/// Connections that have not proved yet that they are a daemon's.
const MAX_STRANGERS: usize = 16;
/// How many of them one process may have.
const MOST_OF_ONE: usize = 8;
/// Connections that are accepted in one round: whoever connects again and again must not keep the
/// keeper from its attempts.
const MOST_ACCEPTED: usize = 4;
/// What such a connection may send before it counts as lost. A greeting is much shorter.
const MAX_UNPROVEN: usize = 1024;

struct Connection {
    socket: OwnedFd,
    /// The process that connected.
    pid: i32,
    inbox: Inbox,
    unsent: Vec<u8>,
    /// The number of the proof that it was asked for.
    asked: Option<u64>,
    /// It has proved that it is a daemon's.
    proven: bool,
    lost: bool,
}

/// Who spoke.
enum Source {
    Child,
    Timer,
    Listener,
    Connection(usize),
    Words(Key),
    Main(Key),
    Minder(Key),
}

pub struct Server {
    books: Books,
    listener: OwnedFd,
    connections: Vec<Connection>,
    children: OwnedFd,
    timer: OwnedFd,
    /// When the timer is set to ring; zero if it has.
    alarm: u64,
    idle_since: u64,
    /// Until when what is to be said may wait for more.
    silent_until: Option<u64>,
    /// There has been a daemon.
    has_served: bool,
    /// The number of the latest proof that was asked for.
    asked: u64,
}

impl Server {
    pub fn new(books: Books, listener: OwnedFd) -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self {
            books,
            listener,
            connections: Vec::new(),
            children: spawn::block_signals()?,
            // Counts suspend, as deadlines do, and poll's own time-out does not.
            timer: timerfd_create(TimerfdClockId::Boottime, flags)?,
            alarm: 0,
            idle_since: clock::boot_ms(),
            silent_until: None,
            has_served: false,
            asked: 0,
        })
    }

    /// Serves until there is nothing to keep and nobody to serve.
    pub fn run(mut self) -> io::Result<Books> {
        loop {
            let now = clock::boot_ms();
            self.books.reap(now);
            // Before what has come is read: a slot that is free now is not to wait for that.
            self.take_turns();
            self.take_orders(now);
            self.take_turns();
            self.books.tick(now);
            self.send_reports(now);
            self.drop_lost();
            if !self.connections.is_empty() || !self.books.is_idle() {
                self.idle_since = now;
            } else if now >= self.leaves_at() {
                self.books.flush();
                return Ok(self.books);
            }
            for source in self.wait()? {
                self.attend(&source, clock::boot_ms());
            }
        }
    }

    /// Lets go of lost connections, and of the proofs that nobody will look at any more.
    fn drop_lost(&mut self) {
        let run_dir = &self.books.run_dir;
        self.connections.retain(|connection| {
            if let Some(number) = connection
                .asked
                .filter(|_| connection.lost && !connection.proven)
            {
                proof::take(run_dir, number);
            }
            !connection.lost
        });
    }

    /// Starts what was given ahead. Whose daemon is gone is not started any more.
    fn take_turns(&mut self) {
        if self.connections.iter().any(|it| it.proven && !it.lost) {
            self.books.take_turns();
        } else {
            self.books.waiting.clear();
        }
    }

    /// When it leaves if nothing happens.
    fn leaves_at(&self) -> u64 {
        let patience = if self.has_served { 0 } else { FIRST_WAIT_MS };
        self.idle_since + patience
    }

    /// Sets the alarm and waits for anyone to speak.
    fn wait(&mut self) -> io::Result<Vec<Source>> {
        if self.books.attempts.is_empty() && self.books.over.is_empty() {
            // Nothing may follow that it could be written with.
            self.books.flush();
        }
        let is_idle = self.connections.is_empty() && self.books.is_idle();
        let due = self.books.next_due().into_iter();
        let due = due.chain(self.silent_until).min();
        let due = if is_idle { Some(self.leaves_at()) } else { due };
        self.set_alarm(due.unwrap_or(u64::MAX))?;
        let mut sources = vec![Source::Child, Source::Timer, Source::Listener];
        let mut fds = vec![
            PollFd::new(&self.children, PollFlags::IN),
            PollFd::new(&self.timer, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        for (at, connection) in self.connections.iter().enumerate() {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, !connection.unsent.is_empty());
            fds.push(PollFd::new(&connection.socket, flags));
            sources.push(Source::Connection(at));
        }
        let mut add = |fd, source| {
            fds.push(PollFd::new(fd, PollFlags::IN));
            sources.push(source);
        };
        for (key, attempt) in &self.books.attempts {
            match &attempt.watch {
                Watch::Minder { words, .. } => add(words, Source::Words(key.clone())),
                Watch::Foreign { main, minder } => {
                    if let Some(fd) = main {
                        add(fd, Source::Main(key.clone()));
                    }
                    if let Some(fd) = minder {
                        add(fd, Source::Minder(key.clone()));
                    }
                }
                Watch::Child { .. } | Watch::Nothing => {}
            }
        }
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let spoke: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let sources = sources.into_iter().zip(spoke);
        Ok(sources.filter(|it| it.1).map(|it| it.0).collect())
    }

    /// Has the timer ring at `at` or before: one that is set too early is set anew when it rings,
    /// which is seldom, while what is due next changes with every attempt.
    fn set_alarm(&mut self, at: u64) -> io::Result<()> {
        if self.alarm != 0 && self.alarm <= at {
            return Ok(());
        }
        self.alarm = at;
        let none = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // Zero would mean never. A deadline in a far future is one that never comes.
        let at = at.clamp(1, u64::from(u32::MAX) * 1000);
        let due = Itimerspec {
            it_interval: none,
            it_value: Timespec {
                tv_sec: i64::try_from(at / 1000).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(at % 1000 * 1_000_000).unwrap_or(0),
            },
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &due)?;
        Ok(())
    }

    fn attend(&mut self, source: &Source, now: u64) {
        match source {
            Source::Child => drain(&self.children),
            Source::Timer => {
                drain(&self.timer);
                self.alarm = 0;
            }
            Source::Listener => self.accept(),
            Source::Connection(at) => {
                let connection = &mut self.connections[*at];
                connection.flush();
                match connection
                    .inbox
                    .fill(&connection.socket, Wait::UntilSomething)
                {
                    Ok(true) => {
                        let strange = !connection.proven && connection.inbox.exceeds(MAX_UNPROVEN);
                        connection.lost |= strange;
                    }
                    Ok(false) => connection.lost = true,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => {
                        log(format_args!("the daemon's connection: {error}"));
                        connection.lost = true;
                    }
                }
            }
            Source::Words(key) => self.books.hear(key, now),
            Source::Main(key) => self.books.foreign_ended(key, false, now),
            Source::Minder(key) => self.books.foreign_ended(key, true, now),
        }
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..MOST_ACCEPTED {
            let Ok(socket) = rustix::net::accept_with(&self.listener, flags) else {
                return;
            };
            let own = rustix::process::geteuid();
            let peer = rustix::net::sockopt::socket_peercred(&socket);
            let Ok(peer) = peer else { continue };
            let pid = peer.pid.as_raw_pid();
            let is_attempt = || self.books.is_an_attempts(pid);
            if !(peer.uid == own || peer.uid.is_root()) || is_attempt() {
                continue;
            }
            self.make_room(pid);
            self.connections.push(Connection {
                socket,
                pid,
                inbox: Inbox::default(),
                unsent: Vec::new(),
                asked: None,
                proven: false,
                lost: false,
            });
        }
    }

    /// Gives up the place of a stranger for one more of this process, if there is none: the oldest of
    /// its own, so that a process that connects often takes few places from others, or of all.
    /// Nothing is removed here: others of this round are known by their places.
    fn make_room(&mut self, pid: i32) {
        let strangers: Vec<usize> = (0..self.connections.len())
            .filter(|at| !self.connections[*at].proven && !self.connections[*at].lost)
            .collect();
        let mut own = strangers
            .iter()
            .filter(|at| self.connections[**at].pid == pid);
        let given_up = match own.clone().count() {
            MOST_OF_ONE.. => own.next(),
            _ if strangers.len() >= MAX_STRANGERS => strangers.first(),
            _ => None,
        };
        if let Some(at) = given_up {
            self.connections[*at].lost = true;
        }
    }

    fn take_orders(&mut self, now: u64) {
        for at in 0..self.connections.len() {
            loop {
                let connection = &mut self.connections[at];
                match connection.inbox.pop::<Order>() {
                    Ok(Some(Order::Hello { version })) => self.greet(at, version),
                    Ok(Some(Order::Prove)) => self.admit(at),
                    Ok(Some(order)) if connection.proven => self.carry_out(at, order, now),
                    Ok(None) => break,
                    Ok(Some(_)) => connection.lost = true,
                    Err(error) => {
                        log(format_args!("an order that can't be read: {error}"));
                        connection.lost = true;
                    }
                }
                if self.connections[at].lost {
                    break;
                }
            }
        }
    }

    /// Answers a greeting, and asks for a proof.
    fn greet(&mut self, at: usize, version: u32) {
        let connection = &mut self.connections[at];
        if connection.asked.is_some() {
            connection.lost = true;
            return;
        }
        self.asked += 1;
        // What a killed daemon left must not speak for this one.
        proof::take(&self.books.run_dir, self.asked);
        connection.asked = Some(self.asked);
        connection.hello(connection.asked);
        if version != VERSION {
            connection.lost = true;
        }
    }

    /// Accepts a daemon that has proved itself, in place of an earlier one.
    fn admit(&mut self, at: usize) {
        let connection = &mut self.connections[at];
        let asked = connection.asked.filter(|_| !connection.proven);
        if !asked.is_some_and(|number| proof::take(&self.books.run_dir, number)) {
            log(format_args!(
                "refused a process that can't write to the run folder"
            ));
            connection.lost = true;
            return;
        }
        for (other, connection) in self.connections.iter_mut().enumerate() {
            connection.lost |= connection.proven && other != at;
        }
        // Before it is told what there is: nothing that an earlier one gave ahead begins after.
        self.books.waiting.clear();
        self.has_served = true;
        let connection = &mut self.connections[at];
        connection.proven = true;
        connection.hello(None);
    }

    fn carry_out(&mut self, at: usize, order: Order, now: u64) {
        match order {
            Order::Start(start) => self.begin(at, *start, now),
            Order::End { key, why, grace_ms } => self.books.end(&key, why, grace_ms, now),
            Order::Forget { key } => self.books.forget(&key),
            Order::Inventory => self.books.inventory(),
            Order::GiveBack => self.books.give_all_back(),
            Order::Usage { key } => self.books.usage(key),
            Order::Hello { .. } | Order::Prove => {}
        }
    }

    /// Starts an attempt, now or when its turn comes.
    fn begin(&mut self, at: usize, mut start: Start, now: u64) {
        let connection = &mut self.connections[at];
        if let Some(turn) = start.turn.take() {
            return match connection.inbox.take_fds::<4>() {
                Some(files) => self.books.keep_waiting(start, *turn, files, now),
                None => connection.lost = true,
            };
        }
        match connection.inbox.take_fds::<3>() {
            Some(stdio) => self.books.start(start, stdio),
            None => connection.lost = true,
        }
    }

    /// Whether what is to be said can wait for more of it: turns are taken meanwhile, and the
    /// daemon is woken once for several.
    fn may_be_silent(&mut self, now: u64) -> bool {
        let can_wait = self.books.has_enough_waiting()
            && self
                .books
                .reports
                .iter()
                .all(|report| matches!(report, Report::Begun { .. } | Report::Ended { .. }));
        if self.books.reports.is_empty() || !can_wait {
            self.silent_until = None;
            return false;
        }
        let until = *self.silent_until.get_or_insert(now + TOGETHER_MS);
        if until <= now {
            self.silent_until = None;
        }
        until > now
    }

    fn send_reports(&mut self, now: u64) {
        if self.may_be_silent(now) {
            return;
        }
        let reports = std::mem::take(&mut self.books.reports);
        let daemon = self.connections.iter_mut().find(|it| it.proven && !it.lost);
        if let Some(daemon) = daemon {
            for report in &reports {
                daemon.say(report);
            }
            daemon.flush();
        }
    }
}

impl Connection {
    /// Says what this keeper is and can, and which proof it asks for.
    fn hello(&mut self, prove: Option<u64>) {
        self.say(&Report::Hello {
            version: VERSION,
            can: vec![CONFINE.to_owned(), TURNS.to_owned()],
            prove,
        });
        self.flush();
    }

    /// Adds a report to what is sent at the next flush: what is said together wakes the daemon
    /// once.
    fn say(&mut self, report: &Report) {
        match frame::encode(report) {
            Ok(frame) => self.unsent.extend(frame),
            Err(error) => {
                log(format_args!("a report: {error}"));
                self.lost = true;
            }
        }
    }

    fn flush(&mut self) {
        while !self.unsent.is_empty() && !self.lost {
            match rustix::net::send(&self.socket, &self.unsent, SendFlags::NOSIGNAL) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => self.lost = true,
            }
        }
        self.lost |= self.unsent.len() > MAX_UNSENT;
    }
}

/// Reads away what a descriptor has to tell; that it spoke was all.
fn drain(fd: &OwnedFd) {
    let mut bytes = [0; 1024];
    while matches!(rustix::io::read(fd, &mut bytes), Ok(count) if count == bytes.len()) {}
}
