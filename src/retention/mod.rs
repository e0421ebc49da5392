//! What becomes of handoffs that ended long ago: deleted, or packed into the archive.
//!
//! The command line and the daemon do the same here, in the same steps; they differ in who waits
//! for it. Nothing is listed as a whole and nothing is held for long, so a folder of a million
//! files is worked off beside the load.

pub mod leave;
pub mod pack;
pub mod sessions;
pub mod spared;
pub mod sweep;
pub mod trees;
