//! What an attempt left: its result, its output, its last words, and the log worth keeping.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::{Map, Value};

use crate::durable;
use crate::protocol::result::Output;
use crate::runner::launch::AttemptPaths;
use crate::runner::rubbish::Rubbish;
use crate::runner::slots::Slots;
use crate::runner::vitals::Sample;
use crate::spool::look::{Looked, look};

/// How much of stderr goes into a failure's message.
const TAIL: usize = 2000;
const TAIL_BYTES: u64 = TAIL as u64;

#[derive(Debug)]
pub struct Collected {
    pub result_file: Output,
    pub stdout: Output,
    pub stderr_tail: String,
    /// There is a log to keep.
    pub has_log: bool,
    /// There is something to put away, or the slot's files are not empty.
    pub printed: bool,
    /// Its stdout is not what the result is made of, so that no record will say what it was.
    pub beside: bool,
    pub heard: Heard,
}

/// How much is known of what was printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    All,
    /// The file it printed to is gone: what it said can't be known.
    Lost,
    /// It printed more than it may, and may have been gone before anybody saw that.
    TooMuch,
}

/// Reads what the attempt in this slot left. Nothing is moved or deleted.
pub fn collect(slots: &Slots, number: u32, paths: &AttemptPaths, max_output: u64) -> Collected {
    let (stdout, stderr) = (slots.stdout_path(number), slots.stderr_path(number));
    let stdout_size = fs::metadata(&stdout).map(|metadata| metadata.len());
    let stderr_size = size(&stderr);
    // A crash may have come after the log was put away.
    let (log, log_size) = match stderr_size {
        0 if paths.has_no_log() => (stderr, 0),
        0 => {
            let log = paths.log();
            let size = size(&log);
            (log, size)
        }
        _ => (stderr, stderr_size),
    };
    let result_file = if paths.left_nothing() {
        Output::Nothing
    } else {
        read_result(&paths.result(), max_output)
    };
    let stdout = match stdout_size {
        Ok(1..) => read_output(&stdout, max_output),
        _ => Output::Nothing,
    };
    let beside = result_file != Output::Nothing || !stdout.is_whole();
    Collected {
        beside,
        result_file,
        stdout,
        stderr_tail: match log_size {
            0 => String::new(),
            _ => tail(&log),
        },
        has_log: log_size > 0,
        printed: beside || stderr_size > 0 || !matches!(stdout_size, Ok(0)),
        heard: match stdout_size {
            Err(_) => Heard::Lost,
            Ok(size) if size > max_output => Heard::TooMuch,
            Ok(_) => Heard::All,
        },
    }
}

/// What a resident process left of one handoff: its answer, and a log if it wrote to stderr.
pub fn of_resident(
    answer: Option<&Map<String, Value>>,
    stderr: &[u8],
    paths: &AttemptPaths,
) -> Collected {
    let has_log = !stderr.is_empty()
        && fs::write(paths.log(), stderr)
            .inspect_err(|error| tracing::warn!("{}: {error}", paths.log().display()))
            .is_ok();
    let from = stderr.len().saturating_sub(TAIL);
    Collected {
        result_file: Output::Nothing,
        stdout: answer.map_or(Output::Nothing, |result| Output::whole(result.clone())),
        stderr_tail: String::from_utf8_lossy(&stderr[from..]).trim().to_owned(),
        has_log,
        printed: false,
        beside: false,
        heard: Heard::All,
    }
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn read_output(path: &Path, most: u64) -> Output {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)) {
        Ok(_) => Output::read(&bytes),
        Err(error) => Output::Text(format!("[can't read the output: {error}]")),
    }
}

