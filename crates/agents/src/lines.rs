//! Lines of a stream, each with a bound: an agent may write a line of any length.

use std::io::{BufRead, Result};

/// A line, or what is known of one that was too long.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Text(String),
    /// Its length in bytes. Nothing of it was kept.
    TooLong(u64),
}

/// Reads the next line, without its end. `None` at the end of the stream.
pub fn next_line(reader: &mut impl BufRead, most: usize) -> Result<Option<Line>> {
    let mut kept = Vec::new();
    let mut length: u64 = 0;
    loop {
        let chunk = match reader.fill_buf() {
            Ok(chunk) => chunk,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if chunk.is_empty() {
            return Ok((length > 0).then(|| finish(kept, length, most)));
        }
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let part = &chunk[..end.unwrap_or(chunk.len())];
        length += part.len() as u64;
        if length <= most as u64 {
            kept.extend_from_slice(part);
        } else {
            kept = Vec::new();
        }
        let used = part.len() + usize::from(end.is_some());
        reader.consume(used);
        if end.is_some() {
            return Ok(Some(finish(kept, length, most)));
        }
    }
}

fn finish(kept: Vec<u8>, length: u64, most: usize) -> Line {
    if length > most as u64 {
        return Line::TooLong(length);
    }
    let text = String::from_utf8(kept)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Line::Text(text)
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn a_long_line_is_passed_over_and_the_next_one_is_read() {
        let stream = [b"one\n".to_vec(), vec![b'x'; 50], b"\n\ntwo".to_vec()].concat();
        let mut reader = BufReader::with_capacity(7, stream.as_slice());
        let mut lines = Vec::new();
        while let Some(line) = next_line(&mut reader, 10).unwrap() {
            lines.push(line);
        }
        assert_eq!(
            lines,
            [
                Line::Text("one".to_owned()),
                Line::TooLong(50),
                Line::Text(String::new()),
                Line::Text("two".to_owned()),
            ]
        );
    }
}
