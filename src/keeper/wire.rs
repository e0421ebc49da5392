//! What the daemon and its keeper say to each other: the words, and their JSON.
//!
//! The two may be of different versions of this program: a daemon that was upgraded meets a
//! keeper that was started weeks ago. So the words are plain JSON, the first one each way is a
//! version, and a test holds every one of them against a literal fixture. The enums are
//! tagged from outside (`{"start": {…}}`), because the other forms buffer and would lose the
//! exact numbers of a note.
//!
//! How words become bytes on a socket is `frame.rs`'s business.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::confine::Confine;
use super::turn::Turn;

/// The version of these words. A different one is refused, by both sides.
pub const VERSION: u32 = 1;

/// What a keeper says that holds attempts to [`Start::confine`]. One that does not say so would
/// start them without.
pub const CONFINE: &str = "confine";

/// What a keeper says that knows of [`Start::turn`]. One that does not would start them at once,
/// and claim nothing.
pub const TURNS: &str = "turns";

/// What resident processes are known by, each with a number of its own. No handoff's id begins like
/// this.
pub const RESIDENT: &str = "~resident";
/// What tells the key of a verify command from its attempt's.
pub const VERIFY: &str = "~verify";

/// Names one attempt, for ever.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    pub id: String,
    pub attempt: u32,
}

impl Key {
    pub fn new(id: impl Into<String>, attempt: u32) -> Self {
        Self {
            id: id.into(),
            attempt,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.id, self.attempt)
    }
}

/// Why an attempt is being ended by someone else than itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    Timeout,
    Cancelled,
    Stalled,
    Linger,
    Flood,
    Stop,
}

/// How the main process of an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// Nobody was there to see it: its keeper was killed, or the machine went down.
    Unknown,
}

/// Why an attempt never became the command it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub errno: i32,
    /// What the error is about, with the path: `exec bin/x`, `working folder /y`.
    pub what: String,
}

/// A string of the system's, which need not be UTF-8: text where it is, else `{"hex": "…"}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Os(pub OsString);

impl<T: AsRef<OsStr>> From<T> for Os {
    fn from(text: T) -> Self {
        Self(text.as_ref().to_owned())
    }
}

#[derive(Serialize, Deserialize)]
struct Hex {
    hex: String,
}

impl Serialize for Os {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(text) = self.0.to_str() {
            return serializer.serialize_str(text);
        }
        let hex = self.0.as_bytes().iter().fold(String::new(), |hex, byte| {
            hex + &format!("{byte:02x}") // only ever a handful of odd values
        });
        Hex { hex }.serialize(serializer)
    }
}

/// By hand, because an untagged enum would copy every string of an environment twice.
impl<'de> Deserialize<'de> for Os {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OsVisitor)
    }
}

struct OsVisitor;

impl<'de> Visitor<'de> for OsVisitor {
    type Value = Os;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, or its bytes as hex")
    }

    fn visit_str<E>(self, text: &str) -> Result<Os, E> {
        Ok(Os(text.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Os, A::Error> {
        let Hex { hex } = Hex::deserialize(MapAccessDeserializer::new(map))?;
        let pairs = |at| u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = match hex.len() % 2 {
            0 => (0..hex.len() / 2).map(pairs).collect(),
            _ => None,
        };
        let bytes = bytes.ok_or_else(|| serde::de::Error::custom("not pairs of hex digits"))?;
        Ok(Os(OsString::from_vec(bytes)))
    }
}

/// Everything that starting an attempt takes, but its three descriptors (stdin, stdout and
/// stderr), which travel beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    pub key: Key,
    /// With a slash in it, the first is a path as it is; without, it is looked up in the `PATH`
    /// of `env`.
    pub argv: Vec<Os>,
    /// The whole environment; nothing is inherited.
    pub env: Vec<(Os, Os)>,
    pub cwd: Os,
    /// When it is ended as timed out, on the boot clock.
    pub deadline_boot_ms: u64,
    /// From SIGTERM to SIGKILL, also for what its main process leaves behind.
    pub grace_ms: u64,
    /// The daemon's own, kept and handed back as it is.
    pub note: Value,
    /// Nobody wants to be told that it has started.
    #[serde(default)]
    pub quiet: bool,
    /// What it is held to, where it is. Only for a keeper that said that it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confine: Option<Box<Confine>>,
    /// The largest file that it may write, in bytes. An older keeper does not limit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fsize: Option<u64>,
    /// It is given ahead, with a fourth descriptor. Only for a keeper that said that it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<Box<Turn>>,
}

/// From the daemon to its keeper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    Hello {
        version: u32,
    },
    /// The file that the keeper's greeting asked for is there. Only for a keeper that asked.
    Prove,
    Start(Box<Start>),
    /// Ends the whole tree. The first reason sticks; a shorter grace shortens the first.
    End {
        key: Key,
        why: Why,
        grace_ms: u64,
    },
    /// The outcome is written, so the attempt, which has ended, need not be remembered.
    Forget {
        key: Key,
    },
    Inventory,
    /// Gives back all that wait for their turn. Only for a keeper that has turns.
    GiveBack,
    Usage {
        key: Key,
    },
}

/// From the keeper to its daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    Hello {
        version: u32,
        /// What it can besides the words of this version, such as [`CONFINE`]. An older daemon
        /// does not look at it, and an older keeper has nothing to say.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        can: Vec<String>,
        /// The number of the file to make in the run folder, see `proof.rs`. Without a number, the
        /// daemon is accepted: it has proved itself, or the keeper is an older one, which asks for
        /// no proof.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prove: Option<u64>,
    },
    /// All that is not forgotten.
    Inventory { entries: Vec<Held> },
    /// There is a process. That it became the command is not known yet: `StartFailed` may
    /// still follow.
    Started { key: Key, pid: i32, starttime: u64 },
    /// One that waited for its turn has it: its file is claimed, with this time of its start, and
    /// the content that stands there was changed last at that one. Comes before all else of it.
    Begun {
        key: Key,
        wall_ms: i64,
        boot_ms: u64,
        modified_ns: i64,
    },
    /// One that waited for its turn will not have it. Nothing of it has happened.
    Returned { key: Key, why: String },
    /// In place of `Ended`.
    StartFailed { key: Key, errno: i32, what: String },
    /// Nothing of the attempt's tree is alive any more.
    Ended {
        key: Key,
        exit: Exit,
        why: Option<Why>,
    },
    /// Processor time used by the tree so far; none for an attempt that is not running.
    Usage { key: Key, cpu_ms: Option<u64> },
}

/// One attempt in an inventory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Held {
    pub key: Key,
    pub note: Value,
    pub pid: Option<i32>,
    pub starttime: Option<u64>,
    pub why: Option<Why>,
    pub state: State,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Running,
    /// Its tree is being ended: for a reason, or because its main process has ended.
    Ending,
    Ended(Exit),
    Failed(Failure),
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