/// The result file is the specialist's own: a link or a pipe there is not followed.
fn read_result(path: &Path, most: u64) -> Output {
    let broken = |why: String| Output::Broken {
        why,
        text: String::new(),
    };
    match look(path, most) {
        Looked::Gone => Output::Nothing,
        Looked::Bytes { bytes, .. } => Output::read(&bytes),
        Looked::TooLarge { .. } => Output::TooLarge,
        Looked::Folder => broken("it is a folder".to_owned()),
        Looked::NotAFile { what, .. } => broken(format!("it is {what}")),
        Looked::Changing => broken("it changed while the daemon read it".to_owned()),
        Looked::Unreadable { error, .. } => broken(error.to_string()),
    }
}

/// Whether a whole result stands there: a JSON object that parses.
pub fn has_whole_result(paths: &AttemptPaths, max_output: u64) -> bool {
    matches!(
        read_result(&paths.result(), max_output),
        Output::Result { .. }
    )
}

fn tail(path: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        // A log that was cut at its head starts with a hole.
        let start = bytes
            .iter()
            .position(|byte| *byte != 0)
            .unwrap_or(bytes.len());
        Ok(String::from_utf8_lossy(&bytes[start..]).trim().to_owned())
    };
    read().unwrap_or_default()
}

/// Puts the log away under its own name, and the printed text too where no record will have it.
/// Of either no more than `cap` bytes are kept, from the end.
pub fn keep_logs(
    slots: &Slots,
    number: u32,
    paths: &AttemptPaths,
    keep_stdout: bool,
    cap: u64,
) -> io::Result<()> {
    let stderr = slots.stderr_path(number);
    match size(&stderr) {
        0 => {}
        // A file that is somebody else's is not kept, only what it says.
        small if small <= cap && paths.home.is_none() => durable::replace(&stderr, &paths.log())?,
        _ => {
            copy_end(&stderr, &paths.log(), cap)?;
            File::options().write(true).open(&stderr)?.set_len(0)?;
        }
    }
    let stdout = slots.stdout_path(number);
    // Where the result came another way, an empty file says that nothing was printed.
    if keep_stdout && (size(&stdout) > 0 || !paths.left_nothing()) {
        copy_end(&stdout, &paths.kept_stdout(), cap)?;
    }
    Ok(())
}

/// Copies the last `most` bytes, without the hole that a cut log may have there.
fn copy_end(from: &Path, to: &Path, most: u64) -> io::Result<()> {
    let mut source = File::open(from)?;
    let length = source.metadata()?.len();
    let most = if length > most { most / 2 } else { most };
    source.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    io::copy(&mut source.take(most), &mut File::create(to)?).map(drop)
}

/// Removes what only the running attempt needed. Folders are deleted later: they may hold anything.
pub fn clean(paths: &AttemptPaths, rubbish: &Rubbish) {
    if paths.left_nothing() {
        return;
    }
    let report = paths.report();
    if let Some(home) = &paths.home {
        let _ = fs::remove_file(report);
        return rubbish.discard(home);
    }
    for path in [paths.result(), paths.heartbeat(), report] {
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => rubbish.discard(&path),
            Ok(_) => drop(fs::remove_file(path)),
            Err(_) => {}
        }
    }
}

/// One look at a running attempt.
pub fn sample(slots: &Slots, number: u32, paths: &AttemptPaths, cpu_ms: Option<u64>) -> Sample {
    let stamp = |path: &Path| {
        let metadata = fs::symlink_metadata(path).ok()?;
        let modified =
            i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        Some((metadata.len(), modified))
    };
    Sample {
        stdout_bytes: size(&slots.stdout_path(number)),
        stderr_bytes: size(&slots.stderr_path(number)),
        result: stamp(&paths.result()),
        heartbeat: stamp(&paths.heartbeat()),
        cpu_ms,
    }
}

