//! Watching: hints that a folder may have changed.
