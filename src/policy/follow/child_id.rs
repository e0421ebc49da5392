//! The ids of handoffs that the daemon makes.

use crate::clock::Wall;
use crate::protocol::digest::Key;

/// The longest id of the first handoff that its followers carry whole.
const MAX_CHAIN: usize = 150;

/// An id that the same outcome gives again, so that a crash can't make two of one, and that nobody
/// can guess who does not know the root's key. A parent's id is free when its record is deleted, and
/// its attempts are counted anew, so when the attempt began is part of it: what follows today is
/// not what followed then.
pub(super) fn child_id(
    key: &Key,
    (chain, hop): (&str, u32),
    parent: &str,
    (attempt, begun): (u32, Wall),
    index: usize,
) -> String {
    let chain: String = chain.chars().take(MAX_CHAIN).collect();
    let (attempt, index) = (attempt.to_string(), index.to_string());
    let hash = key.sign(&["child", parent, &attempt, &begun.to_string(), &index]);
    format!("{}.{hop}-{}", chain.replace('~', "-"), &hash[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_the_same_for_the_same_outcome_and_key_only() {
        let key = Key::new([7; Key::BYTES]);
        let id = |key: &Key, attempt, at, index| {
            child_id(key, ("x~2", 1), "x~2", (attempt, Wall(at)), index)
        };
        let one = id(&key, 1, 5, 0);
        assert_eq!(one, id(&key, 1, 5, 0));
        assert!(one.starts_with("x-2.1-") && one.len() == "x-2.1-".len() + 8);
        for other in [
            id(&Key::default(), 1, 5, 0),
            id(&key, 2, 5, 0),
            id(&key, 1, 6, 0),
            id(&key, 1, 5, 1),
        ] {
            assert_ne!(one, other);
        }
    }
}
