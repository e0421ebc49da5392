//! The daemon's end of the line to its keeper.
//!
//! Orders are sent by whoever has one, under a lock, waiting if the socket is full: a keeper
//! always reads. Reports are read by one task that does nothing else. When the reader fails
//! the keeper is gone; then connect again, which starts a new one, and ask for the inventory.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::confine::Confine;
use super::frame::{self, Inbox, Wait};
use super::proof;
use super::turn::Turn;
use super::wire::{CONFINE, Key, Order, Os, Report, Start, TURNS, VERSION, Why};
use crate::durable;
use crate::mutant;

/// How often to try again when a keeper leaves just as we come, and how long to wait before the first
/// time; each later wait is twice as long. Together that is four seconds.
const TRIES: usize = 12;
const FIRST_WAIT: Duration = Duration::from_millis(1);
/// How long a keeper may take to greet. It does nothing slow, so beyond this it is stopped.
const GREETING: Duration = Duration::from_secs(20);

/// How many bytes of orders may wait for another one.
const MOST_UNSAID: usize = 4096;

/// How to reach or start the keeper of a root.
#[derive(Debug, Clone)]
pub struct Setup {
    /// This program; `/proc/self/exe` is the one that runs even after an upgrade.
    pub program: PathBuf,
    /// Where the keeper's socket, lock and journal are. Must exist.
    pub run_dir: PathBuf,
    /// As attempts have it in `HANDOFF_ROOT`.
    pub root: PathBuf,
    /// Do without cgroups even where there are some.
    pub no_cgroup: bool,
}

/// Everything that starting an attempt takes.
#[derive(Debug)]
pub struct Launch {
    pub key: Key,
    /// See [`Start::argv`].
    pub argv: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
    pub deadline_boot_ms: u64,
    pub grace_ms: u64,
    pub note: Value,
    /// stdin, stdout and stderr.
    pub stdio: [OwnedFd; 3],
    /// See [`Start::fsize`].
    pub fsize: Option<u64>,
    /// What it is held to besides.
    pub confine: Option<Box<Confine>>,
    /// It is given ahead: when it is to start, and the file with its content.
    pub turn: Option<(Box<Turn>, OwnedFd)>,
}

/// Gives orders. Clones share the connection.
#[derive(Debug, Clone)]
pub struct Client {
    line: Arc<Mutex<Line>>,
    /// It is a keeper that confines.
    confines: bool,
    /// It is one that takes attempts ahead.
    takes_turns: bool,
}

#[derive(Debug)]
struct Line {
    socket: OwnedFd,
    /// Orders that wait for another one.
    unsaid: Vec<u8>,
}

/// Hears reports.
#[derive(Debug)]
pub struct Reader {
    socket: OwnedFd,
    inbox: Inbox,
}

impl Client {
    /// Connects to the keeper of a root, starting one where there is none.
    pub fn connect_or_start(
        program: &Path,
        run_dir: &Path,
        root: &Path,
    ) -> io::Result<(Self, Reader)> {
        let setup = Setup {
            program: program.to_owned(),
            run_dir: run_dir.to_owned(),
            root: root.to_owned(),
            no_cgroup: false,
        };
        setup.connect_or_start()
    }

