//! The report file of an attempt: the newest that matches, inside the working folder, and written
//! by this attempt.
//!
//! The specialist may write anything there, so only regular files are opened, and a link to a folder
//! is followed only where it leads to one inside the working folder, by names that are no links any
//! more. What an attempt wrote is told by the time of the last change, which nobody can set: it is not
//! before the claim of the record.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use crate::protocol::report_pattern::{Part, ReportPattern};
use crate::protocol::result::Output;

/// How many names are looked at, and how deep `**` goes: a pattern must not hold up the outcome.
const MOST_NAMES: usize = 100_000;
const MOST_DEPTH: usize = 64;

/// The report of an attempt.
#[derive(Debug, PartialEq)]
pub struct Report {
    /// Relative to the working folder.
    pub path: String,
    pub said: Output,
    /// The file as it is, up to what is read of an output.
    pub bytes: Vec<u8>,
}

/// Reads the newest file that matches and changed at `since_ns` or later. Of several that are
/// equally new the last by name counts.
pub fn newest(
    folder: &Path,
    pattern: &ReportPattern,
    since_ns: i128,
    most: u64,
) -> io::Result<Option<Report>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = rustix::fs::open(folder, flags, Mode::empty())?;
    let top = File::from(top);
    let mut search = Search {
        top: &top,
        folder,
        since_ns,
        names_left: MOST_NAMES,
        best: None,
    };
    search.walk(&top, &pattern.parts, "", 0);
    let Some(Best { path, file, .. }) = search.best else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(Some(Report::read(path, bytes, most)))
}

impl Report {
    pub fn read(path: String, bytes: Vec<u8>, most: u64) -> Self {
        let said = if bytes.len() as u64 > most {
            Output::TooLarge
        } else {
            Output::read(&bytes)
        };
        Self { path, said, bytes }
    }
}

struct Search<'a> {
    top: &'a File,
    folder: &'a Path,
    since_ns: i128,
    names_left: usize,
    best: Option<Best>,
}

struct Best {
    modified_ns: i128,
    path: String,
    file: File,
}

impl Search<'_> {
    /// Looks for files below `here`. A folder that can't be read has none.
    fn walk(&mut self, here: &File, parts: &[Part], path: &str, depth: usize) {
        let Some((part, rest)) = parts.split_first() else {
            return;
        };
        match part {
            Part::Is(name) => self.enter(here, name, rest, path, depth),
            Part::Like(wild) => {
                for name in self.names(here) {
                    if wild.matches(&name) {
                        self.enter(here, &name, rest, path, depth);
                    }
                }
            }
            Part::Folders => {
                self.walk(here, rest, path, depth);
                if depth >= MOST_DEPTH {
                    return;
                }
                for name in self.names(here) {
                    // No links, which may lead in circles.
                    let folder = open_folder(here, &name).filter(|_| !name.starts_with('.'));
                    if let Some(folder) = folder {
                        self.walk(&folder, parts, &joined(path, &name), depth + 1);
                    }
                }
            }
        }
    }

    fn enter(&mut self, here: &File, name: &str, rest: &[Part], path: &str, depth: usize) {
        let path = joined(path, name);
        if rest.is_empty() {
            return self.consider(here, name, path);
        }
        let folder = open_folder(here, name).or_else(|| self.linked(&path));
        if let Some(folder) = folder {
            self.walk(&folder, rest, &path, depth);
        }
    }

    /// The folder that a link leads to, if that is inside the working folder.
    fn linked(&self, path: &str) -> Option<File> {
        let real = self.folder.join(path).canonicalize().ok()?;
        let inside = real.strip_prefix(self.folder.canonicalize().ok()?).ok()?;
        let mut folder = self.top.try_clone().ok()?;
        for name in inside {
            folder = open_folder(&folder, name.to_str()?)?;
        }
        Some(folder)
    }

    /// The names in a folder. One that is not text matches no pattern.
    fn names(&mut self, folder: &File) -> Vec<String> {
        let Ok(entries) = Dir::read_from(folder) else {
            return Vec::new();
        };
        let entries = entries.flatten().take(self.names_left);
        let names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned))
            .filter(|name| !matches!(name.as_str(), "." | ".."))
            .collect();
        self.names_left -= names.len().min(self.names_left);
        names
    }

    fn consider(&mut self, folder: &File, name: &str, path: String) {
        // A device or a FIFO does things when it is opened.
        let is_file = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        if !is_file {
            return;
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::openat(folder, name, flags, Mode::empty()).map(File::from)
        else {
            return;
        };
        let Ok(found) = file.metadata() else { return };
        let ns = |seconds: i64, more: i64| i128::from(seconds) * 1_000_000_000 + i128::from(more);
        let modified_ns = ns(found.mtime(), found.mtime_nsec());
        let is_new = ns(found.ctime(), found.ctime_nsec()) >= self.since_ns;
        let is_better = |best: &Best| (modified_ns, &path) > (best.modified_ns, &best.path);
        if found.is_file() && is_new && self.best.as_ref().is_none_or(is_better) {
            self.best = Some(Best {
                modified_ns,
                path,
                file,
            });
        }
    }
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}/{name}")
    }
}

