//! Being woken by folders: for commands that wait for what a daemon does there.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::watch::{FolderKey, Mode, Watcher};

const POLL: Duration = Duration::from_millis(500);

/// Tells of changes in these folders, as long as the watcher is held.
pub fn on_changes(folders: &[PathBuf]) -> io::Result<(Watcher, Receiver<()>)> {
    // What is not there yet can't be watched, only looked for.
    let mode = if folders.iter().all(|folder| folder.is_dir()) {
        Mode::Auto
    } else {
        Mode::Poll
    };
    let keyed: Vec<_> = (0..).map(FolderKey).zip(folders.iter().cloned()).collect();
    let (tell, told) = channel();
    let watch = |mode| {
        let tell = tell.clone();
        Watcher::new(&keyed, mode, POLL, move |_| {
            let _ = tell.send(());
        })
    };
    let watcher = match watch(mode) {
        // Whoever may not list a folder may perhaps look for what he knows by name.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => watch(Mode::Poll),
        watcher => watcher,
    }?;
    Ok((watcher, told))
}