    /// Takes in the keeper's greeting, and gives back what proof it asks for.
    fn take_hello(&mut self, report: Report) -> io::Result<Option<u64>> {
        let Report::Hello {
            version,
            can,
            prove,
        } = report
        else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if version != VERSION {
            let what = format!("the keeper speaks version {version}, not {VERSION}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        self.confines = can.iter().any(|word| word == CONFINE);
        self.takes_turns = can.iter().any(|word| word == TURNS);
        Ok(prove)
    }

    /// Whether attempts may be given to it that wait for their turn.
    pub fn takes_turns(&self) -> bool {
        self.takes_turns
    }

    /// Asks for all back that wait for their turn.
    pub fn give_back(&self) -> io::Result<()> {
        if !self.takes_turns {
            return Ok(());
        }
        self.send(&Order::GiveBack, &[])
    }

    pub fn start(&self, launch: Launch) -> io::Result<()> {
        self.give(launch, false)
    }

    /// Like [`start`](Self::start), but only its end is reported.
    pub fn start_quietly(&self, launch: Launch) -> io::Result<()> {
        self.give(launch, true)
    }

    fn give(&self, launch: Launch, quiet: bool) -> io::Result<()> {
        if launch.confine.is_some() && !self.confines {
            return Err(io::Error::other(
                "the keeper of this root is an older version without umask, user, rlimits and \
                 sandbox; stop the daemon, wait until no attempt runs, and start it again",
            ));
        }
        if launch.turn.is_some() && !self.takes_turns {
            return Err(io::Error::other(
                "this keeper starts every attempt that it gets",
            ));
        }
        let (turn, content) = launch.turn.unzip();
        let os = |texts: Vec<OsString>| texts.into_iter().map(Os).collect();
        let order = Order::Start(Box::new(Start {
            key: launch.key,
            argv: os(launch.argv),
            env: launch
                .env
                .into_iter()
                .map(|(n, v)| (Os(n), Os(v)))
                .collect(),
            cwd: Os(launch.cwd.into_os_string()),
            deadline_boot_ms: launch.deadline_boot_ms,
            grace_ms: launch.grace_ms,
            note: launch.note,
            quiet,
            confine: launch.confine,
            fsize: launch.fsize,
            turn,
        }));
        let files = launch.stdio.iter().chain(&content);
        let files: Vec<BorrowedFd<'_>> = files.map(AsFd::as_fd).collect();
        self.send(&order, &files)
    }

    pub fn end(&self, key: &Key, why: Why, grace_ms: u64) -> io::Result<()> {
        let key = key.clone();
        self.send(&Order::End { key, why, grace_ms }, &[])
    }

    /// Forgets an attempt that is over. Said with the next order, or by [`flush`](Self::flush):
    /// the keeper is not woken for it.
    pub fn forget(&self, key: &Key) -> io::Result<()> {
        let frame = frame::encode(&Order::Forget { key: key.clone() })?;
        let mut line = self.lock();
        line.unsaid.extend(frame);
        if line.unsaid.len() > MOST_UNSAID {
            line.say(&[])?;
        }
        Ok(())
    }

    /// Says what waits for an order to go with.
    pub fn flush(&self) -> io::Result<()> {
        self.lock().say(&[])
    }

    /// Takes over what an earlier keeper was not told.
    pub fn inherit(&self, earlier: &Self) {
        let unsaid = std::mem::take(&mut earlier.lock().unsaid);
        self.lock().unsaid.extend(unsaid);
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        // A frame is never left half sent by a panic, so a poisoned lock means nothing.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn inventory(&self) -> io::Result<()> {
        self.send(&Order::Inventory, &[])
    }

    pub fn usage(&self, key: &Key) -> io::Result<()> {
        self.send(&Order::Usage { key: key.clone() }, &[])
    }

    /// Closes the connection for all clones and for the reader. The keeper keeps what it has.
    pub fn hang_up(&self) {
        let _ = rustix::net::shutdown(&self.lock().socket, rustix::net::Shutdown::Both);
    }

    fn send(&self, order: &Order, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let frame = frame::encode(order)?;
        let mut line = self.lock();
        line.unsaid.extend(frame);
        line.say(fds)
    }
}

impl Line {
    /// Sends all that is unsaid. If that fails the connection is lost, and what was to be said
    /// with it.
    fn say(&mut self, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let unsaid = std::mem::take(&mut self.unsaid);
        if unsaid.is_empty() {
            return Ok(());
        }
        frame::send(&self.socket, &unsaid, fds)
    }
}

impl AsRawFd for Reader {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for Reader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Reader {
    /// Reads from a connection that was greeted.
    pub(crate) fn on(socket: OwnedFd) -> Self {
        Self {
            socket,
            inbox: Inbox::default(),
        }
    }

    /// The next report. An error of the kind `UnexpectedEof` means that the keeper is gone.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator ends, and this is lost"
    )]
    pub fn next(&mut self) -> io::Result<Report> {
        loop {
            if let Some(report) = self.inbox.pop()? {
                return Ok(report);
            }
            self.fill(Wait::UntilSomething)?;
        }
    }

    /// Like [`next`](Self::next), but `None` where it would have to wait.
    pub fn arrived(&mut self) -> io::Result<Option<Report>> {
        loop {
            if let Some(report) = self.inbox.pop()? {
                return Ok(Some(report));
            }
            match self.fill(Wait::Never) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                filled => filled?,
            }
        }
    }

