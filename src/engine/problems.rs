//! What is wrong for now, as `status` shows it: named by a key, and gone when it is over.

use super::Engine;

impl Engine {
    pub(super) fn problem(&mut self, key: &str, text: Option<String>) {
        match text {
            Some(text) if self.problems.get(key) != Some(&text) => {
                tracing::warn!("{text}");
                self.known_problem(key, text);
            }
            None if self.problems.remove(key).is_some() => self.publish(),
            _ => {}
        }
    }

    /// One that the log has already.
    pub(super) fn known_problem(&mut self, key: &str, text: String) {
        self.problems.insert(key.to_owned(), text);
        self.publish();
    }

    pub(super) fn on_trouble(&mut self, trouble: Option<String>) {
        let text = trouble.as_ref().map(|trouble| {
            format!("can't write to disk ({trouble}): no new attempts until that is fixed")
        });
        self.trouble = trouble;
        if self.trouble.is_some() {
            self.ask_back();
        }
        self.problem("disk", text);
    }
}
