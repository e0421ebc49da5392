//! File names in a drop folder: left alone, taken, or refused with the reason.
//!
//! Names are bytes here, because a folder can hold any. Every name that is neither a
//! producer's temporary file nor a submission still gets an id, made from its hash, so that the
//! refusal can be filed and the same name always leads to the same id.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use super::digest::sha256;
use super::id::HandoffId;

/// What a file name promises about its content. The content decides (see
/// [`super::document`]); the name only says what is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ext {
    Json,
    Yaml,
    Yml,
    Markdown,
}

impl Ext {
    pub const ALL: [Self; 4] = [Self::Json, Self::Yaml, Self::Yml, Self::Markdown];

    /// As it stands after the last dot.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Yaml => "yaml",
            Self::Yml => "yml",
            Self::Markdown => "md",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ext| ext.as_str() == text)
    }
}

impl fmt::Display for Ext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// A producer is still writing it; nobody touches it.
    Temporary,
    Submission {
        id: HandoffId,
        ext: Ext,
    },
    /// Can't be a submission; `why` says what would be right.
    Bad {
        id: HandoffId,
        why: String,
    },
}

const TEMPORARY: [&[u8]; 4] = [b".tmp", b".part", b".swp", b"~"];

/// Tells what a file in a drop folder is, from the bytes of its name.
pub fn classify(name: &[u8]) -> Name {
    if name.starts_with(b".") || TEMPORARY.iter().any(|end| name.ends_with(end)) {
        return Name::Temporary;
    }
    match submission(name) {
        Ok((id, ext)) => Name::Submission { id, ext },
        Err(why) => Name::Bad {
            id: rejected_id(name),
            why,
        },
    }
}

fn submission(name: &[u8]) -> Result<(HandoffId, Ext), String> {
    const RIGHT: &str = "name it <id>.json, .yaml, .yml or .md";
    let name = std::str::from_utf8(name).map_err(|_| {
        format!("the file name is not UTF-8: {RIGHT}, with an id of A-Z a-z 0-9 . _ @ -")
    })?;
    let (stem, extension) = name
        .rsplit_once('.')
        .ok_or_else(|| format!("the file name has no extension: {RIGHT}"))?;
    let ext = Ext::parse(extension).ok_or_else(|| {
        let lower = extension.to_ascii_lowercase();
        if Ext::parse(&lower).is_some() {
            format!("the extension .{extension} must be in lower case: .{lower}")
        } else {
            format!(
                "unsupported extension {:?}: {RIGHT}",
                format!(".{extension}")
            )
        }
    })?;
    let id = HandoffId::parse(stem).map_err(|error| {
        format!(
            "the file name is not a valid id: \
        {error}"
        )
    })?;
    Ok((id, ext))
}

/// The id under which a file is refused whose name can't be one.
fn rejected_id(name: &[u8]) -> HandoffId {
    HandoffId::made(format!("rejected-{}", &sha256(name)[..12]))
}

/// The path of a name below a folder, in one allocation.
pub fn below(folder: &Path, name: &[&str]) -> PathBuf {
    let length = name.iter().map(|part| part.len()).sum::<usize>();
    let mut path = OsString::with_capacity(folder.as_os_str().len() + 1 + length);
    path.push(folder);
    path.push("/");
    for part in name {
        path.push(part);
    }
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_are_left_alone() {
        for name in [
            ".x.json",
            ".json",
            ".",
            "x.json.tmp",
            "x.tmp",
            "x.part",
            "x.swp",
            "x.json~",
            "~",
        ] {
            assert_eq!(classify(name.as_bytes()), Name::Temporary, "{name}");
        }
        assert_eq!(classify(b"\xff.tmp"), Name::Temporary);
    }

    #[test]
    fn submissions_have_their_stem_as_id() {
        for (name, stem, ext) in [
            ("x.json", "x", Ext::Json),
            ("a.b.yaml", "a.b", Ext::Yaml),
            ("x.json.yml", "x.json", Ext::Yml),
            ("@a-1_2.md", "@a-1_2", Ext::Markdown),
        ] {
            let id = HandoffId::parse(stem).unwrap();
            assert_eq!(classify(name.as_bytes()), Name::Submission { id, ext });
        }
    }

    #[test]
    fn other_names_are_refused_with_the_remedy() {
        let long = format!("{}.json", "x".repeat(201));
        for (name, part) in [
            (&b"x"[..], "no extension"),
            (b"x.txt", "name it <id>.json"),
            (b"x.", "name it <id>.json"),
            (b"", "no extension"),
            (b"x.JSON", "lower case: .json"),
            (b"x.Md", "lower case: .md"),
            (b"x\xff.json", "not UTF-8"),
            (b"x~2.json", "'~' at position 2"),
            (b"a b.json", "' ' at position 2"),
            (b"a\nb.json", r"'\n' at position 2"),
            (b"x.a\nb", r".a\nb"),
            (long.as_bytes(), "at most 200"),
        ] {
            let Name::Bad { id, why } = classify(name) else {
                panic!("{name:?} was not refused");
            };
            assert!(why.contains(part), "{name:?}: {why}");
            assert!(id.as_str().starts_with("rejected-") && id.as_str().len() == 21);
        }
    }

    #[test]
    fn a_refused_name_always_gets_the_same_id() {
        // printf x.txt | sha256sum
        let Name::Bad { id, .. } = classify(b"x.txt") else {
            panic!("x.txt was not refused");
        };
        assert_eq!(id.as_str(), "rejected-8a6dcb9c9836");
    }
}
