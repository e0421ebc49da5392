//! Recovery, one test for each row of the crash table: files as a crash leaves them, then the
//! real daemon works them off, twice, because recovery must be idempotent.
//!
//! Each module has the rows of one topic.
#![expect(
    clippy::disallowed_methods,
    reason = "the tests play the crash, with bare hands"
)]

mod artifacts;
mod audit;
mod chains;
mod claims;
mod compaction;
mod decisions;
mod foreign;
mod leavings;
mod resident;
mod results;
mod root;