    fn fill(&mut self, wait: Wait) -> io::Result<()> {
        match self.inbox.fill(&self.socket, wait) {
            Ok(true) => Ok(()),
            Ok(false) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Err(error) => Err(error),
        }
    }
}

impl Setup {
    /// Connects to the keeper, starting one where there is none.
    pub fn connect_or_start(&self) -> io::Result<(Client, Reader)> {
        let folder = File::open(&self.run_dir)?;
        let mut last = None;
        let mut wait = FIRST_WAIT;
        for _ in 0..TRIES {
            match frame::connect(&folder) {
                Ok(socket) => match greet(socket, &self.run_dir) {
                    Ok(both) => return Ok(both),
                    // It left between our coming and its greeting, or others who only connect took all places.
                    Err(error) if is_gone(&error) => {
                        last = Some(error);
                        std::thread::sleep(wait);
                        wait *= 2;
                    }
                    Err(error) => return Err(error),
                },
                Err(error) if is_gone(&error) => {
                    self.start_keeper()?;
                    last = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| io::ErrorKind::ConnectionRefused.into()))
    }

    fn start_keeper(&self) -> io::Result<()> {
        let mut command = Command::new(&self.program);
        command
            .arg("keeper")
            .arg("--run-dir")
            .arg(&self.run_dir)
            .arg("--root")
            .arg(&self.root)
            .arg("--root-tag")
            .arg(super::tag_of(&self.run_dir)?);
        if self.no_cgroup {
            command.arg("--no-cgroup");
        }
        // Nothing of the daemon's environment is the keeper's business, and a keeper that was
        // started with an attempt's environment would look like a stray.
        command.env_clear().stdin(Stdio::null());
        mutant::pass_on(&mut command);
        let output = command.output()?;
        if output.status.success() {
            return Ok(());
        }
        let what = String::from_utf8_lossy(&output.stderr);
        let what = format!("it said: {}", what.trim());
        // What it was short of decides whether another start may succeed.
        let errno = what.rsplit_once("(os error ");
        let errno = errno.and_then(|(_, rest)| rest.split_once(')')?.0.parse().ok());
        Err(match errno {
            Some(errno) => durable::worded(what, &io::Error::from_raw_os_error(errno)),
            None => io::Error::other(what),
        })
    }
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionRefused | ConnectionReset | NotFound | UnexpectedEof
    )
}

fn greet(socket: OwnedFd, run_dir: &Path) -> io::Result<(Client, Reader)> {
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    let mut reader = Reader::on(socket.try_clone()?);
    let mut client = Client {
        confines: false,
        takes_turns: false,
        line: Arc::new(Mutex::new(Line {
            socket,
            unsaid: Vec::new(),
        })),
    };
    client.send(&Order::Hello { version: VERSION }, &[])?;
    set_socket_timeout(&reader.socket, Timeout::Recv, Some(GREETING))?;
    while let Some(number) = client.take_hello(reader.next()?)? {
        proof::show(run_dir, number).map_err(|error| {
            let what = format!("can't create a file in {}: {error}", run_dir.display());
            io::Error::new(error.kind(), what)
        })?;
        client.send(&Order::Prove, &[])?;
    }
    set_socket_timeout(&reader.socket, Timeout::Recv, None)?;
    Ok((client, reader))
}
