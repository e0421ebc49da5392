//! Names of branches and folders, made from ids so that git and file systems take them.

use std::fmt::Write as _;

/// All our branches are below this.
pub const PREFIX: &str = "handoffd/";

/// An id as one part of a branch's name. Two ids never get the same name.
///
/// Ids have letters, digits and `. _ @ - ~`. Git refuses `~`, two dots in a row, a dot at the end and
/// `.lock` at the end: those are written as `+` and `,`, which no id has, so that a name is no longer than
/// its id. Anything else is `%` and two digits.
pub fn encode(id: &str) -> String {
    let mut name = String::with_capacity(id.len());
    let bytes = id.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        let next = bytes.get(at + 1);
        let refused = match byte {
            b'.' => at == 0 || matches!(next, None | Some(b'.')) || &id[at..] == ".lock",
            b'-' => at == 0,
            byte => !(byte.is_ascii_alphanumeric() || b"_@-".contains(byte)),
        };
        match byte {
            b'~' => name.push('+'),
            b'.' if refused => name.push(','),
            _ if refused => _ = write!(name, "%{byte:02X}"),
            _ => name.push(char::from(*byte)),
        }
    }
    name
}

/// The id behind a name, if [`encode`] made it.
pub fn decode(name: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(match first {
                b'+' => b'~',
                b',' => b'.',
                other => *other,
            });
            rest = after;
        }
    }
    let id = String::from_utf8(bytes).ok()?;
    (encode(&id) == name).then_some(id)
}

/// The branch of a line of handoffs.
pub fn branch(line: &str) -> String {
    format!("{PREFIX}{}", encode(line))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn git_takes_every_name_and_each_leads_back() {
        for (id, name) in [
            ("login", "login"),
            ("login.1-d05f36f1", "login.1-d05f36f1"),
            ("x~2", "x+2"),
            ("a..b", "a,.b"),
            ("a.", "a,"),
            (".a", ",a"),
            ("a.lock", "a,lock"),
            ("a.lock.b", "a.lock.b"),
            ("-x", "%2Dx"),
            ("@", "@"),
            ("a@b", "a@b"),
        ] {
            assert_eq!(encode(id), name);
            assert_eq!(decode(name).as_deref(), Some(id));
            let checked = Command::new("git")
                .args(["check-ref-format", "--branch", &branch(id)])
                .output()
                .unwrap();
            assert!(checked.status.success(), "{id}");
        }
        for name in ["%", "%zz", "%41", "a..b"] {
            assert_eq!(decode(name), None, "{name}");
        }
    }
}
