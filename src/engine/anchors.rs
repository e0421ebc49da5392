//! Sends anchors of the audit log to where the configuration says.
//!
//! The committer shows every line that is on disk; a thread sends the last one, after so many lines
//! or so much time, and once more when the daemon stops. A place that takes none is a problem in
//! `status`, and nothing else: the next anchor stands for all lines before it. A file is also read at
//! the start: a log that does not have the line of its last anchor was changed while no daemon ran.

use std::fs::{self, File};
use std::io::{self, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::{AnchorTo, Audit};
use crate::durable::{self, Durability};
use crate::engine::event::Event;
use crate::engine::world::World;
use crate::spool::change::Change;
use crate::store::audit::{self, Anchor, Anchors, Head};

/// What a journal and a syslog call the sender.
const SENDER: &str = "handoffd-anchor";
const JOURNAL: &str = "/run/systemd/journal/socket";
const SYSLOG: &str = "/dev/log";
/// Facility authpriv, severity info.
const PRIORITY: u32 = 10 * 8 + 6;

/// How long to leave a place alone that took no anchor.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// How long a stop waits for the last anchor.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// How much of a file is read for its last anchor.
const END_OF_FILE: u64 = 256 * 1024;

/// Hears of lines that are on disk, and has them anchored. Cheap to clone.
#[derive(Clone, Default)]
pub struct Anchoring {
    shared: Arc<(Mutex<Heard>, Condvar)>,
}

#[derive(Default)]
struct Heard {
    head: Option<Head>,
    /// The number from which on the thread wants to know.
    wake_at: u64,
    /// The configuration was read again, or the daemon stops.
    called: bool,
    stop: bool,
}

impl Anchoring {
    /// Takes in the last line that is on disk.
    pub fn hear(&self, head: Head) {
        let mut state = self.lock();
        let wakes = head.seq >= state.wake_at;
        state.head = Some(head);
        drop(state);
        if wakes {
            self.shared.1.notify_one();
        }
    }

    /// The configuration may say something else now.
    pub fn look_again(&self) {
        self.lock().called = true;
        self.shared.1.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        let heard = self.shared.0.lock();
        heard.unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread.
    pub fn start(&self, world: &Arc<World>) -> io::Result<Running> {
        let (tell, ended) = sync_channel::<()>(1);
        let anchoring = self.clone();
        let world = Arc::clone(world);
        std::thread::Builder::new()
            .name("anchor".to_owned())
            .spawn(move || {
                anchoring.run(&world);
                drop(tell);
            })?;
        let anchoring = self.clone();
        Ok(Running { anchoring, ended })
    }

    fn run(&self, world: &World) {
        let root = fs::canonicalize(world.layout.root());
        let root = root.unwrap_or_else(|_| world.layout.root().to_owned());
        let root = root.to_string_lossy().into_owned();
        if let Some(AnchorTo::File(path)) = &world.config().audit.anchor
            && let Some(problem) = not_as_anchored(world, path, &root)
        {
            let line = audit::Event::new(world.now().wall, audit::ALTERED)
                .with("message", problem.as_str());
            world.tell(Event::AuditAltered(problem));
            world.committer.submit(Change::Note, vec![line], |_| {});
        }
        // The number that was anchored last, and when.
        let mut last: (Option<u64>, Option<Instant>) = (None, None);
        let mut not_before = None;
        loop {
            let settings = world.config().audit.clone();
            let (head, stop) = self.wait(&settings, last, not_before);
            if let (Some(to), Some(head)) = (&settings.anchor, head)
                && head.seq > 0
                && last.0 != Some(head.seq)
                && (stop || due_in(&settings, last, head.seq, not_before).is_zero())
            {
                let seq = head.seq;
                let anchor = Anchor {
                    root: root.clone(),
                    at: world.now().wall,
                    head,
                };
                let sent = send(to, &anchor);
                not_before = sent.is_err().then(|| Instant::now() + RETRY_AFTER);
                if sent.is_ok() {
                    last = (Some(seq), Some(Instant::now()));
                }
                world.tell(Event::Anchored(sent.err().map(|error| trouble(to, &error))));
            }
            if stop {
                return;
            }
        }
    }

    /// Waits until an anchor may be due; with the last line, and whether this is the end.
    fn wait(
        &self,
        settings: &Audit,
        last: (Option<u64>, Option<Instant>),
        not_before: Option<Instant>,
    ) -> (Option<Head>, bool) {
        let mut heard = self.lock();
        loop {
            let seq = heard.head.as_ref().map_or(0, |head| head.seq);
            let is_new = seq > 0 && last.0 != Some(seq);
            let patience = match settings.anchor {
                // Woken by a reload, or by a line.
                None => None,
                Some(_) if !is_new => None,
                Some(_) => Some(due_in(settings, last, seq, not_before)),
            };
            if std::mem::take(&mut heard.called) || patience == Some(Duration::ZERO) {
                return (heard.head.clone(), heard.stop);
            }
            heard.wake_at = match (&settings.anchor, last.0) {
                (None, _) => u64::MAX,
                (Some(_), Some(anchored)) if is_new => {
                    anchored.saturating_add(settings.anchor_lines).max(seq + 1)
                }
                (Some(_), _) => seq + 1,
            };
            let wake = &self.shared.1;
            heard = match patience {
                None => wake.wait(heard).unwrap_or_else(PoisonError::into_inner),
                Some(patience) => {
                    let waited = wake.wait_timeout(heard, patience);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// How long until line `seq`, which has no anchor yet, is to get one.
fn due_in(
    settings: &Audit,
    (seq_before, at_before): (Option<u64>, Option<Instant>),
    seq: u64,
    not_before: Option<Instant>,
) -> Duration {
    let now = Instant::now();
    if let Some(not_before) = not_before.filter(|it| *it > now) {
        return not_before - now;
    }
    let enough = seq_before
        .is_none_or(|before| seq < before || seq >= before.saturating_add(settings.anchor_lines));
    match at_before {
        Some(at) if !enough => settings.anchor_interval.saturating_sub(at.elapsed()),
        _ => Duration::ZERO,
    }
}

/// The thread, for the one who ends it.
pub struct Running {
    anchoring: Anchoring,
    ended: Receiver<()>,
}

impl Running {
    /// Has the last line anchored, and waits for that a moment.
    pub fn finish(self) {
        {
            let mut heard = self.anchoring.lock();
            heard.called = true;
            heard.stop = true;
        }
        self.anchoring.shared.1.notify_one();
        if self.ended.recv_timeout(LAST_WAIT) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the last anchor of the audit log may be missing");
        }
    }
}

fn trouble(to: &AnchorTo, error: &io::Error) -> String {
    let place = match to {
        AnchorTo::Journal => "the journal",
        AnchorTo::Syslog => "syslog",
        AnchorTo::File(path) => {
            return format!(
                "no anchor of the audit log can be written to {}: {error}; make it a file or FIFO that the daemon may append to, or change audit.anchor",
                path.display()
            );
        }
    };
    format!("{place} takes no anchor of the audit log: {error}; start it, or change audit.anchor")
}

fn send(to: &AnchorTo, anchor: &Anchor) -> io::Result<()> {
    let line = anchor.to_line();
    match to {
        AnchorTo::Journal => {
            // A text without line ends: the path is JSON here.
            let fields = format!("MESSAGE={line}\nPRIORITY=6\nSYSLOG_IDENTIFIER={SENDER}\n");
            datagram(Path::new(JOURNAL), fields.as_bytes())
        }
        AnchorTo::Syslog => {
            let text = format!("<{PRIORITY}>{SENDER}[{}]: {line}", std::process::id());
            datagram(Path::new(SYSLOG), text.as_bytes())
        }
        AnchorTo::File(path) => append(path, &line),
    }
}

fn datagram(socket: &Path, bytes: &[u8]) -> io::Result<()> {
    let from = UnixDatagram::unbound()?;
    from.set_nonblocking(true)?;
    let sent = from.send_to(bytes, socket);
    sent.map(drop).map_err(|error| durable::at(socket, &error))
}

fn append(path: &Path, line: &str) -> io::Result<()> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let mut file = File::options()
        .append(true)
        .create(true)
        .mode(0o640)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_fifo() {
        return Err(io::Error::other("it is neither a file nor a FIFO"));
    }
    file.write_all(format!("{line}\n").as_bytes())?;
    if kind.is_file() {
        durable::sync_file(&file, Durability::Full)?;
    }
    Ok(())
}

/// What is wrong if the log has not the line of the last anchor in this file.
fn not_as_anchored(world: &World, path: &Path, root: &str) -> Option<String> {
    let mut file = File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .ok()?;
    let found = file.metadata().ok()?;
    if !found.is_file() {
        return None;
    }
    file.seek(SeekFrom::Start(found.len().saturating_sub(END_OF_FILE)))
        .ok()?;
    let mut anchors = Anchors::default();
    let name = path.to_string_lossy();
    anchors.read(&name, BufReader::new(file), root).ok()?;
    let last = anchors.last()?;
    let is_there = audit::has_line(&world.layout.audit(), &last.head).ok()?;
    (!is_there).then(|| {
        format!(
            "the audit log was changed while no daemon ran: line {} is not what it was at {}, as {name} \
             has it; see handoffd audit --verify --anchor {}",
            last.head.seq,
            last.at,
            crate::protocol::shown::word(&name)
        )
    })
}
