//! Pieces of a stream in, whole lines out.

/// What has been read and is not a whole line yet.
#[derive(Debug, Default)]
pub struct Lines {
    bytes: Vec<u8>,
    /// How much of it was looked through for a line's end.
    looked: usize,
}

impl Lines {
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// The next whole line, without its end.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let found = self.bytes[self.looked..]
            .iter()
            .position(|byte| *byte == b'\n');
        let Some(found) = found else {
            self.looked = self.bytes.len();
            return None;
        };
        let rest = self.bytes.split_off(self.looked + found + 1);
        let mut line = std::mem::replace(&mut self.bytes, rest);
        line.pop();
        self.looked = 0;
        Some(line)
    }

    /// How long the line is that has not ended yet.
    pub fn unfinished(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_in_any_pieces() {
        let text = b"one\n\ntwo and more\nthe rest";
        for size in 1..=text.len() {
            let (mut lines, mut got) = (Lines::default(), Vec::new());
            for piece in text.chunks(size) {
                lines.push(piece);
                while let Some(line) = lines.take() {
                    got.push(String::from_utf8(line).unwrap());
                }
            }
            assert_eq!(got, ["one", "", "two and more"], "in pieces of {size}");
            assert_eq!(lines.unfinished(), "the rest".len());
        }
    }
}
