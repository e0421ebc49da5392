//! The keeper: the process that owns attempts and outlives the daemon.
