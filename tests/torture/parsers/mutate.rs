//! Inputs that nobody would write: seeds, with a few of the usual accidents and tricks.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::Dice;

/// The longest input. Long enough for every limit but those on size, which are tested elsewhere.
const LONGEST: usize = 64 << 10;

/// Words that mean something to one parser or another.
const WORDS: [&[u8]; 62] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b":",
    b",",
    b"\\",
    b"\n",
    b"\r\n",
    b"\t",
    b"\0",
    b"#",
    b"'",
    b"null",
    b"true",
    b"-0",
    b"1.0",
    b"1e400",
    b"-1e-400",
    b"1E5",
    b"NaN",
    b".inf",
    b"18446744073709551616",
    b"-9223372036854775809",
    b"9007199254740993",
    b"0x1f",
    b"1_000",
    b"\\ud800",
    b"\\u0000",
    b"\\udfff\\ud800",
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    "\u{202e}".as_bytes(),
    "\u{2028}".as_bytes(),
    "\u{85}".as_bytes(),
    b"&a ",
    b"*a",
    b"<<: *a",
    b"!!str ",
    b"!!binary ",
    b"? ",
    b"- ",
    b"---\n",
    b"...\n",
    b"| \n ",
    b">-\n ",
    b"```json\n",
    b"\n```\n",
    b"~~~",
    b"[[a]]\n",
    b"a.b = ",
    b"\"\"\"",
    b"1979-05-27T07:32:00Z",
    b"\"handoffd\": ",
    b"\"handoff_id\": ",
    b"\"status\": ",
    b"$serde_json::private::Number",
    b"\"attempts\": [",
    b"9999999999999999999999d",
];

/// What inputs begin as, for one target.
pub struct Seeds(Vec<Vec<u8>>);

