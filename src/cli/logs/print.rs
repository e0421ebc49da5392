//! Two streams on one stdout: each line with the name of its stream, as they come. One stream alone
//! is printed as it is; on a terminal nothing in it is obeyed.

use std::io::{self, IsTerminal, Write};

use serde_json::json;

use super::streams::Stream;
use crate::cli::out;
use crate::cli::style::{Ink, ink, safe};

/// A line without an end is held back no longer than this, where it is told as JSON.
const MOST: usize = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    /// Each line with the name of its stream.
    Named,
    AsItIs,
}

pub struct Printer {
    attempt: u32,
    form: Form,
    is_terminal: bool,
    /// The stream whose line has not ended.
    within: Option<Stream>,
    /// The beginning of such a line, of each stream, where it is told as JSON.
    held: [Vec<u8>; 2],
    has_said: bool,
}

impl Printer {
    pub fn new(streams: &[Stream], attempt: u32, json: bool) -> Self {
        Self {
            attempt,
            form: match streams {
                _ if json => Form::Json,
                [_] => Form::AsItIs,
                _ => Form::Named,
            },
            is_terminal: io::stdout().is_terminal(),
            within: None,
            held: Default::default(),
            has_said: false,
        }
    }

    pub fn print(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        self.print_to(&mut out::lock(), stream, bytes)
    }

    fn print_to(&mut self, out: &mut impl Write, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        self.has_said |= !bytes.is_empty();
        if self.form == Form::Json {
            self.held[stream as usize].extend_from_slice(bytes);
            return self.tell_lines(out, stream, false);
        }
        if self.form == Form::AsItIs {
            return self.write(out, bytes);
        }
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.within.is_some_and(|other| other != stream) {
                out.write_all(b"\n")?;
                self.within = None;
            }
            if self.within.is_none() {
                let name = ink(&format!("{} |", stream.name()), Ink::Dim);
                write!(out, "{name} ")?;
            }
            self.write(out, line)?;
            self.within = (!line.ends_with(b"\n")).then_some(stream);
        }
        Ok(())
    }

    fn write(&self, out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
        if self.is_terminal {
            // A log may hold anything; a terminal should not obey it.
            out.write_all(safe(&String::from_utf8_lossy(bytes), true).as_bytes())
        } else {
            out.write_all(bytes)
        }
    }

    /// Tells the lines that have ended, or all that is there.
    fn tell_lines(&mut self, out: &mut impl Write, stream: Stream, all: bool) -> io::Result<()> {
        let held = &mut self.held[stream as usize];
        let ends = held.iter().rposition(|byte| *byte == b'\n');
        let ready = match ends {
            _ if all || held.len() > MOST => held.len(),
            Some(end) => end + 1,
            None => 0,
        };
        for line in held[..ready].split_inclusive(|byte| *byte == b'\n') {
            let text = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(line));
            let line = json!({"attempt": self.attempt, "stream": stream.name(), "line": text});
            writeln!(out, "{line}")?;
        }
        held.drain(..ready);
        Ok(())
    }

    pub fn end(&mut self) -> io::Result<()> {
        self.end_to(&mut out::lock())
    }

    fn end_to(&mut self, out: &mut impl Write) -> io::Result<()> {
        for stream in [Stream::Stderr, Stream::Stdout] {
            self.tell_lines(out, stream, true)?;
        }
        if self.within.take().is_some() {
            out.write_all(b"\n")?;
        }
        out.flush()
    }

    pub fn said_nothing(&self) -> bool {
        !self.has_said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Stream; 2] = [Stream::Stderr, Stream::Stdout];

    fn printed(streams: &[Stream], json: bool, said: &[(Stream, &str)]) -> String {
        let mut printer = Printer {
            is_terminal: false,
            ..Printer::new(streams, 2, json)
        };
        let mut out = Vec::new();
        for (stream, text) in said {
            printer
                .print_to(&mut out, *stream, text.as_bytes())
                .unwrap();
        }
        printer.end_to(&mut out).unwrap();
        assert_eq!(printer.said_nothing(), said.is_empty());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_line_has_the_name_of_its_stream() {
        let said = [
            (Stream::Stderr, "one\ntw"),
            (Stream::Stderr, "o\n"),
            (Stream::Stdout, "out"),
            (Stream::Stderr, "three\n"),
            (Stream::Stdout, "end"),
        ];
        assert_eq!(
            printed(&BOTH, false, &said),
            "stderr | one\nstderr | two\nstdout | out\nstderr | three\nstdout | end\n"
        );
        assert_eq!(
            printed(&BOTH, true, &said[..3]),
            "{\"attempt\":2,\"stream\":\"stderr\",\"line\":\"one\"}\n\
             {\"attempt\":2,\"stream\":\"stderr\",\"line\":\"two\"}\n\
             {\"attempt\":2,\"stream\":\"stdout\",\"line\":\"out\"}\n"
        );
        assert_eq!(printed(&BOTH, false, &[]), "");
    }

    #[test]
    fn one_stream_is_printed_as_it_is() {
        let said = [(Stream::Stdout, "a\0b\nc")];
        assert_eq!(printed(&[Stream::Stdout], false, &said), "a\0b\nc");
    }
}
