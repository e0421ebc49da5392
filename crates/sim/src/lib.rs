//! A simulator for handoffd: the product's own code on a file system in memory.
//!
//! Everything is drawn from one seed ([`dice`]), so that a history that went wrong can be told again. [`memory`] is
//! the file system: it can be killed, cut off from power, filled up and broken at any call.

pub mod dice;
pub mod memory;
