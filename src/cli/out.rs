//! Data on stdout and talk on stderr. What can't be written to stdout is an error that says so; what
//! can't be said on stderr is not said. Neither is ever a panic.

use std::fmt::Display;
use std::io::{self, StdoutLock, Write};

use crate::cli::{Failed, Outcome};

/// Stdout, whose errors say that they are about it.
#[derive(Debug)]
pub struct Out(StdoutLock<'static>);

pub fn lock() -> Out {
    Out(io::stdout().lock())
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|error| untold(&error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(|error| untold(&error))
    }
}

fn untold(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("can't write to stdout: {error}"))
}

/// Says a line to whoever is there.
macro_rules! talk {
    ($($words:tt)*) => {
        drop(std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("{}\n", format_args!($($words)*)),
        ))
    };
}
pub(in crate::cli) use talk;

/// Writes a line.
pub fn tell(text: impl Display) -> Result<(), Failed> {
    Ok(writeln!(lock(), "{text}")?)
}

/// Writes a text that has its line ends.
pub fn put(text: impl AsRef<[u8]>) -> Result<(), Failed> {
    Ok(lock().write_all(text.as_ref())?)
}

/// Writes what had no line end yet.
pub fn end() -> Result<(), Failed> {
    heard(lock().flush())
}

/// Whoever stopped reading wants to hear no more.
fn heard(told: io::Result<()>) -> Result<(), Failed> {
    match told {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// What is told to somebody who stopped reading ends the program without a word, as with others:
/// `handoffd list | head`.
pub fn ends_with_its_reader() {
    // SAFETY: the default disposition is always valid, and no handler runs.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Stdout of a command that acts: what can't be told does not keep it from acting on the rest.
#[derive(Debug, Default)]
pub struct Telling {
    untold: Option<io::Error>,
}

impl Telling {
    /// Writes a line; false if that could not be done.
    pub fn tell(&mut self, text: impl Display) -> bool {
        match writeln!(lock(), "{text}") {
            Ok(()) => true,
            Err(error) => {
                self.untold.get_or_insert(error);
                false
            }
        }
    }

    /// What the command comes to when all is done.
    pub fn over(self) -> Outcome {
        heard(self.untold.map_or(Ok(()), Err)).map(|()| 0)
    }
}
