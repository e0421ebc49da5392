//! Sweeping: what a start deletes of what ended attempts left in `.handoffd/run/` and
//! `.handoffd/homes/`.
//!
//! It is swept when all handoffs are known that were under way, and before any attempt starts. What
//! belongs to one of those stays.

use std::fs;

use crate::engine::Engine;
use crate::engine::attempt::resident_key;
use crate::keeper::wire::VERIFY;
use crate::spool::scan;

impl Engine {
    /// Deletes what ended attempts left in `run/`; an attempt that is still to be judged keeps its own.
    pub(super) fn sweep_run(&self) {
        let run = self.world.layout.run();
        let rubbish = &self.world.rubbish;
        let mut slots = Vec::new();
        let swept = scan::names(run, |name| {
            let path = run.join(&name);
            if rubbish.take_over(&path) {
                return;
            }
            let name = name.to_string_lossy();
            if name.starts_with("slot-") {
                slots.push(name.into_owned());
                return;
            }
            // Whatever still writes to one of these is not of this daemon.
            if name.starts_with("resident-") && name.ends_with(".err") {
                let _ = fs::remove_file(&path);
            }
            let stem = name
                .strip_suffix(".result")
                .or_else(|| name.strip_suffix(".beat"))
                .or_else(|| name.strip_suffix(".stdin"))
                .or_else(|| name.strip_suffix(".report"));
            if let Some((id, _)) = stem.and_then(attempt_of)
                && !self.running.contains_key(id)
                && !self.busy.contains(id)
            {
                match fs::symlink_metadata(&path) {
                    Ok(metadata) if metadata.is_dir() => rubbish.discard(&path),
                    _ => drop(fs::remove_file(&path)),
                }
            }
        });
        self.world.slots.sweep(slots.iter().map(String::as_str));
        if let Err(error) = swept {
            tracing::warn!("{}: {error}", run.display());
        }
    }

    /// Deletes the folders of attempts that are over.
    pub(super) fn sweep_homes(&self) {
        let homes = self.world.layout.homes();
        let mut found = Vec::new();
        match scan::names(&homes, |name| found.push(homes.join(name))) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!("{}: {error}", homes.display());
            }
            _ => {}
        }
        for home in found {
            let name = home.file_name().unwrap_or_default().to_string_lossy();
            if !self.world.rubbish.take_over(&home) && !self.is_lived_in(&name) {
                self.world.rubbish.discard(&home);
            }
        }
    }

    /// Whether the attempt that a folder in `homes/` belongs to may still run, or is being judged.
    fn is_lived_in(&self, name: &str) -> bool {
        let Some((id, attempt)) = attempt_of(name) else {
            return false;
        };
        let of_running = self
            .running
            .get(id)
            .is_some_and(|it| it.key.attempt == attempt);
        let of_resident =
            self.crew.members.contains_key(&attempt) && id == resident_key(attempt).id;
        of_running || of_resident || self.busy.contains(id)
    }
}

/// The handoff and the attempt that a name without its extension is about.
fn attempt_of(name: &str) -> Option<(&str, u32)> {
    let (id, attempt) = name.rsplit_once('.')?;
    let id = id.strip_suffix(VERIFY).unwrap_or(id);
    Some((id, attempt.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_whose_it_is() {
        assert_eq!(attempt_of("a.b.12"), Some(("a.b", 12)));
        assert_eq!(attempt_of("x~verify.3"), Some(("x", 3)));
        assert_eq!(attempt_of("x~2.3"), Some(("x~2", 3)));
        for name in ["x", "x.", "x.y", ".gone-1-2"] {
            assert_eq!(attempt_of(name), None, "{name}");
        }
    }
}
