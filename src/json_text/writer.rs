//! The buffer that JSON text is written to: strings, numbers, indentation.

/// The text so far.
pub(super) struct Writer {
    pub out: Vec<u8>,
    pub indents: bool,
    pub depth: usize,
}

const BLANKS: [u8; 64] = [b' '; 64];

impl Writer {
    pub fn raw(&mut self, text: &[u8]) {
        self.out.extend_from_slice(text);
    }

    pub fn new_line(&mut self) {
        self.out.push(b'\n');
        let mut left = self.depth * 2;
        while left > 0 {
            let some = left.min(BLANKS.len());
            self.out.extend_from_slice(&BLANKS[..some]);
            left -= some;
        }
    }

    pub fn text(&mut self, text: &str) {
        let bytes = text.as_bytes();
        self.out.reserve(bytes.len() + 2);
        self.out.push(b'"');
        let mut from = 0;
        while let Some(at) = special(&bytes[from..]).map(|at| from + at) {
            self.out.extend_from_slice(&bytes[from..at]);
            self.escape(bytes[at]);
            from = at + 1;
        }
        self.out.extend_from_slice(&bytes[from..]);
        self.out.push(b'"');
    }

    fn escape(&mut self, byte: u8) {
        const DIGITS: [u8; 16] = *b"0123456789abcdef";
        let short = match byte {
            b'"' => b'"',
            b'\\' => b'\\',
            0x08 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            0x0c => b'f',
            b'\r' => b'r',
            _ => {
                let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
                return self.raw(&[b'\\', b'u', b'0', b'0', DIGITS[high], DIGITS[low]]);
            }
        };
        self.raw(&[b'\\', short]);
    }

    pub fn unsigned(&mut self, mut value: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + u8::try_from(value % 10).unwrap_or(0);
            value /= 10;
            if value == 0 {
                break;
            }
        }
        self.raw(&digits[at..]);
    }
}

/// Where the first byte stands that can't be written as it is: a quote, a backslash, a control
/// character. Eight bytes are looked at together.
fn special(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let has_zero = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
    let is_special = |byte: &u8| matches!(byte, 0..0x20 | b'"' | b'\\');
    let mut at = 0;
    while let Some(chunk) = bytes.get(at..at + 8) {
        let word = u64::from_le_bytes(chunk.try_into().unwrap_or_default());
        let control = word.wrapping_sub(ONES * 0x20) & !word & HIGH;
        let quote = has_zero(word ^ (ONES * 0x22));
        let slash = has_zero(word ^ (ONES * 0x5c));
        if control | quote | slash != 0 {
            // A borrow may have carried into a neighbour: which byte it was is looked up.
            if let Some(found) = chunk.iter().position(is_special) {
                return Some(at + found);
            }
        }
        at += 8;
    }
    let rest = bytes[at..].iter().position(is_special);
    rest.map(|found| at + found)
}
