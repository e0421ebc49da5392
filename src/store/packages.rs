//! Ended handoffs as packages, by chain: `audit/sessions/<chain>/handoffs/<id>.yaml`.
//!
//! For people and archives; nothing reads them back. A package is replaced whole, so that one
//! that is written again after a crash, or after a retry, is simply the newer one.

use std::path::Path;

use crate::durable::Durability;
use crate::protocol::id::HandoffId;
use crate::store::artifacts::beneath::Beneath;
use crate::store::artifacts::{RelPath, WriteError, write};

/// The packages below one audit folder.
pub struct Packages {
    beneath: Beneath,
    durability: Durability,
}

impl Packages {
    pub fn new(audit: &Path, durability: Durability) -> Self {
        Self {
            beneath: Beneath::new(audit),
            durability,
        }
    }

    /// Writes one. Both names are ids, and no link below the audit folder is followed.
    pub fn keep(&self, chain: &HandoffId, id: &HandoffId, yaml: &str) -> Result<(), WriteError> {
        let path = RelPath::parse(&path(chain, id)).map_err(WriteError::Refused)?;
        write::place(&self.beneath, self.durability, &path, yaml.as_bytes(), true)?;
        Ok(())
    }
}

/// Where a package stands, below the audit folder.
pub fn path(chain: &HandoffId, id: &HandoffId) -> String {
    format!("sessions/{chain}/handoffs/{id}.yaml")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn id(text: &str) -> HandoffId {
        HandoffId::parse_made(text).unwrap()
    }

    #[test]
    fn a_package_is_written_by_chain_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let packages = Packages::new(dir.path(), Durability::Relaxed);
        packages.keep(&id("c"), &id("c.1-0a"), "one: 1\n").unwrap();
        packages.keep(&id("c"), &id("c.1-0a"), "two: 2\n").unwrap();
        let folder = dir.path().join("sessions/c/handoffs");
        let text = fs::read_to_string(folder.join("c.1-0a.yaml")).unwrap();
        assert_eq!(text, "two: 2\n");
        assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "nothing else");
    }

    #[test]
    fn no_link_leads_it_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let away = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sessions")).unwrap();
        std::os::unix::fs::symlink(away.path(), dir.path().join("sessions/c")).unwrap();
        let packages = Packages::new(dir.path(), Durability::Relaxed);
        assert!(packages.keep(&id("c"), &id("x"), "").is_err());
        assert_eq!(fs::read_dir(away.path()).unwrap().count(), 0);
    }
}
