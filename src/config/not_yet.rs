//! Settings that are read and checked, but that nothing acts on in this version.
//!
//! The whole documented configuration is accepted from the start, so that a file written for a
//! later version is not refused. The price is that a check could be believed in which never
//! runs; hence these sentences, which the daemon logs when it starts. A change that brings a
//! feature takes its line out here.

use super::types::Config;

impl Config {
    /// One sentence for every setting that is present without effect.
    pub fn not_yet(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |present: bool, key: &str, what: &str| {
            if present {
                notes.push(format!(
                    "{key} is set, but this version does not {what} yet"
                ));
            }
        };
        for (age, key) in [
            (self.retention.completed, "retention.completed"),
            (self.retention.failed, "retention.failed"),
            (self.retention.logs, "retention.logs"),
        ] {
            note(age.is_some(), key, "remove anything by age");
        }
        notes
    }
}
