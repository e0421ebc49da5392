//! A page over HTTP/1.1, to whoever asks on this machine.
//!
//! One page, one method, one request for each connection: what a full HTTP library is for is not
//! needed here, and it would run on the loop's own runtime or bring a second one. So this is a
//! thread that accepts and at most a few that answer, and everything that a client could stretch is
//! bounded: the length of a request, the time from its first byte to the last one of the answer,
//! and how many are served at once. A client that is slow, or says nothing, is left after a few
//! seconds, and at once where another client needs its place.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::figures::openmetrics::CONTENT_TYPE;

/// The longest request, its head lines included.
const MOST_BYTES: usize = 8 * 1024;
/// From accepting a connection to its end.
const MOST_TIME: Duration = Duration::from_secs(5);
/// Served at once. One more takes the place of the client that has not asked for the longest time; where
/// all have asked, it is told to come again.
const MOST_AT_ONCE: usize = 8;
/// Threads at once, those included that are about to give up their place.
const MOST_THREADS: usize = 2 * MOST_AT_ONCE;
/// Where accepting fails, as it does without free descriptors, it is left alone for a moment.
const AFTER_ERROR: Duration = Duration::from_millis(200);

/// Makes the page; `None` if that is not possible now.
pub type Page = dyn Fn() -> Option<String> + Send + Sync;

/// Serves `page` at `/metrics` for as long as the process lives.
pub fn serve(listener: TcpListener, page: Arc<Page>) -> io::Result<()> {
    let spawn = move || accept(&listener, &page);
    let named = std::thread::Builder::new().name("metrics".to_owned());
    named.spawn(spawn).map(drop)
}

fn accept(listener: &TcpListener, page: &Arc<Page>) {
    let busy = Arc::new(AtomicUsize::new(0));
    let silent = Silent::default();
    for number in 0.. {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(AFTER_ERROR);
            continue;
        };
        let begun = Instant::now();
        let others = busy.fetch_add(1, Ordering::AcqRel);
        let place = Place(Arc::clone(&busy));
        if others >= MOST_THREADS || (others >= MOST_AT_ONCE && !silent.leave_oldest()) {
            turn_away(&stream);
            continue;
        }
        silent.add(number, &stream);
        let silent = silent.clone();
        let page = Arc::clone(page);
        let named = std::thread::Builder::new().name("metrics-answer".to_owned());
        // Where no thread can be had, the closure is dropped, and place and connection with it.
        let _ = named.spawn(move || {
            let _place = place;
            let head = read_head(&stream, begun + MOST_TIME);
            silent.remove(number);
            if let Ok(head) = head {
                let _ = answer(&stream, &*page, head, begun + MOST_TIME);
            }
        });
    }
}

/// Connections whose request is not here yet, the oldest first. Clones share them.
#[derive(Clone, Default)]
struct Silent(Arc<Mutex<VecDeque<(u64, TcpStream)>>>);

impl Silent {
    fn add(&self, number: u64, stream: &TcpStream) {
        if let Ok(stream) = stream.try_clone() {
            self.lock().push_back((number, stream));
        }
    }

    fn remove(&self, number: u64) {
        self.lock().retain(|(other, _)| *other != number);
    }

    /// Ends the oldest one; false if there is none.
    fn leave_oldest(&self) -> bool {
        let oldest = self.lock().pop_front();
        oldest.is_some_and(|(_, stream)| stream.shutdown(Shutdown::Both).is_ok())
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(u64, TcpStream)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Without waiting for anything: the accepting thread does this.
fn turn_away(mut stream: &TcpStream) {
    let _ = stream.set_nonblocking(true);
    let _ = stream.write(&response(Status::Busy, "too many at once\n", true));
}

fn answer(mut stream: &TcpStream, page: &Page, head: Head, deadline: Instant) -> io::Result<()> {
    let (status, whole) = match head {
        Head::Whole(line) => judge(&line),
        Head::TooLong => (Status::TooLong, true),
        Head::Gone => return Ok(()),
    };
    let (status, text) = match status {
        Status::Fine => match page() {
            Some(text) => (Status::Fine, text),
            None => (Status::Busy, "the daemon does not answer\n".to_owned()),
        },
        other => (other, format!("{}\n", other.words())),
    };
    let bytes = response(status, &text, whole);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        let written = stream.write(rest)?;
        rest = &rest[written..];
    }
    stream.shutdown(Shutdown::Write)?;
    // What is still unread would make the system cut the answer off.
    let mut unread = [0; 1024];
    for _ in 0..64 {
        stream.set_read_timeout(Some(left(deadline)?.min(Duration::from_secs(1))))?;
        if stream.read(&mut unread)? == 0 {
            break;
        }
    }
    Ok(())
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

enum Head {
    /// The first line of it.
    Whole(String),
    TooLong,
    Gone,
}

/// Reads up to the empty line. The whole of it has one deadline, so a byte now and then does not
/// keep a connection.
fn read_head(mut stream: &TcpStream, deadline: Instant) -> io::Result<Head> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Ok(Head::Gone);
        }
        bytes.extend_from_slice(&buffer[..read]);
        let ends = |end: &[u8]| bytes.windows(end.len()).any(|part| part == end);
        if ends(b"\r\n\r\n") || ends(b"\n\n") {
            let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or(&[]);
            return Ok(Head::Whole(
                String::from_utf8_lossy(line).trim_end().to_owned(),
            ));
        }
        if bytes.len() > MOST_BYTES {
            return Ok(Head::TooLong);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Fine,
    Malformed,
    NotFound,
    NotAllowed,
    TooLong,
    Busy,
}

impl Status {
    fn words(self) -> &'static str {
        match self {
            Self::Fine => "200 OK",
            Self::Malformed => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::NotAllowed => "405 Method Not Allowed",
            Self::TooLong => "431 Request Header Fields Too Large",
            Self::Busy => "503 Service Unavailable",
        }
    }
}

/// What a request line asks for, and whether it wants more than the head of the answer.
fn judge(line: &str) -> (Status, bool) {
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return (Status::Malformed, true);
    };
    let whole = method != "HEAD";
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return (Status::Malformed, whole);
    }
    if !["GET", "HEAD"].contains(&method) {
        return (Status::NotAllowed, whole);
    }
    match target.split('?').next() {
        Some("/metrics") => (Status::Fine, whole),
        _ => (Status::NotFound, whole),
    }
}

fn response(status: Status, text: &str, whole: bool) -> Vec<u8> {
    let kind = match status {
        Status::Fine => CONTENT_TYPE,
        _ => "text/plain; charset=utf-8",
    };
    let more = match status {
        Status::NotAllowed => "Allow: GET, HEAD\r\n",
        Status::Busy => "Retry-After: 5\r\n",
        _ => "",
    };
    let (words, length) = (status.words(), text.len());
    let body = if whole { text } else { "" };
    format!(
        "HTTP/1.1 {words}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{more}\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Asks a daemon on this machine for its page.
pub fn fetch(address: SocketAddr) -> io::Result<String> {
    let deadline = Instant::now() + MOST_TIME;
    let mut stream = TcpStream::connect_timeout(&address, MOST_TIME)?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut buffer)? {
            0 => break,
            read => bytes.extend_from_slice(&buffer[..read]),
        }
    }
    let text = String::from_utf8(bytes).map_err(io::Error::other)?;
    let refused = || io::Error::other(text.lines().next().unwrap_or("no answer").to_owned());
    match text.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") => Ok(body.to_owned()),
        _ => Err(refused()),
    }
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