impl Seeds {
    /// The files of these folders and of these names, without what is below.
    pub fn of(target: &str) -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let stored = "tests/fixtures/format-1";
        let places: Vec<String> = match target {
            "request_json" | "control" | "frame" => vec![
                "examples".into(),
                "examples/returns".into(),
                "tests/fixtures/dialects".into(),
                format!("{stored}/handoffs/control"),
            ],
            "request_yaml" | "package" | "report" | "markdown_result" => vec![
                "examples".into(),
                "tests/fixtures/dialects".into(),
                "tests/fixtures/forbidden".into(),
            ],
            "config" => vec![
                "examples/handoffd.toml".into(),
                "examples/feature-workflow/handoffd.toml".into(),
                "src/config/example.toml".into(),
            ],
            "task_state" => vec![format!("{stored}/context/state")],
            "audit_line" => vec![format!("{stored}/audit")],
            "record" => ["completed", "failed", "in-progress", "waiting"]
                .map(|state| format!("{stored}/handoffs/{state}"))
                .into(),
            "journal" => vec![format!("{stored}/run")],
            _ => Vec::new(),
        };
        let mut seeds: Vec<Vec<u8>> = places
            .iter()
            .flat_map(|place| files(&here.join(place)))
            .map(|file| fs::read(file).unwrap())
            .filter(|bytes| bytes.len() <= LONGEST)
            .collect();
        seeds.extend(own(target));
        assert!(!seeds.is_empty(), "{target} has no seeds");
        Self(seeds)
    }

    pub fn all(&self) -> &[Vec<u8>] {
        &self.0
    }

    fn any(&self, dice: &mut Dice) -> &[u8] {
        &self.0[below(dice, self.0.len())]
    }

    /// A seed, changed by one to eight steps.
    pub fn input(&self, dice: &mut Dice) -> Vec<u8> {
        let mut bytes = self.any(dice).to_vec();
        for _ in 0..=dice.below(8) {
            self.change(&mut bytes, dice);
        }
        bytes.truncate(LONGEST);
        bytes
    }

    fn change(&self, bytes: &mut Vec<u8>, dice: &mut Dice) {
        let at = below(dice, bytes.len() + 1);
        let word = WORDS[below(dice, WORDS.len())];
        match dice.below(12) {
            0 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
            1 if at < bytes.len() => bytes[at] = u8::try_from(dice.below(256)).unwrap(),
            2 => bytes.truncate(at),
            3 | 4 => insert(bytes, at, word),
            5 => {
                let end = (at + word.len()).min(bytes.len());
                bytes[at..end].copy_from_slice(&word[..end - at]);
            }
            6 => drop(bytes.drain(at..(at + below(dice, 40)).min(bytes.len()))),
            7 => {
                let other = self.any(dice);
                let from = below(dice, other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            // A line twice: a key twice, mostly.
            8 => {
                let line = line_at(bytes, at).to_vec();
                insert(bytes, at, &line);
            }
            9 => {
                let deep = word.repeat(1 + below(dice, 300));
                insert(bytes, at, &deep);
            }
            10 => digits(bytes, at, dice),
            _ => {
                let (from, to) = (below(dice, bytes.len() + 1), at);
                let piece = bytes[from.min(to)..from.max(to)].to_vec();
                insert(bytes, at, &piece[..piece.len().min(2000)]);
            }
        }
    }
}

fn below(dice: &mut Dice, most: usize) -> usize {
    usize::try_from(dice.below(most as u64)).unwrap()
}

fn insert(bytes: &mut Vec<u8>, at: usize, what: &[u8]) {
    bytes.splice(at..at, what.iter().copied());
}

fn line_at(bytes: &[u8], at: usize) -> &[u8] {
    let from = bytes[..at].iter().rposition(|byte| *byte == b'\n');
    let from = from.map_or(0, |newline| newline + 1);
    let to = bytes[at..].iter().position(|byte| *byte == b'\n');
    &bytes[from..to.map_or(bytes.len(), |newline| at + newline + 1)]
}

/// The next number becomes a long one.
fn digits(bytes: &mut Vec<u8>, at: usize, dice: &mut Dice) {
    let Some(number) = bytes[at..].iter().position(u8::is_ascii_digit) else {
        return;
    };
    let more = [b'9', b'0', b'1'][below(dice, 3)];
    let digits = vec![more; 1 + below(dice, 400)];
    insert(bytes, at + number, &digits);
}

fn files(place: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(place) else {
        return vec![place.to_owned()];
    };
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}

/// Seeds that no file in the repository holds.
fn own(target: &str) -> Vec<Vec<u8>> {
    let texts: Vec<String> = match target {
        "registry_line" => vec![
            r#"{"artifact_id":"page","path":"artifacts/page.html","artifact_type":"source","sha256":"00","size_bytes":12,"handoff_id":"x","created_at":"2026-11-16T10:00:00.000Z"}
{"artifact_id":"page-2","path":"artifacts/b/page.html","type":"code","sha256":"11","size_bytes":0,"handoff_id":"y","created_at":"2026-11-16T10:00:01.000Z","more":[1.0]}
"#
            .to_owned(),
        ],
        "control" => vec![
            r#"{"action": "approve", "handoff_id": "x~2", "by": "ann", "comment": "fine", "choice": "a", "revision": 7.0}"#.to_owned(),
        ],
        "markdown_result" => vec![
            "# Done\n\nWords.\n\n```json\n{\"status\": \"complete\", \"summary\": \"s\", \"output\": {\"n\": 1e400}, \"handoff\": {\"next_agent\": \"@b\", \"context\": \"c\", \"children\": [{\"agent\": \"x\"}]}, \"retry_after_seconds\": 5}\n```\n".to_owned(),
        ],
        "frame" => [
            r#"{"hello":{"version":1}}"#,
            r#"{"end":{"key":{"id":"x","attempt":1},"why":"timeout","grace_ms":500}}"#,
            r#"{"forget":{"key":{"id":"x","attempt":1}}}"#,
            r#""inventory""#,
            r#"{"start":{"key":{"id":"x","attempt":2},"argv":["sh",{"hex":"ff00"}],"env":[["A","b"]],"cwd":"/","deadline_boot_ms":99,"grace_ms":5,"note":{"n":1.0}}}"#,
            r#"{"ended":{"key":{"id":"x","attempt":1},"exit":{"code":0},"why":null}}"#,
        ]
        .map(str::to_owned)
        .into(),
        _ => Vec::new(),
    };
    texts
        .into_iter()
        .map(|text| {
            if target == "frame" {
                framed(&text)
            } else {
                text.into_bytes()
            }
        })
        .collect()
}

fn framed(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap();
    let frame = [&length.to_be_bytes()[..], text.as_bytes()].concat();
    [&[20][..], &frame, &frame].concat()
}
