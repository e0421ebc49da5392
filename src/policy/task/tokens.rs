//! Counting tokens as models do (`o200k_base`), and not counting where bytes already tell.
//!
//! The table takes a fifth of a second and tens of megabytes to load, so it is loaded by the
//! first text that needs it. A token is one byte at least: text with no more bytes than tokens
//! are allowed needs no table.
//!
//! The table is the crate's own, packed: as text it would be a quarter of the program.

use std::io::Read;
use std::sync::OnceLock;

use flate2::read::ZlibDecoder;
use tiktoken_rs::{CoreBPE, O200K_BASE_PAT_STR};

/// All tokens by rank: how many there are (four bytes, the lowest first), a byte for the length
/// of each, then their bytes.
static PACKED: &[u8] = include_bytes!("o200k.zlib");

/// How many tokens `text` has.
pub fn count(text: &str) -> usize {
    static TABLE: OnceLock<Option<CoreBPE>> = OnceLock::new();
    let table = TABLE.get_or_init(load).as_ref();
    // A test sees to it that the table can be read. Without it, bytes are never too few.
    table.map_or(text.len(), |table| table.count_ordinary(text))
}

/// How many tokens `text` has, as far as it matters: more than `most` is not counted to the end.
///
/// Long text is counted in pieces that end where a word begins, so that no token is split. A run
/// without spaces is split all the same, which counts a token too many now and then: to count it
/// whole would take time that grows with the square of its length.
pub fn up_to(text: &str, most: usize) -> usize {
    let (mut rest, mut total) = (text, 0);
    while !rest.is_empty() && total <= most {
        let (piece, others) = rest.split_at(piece(rest));
        total += count(piece);
        rest = others;
    }
    total
}

const PIECE: usize = 4096;
const SPLIT: usize = 512;

/// How long the next piece of a text is.
fn piece(text: &str) -> usize {
    let bytes = text.as_bytes();
    if bytes.len() <= PIECE {
        return bytes.len();
    }
    let begins = |at: &usize| {
        bytes[*at] == b' '
            && bytes[at - 1].is_ascii_graphic()
            && bytes[at + 1].is_ascii_alphabetic()
    };
    let begin = (SPLIT..PIECE).rev().find(begins);
    begin.unwrap_or_else(|| {
        let mut ends = (1..=SPLIT).rev();
        ends.find(|at| text.is_char_boundary(*at))
            .unwrap_or(bytes.len())
    })
}

fn load() -> Option<CoreBPE> {
    let mut bytes = Vec::new();
    ZlibDecoder::new(PACKED).read_to_end(&mut bytes).ok()?;
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    let number = usize::try_from(u32::from_le_bytes(*number)).ok()?;
    let (lengths, mut rest) = rest.split_at_checked(number)?;
    let mut next = |length: &u8| {
        let (token, others) = rest.split_at_checked(usize::from(*length))?;
        rest = others;
        Some(token.to_vec())
    };
    let tokens: Option<Vec<Vec<u8>>> = lengths.iter().map(&mut next).collect();
    let encoder = tokens?.into_iter().zip(0..).collect();
    CoreBPE::new(encoder, std::iter::empty().collect(), O200K_BASE_PAT_STR).ok()
}

/// Whether `text` has at most `most` tokens.
pub(super) fn fits(text: &str, most: usize) -> bool {
    text.len() <= most || count(text) <= most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_a_byte_at_least() {
        for text in [
            "",
            "a",
            "hello world",
            "日本語",
            "🦀🦀",
            "a\u{0}b",
            "\u{e000}\u{10ffff}",
        ] {
            assert!(count(text) <= text.len(), "{text:?}");
            assert!(fits(text, text.len()));
        }
        assert_eq!(count("hello world"), 2);
        assert!(fits("hello world", 2) && !fits("hello world", 1));
    }

    #[test]
    fn long_text_is_counted_in_pieces_and_no_further_than_it_matters() {
        let prose =
            "The quick brown fox, it's 12345 said, jumps over {\"a\": \"b c\"}\n\n  again. ";
        let prose = prose.repeat(500);
        assert_eq!(up_to(&prose, usize::MAX), count(&prose));
        let solid = "xY9".repeat(30_000);
        let whole = up_to(&solid, usize::MAX);
        assert!(whole >= solid.len() / 16 && whole <= solid.len());
        let some = up_to(&"日本語".repeat(100_000), 10);
        assert!(some > 10 && some < 1000, "{some}");
    }

    /// After an update of the crate: `PACK_TOKENS=1 cargo test --lib the_packed_table`.
    #[test]
    fn the_packed_table_is_the_crates_own() {
        let crates = tiktoken_rs::o200k_base_singleton();
        let tokens: Vec<Vec<u8>> = (0..)
            .map_while(|rank| crates.decode_bytes(&[rank]).ok())
            .collect();
        let mut bytes = u32::try_from(tokens.len()).unwrap().to_le_bytes().to_vec();
        bytes.extend(
            tokens
                .iter()
                .map(|token| u8::try_from(token.len()).unwrap()),
        );
        bytes.extend(tokens.concat());
        if std::env::var_os("PACK_TOKENS").is_some() {
            use std::io::Write;
            let best = flate2::Compression::best();
            let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), best);
            packer.write_all(&bytes).unwrap();
            let at = concat!(env!("CARGO_MANIFEST_DIR"), "/src/policy/task/o200k.zlib");
            std::fs::write(at, packer.finish().unwrap()).unwrap();
        }
        let mut packed = Vec::new();
        ZlibDecoder::new(PACKED).read_to_end(&mut packed).unwrap();
        assert!(tokens.len() > 190_000);
        assert!(packed == bytes, "it is another");
    }
}
