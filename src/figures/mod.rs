//! Figures for monitoring: what is counted, how it is written, how it is served.
//!
//! Nothing is counted where the work is done. What happened is read off the audit lines, by the
//! thread that writes them, once for each batch ([`counts`]); how things stand is asked of whoever
//! owns the state when somebody looks ([`families::Figures`]). So the loop takes no lock and keeps
//! no figure that it does not need itself, and the same code makes the same figures from the files
//! when no daemon runs.

pub mod counts;
pub mod families;
pub mod histogram;
pub mod http;
pub mod openmetrics;
