//! `handoffd logs`: what an attempt wrote to stdout and stderr, also while it runs, before it runs,
//! and where it ended while no daemon ran.
//!
//! Where each stream stands is known in [`streams`]; how both are told apart, in [`print`].

mod print;
mod streams;

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;

use crate::cli::{Failed, Global, Outcome, complete, find, out, wait, wake};
use crate::engine::attempt::verify_key;
use crate::inspect::summary::Place;
use crate::keeper::wire::Key;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;
use crate::spool::layout::Layout;
use crate::store::archive::packed::Packed;

use print::Printer;
use streams::{Reader, Step, Stream, recorded_stdout};

/// How often a stream is read while it is followed.
const LOOK: Duration = Duration::from_millis(200);
/// Looked at even if no event came: a folder may be on a file system that sends none.
const LOOK_ANYWAY: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Both streams are printed with their name before each line; one alone as it is.\n\n\
                  Examples:\n  handoffd logs build-7 -f            # also before it has begun\n  \
                  handoffd logs build-7 --stderr > build.log\n  handoffd logs build-7 --attempt 1 --verify"
)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own"
)]
pub struct Options {
    #[arg(value_name = "ID", add = complete::ids())]
    id: String,
    /// The attempt [default: the last one]
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
    /// Follow the log until the attempt ends; one that has not begun is waited for
    #[arg(short = 'f', long)]
    follow: bool,
    /// Only what it wrote to stdout
    #[arg(long)]
    stdout: bool,
    /// Only what it wrote to stderr
    #[arg(long)]
    stderr: bool,
    /// The log of the verify command that looked at the attempt's work
    #[arg(long)]
    verify: bool,
}

impl Options {
    /// The streams to print, in order: what it said on its way comes before what it gave back.
    fn streams(&self) -> Vec<Stream> {
        let both = self.stdout == self.stderr;
        let wanted = [
            (Stream::Stderr, both || self.stderr),
            (Stream::Stdout, both || self.stdout),
        ];
        let wanted = wanted.into_iter().filter(|(_, wanted)| *wanted);
        wanted.map(|(stream, _)| stream).collect()
    }
}

pub fn logs(global: &Global, options: &Options) -> Outcome {
    let layout = global.existing_layout()?;
    let place = find(&layout, &options.id)?;
    // From here on with the whole id: the beginning of one may have been given.
    let options = &Options {
        id: place.id.clone(),
        ..options.clone()
    };
    let Some((place, number)) = begun(&layout, options, place)? else {
        out::talk!("{} has no attempt yet", options.id);
        return Ok(0);
    };
    let record = place.read().and_then(|(_, record)| record);
    let key = Key::new(&options.id, number);
    let key = if options.verify {
        verify_key(&key)
    } else {
        key
    };
    let streams = options.streams();
    let mut printer = Printer::new(&streams, number, global.json);
    let last = match &place.packed {
        Some(packed) => {
            print_packed(packed, &key, record.as_ref(), &streams, &mut printer)?;
            Step::Over
        }
        None => follow(&layout, options, &key, &streams, &mut printer)?,
    };
    printer.end()?;
    if printer.said_nothing() {
        say_why(options, number, last)?;
    }
    Ok(0)
}

/// The handoff and the number of the attempt that is wanted, which may have to be waited for. None
/// if there is no attempt.
fn begun(
    layout: &Layout,
    options: &Options,
    mut place: Place,
) -> Result<Option<(Place, u32)>, Failed> {
    let id = &options.id;
    let mut waits = None;
    loop {
        let record = place.read().and_then(|(_, record)| record);
        let attempts = record.map_or_else(Vec::new, |record| record.meta.attempts);
        let last = attempts.last().map(|attempt| attempt.number);
        let is_beyond = options.attempt.is_some_and(|wanted| Some(wanted) > last);
        let is_over = place.state.is_final() || place.packed.is_some();
        match options.attempt.or(last) {
            Some(0) => return Err(unknown(id, 0)),
            // What has ended or is packed has all of its attempts in its record.
            Some(number) if is_beyond && is_over => return Err(unknown(id, number)),
            Some(number) if !is_beyond || !options.follow => return Ok(Some((place, number))),
            None if is_over || !options.follow => return Ok(None),
            _ => {}
        }
        if waits.is_none() {
            let which = options.attempt.map_or_else(
                || format!("{id} has not begun"),
                |number| format!("attempt {number} of {id} has not begun"),
            );
            out::talk!("{which}; waiting for it. To see why: handoffd explain {id}");
            wait::tell_if_idle(layout);
            let folders = State::ALL.map(|state| layout.state(state).to_owned());
            waits = Some(wake::on_changes(&folders)?);
        }
        if let Some((_, told)) = &waits {
            let _ = told.recv_timeout(LOOK_ANYWAY);
            while told.try_recv().is_ok() {}
        }
        place = find(layout, id)?;
    }
}

fn unknown(id: &str, number: u32) -> Failed {
    let text = format!("{id} has no attempt {number}; to see its attempts: handoffd show {id}");
    Failed::thing("UNKNOWN_ATTEMPT", anyhow::anyhow!(text))
}

/// Prints what is there, and what comes if that is wanted.
fn follow(
    layout: &Layout,
    options: &Options,
    key: &Key,
    streams: &[Stream],
    printer: &mut Printer,
) -> Result<Step, Failed> {
    let of = |stream: &Stream| Reader::new(layout, &options.id, key.clone(), *stream);
    let mut readers: Vec<Reader<'_>> = streams.iter().map(of).collect();
    loop {
        let mut last = Step::Over;
        for reader in &mut readers {
            let step = reader.step(|stream, bytes| printer.print(stream, bytes))?;
            last = last.max(step);
        }
        out::lock().flush()?;
        if !options.follow || last == Step::Over {
            return Ok(last);
        }
        std::thread::sleep(LOOK);
    }
}

fn print_packed(
    packed: &Packed,
    key: &Key,
    record: Option<&Record>,
    streams: &[Stream],
    printer: &mut Printer,
) -> io::Result<()> {
    for stream in streams {
        let name = format!("{}.{}.{}", key.id, key.attempt, stream.kept_as());
        let kept = packed.files.iter().find(|(it, _)| *it == name);
        if let Some((_, bytes)) = kept {
            printer.print(*stream, bytes)?;
        } else if *stream == Stream::Stdout
            && key.id == packed.id
            && let Some(bytes) = record.and_then(|record| recorded_stdout(record, key.attempt))
        {
            printer.print(*stream, &bytes)?;
        }
    }
    Ok(())
}

/// Why nothing was printed.
fn say_why(options: &Options, number: u32, last: Step) -> Result<(), Failed> {
    let id = &options.id;
    let whose = if options.verify {
        format!("the verify command of attempt {number}")
    } else {
        format!("attempt {number}")
    };
    let what = match (options.stdout, options.stderr) {
        (true, false) => "to stdout",
        (false, true) => "to stderr",
        _ => "to stdout or stderr",
    };
    match last {
        Step::Over if options.verify => {
            out::talk!("{whose} of {id} wrote nothing {what}, or there was none");
        }
        Step::Over => out::talk!("{whose} of {id} wrote nothing {what}"),
        Step::Runs => out::talk!("{whose} of {id} has written nothing {what} yet"),
        Step::Unknown if options.attempt.is_some() && !options.verify => {
            return Err(unknown(id, number));
        }
        Step::Unknown => out::talk!(
            "{whose} of {id} has no log yet (a resident specialist's log appears with its answer)"
        ),
    }
    Ok(())
}
