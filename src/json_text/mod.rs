//! JSON text, as `serde_json` would write it, only sooner.
//!
//! Every handoff is written twice as a record and twice as a line of the log, and piece by piece
//! through a formatter that was most of the daemon's own work. Here text goes straight into one
//! buffer, and what needs no escape is copied whole.

mod serializer;
mod writer;

use serde::Serialize;

pub use serializer::Error;
use writer::Writer;

/// The text indented by two, so that `cat` is enough to read it.
pub fn indented(value: &impl Serialize) -> Result<Vec<u8>, Error> {
    let mut writer = Writer {
        out: Vec::with_capacity(4096),
        indents: true,
        depth: 0,
    };
    value.serialize(&mut writer)?;
    Ok(writer.out)
}

/// Adds the text on one line, without a blank, to what is in `bytes`; nothing if it can't be
/// written.
pub fn append(bytes: &mut Vec<u8>, value: &impl Serialize) -> Result<(), Error> {
    let start = bytes.len();
    let mut writer = Writer {
        out: std::mem::take(bytes),
        indents: false,
        depth: 0,
    };
    let written = value.serialize(&mut writer);
    *bytes = writer.out;
    written.inspect_err(|_| bytes.truncate(start))
}

#[cfg(test)]
mod tests;
