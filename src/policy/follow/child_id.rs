//! The ids of handoffs that the daemon makes.

use crate::clock::Wall;
use crate::protocol::digest::sha256;

/// The longest id of the first handoff that its followers carry whole.
const MAX_CHAIN: usize = 150;

/// An id that the same outcome gives again, so that a crash can't make two of one. A parent's id
/// is free when its record is deleted, and its attempts are counted anew, so when the attempt began
/// is part of it: what follows today is not what followed then.
pub(super) fn child_id(
    chain: &str,
    hop: u32,
    parent: &str,
    (attempt, begun): (u32, Wall),
    index: usize,
) -> String {
    let chain: String = chain.chars().take(MAX_CHAIN).collect();
    let made_from = format!("{parent}\0{attempt}\0{begun}\0{index}");
    let hash = &sha256(made_from.as_bytes())[..8];
    format!("{}.{hop}-{hash}", chain.replace('~', "-"))
}
