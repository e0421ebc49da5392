//! A wire with a test at its other end in place of a process.

use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::*;
use rustix::fs::OFlags;
use rustix::pipe::{PipeFlags, pipe_with};

/// The other ends: what a process would have as stdin, stdout and stderr.
struct Other {
    stdin: File,
    stdout: File,
    stderr: File,
}

fn laid(wires: &Wires) -> (Arc<Wire>, Other) {
    let (stdin, ours) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let (heard, stdout) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    for end in [&ours, &heard] {
        rustix::fs::fcntl_setfl(end, OFlags::NONBLOCK).unwrap();
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let open = |read| File::options().read(read).append(true).open(file.path());
    let wire = Arc::new(Wire::new(7, ours, heard, open(true).unwrap()));
    wires.listen(&wire).unwrap();
    let other = Other {
        stdin: stdin.into(),
        stdout: stdout.into(),
        stderr: open(false).unwrap(),
    };
    (wire, other)
}

fn heard() -> (Wires, Receiver<Said>) {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let wires = Wires::new(move |number, said| {
        assert_eq!(number, 7);
        let _ = tell.lock().unwrap().send(said);
    });
    (wires, told)
}

fn next(told: &Receiver<Said>) -> Said {
    told.recv_timeout(Duration::from_secs(60)).unwrap()
}

#[test]
fn each_answer_comes_with_what_was_written_to_stderr_since_its_line() {
    let (wires, told) = heard();
    let (wire, mut other) = laid(&wires);
    other.stderr.write_all(b"loading\n").unwrap();
    for (id, chatter, expected) in [
        ("a", "one\n", "loading\none\n"),
        ("b", "", ""),
        ("c", "three\n", "three\n"),
    ] {
        wires.give(&wire, b"line\n".to_vec(), 1000);
        let mut line = [0; 5];
        other.stdin.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"line\n");
        other.stderr.write_all(chatter.as_bytes()).unwrap();
        let said = format!("{{\"handoff_id\":\"{id}\",\"heartbeat\":true}}\n\n{{\"handoff_id\":");
        other.stdout.write_all(said.as_bytes()).unwrap();
        assert!(matches!(next(&told), Said::Heartbeat { id: beat } if beat == id));
        other
            .stdout
            .write_all(format!("\"{id}\"}}\n").as_bytes())
            .unwrap();
        let Said::Answer(answer) = next(&told) else {
            panic!("{id}")
        };
        assert_eq!(answer.id, id);
        assert_eq!(String::from_utf8(answer.stderr).unwrap(), expected, "{id}");
        other.stderr.write_all(b"idle talk\n").unwrap();
    }
}

#[test]
fn a_line_that_the_pipe_does_not_take_is_written_on_as_it_is_read() {
    let (wires, _told) = heard();
    let (wire, mut other) = laid(&wires);
    let line = vec![b'x'; 500_000];
    wires.give(&wire, line.clone(), 1000);
    let mut read = vec![0; line.len()];
    other.stdin.read_exact(&mut read).unwrap();
    assert!(read == line);
    wire.hang_up();
    assert_eq!(other.stdin.read(&mut read).unwrap(), 0, "the end of file");
}

#[test]
fn after_a_broken_rule_nothing_is_heard_but_the_end() {
    for (said, what) in [
        (
            "garbage\n{\"handoff_id\":\"a\"}\n".to_owned(),
            "other than a line",
        ),
        (format!("{}\n", "x".repeat(1001)), "more than 1000 bytes"),
        ("x".repeat(1001), "without a line end"),
    ] {
        let (wires, told) = heard();
        let (wire, mut other) = laid(&wires);
        wires.give(&wire, b"line\n".to_vec(), 1000);
        other.stdout.write_all(said.as_bytes()).unwrap();
        let Said::Wrong(wrong) = next(&told) else {
            panic!("{what}")
        };
        assert!(wrong.contains(what), "{wrong}");
        let _ = other.stdout.write_all(b"{\"handoff_id\":\"a\"}\n");
        other.stderr.write_all(b"last words").unwrap();
        drop(other);
        wires.drain(7);
        assert!(matches!(next(&told), Said::Closed { stderr } if stderr == b"last words"));
    }
}

#[test]
fn what_was_written_before_the_end_is_heard_before_it() {
    let (wires, told) = heard();
    let (wire, mut other) = laid(&wires);
    wires.give(&wire, b"line\n".to_vec(), 1000);
    other.stdout.write_all(b"{\"handoff_id\":\"a\"}\n").unwrap();
    wires.drain(7);
    assert!(matches!(next(&told), Said::Answer(_)));
    assert!(matches!(next(&told), Said::Closed { .. }));
    drop(other);
    let (_wire, other) = laid(&wires);
    drop(other.stdout);
    assert!(matches!(next(&told), Said::Hung("closed its stdout")));
}

#[test]
fn one_that_does_not_listen_any_more_is_told_of() {
    let (wires, told) = heard();
    let (wire, other) = laid(&wires);
    drop(other.stdin);
    wires.give(&wire, b"line\n".to_vec(), 1000);
    assert!(matches!(next(&told), Said::Hung("closed its stdin")));
}
