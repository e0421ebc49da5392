//! Packed files: gzip members of some lines each, one line for each handoff.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};

use crate::clock::Wall;
use crate::durable;
use crate::protocol::json;
use crate::protocol::lifecycle::State;
use crate::protocol::record::Record;

/// The format of a line.
const FORMAT: u64 = 1;
/// A member is closed when its lines are this long together.
const MEMBER: usize = 128 * 1024;

/// All that is kept of one handoff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    pub id: String,
    pub state: State,
    /// When its record last changed.
    pub modified: Wall,
    /// The record's file as it was, to the byte.
    pub record: Vec<u8>,
    /// The request as it was dropped, and the logs of attempts, by their names.
    pub files: Vec<(String, Vec<u8>)>,
}

impl Packed {
    fn line(&self) -> String {
        let mut line = Map::new();
        let mut set = |key: &str, value: Value| drop(line.insert(key.to_owned(), value));
        set("format", FORMAT.into());
        set("id", self.id.as_str().into());
        set("state", self.state.status().into());
        set("modified", self.modified.to_string().into());
        // As a document where that gives the very same bytes again; people read these with zcat.
        match Record::document(&self.record) {
            Some(doc) if pretty(&doc) == self.record => set("record", Value::Object(doc)),
            _ => set("record_bytes", bytes(&self.record)),
        }
        if !self.files.is_empty() {
            let files = self.files.iter();
            let files = files.map(|(name, file)| json!({"name": name, "bytes": bytes(file)}));
            set("files", files.collect());
        }
        let mut line = Value::Object(line).to_string();
        line.push('\n');
        line
    }

    fn read(line: &str) -> Option<Self> {
        let Ok(Value::Object(mut line)) = json::parse_own(line) else {
            return None;
        };
        let text = |line: &Map<String, Value>, key: &str| Some(line.get(key)?.as_str()?.to_owned());
        if line.get("format")?.as_u64()? != FORMAT {
            return None;
        }
        let files = line.get("files").and_then(Value::as_array);
        let files = files.into_iter().flatten().map(|file| {
            let name = file.get("name")?.as_str()?.to_owned();
            Some((name, unbytes(file.get("bytes")?)?))
        });
        let files = files.collect::<Option<Vec<_>>>()?;
        let state = text(&line, "state")?;
        let ended = [State::Completed, State::Failed].into_iter();
        Some(Self {
            id: text(&line, "id")?,
            state: ended.clone().find(|it| it.status() == state)?,
            modified: Wall::parse(&text(&line, "modified")?)?,
            record: match line.shift_remove("record") {
                Some(Value::Object(doc)) => pretty(&doc),
                _ => unbytes(line.get("record_bytes")?)?,
            },
            files,
        })
    }
}

/// As the daemon writes records.
fn pretty(doc: &Map<String, Value>) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(doc).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Text as text; anything else in hex.
fn bytes(bytes: &[u8]) -> Value {
    use std::fmt::Write as _;
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.into();
    }
    let mut hex = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(hex, "{byte:02x}");
    }
    json!({ "hex": hex })
}

fn unbytes(value: &Value) -> Option<Vec<u8>> {
    if let Some(text) = value.as_str() {
        return Some(text.as_bytes().to_vec());
    }
    let hex = value.get("hex")?.as_str()?.as_bytes();
    let digit = |byte: u8| u8::try_from(char::from(byte).to_digit(16)?).ok();
    hex.chunks(2)
        .map(|pair| Some((digit(pair[0])? << 4) | digit(*pair.get(1)?)?))
        .collect()
}

/// Writes a packed file.
pub struct Writer {
    file: File,
    lines: String,
}

impl Writer {
    pub fn create(path: &Path) -> io::Result<Self> {
        // What a crash left there may be another's.
        let file = durable::create_anew(path, b"")?;
        let lines = String::new();
        Ok(Self { file, lines })
    }

    pub fn add(&mut self, packed: &Packed) -> io::Result<()> {
        self.lines.push_str(&packed.line());
        if self.lines.len() >= MEMBER {
            self.close_member()?;
        }
        Ok(())
    }

    fn close_member(&mut self) -> io::Result<()> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(self.lines.as_bytes())?;
        self.file.write_all(&gzip.finish()?)?;
        self.lines.clear();
        Ok(())
    }

    /// The file, whole but not synced.
    pub fn finish(mut self) -> io::Result<File> {
        if !self.lines.is_empty() {
            self.close_member()?;
        }
        Ok(self.file)
    }
}

/// The handoffs of the member that begins at `offset`.
pub fn block(path: &Path, offset: u64) -> io::Result<Vec<Packed>> {
    let mut file = BufReader::new(File::open(path)?);
    file.seek(SeekFrom::Start(offset))?;
    member(&mut file, path)
}

fn member(file: &mut BufReader<File>, path: &Path) -> io::Result<Vec<Packed>> {
    let mut text = String::new();
    let broken = |what: &str| {
        let text = format!("{}: {what}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    };
    let mut gzip = GzDecoder::new(file);
    gzip.read_to_string(&mut text)
        .map_err(|error| broken(&error.to_string()))?;
    text.lines()
        .map(|line| Packed::read(line).ok_or_else(|| broken("a line is not a packed handoff")))
        .collect()
}

/// Hands every handoff of a file to `each`, with where its member begins.
pub fn read(path: &Path, mut each: impl FnMut(u64, Packed) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufReader::new(File::open(path)?);
    loop {
        let offset = file.stream_position()?;
        if file.fill_buf()?.is_empty() {
            return Ok(());
        }
        for packed in member(&mut file, path)? {
            each(offset, packed)?;
        }
    }
}
