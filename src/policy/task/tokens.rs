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
