//! What a specialist is held to: `umask`, `user`, `rlimits`, `sandbox`.
//!
//! Whether the user exists and the paths are there is asked when the daemon starts and when an
//! attempt does; here is only what can be told from the text.

use std::path::PathBuf;
use std::time::Duration;

use super::reader::Section;
use super::types::{Rlimits, Sandbox, Specialist, UserName};
use super::value::{LONGEST, Value};

const UMASK_HINT: &str = r#"use octal digits in quotes like "027""#;
const USER_HINT: &str = r#"use a user like "builder", or a user and a group like "builder:www""#;

/// More descriptors or processes than any kernel gives.
pub(super) const MOST: u64 = 1 << 30;

pub(super) fn read(s: &Section<'_>, it: &mut Specialist) {
    s.set_some("umask", &mut it.umask, umask);
    s.set_some("user", &mut it.user, user);
    s.section("rlimits", |s| rlimits(s, &mut it.rlimits));
    s.set_some("sandbox", &mut it.sandbox, |v| v.table(sandbox));
}

fn umask(value: &Value<'_>) -> Option<u32> {
    let text = value.text()?;
    let octal = matches!(text.len(), 3..=4) && text.bytes().all(|b| matches!(b, b'0'..=b'7'));
    u32::from_str_radix(&text, 8)
        .ok()
        .filter(|umask| octal && *umask <= 0o777)
        .or_else(|| value.refuse(UMASK_HINT))
}

fn user(value: &Value<'_>) -> Option<UserName> {
    let text = value.nonempty()?;
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text.as_str(), None),
    };
    let is_name = |name: &str| !name.is_empty() && !name.contains([':', '\n', '/']);
    if !is_name(user) || !group.is_none_or(is_name) {
        return value.refuse(USER_HINT);
    }
    Some(UserName {
        user: user.to_owned(),
        group: group.map(ToOwned::to_owned),
    })
}

fn rlimits(s: &Section<'_>, limits: &mut Rlimits) {
    s.set_some("nofile", &mut limits.nofile, |v| v.integer(4..=MOST));
    s.set_some("nproc", &mut limits.nproc, |v| v.integer(1..=MOST));
    s.set_some("as", &mut limits.address_space, Value::size);
    s.set_some("cpu", &mut limits.cpu, |v| {
        v.duration(Duration::from_secs(1)..=LONGEST)
    });
    s.set_some("fsize", &mut limits.fsize, Value::size);
    s.set_some("core", &mut limits.core, |v| v.integer(0..=MOST));
}

fn sandbox(s: &Section<'_>) -> Sandbox {
    let mut it = Sandbox::default();
    let paths = |value: &Value<'_>| -> Option<Vec<PathBuf>> {
        Some(value.words()?.into_iter().map(Into::into).collect())
    };
    s.set("read", &mut it.read, paths);
    s.set("write", &mut it.write, paths);
    s.set("best_effort", &mut it.best_effort, Value::boolean);
    it
}
