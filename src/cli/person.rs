//! Who uses the command line, by name where the machine's own list has one.

use std::path::{Path, PathBuf};

use rustix::process::getuid;

/// Who is at the keyboard: what the session says, else whose process this is. Cron and service
/// managers say nothing, and an answer without a name is worth little.
pub fn present() -> String {
    named(std::env::var("USER").ok(), getuid().as_raw(), name_of)
}

fn named(said: Option<String>, uid: u32, name_of: impl Fn(u32) -> Option<String>) -> String {
    said.filter(|name| !name.is_empty())
        .or_else(|| name_of(uid))
        .unwrap_or_else(|| format!("uid {uid}"))
}

pub fn name_of(uid: u32) -> Option<String> {
    listed(uid, &std::fs::read_to_string("/etc/passwd").ok()?)
}

/// The home of a user.
pub fn home_of(uid: u32) -> Option<PathBuf> {
    let people = std::fs::read_to_string("/etc/passwd").ok()?;
    let entry = people.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.get(2)?.parse() == Ok(uid)).then(|| fields.get(5).copied())
    });
    let home = PathBuf::from(entry??);
    (home.is_absolute() && home != Path::new("/")).then_some(home)
}

fn listed(uid: u32, people: &str) -> Option<String> {
    people.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEOPLE: &str = "root:x:0:0::/root:/bin/sh\nme:x:1000:1000:Me:/home/me:/bin/sh\nbroken\n";

    #[test]
    fn a_person_is_named_if_the_machine_knows_a_name() {
        assert_eq!(listed(1000, PEOPLE).as_deref(), Some("me"));
        assert_eq!(listed(1001, PEOPLE), None);
    }

    #[test]
    fn who_answers_always_has_some_name() {
        let name = |said: Option<&str>, uid| {
            named(said.map(str::to_owned), uid, |uid| listed(uid, PEOPLE))
        };
        assert_eq!(name(Some("ann"), 1000), "ann");
        assert_eq!(name(None, 1000), "me");
        assert_eq!(name(Some(""), 1000), "me");
        assert_eq!(name(None, 1001), "uid 1001");
    }
}
