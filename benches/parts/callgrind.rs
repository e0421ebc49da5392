//! Counting the instructions of a process.

use std::io;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::parts::{ALL, Part};

/// What there is, or nothing.
pub fn version() -> Option<String> {
    let output = Command::new("valgrind").arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Instructions for one turn of each part, in their order.
pub fn count_all() -> io::Result<Vec<(String, u64)>> {
    let next = AtomicUsize::new(0);
    let counts = Mutex::new(vec![Ok(0); ALL.len()]);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((at, part)) = numbered(next.fetch_add(1, Ordering::Relaxed)) {
                    let count = count(part).map_err(|error| error.to_string());
                    eprintln!("  {}", part.name);
                    if let Ok(mut counts) = counts.lock() {
                        counts[at] = count;
                    }
                }
            });
        }
    });
    let counts = counts.into_inner().map_err(io::Error::other)?;
    ALL.iter()
        .zip(counts)
        .map(|(part, count)| match count {
            Ok(count) => Ok((part.name.to_owned(), count)),
            Err(why) => Err(io::Error::other(format!("{}: {why}", part.name))),
        })
        .collect()
}

fn numbered(at: usize) -> Option<(usize, &'static Part)> {
    const PARTS: &[Part] = &ALL;
    PARTS.get(at).map(|part| (at, part))
}

fn count(part: &Part) -> io::Result<u64> {
    let without = instructions(part, 0)?;
    let with = instructions(part, part.times)?;
    Ok(with.saturating_sub(without) / part.times)
}

/// Of one process, from its first instruction to its last.
fn instructions(part: &Part, times: u64) -> io::Result<u64> {
    let folder = tempfile::tempdir()?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["--run", part.name, &times.to_string()])
        .arg(folder.path())
        // The environment lies on the stack and moves what is below it.
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let counted = said.lines().find_map(|line| {
        let count = line.split("Collected :").nth(1)?;
        count.trim().parse().ok()
    });
    match counted {
        Some(count) if output.status.success() => Ok(count),
        _ => Err(io::Error::other(said.into_owned())),
    }
}
