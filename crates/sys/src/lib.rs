//! The doors of handoffd to the operating system.
//!
//! - [`fs`] is the door to files: the trait [`fs::Fs`], and [`fs::Disk`], which is the disk itself. A simulator
//!   puts a file system in memory behind the same trait.

pub mod fs;
