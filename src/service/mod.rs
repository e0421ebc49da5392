//! The daemon as a service: what its manager is told, where its log goes, the units it is run by.
//!
//! Everything here does nothing where no service manager is: the same binary runs in a terminal,
//! in a container and under systemd, and notices by its environment.

pub mod logs;
pub mod notify;
pub mod profile;
pub mod units;
