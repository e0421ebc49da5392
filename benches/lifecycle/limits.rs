//! The bare limits: what the disk and the kernel allow, whoever asks.

#![expect(
    clippy::disallowed_methods,
    reason = "these are the bare calls, not the daemon's way"
)]

use std::fs::{self, File};
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Instant;

use handoffd::protocol::document::parse;
use handoffd::protocol::name::Ext;
use rustix::fs::inotify;

use crate::bare::{monotonic_ns, on_threads, spawn_loop};
use crate::options::Options;
use crate::results::{Figure, Section, grouped, median, number, per_second, quantile};
use crate::rig::{Rig, Setup};
use crate::sample::{AGENT, ids, request};

pub fn run(options: &Options, section: &mut Section) -> io::Result<()> {
    // A root for its place and its removal; no daemon runs on it.
    let rig = Rig::new("limits", &["/bin/true"], Setup::default())?;
    let count = options.count;
    let content = request("limits", AGENT).into_bytes();
    let rounds = options.rounds.min(3);
    let mut rate = |key: &str, what: &str, count: usize, work: &mut dyn FnMut(usize) -> f64| {
        let mut seconds: Vec<f64> = (0..rounds).map(&mut *work).collect();
        let rate = per_second(count, median(&mut seconds));
        section.add(Figure::new(format!("limit.{key}"), what, rate, "/s"));
    };
    for threads in [1, 2, 8] {
        let what = format!("start /bin/true and wait, {}", on(threads));
        rate(&format!("spawn.{threads}"), &what, count, &mut |_| {
            spawn_loop(count, threads)
        });
    }
    for (threads, count) in [(1, count / 4), (8, count)] {
        let what = format!(
            "write 1.5 KB, fsync, rename, fsync the folder, {}",
            on(threads)
        );
        rate(&format!("synced.{threads}"), &what, count, &mut |round| {
            let folder = rig.root.join(format!("synced-{threads}-{round}"));
            put_all(&folder, &content, count, threads, true)
        });
    }
    rate(
        "renamed",
        "write 1.5 KB, rename, no fsync, 1 thread",
        count,
        &mut |round| {
            let folder = rig.root.join(format!("renamed-{round}"));
            put_all(&folder, &content, count, 1, false)
        },
    );
    for (threads, count) in [(1, count / 4), (8, count)] {
        let what = format!("append 300 bytes, fdatasync, {}", on(threads));
        let file = File::create(rig.root.join(format!("log-{threads}")))?;
        rate(&format!("append.{threads}"), &what, count, &mut |_| {
            on_threads(count, threads, |_| {
                let done = (&file).write_all(&content[..300]);
                assert!(done.and_then(|()| file.sync_data()).is_ok());
            })
        });
    }
    rate("parse", "parse a request of 1.5 KB", count, &mut |_| {
        on_threads(count, 1, |_| {
            assert!(std::hint::black_box(parse(&content, Ext::Json)).is_ok());
        })
    });
    let mut heard = inotify_ms(&rig.root, options.drops)?;
    let heard = quantile(&mut heard, 0.5) * 1000.0;
    let what = "inotify, from rename to the event, p50";
    section.add(Figure::new("limit.inotify", what, heard, "µs"));
    let entries = options.up_to.min(100_000);
    let what = format!("list a folder of {} files", grouped(number(entries)));
    let listed = list_ms(&rig.root.join("listed"), entries)?;
    section.add(Figure::new("limit.readdir", what, listed, "ms"));
    Ok(())
}

fn on(threads: usize) -> String {
    if threads == 1 {
        "1 thread".to_owned()
    } else {
        format!("{threads} threads")
    }
}

/// Puts files in place the way a careful program does, or a careless one; seconds.
fn put_all(folder: &Path, content: &[u8], count: usize, threads: usize, synced: bool) -> f64 {
    let ids = ids("file", count);
    assert!(fs::create_dir(folder).is_ok());
    let put = |id: &String| -> io::Result<()> {
        let (draft, place) = (folder.join(format!("{id}.tmp")), folder.join(id));
        let mut file = File::create(&draft)?;
        file.write_all(content)?;
        if synced {
            file.sync_all()?;
        }
        fs::rename(draft, place)?;
        if synced {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    };
    on_threads(count, threads, |n| assert!(put(&ids[n]).is_ok()))
}

fn inotify_ms(root: &Path, count: usize) -> io::Result<Vec<f64>> {
    let folder = root.join("heard");
    fs::create_dir(&folder)?;
    let watcher = inotify::init(inotify::CreateFlags::CLOEXEC)?;
    inotify::add_watch(&watcher, &folder, inotify::WatchFlags::MOVED_TO)?;
    let (tell, told) = std::sync::mpsc::channel();
    let listener = std::thread::spawn(move || -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&watcher, &mut buffer);
        for _ in 0..count {
            events.next()?;
            let _ = tell.send(monotonic_ns());
        }
        Ok(())
    });
    let mut taken = Vec::new();
    for id in ids("heard", count) {
        let draft = root.join(&id);
        fs::write(&draft, b"{}")?;
        let begin = monotonic_ns();
        fs::rename(draft, folder.join(id))?;
        let at = told.recv().map_err(io::Error::other)?;
        #[expect(clippy::cast_precision_loss, reason = "a few million nanoseconds")]
        taken.push(at.saturating_sub(begin) as f64 / 1e6);
    }
    let _ = listener.join();
    Ok(taken)
}

fn list_ms(folder: &Path, count: usize) -> io::Result<f64> {
    fs::create_dir(folder)?;
    for id in ids("listed", count) {
        File::create(folder.join(id))?;
    }
    let begin = Instant::now();
    let seen = fs::read_dir(folder)?.count();
    let took = begin.elapsed().as_secs_f64() * 1000.0;
    assert_eq!(seen, count);
    Ok(took)
}
