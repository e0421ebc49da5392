//! The bare programs: what the machine could do if nothing had to be kept, read or written.

use std::io::{self, BufRead, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rustix::fs::inotify;

/// Starts `/bin/true` so many times on so many threads, and tells how long that took.
pub fn spawn_loop(count: usize, threads: usize) -> f64 {
    on_threads(count, threads, |_| {
        let status = Command::new("/bin/true").stdin(Stdio::null()).status();
        assert!(status.is_ok_and(|status| status.success()));
    })
}

/// Does something so many times, shared out among threads; seconds.
pub fn on_threads(count: usize, threads: usize, work: impl Fn(usize) + Sync) -> f64 {
    let next = AtomicUsize::new(0);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        return;
                    }
                    work(n);
                }
            });
        }
    });
    begin.elapsed().as_secs_f64()
}

pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// The specialist of the pick-up: says when it began.
pub fn stamp(socket: &str) -> io::Result<()> {
    let now = monotonic_ns();
    UnixDatagram::unbound()?.send_to(&now.to_le_bytes(), socket)?;
    Ok(())
}

/// Starts the specialist for every file that is renamed into `folder`, for ever.
pub fn watch(folder: &str, socket: &str) -> io::Result<()> {
    let own = std::env::current_exe()?;
    let watcher: OwnedFd = inotify::init(inotify::CreateFlags::CLOEXEC)?;
    inotify::add_watch(&watcher, folder, inotify::WatchFlags::MOVED_TO)?;
    println!("ready");
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(&watcher, &mut buffer);
    loop {
        events.next()?;
        Command::new(&own)
            .args(["--stamp", socket])
            .stdin(Stdio::null())
            .status()?;
    }
}

/// A resident specialist that does nothing: each line is answered with its id.
pub fn answer() -> io::Result<()> {
    let (stdin, mut stdout) = (io::stdin().lock(), io::stdout().lock());
    for line in stdin.lines() {
        let line = line?;
        let rest = line.trim_start_matches("{\"handoff_id\":\"");
        let id = rest.split('"').next().unwrap_or_default();
        writeln!(stdout, "{{\"handoff_id\":\"{id}\"}}")?;
        stdout.flush()?;
    }
    Ok(())
}
