//! `status --watch` on a terminal: a page on the alternate screen, drawn again every second, after a
//! change of the terminal's size, and gone without a trace when somebody leaves.
//!
//! Keys are read without echo and without waiting for a line. Ctrl-C, Ctrl-Z and a kill work as
//! elsewhere: the terminal is put back first.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpid, kill_process};
use rustix::stdio::stdin;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr, tcsetattr,
};

use super::{EVERY, page};
use crate::cli::style::width;
use crate::cli::{Failed, Outcome, out};
use crate::inspect::status::Status;

/// The alternate screen, without a cursor; and back.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";

pub fn watch(look: impl Fn() -> Result<Status, Failed>) -> Outcome {
    let signals = Signals::listen()?;
    let mut screen = Screen::enter()?;
    loop {
        let status = look()?;
        draw(&page::within(&status, width::size_of_terminal()))?;
        loop {
            if signals.ended() {
                return Ok(0);
            }
            if signals.stopped() {
                screen.leave();
                kill_process(getpid(), Signal::STOP)?;
                screen = Screen::enter()?;
                break;
            }
            match screen.key()? {
                Key::Leave => return Ok(0),
                Key::Other => {}
                Key::None => break,
            }
        }
    }
}

/// What somebody pressed within a second.
enum Key {
    Leave,
    Other,
    None,
}

struct Screen {
    /// How the keyboard was, where stdin is one.
    before: Option<Termios>,
    is_open: bool,
}

impl Screen {
    fn enter() -> io::Result<Self> {
        let mut before = None;
        if isatty(stdin()) {
            let was = tcgetattr(stdin())?;
            let mut now = was.clone();
            now.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            now.special_codes[SpecialCodeIndex::VMIN] = 0;
            now.special_codes[SpecialCodeIndex::VTIME] = 0;
            tcsetattr(stdin(), OptionalActions::Now, &now)?;
            before = Some(was);
        }
        let screen = Self {
            before,
            is_open: true,
        };
        write!(out::lock(), "{ENTER}")?;
        Ok(screen)
    }

    /// Waits for a key. A signal, such as the one for another size, ends the wait.
    fn key(&self) -> io::Result<Key> {
        let time = Timespec {
            tv_sec: i64::try_from(EVERY.as_secs()).unwrap_or(1),
            tv_nsec: 0,
        };
        if self.before.is_none() {
            // Nobody can press a key; only signals come.
            let _ = poll(&mut [], Some(&time));
            return Ok(Key::None);
        }
        let stdin = stdin();
        let mut keyboard = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut keyboard, Some(&time)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Key::None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let told = keyboard[0].revents();
        if told.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            // The terminal is gone.
            return Ok(Key::Leave);
        }
        let mut pressed = [0; 64];
        match rustix::io::read(stdin, &mut pressed) {
            Ok(count) if pressed[..count].iter().any(|key| b"qQ\x04".contains(key)) => {
                Ok(Key::Leave)
            }
            Ok(_) => Ok(Key::Other),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(Key::None),
            Err(error) => Err(error.into()),
        }
    }

    /// Puts the terminal back as it was.
    fn leave(&mut self) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        // The keyboard first: who sees the usual screen may type.
        if let Some(before) = &self.before {
            let _ = tcsetattr(stdin(), OptionalActions::Now, before);
        }
        let mut out = out::lock();
        let _ = write!(out, "{LEAVE}").and_then(|()| out.flush());
    }
}

/// Each line over the former one, so that nothing flickers.
fn draw(lines: &[String]) -> io::Result<()> {
    let mut text = String::from("\u{1b}[H");
    for (at, line) in lines.iter().enumerate() {
        if at > 0 {
            text.push_str("\r\n");
        }
        text.push_str(line);
        text.push_str("\u{1b}[K");
    }
    text.push_str("\u{1b}[J");
    let mut out = out::lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Signals that would leave the terminal as it is if they were not heard.
struct Signals {
    end: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let heard = Self {
            end: Arc::default(),
            stop: Arc::default(),
        };
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&heard.end))?;
        }
        signal_hook::flag::register(libc::SIGTSTP, Arc::clone(&heard.stop))?;
        // It only ends the wait for a key.
        signal_hook::flag::register(libc::SIGWINCH, Arc::default())?;
        Ok(heard)
    }

    fn ended(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    fn stopped(&self) -> bool {
        self.stop.swap(false, Ordering::Relaxed)
    }
}
