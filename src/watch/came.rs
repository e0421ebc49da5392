//! Names that came into folders, kept by the system until somebody asks.
//!
//! For folders where nothing has to be done at once: nobody is woken, and what nobody asks about for
//! too long is lost. Where the system has no such list, nothing is ever told.

use std::ffi::OsString;
use std::io;
use std::path::Path;

#[cfg(target_os = "linux")]
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

/// One name, and the folder it came to, by its place among those that were asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    pub folder: usize,
    pub name: OsString,
    /// It came by rename; otherwise somebody made it there, or wrote to it.
    pub renamed: bool,
}

#[derive(Debug)]
pub struct Came {
    #[cfg(target_os = "linux")]
    queue: std::os::fd::OwnedFd,
}

#[cfg(target_os = "linux")]
impl Came {
    pub fn new() -> io::Result<Self> {
        let flags = CreateFlags::NONBLOCK | CreateFlags::CLOEXEC;
        let queue = inotify::init(flags)?;
        Ok(Self { queue })
    }

    /// What came since the last call, and whether some of it was lost. The first call for a folder
    /// only begins to look, and so does one after another folder stands in its place.
    pub fn take(&self, folders: &[&Path]) -> io::Result<(Vec<Arrival>, bool)> {
        let what = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ONLYDIR;
        // A folder that is watched already keeps its number.
        let numbers = folders
            .iter()
            .map(|folder| inotify::add_watch(&self.queue, *folder, what))
            .collect::<Result<Vec<i32>, _>>()?;
        let mut buffer = [std::mem::MaybeUninit::uninit(); 16 * 1024];
        let mut reader = inotify::Reader::new(&self.queue, &mut buffer);
        let (mut came, mut lost) = (Vec::new(), false);
        loop {
            let event = match reader.next() {
                Err(rustix::io::Errno::AGAIN) => return Ok((came, lost)),
                event => event?,
            };
            lost |= event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            let folder = numbers.iter().position(|number| *number == event.wd());
            if let (Some(folder), Some(name)) = (folder, event.file_name()) {
                use std::os::unix::ffi::OsStringExt;
                came.push(Arrival {
                    folder,
                    name: OsString::from_vec(name.to_bytes().to_vec()),
                    renamed: event.events().contains(ReadFlags::MOVED_TO),
                });
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Came {
    pub fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    pub fn take(&self, _: &[&Path]) -> io::Result<(Vec<Arrival>, bool)> {
        Ok((Vec::new(), false))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "as somebody else would do it")]
    fn what_came_is_told_once_also_in_a_folder_that_was_made_again() {
        let top = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| top.path().join(name));
        let folders = [a.as_path(), b.as_path()];
        let came = Came::new().unwrap();
        assert!(came.take(&folders).is_err(), "they are not there");
        for folder in folders {
            std::fs::create_dir(folder).unwrap();
        }
        let told = || {
            let (came, lost) = came.take(&folders).unwrap();
            assert!(!lost);
            let told = came.into_iter().map(|it| (it.folder, it.name, it.renamed));
            told.collect::<Vec<_>>()
        };
        assert_eq!(told(), []);
        std::fs::write(top.path().join("x"), "").unwrap();
        std::fs::rename(top.path().join("x"), b.join("x")).unwrap();
        std::fs::hard_link(b.join("x"), a.join("y")).unwrap();
        assert_eq!(told(), [(1, "x".into(), true), (0, "y".into(), false)]);
        std::fs::remove_dir_all(&b).unwrap();
        std::fs::create_dir(&b).unwrap();
        assert_eq!(told(), []);
        std::fs::create_dir(b.join("z")).unwrap();
        assert_eq!(told(), [(1, "z".into(), false)]);
    }
}
