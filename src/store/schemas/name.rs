//! Names of schema files, and the addresses that stand for them inside a schema.
//!
//! A schema refers to another by a URI reference, so every file needs a URI to refer from. Ours
//! have a scheme of their own and put the folder one level below the top: a reference that
//! climbs out of the folder then arrives at an address that is visibly not in it, instead of
//! being cut off at the top and meaning another file.

use std::fmt::Write;

const SCHEME: &str = "schemas:";
const FOLDER: &str = "schemas:///folder/";

/// Where an address points.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A file of the folder, by its clean name.
    Inside(String),
    /// A path that leaves the folder.
    Outside,
    /// Not a path: the network, or a name such as a `urn:`.
    Elsewhere,
}

/// The name without detours, or what is wrong with it.
pub(super) fn clean(name: &str) -> Result<String, String> {
    let shown = quoted(name);
    if name.is_empty() {
        return Err("the name of the schema is empty".to_owned());
    }
    if name.starts_with('/') {
        return Err(format!(
            "the schema {shown} must be a path inside schemas/, not an absolute one"
        ));
    }
    if name.contains("://") {
        return Err(format!(
            "the schema {shown} must be a file in schemas/: handoffd never loads schemas from \
             the network"
        ));
    }
    if name.chars().any(char::is_control) {
        return Err(format!("the schema's name {shown} has control characters"));
    }
    let mut parts = Vec::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                return Err(format!(
                    "the schema {shown} must be inside schemas/, but its name has a `..`"
                ));
            }
            part => parts.push(part),
        }
    }
    if parts.is_empty() || name.ends_with('/') {
        return Err(format!("the schema {shown} is a folder"));
    }
    Ok(parts.join("/"))
}

/// The address of a file with a clean name.
pub(super) fn address(name: &str) -> String {
    let mut address = FOLDER.to_owned();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            address.push(char::from(byte));
        } else {
            let _ = write!(address, "%{byte:02X}");
        }
    }
    address
}

/// Where an address without a fragment points.
pub(super) fn place(address: &str) -> Place {
    let Some(path) = address.strip_prefix(FOLDER) else {
        return if address.starts_with(SCHEME) {
            Place::Outside
        } else {
            Place::Elsewhere
        };
    };
    decode(path)
        .and_then(|name| clean(&name).ok())
        .map_or(Place::Outside, Place::Inside)
}

/// The file that `rest` means, seen from the folder of the file `from`.
pub(super) fn beside(from: &str, rest: &str) -> Option<String> {
    let rest = decode(rest)?;
    let name = match from.rsplit_once('/') {
        Some((folder, _)) => format!("{folder}/{rest}"),
        None => rest,
    };
    clean(&name).ok()
}

fn decode(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let value = digit(rest.next())? * 16 + digit(rest.next())?;
            u8::try_from(value).ok()?
        } else {
            byte
        });
    }
    String::from_utf8(bytes).ok()
}

/// Text in quotes for a message: shortened, and harmless on a terminal.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", shortened(text, 60))
}

/// Text of at most about `most` characters, harmless on a terminal.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let cut = text.char_indices().nth(most).map(|(at, _)| at);
    let kept = cut.map_or(text, |at| &text[..at]);
    let mut shown = String::with_capacity(kept.len() + 3);
    for char in kept.chars() {
        match char {
            '"' | '\'' | '\\' => shown.push(char),
            char => shown.extend(char.escape_debug()),
        }
    }
    if cut.is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cleaned_or_refused() {
        for (name, cleaned) in [
            ("a.json", Some("a.json")),
            ("./sub//a b.json", Some("sub/a b.json")),
            ("", None),
            ("/etc/passwd", None),
            ("https://a/b.json", None),
            ("../a.json", None),
            ("sub/../../a", None),
            ("sub/", None),
            (".", None),
            ("a\0b", None),
            ("a\nb", None),
        ] {
            assert_eq!(clean(name).ok().as_deref(), cleaned, "{name:?}");
        }
    }

    #[test]
    fn an_address_leads_back_to_its_file() {
        for name in ["a.json", "sub/é b#%.json", "a?b:c"] {
            assert_eq!(place(&address(name)), Place::Inside(name.to_owned()));
        }
    }

    #[test]
    fn what_leaves_the_folder_is_seen() {
        for address in [
            "schemas:///etc/passwd",
            "schemas:///a.json",
            "schemas://host/a.json",
            "schemas:///folder/%2e%2e/a",
            "schemas:///folder/..%2Fa",
            "schemas:///folder/%ff",
            "schemas:///folder/%4",
        ] {
            assert_eq!(place(address), Place::Outside, "{address}");
        }
        assert_eq!(place("https://a/b"), Place::Elsewhere);
        assert_eq!(place("file:///etc/passwd"), Place::Elsewhere);
    }

    #[test]
    fn beside_is_relative_to_the_folder_of_the_file() {
        assert_eq!(beside("a/b.json", "c.json").as_deref(), Some("a/c.json"));
        assert_eq!(beside("b.json", "x/c.json").as_deref(), Some("x/c.json"));
        assert_eq!(beside("b.json", "../c.json"), None);
    }

    #[test]
    fn text_is_short_and_harmless() {
        assert_eq!(quoted("it's \"x\"\u{1b}[2J\n"), "'it's \"x\"\\u{1b}[2J\\n'");
        assert_eq!(shortened(&"é".repeat(70), 60).chars().count(), 61);
    }
}