/// Frees the head of a log that outgrew its cap; the attempt goes on appending to its end.
pub fn cap_log(path: &Path, cap: u64) {
    let length = size(path);
    if length <= cap {
        return;
    }
    let Ok(file) = File::options().write(true).open(path) else {
        return;
    };
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{FallocateFlags, fallocate};
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if fallocate(&file, flags, 0, length - cap / 2).is_ok() {
            return;
        }
    }
    let _ = file.set_len(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::slots::Use;
    use crate::spool::look::names::Names;
    use std::io::Write;
    use std::os::unix::fs::symlink;
    use std::sync::Arc;

    fn paths_in(folder: &Path) -> AttemptPaths {
        let names = Arc::new(Names::new(folder.to_owned()));
        AttemptPaths::new((&names, &names), "x", 1)
    }

    #[test]
    fn what_was_left_is_read_and_the_log_is_put_away() {
        let dir = tempfile::tempdir().unwrap();
        let slots = Slots::new(dir.path());
        let paths = paths_in(dir.path());
        let mut slot = slots.acquire(Use::Shared).unwrap();
        slot.stdout.write_all(b"hello").unwrap();
        slot.stderr.write_all(b"first\nlast words\n").unwrap();
        let collected = collect(&slots, slot.number, &paths, 1000);
        assert_eq!(collected.stdout, Output::Text("hello".to_owned()));
        assert_eq!(collected.result_file, Output::Nothing);
        assert_eq!(collected.stderr_tail, "first\nlast words");
        for _ in 0..2 {
            keep_logs(&slots, slot.number, &paths, true, 1000).unwrap();
            assert!(
                collect(&slots, slot.number, &paths, 1000).has_log,
                "also when asked again"
            );
        }
        assert_eq!(fs::read(paths.kept_stdout()).unwrap(), b"hello");
    }

    #[test]
    fn a_flood_shows_also_after_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let slots = Slots::new(dir.path());
        let paths = paths_in(dir.path());
        let mut slot = slots.acquire(Use::Shared).unwrap();
        slot.stdout.write_all(&[b'x'; 1000]).unwrap();
        let heard = || collect(&slots, slot.number, &paths, 1000).heard;
        assert_eq!(heard(), Heard::All);
        (&slot.stdout).write_all(b"x").unwrap();
        assert_eq!(heard(), Heard::TooMuch);
    }

    #[test]
    fn of_a_flood_only_the_end_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let slots = Slots::new(dir.path());
        let paths = paths_in(dir.path());
        let mut slot = slots.acquire(Use::Shared).unwrap();
        for file in [&mut slot.stdout, &mut slot.stderr] {
            file.write_all(&[b'x'; 10_000]).unwrap();
            file.write_all(b"the end").unwrap();
        }
        keep_logs(&slots, slot.number, &paths, true, 1000).unwrap();
        for kept in [paths.log(), paths.kept_stdout()] {
            let text = fs::read_to_string(kept).unwrap();
            assert!(text.len() <= 1000 && text.ends_with("the end"));
        }
    }

    #[test]
    fn a_result_above_the_limit_is_not_called_broken() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths_in(dir.path());
        fs::write(paths.result(), r#"{"summary":"long"}"#).unwrap();
        assert_eq!(read_result(&paths.result(), 10), Output::TooLarge);
        assert!(!has_whole_result(&paths, 10));
    }

    #[test]
    fn a_link_at_the_results_place_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths_in(dir.path());
        symlink("/etc/passwd", paths.result()).unwrap();
        assert!(matches!(
            read_result(&paths.result(), 100_000),
            Output::Broken { .. }
        ));
        assert!(!has_whole_result(&paths, 100_000));
        let rubbish = Rubbish::start(|_, _| {}).unwrap();
        clean(&paths, &rubbish);
        assert!(fs::symlink_metadata(paths.result()).is_err());
        assert!(Path::new("/etc/passwd").exists());
    }

    #[test]
    fn a_long_log_loses_its_head_and_keeps_its_tail() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut file = File::options()
            .append(true)
            .create(true)
            .open(&path)
            .unwrap();
        for n in 0..100_000 {
            writeln!(file, "line {n}").unwrap();
        }
        cap_log(&path, 100_000);
        writeln!(file, "the end").unwrap();
        assert!(fs::metadata(&path).unwrap().blocks() * 512 < 200_000);
        assert!(tail(&path).ends_with("the end"));
    }
}
