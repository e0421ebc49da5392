//! SHA-256 as text, the way every record and every derived name shows it, with and without a key.

use std::fmt::{self, Write};

use sha2::{Digest, Sha256};

/// The digest of some bytes, in lower-case hex.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// The secret of a root. Nobody without it can tell or make what it signs.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Key([u8; Key::BYTES]);

impl Key {
    pub const BYTES: usize = 32;

    pub fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Signs a list of words. The key is hashed twice, so that nobody can append a word.
    pub fn sign(&self, words: &[&str]) -> String {
        let mut inner = Sha256::new_with_prefix(self.0);
        for word in words {
            inner.update(word.as_bytes());
            inner.update([0]);
        }
        let mut outer = self.0.to_vec();
        outer.extend_from_slice(&inner.finalize());
        sha256(&outer)
    }
}

/// Secrets don't belong into logs.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_depends_on_the_key_and_on_every_word() {
        let (one, two) = (Key::new([1; 32]), Key::new([2; 32]));
        let signed = one.sign(&["x", "y"]);
        assert_eq!(signed, one.sign(&["x", "y"]));
        for other in [
            two.sign(&["x", "y"]),
            one.sign(&["xy"]),
            one.sign(&["x", "y", ""]),
            one.sign(&["y", "x"]),
        ] {
            assert_ne!(signed, other);
        }
        assert_eq!(format!("{one:?}"), "Key(..)");
    }

    #[test]
    fn it_is_the_digest_that_others_print() {
        assert_eq!(
            sha256(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
