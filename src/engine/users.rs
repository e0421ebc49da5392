//! Users and groups of the system, by name.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::config::UserName;

/// Who an attempt runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub home: OsString,
    pub shell: OsString,
    /// It is who the daemon is: nothing has to change.
    pub is_own: bool,
}

/// More than any entry takes that a name service gives.
const BUFFER: usize = 1 << 16;
const MOST_GROUPS: usize = 1 << 12;

/// Looks a user up; why it can't be had, in words.
pub fn account(name: &UserName) -> Result<Account, String> {
    let text = |name: &str| CString::new(name).map_err(|_| format!("{name:?} is not a valid name"));
    let user = text(&name.user)?;
    let mut account = passwd(&user).ok_or_else(|| format!("no user {:?} exists", name.user))?;
    if let Some(group) = &name.group {
        account.gid =
            group_id(&text(group)?).ok_or_else(|| format!("no group {group:?} exists"))?;
    }
    account.groups = groups(&user, account.gid);
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    account.is_own = (uid.as_raw(), gid.as_raw()) == (account.uid, account.gid);
    if account.is_own {
        return Ok(account);
    }
    if !uid.is_root() {
        return Err(
            "only a daemon that runs as root can start attempts as another user".to_owned(),
        );
    }
    match missing() {
        None => Ok(account),
        Some(what) => Err(format!(
            "this daemon is root, but {what}; under systemd, make the unit again: \
             handoffd service systemd"
        )),
    }
}

/// What starting an attempt as another user takes, and looking after what it leaves.
const CAPABILITIES: [(&str, u32); 5] = [
    ("CAP_CHOWN", 0),
    ("CAP_DAC_OVERRIDE", 1),
    ("CAP_KILL", 5),
    ("CAP_SETGID", 6),
    ("CAP_SETUID", 7),
];

/// What keeps a daemon that is root from using other users.
fn missing() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mut lines = status.lines();
    let held = lines.find_map(|line| line.strip_prefix("CapEff:"))?.trim();
    let held = u64::from_str_radix(held, 16).ok()?;
    let missing: Vec<&str> = CAPABILITIES
        .iter()
        .filter(|(_, bit)| held & (1 << bit) == 0)
        .map(|(name, _)| *name)
        .collect();
    if !missing.is_empty() {
        return Some(format!("it lacks {}", missing.join(", ")));
    }
    // Changes nothing, and is refused by a filter of system calls all the same.
    let same = libc::uid_t::MAX;
    // SAFETY: -1 for each id means that it stays as it is.
    let allowed = unsafe { libc::syscall(libc::SYS_setresuid, same, same, same) } == 0;
    (!allowed).then(|| "a system call filter keeps it from changing its user".to_owned())
}

/// A user as people know it.
pub fn name(uid: u32) -> String {
    let people = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = people.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| format!("uid {uid}"))
}

fn owned(text: *const libc::c_char) -> OsString {
    if text.is_null() {
        return OsString::new();
    }
    // SAFETY: a string of the C library's, in a buffer that the caller still holds.
    OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes()).to_owned()
}

fn passwd(name: &CStr) -> Option<Account> {
    let mut buffer = vec![0; BUFFER];
    let mut found = std::ptr::null_mut();
    // SAFETY: all that is written to is ours, and what comes back points into the buffer.
    unsafe {
        let mut entry: libc::passwd = std::mem::zeroed();
        let (at, size) = (buffer.as_mut_ptr(), buffer.len());
        libc::getpwnam_r(name.as_ptr(), &raw mut entry, at, size, &raw mut found);
        (!found.is_null()).then(|| Account {
            name: name.to_string_lossy().into_owned(),
            uid: entry.pw_uid,
            gid: entry.pw_gid,
            groups: Vec::new(),
            home: owned(entry.pw_dir),
            shell: owned(entry.pw_shell),
            is_own: false,
        })
    }
}

fn group_id(name: &CStr) -> Option<u32> {
    let mut buffer = vec![0; BUFFER];
    let mut found = std::ptr::null_mut();
    // SAFETY: as for a user.
    unsafe {
        let mut entry: libc::group = std::mem::zeroed();
        let (at, size) = (buffer.as_mut_ptr(), buffer.len());
        libc::getgrnam_r(name.as_ptr(), &raw mut entry, at, size, &raw mut found);
        (!found.is_null()).then_some(entry.gr_gid)
    }
}

/// The groups that a user is in; at least this one.
fn groups(name: &CStr, gid: u32) -> Vec<u32> {
    let mut list = vec![0_u32; MOST_GROUPS];
    let mut count = libc::c_int::try_from(list.len()).unwrap_or(0);
    // SAFETY: the list has as many places as we say.
    let found =
        unsafe { libc::getgrouplist(name.as_ptr(), gid, list.as_mut_ptr().cast(), &raw mut count) };
    match usize::try_from(count) {
        Ok(count) if found >= 0 => list.truncate(count),
        _ => list = vec![gid],
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(user: &str, group: Option<&str>) -> UserName {
        UserName {
            user: user.to_owned(),
            group: group.map(ToOwned::to_owned),
        }
    }

    #[test]
    fn users_and_groups_are_found_or_said_to_be_missing() {
        let is_root = rustix::process::geteuid().is_root();
        match account(&name("root", None)) {
            Ok(root) => assert_eq!((root.uid, root.is_own), (0, is_root)),
            Err(why) => assert!(!is_root && why.contains("runs as root"), "{why}"),
        }
        let why = account(&name("no-such-user", None)).unwrap_err();
        assert!(why.contains("no user \"no-such-user\""), "{why}");
        let why = account(&name("root", Some("no-such-group"))).unwrap_err();
        assert!(why.contains("no group \"no-such-group\""), "{why}");
    }
}
