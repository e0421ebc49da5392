//! The daemon from outside: real processes, real folders, and only what the contract promises.
//!
//! Each module is one topic. Specialists are `tests/fixtures/fake.sh`, which does what the
//! request tells it to. Nothing here measures time; a minute's wait is what a hang looks like.

#![expect(
    clippy::disallowed_methods,
    reason = "these tests play producers, who rename, link and read clocks as they like"
)]

#[allow(
    dead_code,
    unused_imports,
    reason = "every kind of test uses its own part of it"
)]
#[path = "../common/mod.rs"]
mod common;

#[path = "../common/pty.rs"]
#[expect(dead_code, reason = "some of it is for other tests")]
mod pty;

mod acting;
mod advice;
mod ahead;
mod approvals;
mod archive;
mod artifacts;
mod attempts;
mod boards;
mod bounds;
mod carried;
mod chain_storm;
mod chains;
mod coming_from;
mod commands;
mod compaction;
mod confined;
mod control;
mod crashes;
mod deep;
mod dialects;
mod documents;
mod forged;
mod giving_back;
mod helping;
mod intake;
mod large_artifacts;
mod last_result;
mod leavings;
mod letter;
mod lifecycle;
mod logs;
mod looking;
mod meddled_log;
mod meddling;
mod mistakes;
mod notify;
mod outputs;
mod own_user;
mod people;
mod receiving;
mod report_files;
mod reported;
mod reports;
mod resident;
mod results;
mod retention;
mod retries;
mod rights;
mod running;
mod scheduling;
mod schemas;
mod secrets;
mod seeing;
mod sharing;
mod shortage;
mod storm;
mod strangers;
mod tasks;
mod texts;
mod verifying;
mod writers;