/// A folder, by a name that is no link.
fn open_folder(here: &File, name: &str) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(here, name, flags, Mode::empty());
    folder.ok().map(File::from)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, FileTimes};
    use std::os::unix::fs::symlink;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::protocol::destination::Values;
    use crate::protocol::report_pattern::fill;

    /// What is found of these files, each with its age in seconds.
    fn found(files: &[(&str, u64)], pattern: &str) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        for (path, age) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "x").unwrap();
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000 - age);
            let times = FileTimes::new().set_modified(at);
            File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_times(times)
                .unwrap();
        }
        in_folder(dir.path(), pattern, 0)
    }

    fn in_folder(folder: &Path, pattern: &str, since_ns: i128) -> Option<String> {
        let pattern = fill(pattern, &Values::default()).unwrap();
        let report = newest(folder, &pattern, since_ns, 1000).unwrap()?;
        Some(report.path)
    }

    #[test]
    fn the_newest_file_that_matches_is_found() {
        for (files, pattern, path) in [
            (
                &[("a.md", 2), ("b.md", 1), ("c.txt", 0)][..],
                "*.md",
                Some("b.md"),
            ),
            (
                &[("a.md", 1), ("b.md", 1), ("B.md", 1)],
                "*.md",
                Some("b.md"),
            ),
            (&[("a/x.md", 2), ("b/x.md", 1)], "*/x.md", Some("b/x.md")),
            (&[("a/x.md", 2)], "a/x.md", Some("a/x.md")),
            (&[("a/x.md", 2)], "*.md", None),
            (
                &[("x.md", 3), ("a/b/c/x.md", 2)],
                "**/x.md",
                Some("a/b/c/x.md"),
            ),
            (&[("x.md", 1), ("a/b/c/x.md", 2)], "**/x.md", Some("x.md")),
            (&[("a/b/y", 1)], "a/**", Some("a/b/y")),
            (&[(".hidden/x.md", 1)], "**/x.md", None),
            (&[(".hidden/x.md", 1)], ".hidden/*.md", Some(".hidden/x.md")),
            (&[("a/x.md", 1)], "a", None),
            (&[("x.md", 1)], ".", None),
        ] {
            assert_eq!(
                found(files, pattern).as_deref(),
                path,
                "{files:?} {pattern}"
            );
        }
    }

    #[test]
    fn links_folders_and_files_of_before_are_passed_over() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("x.md"), "outside").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        symlink(outside.path().join("x.md"), path("link.md")).unwrap();
        symlink(outside.path(), path("folder")).unwrap();
        fs::create_dir(path("folder.md")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe.md"), Mode::RUSR | Mode::WUSR).unwrap();
        for pattern in ["*.md", "*/x.md", "folder/x.md", "folder/**", "**"] {
            assert_eq!(in_folder(dir.path(), pattern, 0), None, "{pattern}");
        }
        fs::create_dir_all(path("real/features")).unwrap();
        fs::write(path("real/features/x.md"), "x").unwrap();
        fs::create_dir(path("out")).unwrap();
        symlink("../real/features", path("out/features")).unwrap();
        let inside = in_folder(dir.path(), "out/features/*.md", 0);
        assert_eq!(inside.as_deref(), Some("out/features/x.md"));
        let inside = in_folder(dir.path(), "out/features/**/*.md", 0);
        assert_eq!(inside.as_deref(), Some("out/features/x.md"));
        fs::write(path("own.md"), "own").unwrap();
        assert_eq!(in_folder(dir.path(), "*.md", 0).as_deref(), Some("own.md"));
        let found = path("own.md").metadata().unwrap();
        let changed = i128::from(found.ctime()) * 1_000_000_000 + i128::from(found.ctime_nsec());
        let since = |ns| in_folder(dir.path(), "*.md", ns);
        assert_eq!(since(changed).as_deref(), Some("own.md"));
        assert_eq!(since(changed + 1), None);
    }

    #[test]
    fn no_more_is_read_than_of_an_output() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("x.md"), vec![b'x'; 1001]).unwrap();
        let pattern = fill("*.md", &Values::default()).unwrap();
        let report = newest(dir.path(), &pattern, 0, 1000).unwrap().unwrap();
        assert_eq!(report.said, Output::TooLarge);
        let gone = newest(&dir.path().join("gone"), &pattern, 0, 1000);
        assert_eq!(gone.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
