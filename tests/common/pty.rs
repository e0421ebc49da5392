//! A terminal of a given size, with a program on it: what it draws, and keys that are pressed.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::WaitOptions;
use rustix::termios::LocalModes;

/// How long anything may take before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Terminal {
    ours: File,
    theirs: File,
    drawn: Arc<Mutex<String>>,
    child: Child,
}

impl Terminal {
    /// Starts the program with the terminal as its stdin, stdout and stderr.
    pub fn run(command: &mut Command, (columns, lines): (u16, u16)) -> Self {
        let (ours, theirs) = pair();
        let terminal: (File, File) = (ours.into(), theirs.into());
        set_size(&terminal.1, columns, lines);
        let stdio = || Stdio::from(terminal.1.try_clone().unwrap());
        command
            .stdin(stdio())
            .stdout(stdio())
            .stderr(stdio())
            .env("TERM", "xterm")
            .env("NO_COLOR", "1");
        let child = command.spawn().unwrap();
        let drawn: Arc<Mutex<String>> = Arc::default();
        let (mut from, into) = (terminal.0.try_clone().unwrap(), Arc::clone(&drawn));
        std::thread::spawn(move || {
            let (mut piece, mut bytes) = ([0; 4096], Vec::new());
            while let Ok(count @ 1..) = from.read(&mut piece) {
                bytes.extend_from_slice(&piece[..count]);
                *into.lock().unwrap() = String::from_utf8_lossy(&bytes).into_owned();
            }
        });
        Self {
            ours: terminal.0,
            theirs: terminal.1,
            drawn,
            child,
        }
    }

    /// All that was drawn so far.
    pub fn drawn(&self) -> String {
        self.drawn.lock().unwrap().clone()
    }

    /// Waits until something was drawn that `fits`.
    pub fn until(&self, what: &str, fits: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let drawn = self.drawn();
            if fits(&drawn) {
                return drawn;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "waited too long: {what}: {drawn:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn resize(&self, columns: u16, lines: u16) {
        set_size(&self.theirs, columns, lines);
        // The terminal is not the program's controlling one, so nobody else tells it.
        self.signal(libc::SIGWINCH);
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the process is our child and was not waited for.
        unsafe { libc::kill(i32::try_from(self.child.id()).unwrap(), signal) };
    }

    /// Waits until the program is stopped, as Ctrl-Z does it.
    pub fn until_stopped(&self) {
        let child = rustix::process::Pid::from_child(&self.child);
        let options = WaitOptions::UNTRACED;
        let told = rustix::process::waitpid(Some(child), options).unwrap();
        assert!(told.unwrap().1.stopped());
    }

    pub fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    /// Whether what is typed comes line by line and is shown, as a shell wants it.
    pub fn is_for_lines(&self) -> bool {
        let modes = rustix::termios::tcgetattr(&self.theirs)
            .unwrap()
            .local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Waits for the end of the program: its exit code, and all that it drew.
    pub fn end(mut self) -> (Option<i32>, String) {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "it does not end: {:?}",
                self.drawn()
            );
            std::thread::sleep(Duration::from_millis(5));
        };
        // A mark behind all that was drawn.
        let mark = "\u{1}end\u{1}";
        self.theirs.write_all(mark.as_bytes()).unwrap();
        let drawn = self.until("what it drew", |drawn| drawn.ends_with(mark));
        let drawn = drawn.trim_end_matches(mark).replace("\r\n", "\n");
        (status.code(), drawn)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn set_size(terminal: &File, columns: u16, lines: u16) {
    let size = rustix::termios::Winsize {
        ws_row: lines,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(terminal, size).unwrap();
}

fn pair() -> (OwnedFd, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    // SAFETY: both numbers are ours to be written to, and nobody else has the descriptors.
    unsafe {
        let none = std::ptr::null_mut();
        let opened = libc::openpty(
            &raw mut ours,
            &raw mut theirs,
            none,
            none.cast(),
            none.cast(),
        );
        assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
        (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
    }
}
