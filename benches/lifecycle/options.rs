//! What is to be measured, how often and how large.

use std::io;
use std::path::PathBuf;

#[derive(Debug)]
pub struct Options {
    /// Sections by name; none is all of them.
    pub wanted: Vec<String>,
    /// Where the document and its charts go.
    pub write: Option<PathBuf>,
    pub rounds: usize,
    /// Handoffs in a round.
    pub count: usize,
    /// Pick-ups that are timed.
    pub drops: usize,
    /// The largest backlog and history.
    pub up_to: usize,
    pub records: usize,
    pub idle_seconds: u64,
}

impl Options {
    /// Reads the command line; what it does not know is an error that says so.
    pub fn read(args: &[String]) -> io::Result<Self> {
        let is_quick = args.iter().any(|arg| arg == "--quick");
        let pick = |usual, quick| if is_quick { quick } else { usual };
        let mut options = Self {
            wanted: Vec::new(),
            write: None,
            rounds: pick(5, 2),
            count: pick(1_000, 200),
            drops: pick(300, 40),
            up_to: pick(100_000, 2_000),
            records: pick(10_000, 500),
            idle_seconds: if is_quick { 3 } else { 60 },
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| wrong(arg, "needs a value"));
            match arg.as_str() {
                // The former is cargo's own.
                "--bench" | "--quick" | "all" => {}
                "--write" => options.write = Some(value()?.into()),
                "--up-to" => options.up_to = count(arg, value()?)?,
                "--rounds" => options.rounds = count(arg, value()?)?.max(1),
                "--count" => options.count = count(arg, value()?)?.max(10),
                "--idle" => options.idle_seconds = count(arg, value()?)? as u64,
                _ if arg.starts_with('-') => return Err(wrong(arg, "is no option here")),
                name => options.wanted.push(name.to_owned()),
            }
        }
        Ok(options)
    }

    /// Powers of ten from a thousand to the largest that is asked for.
    pub fn sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<usize> = (3..=7)
            .map(|power| 10_usize.pow(power))
            .take_while(|size| *size <= self.up_to)
            .collect();
        if sizes.last().is_some_and(|last| *last < self.up_to) {
            sizes.push(self.up_to);
        }
        sizes
    }
}

fn count(option: &str, text: &str) -> io::Result<usize> {
    text.replace(['_', ','], "")
        .parse()
        .map_err(|_| wrong(option, "needs a number"))
}

fn wrong(what: &str, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{what}: {why}"))
}
