//! Where the daemon's log goes: to the journal with its fields, or to stderr as text.
//!
//! Under systemd stderr is a stream into the journal, which would keep a line of text and lose
//! what is in it. `JOURNAL_STREAM` names that stream by device and inode; where stderr is that very
//! stream, events go to the journal's own socket instead, each value as a field that can be asked
//! for (`handoff_id` becomes `F_HANDOFF_ID`). A terminal, a file, a pipe and `--log-format json` get
//! text.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};

use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::clock::Clock;
use crate::protocol::shown::safe;

/// How log lines look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    #[default]
    Human,
    Json,
}

/// Takes over all events of this process; to be called once.
pub fn init(format: LogFormat) {
    let wanted = std::env::var_os("HANDOFFD_LOG");
    let (filter, complaint) = filter(wanted.as_deref());
    let layer = match journal().filter(|_| format == LogFormat::Human) {
        Some(journal) => journal.boxed(),
        None => to_stderr(format),
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(layer)
        .init();
    if let Some(complaint) = complaint {
        tracing::warn!("{complaint}");
    }
}

/// What is logged, and what is wrong with the wish for it.
fn filter(wanted: Option<&OsStr>) -> (Targets, Option<String>) {
    let as_ever = Targets::new().with_default(tracing::Level::INFO);
    let Some(wanted) = wanted.filter(|wanted| !wanted.is_empty()) else {
        return (as_ever, None);
    };
    // A word that is no level would be taken for a part of the program, and silence the rest.
    let is_meant = |part: &str| part.contains('=') || part.parse::<LevelFilter>().is_ok();
    let understood = wanted.to_str().filter(|it| it.split(',').all(is_meant));
    if let Some(filter) = understood.and_then(|it| it.parse().ok()) {
        return (filter, None);
    }
    let complaint = format!(
        "unknown level HANDOFFD_LOG={}; logging info. Use error, warn, info or debug",
        wanted.display()
    );
    (as_ever, Some(complaint))
}

fn to_stderr<S>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(move || OneLine {
            out: std::io::stderr(),
            format,
        })
        // It would complain on stderr, and panic where that is what can't be written.
        .log_internal_errors(false)
        .with_timer(AsInRecords)
        .with_target(false);
    match format {
        LogFormat::Human => {
            let color = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            layer.with_ansi(color).boxed()
        }
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    }
}

/// Makes one line of each event: text from a request could otherwise begin lines of its own, or reach
/// the terminal as an escape.
struct OneLine<W> {
    out: W,
    format: LogFormat,
}

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        match self.format {
            LogFormat::Human => self.out.write_all(one_line(event).as_bytes())?,
            LogFormat::Json => self.out.write_all(event)?,
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// An event, which ends with a line end, as one line. Colours are the log's own.
fn one_line(event: &[u8]) -> String {
    let text = String::from_utf8_lossy(event);
    let mut rest = text.strip_suffix('\n').unwrap_or(&text);
    let mut line = String::with_capacity(text.len());
    while let Some(at) = rest.find("\u{1b}[") {
        let (before, sequence) = rest.split_at(at);
        let digits = sequence[2..].bytes();
        let length = digits
            .take_while(|it| it.is_ascii_digit() || *it == b';')
            .count();
        let end = 2 + length;
        if sequence.as_bytes().get(end) != Some(&b'm') {
            break;
        }
        line.push_str(&safe(before, false));
        line.push_str(&sequence[..=end]);
        rest = &sequence[end + 1..];
    }
    line.push_str(&safe(rest, false));
    line.push('\n');
    line
}

/// Times as records and the audit log have them, so that they can be held against each other.
struct AsInRecords;

impl FormatTime for AsInRecords {
    fn format_time(&self, w: &mut Writer<'_>) -> std::fmt::Result {
        write!(w, "{}", Clock::System.now().wall)
    }
}

/// The way into the journal, if stderr leads there and it answers.
fn journal() -> Option<tracing_journald::Layer> {
    let stderr = rustix::fs::fstat(std::io::stderr()).ok()?;
    let stream = std::env::var_os("JOURNAL_STREAM")?;
    if !is_stream(&stream, stderr.st_dev, stderr.st_ino) {
        return None;
    }
    let layer = tracing_journald::layer().ok()?;
    Some(
        layer
            .with_syslog_identifier("handoffd".to_owned())
            // The crate's own mapping makes every info a notice, which is more than it is.
            .with_priority_mappings(PriorityMappings {
                info: Priority::Informational,
                debug: Priority::Debug,
                ..PriorityMappings::new()
            }),
    )
}

/// Whether `JOURNAL_STREAM` (`device:inode`) names this file. A process that was given the variable
/// and another stderr is not connected to the journal.
fn is_stream(named: &OsStr, device: u64, inode: u64) -> bool {
    let Some((named_device, named_inode)) = named.to_str().and_then(|it| it.split_once(':')) else {
        return false;
    };
    named_device.parse() == Ok(device) && named_inode.parse() == Ok(inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_that_is_not_understood_is_said_and_changes_nothing() {
        for (wanted, level, understood) in [
            (None, tracing::Level::INFO, true),
            (Some(""), tracing::Level::INFO, true),
            (Some("debug"), tracing::Level::DEBUG, true),
            (Some("warn"), tracing::Level::WARN, true),
            (Some("warn,handoffd=debug"), tracing::Level::DEBUG, true),
            (Some("verbose"), tracing::Level::INFO, false),
            (Some("handoffd=loud"), tracing::Level::INFO, false),
        ] {
            let (filter, complaint) = filter(wanted.map(OsStr::new));
            assert_eq!(complaint.is_none(), understood, "{wanted:?}");
            for at in [
                tracing::Level::WARN,
                tracing::Level::INFO,
                tracing::Level::DEBUG,
            ] {
                let logged = filter.would_enable("handoffd::engine", &at);
                assert_eq!(logged, at <= level, "{wanted:?} at {at}");
            }
        }
    }

    #[test]
    fn an_event_is_one_line_whatever_it_quotes() {
        for (event, line) in [
            ("plain é\n", "plain é\n"),
            ("a\n2026 INFO forged\n", "a\\n2026 INFO forged\n"),
            (
                "\u{1b}[2mdim\u{1b}[0m \u{1b}[2Jx\n",
                "\u{1b}[2mdim\u{1b}[0m \\u{1b}[2Jx\n",
            ),
            ("\u{202e}\u{9b}31m\r\n", "\\u{202e}\\u{9b}31m\\r\n"),
        ] {
            assert_eq!(one_line(event.as_bytes()), line);
        }
    }

    #[test]
    fn only_the_stream_that_is_named_is_the_journal() {
        for (named, is) in [
            ("8:42", true),
            ("8:43", false),
            ("9:42", false),
            ("8", false),
            ("8:42:1", false),
            ("", false),
        ] {
            assert_eq!(is_stream(OsStr::new(named), 8, 42), is, "{named}");
        }
    }
}
