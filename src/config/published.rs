//! The configuration as a JSON Schema, for editors and for whoever writes one by program.
//!
//! The table says what each key may hold; a test walks it and holds every key, with right and
//! wrong values, against the reader, both ways. What one value means for another (a time-out
//! above `max_timeout`, `x` beside `@x`) is the reader's alone, and so is `4.0` for `4`.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::agents::{LEAST_USD, MOST_USD};
use super::confine::MOST;
use super::sections::SHORTEST;
use super::units::Shown;
use super::value::LONGEST;
use crate::protocol::destination::PLACEHOLDERS;
use crate::protocol::patterns;
use crate::protocol::published::headed;
use crate::protocol::schema::described;

pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) about: &'static str,
    /// As JSON.
    pub(super) default: Option<&'static str>,
    pub(super) needed: bool,
    /// Another key that must be there for this one to make sense.
    pub(super) only_with: Option<With>,
    /// A needed key that this one stands for: there is one or the other.
    pub(super) instead_of: Option<&'static str>,
    /// A word that this key may have, and the key that must be there then.
    pub(super) wants: Option<(&'static str, &'static str)>,
}

/// Another key, with one word or with any value.
#[derive(Clone, Copy)]
pub(super) enum With {
    Word(&'static str, &'static str),
    /// The value is an example.
    Any(
        &'static str,
        #[cfg_attr(not(test), expect(dead_code, reason = "for the tests"))] &'static str,
    ),
}

pub(super) enum Kind {
    Flag,
    /// True, false, or one of these words.
    FlagOr(&'static [&'static str]),
    Whole(u64, u64),
    Number(f64, f64),
    Duration(Duration, Duration),
    Size,
    Rate,
    /// An address that only this machine can reach, with its port.
    Loopback,
    /// Where anchors of the audit log go.
    Anchor,
    Word(&'static [&'static str]),
    Text,
    Agent,
    Command,
    CodingAgent,
    /// At least as many words, each only once where that is asked.
    Words {
        least: usize,
        once: bool,
    },
    /// Paths that stay inside of the folder that they are relative to.
    PathsInside,
    /// A pattern of files, with the placeholders of a destination.
    Files,
    Umask,
    User,
    Variables,
    VariableNames,
    Table(&'static [Key]),
    /// An array of tables, at least as many.
    Tables(usize, &'static [Key]),
    /// A table whose keys the user chooses.
    Named(&'static Kind),
    /// The same, named after agents.
    Agents(&'static Kind),
}

const fn key(name: &'static str, kind: Kind, about: &'static str) -> Key {
    Key {
        name,
        kind,
        about,
        default: None,
        needed: false,
        only_with: None,
        instead_of: None,
        wants: None,
    }
}

impl Key {
    const fn default(mut self, json: &'static str) -> Self {
        self.default = Some(json);
        self
    }

    const fn needed(mut self) -> Self {
        self.needed = true;
        self
    }

    const fn only_with(mut self, key: &'static str, word: &'static str) -> Self {
        self.only_with = Some(With::Word(key, word));
        self
    }

    const fn beside(mut self, key: &'static str, example: &'static str) -> Self {
        self.only_with = Some(With::Any(key, example));
        self
    }

    const fn instead_of(mut self, key: &'static str) -> Self {
        self.instead_of = Some(key);
        self
    }

    const fn wants(mut self, word: &'static str, key: &'static str) -> Self {
        self.wants = Some((word, key));
        self
    }
}

const HOUR: Duration = Duration::from_secs(60 * 60);
const SECOND: Duration = Duration::from_secs(1);
const U32: u64 = u32::MAX as u64;
const ANY_DURATION: Kind = Kind::Duration(Duration::ZERO, LONGEST);
const LIMIT: Kind = Kind::Duration(SHORTEST, LONGEST);

#[rustfmt::skip]
const RETRY: &[Key] = &[
    key("max_retries", Kind::Whole(0, 1000), "Retries after the first attempt"),
    key("delay", ANY_DURATION, "The wait before the first retry"),
    key("multiplier", Kind::Number(1.0, 1000.0), "The factor from one wait to the next"),
    key("max_delay", ANY_DURATION, "The longest wait, without the jitter"),
    key("jitter", Kind::Number(0.0, 1.0), "Up to this share of the wait, added at random"),
];

#[rustfmt::skip]
const DAEMON: &[Key] = &[
    key("max_concurrent", Kind::Whole(1, 10_000), "Attempts that run at the same time, over all specialists").default("4"),
    key("settle", Kind::Duration(Duration::ZERO, HOUR), "How long a file that does not parse must stay unchanged to count as broken").default("\"250ms\""),
    key("rescan", Kind::Duration(Duration::from_millis(100), HOUR), "How often to look at all folders, in case an event was missed").default("\"30s\""),
    key("watch", Kind::Word(&["auto", "inotify", "poll"]), "How the daemon notices changes: by inotify or by polling").default("\"auto\""),
    key("durability", Kind::Word(&["full", "relaxed"]), "relaxed: the daemon syncs nothing to disk").default("\"full\""),
    key("max_request_size", Kind::Size, "The daemon refuses larger requests").default("\"8MiB\""),
    key("max_output_size", Kind::Size, "The daemon ends an attempt that prints more").default("\"16MiB\""),
    key("max_artifact_size", Kind::Size, "A result with a larger artifact fails").default("\"1GiB\""),
    key("shutdown_grace", ANY_DURATION, "How long a stop waits for running attempts").default("\"30s\""),
    key("on_stop", Kind::Word(&["finish", "detach"]), "finish: wait for attempts, then end them; detach: leave them running for the next daemon").default("\"finish\""),
    key("max_interruptions", Kind::Whole(1, U32), "A handoff fails after this many lost attempts").default("5"),
    key("max_hops", Kind::Whole(0, U32), "The most follow-ups that results may ask for in one chain").default("16"),
    key("max_chain", Kind::Whole(0, U32), "Bounds how many handoffs one chain sets in motion").default("10000"),
    key("allow_network_fs", Kind::Flag, "Start on a network file system too").default("false"),
    key("allow_shared", Kind::Flag, "Allow folders of handoffs that everybody may write to").default("false"),
];

#[rustfmt::skip]
const DEFAULTS: &[Key] = &[
    key("timeout", LIMIT, "The limit for one attempt").default("\"5m\""),
    key("max_timeout", LIMIT, "The longest limit that a request may ask for").default("\"24h\""),
    key("kill_grace", ANY_DURATION, "The time between SIGTERM and SIGKILL").default("\"10s\""),
    key("linger", ANY_DURATION, "How long an attempt may run on after it wrote a complete result").default("\"30s\""),
    key("max_hold", LIMIT, "The longest hold that a result may ask for with retry_after_seconds").default("\"24h\""),
    key("dependency_wait", ANY_DURATION, "How long to wait for a missing dependency").default("\"1h\""),
    key("retry", Kind::Table(RETRY), "How failures are retried")
        .default(r#"{"max_retries": 3, "delay": "30s", "multiplier": 2.0, "max_delay": "1h", "jitter": 0.0}"#),
];

#[rustfmt::skip]
const RLIMITS: &[Key] = &[
    key("nofile", Kind::Whole(4, MOST), "Open descriptors"),
    key("nproc", Kind::Whole(1, MOST), "Processes of its user"),
    key("as", Kind::Size, "Memory that one process may map"),
    key("cpu", Kind::Duration(SECOND, LONGEST), "Processor time of one process, in whole seconds"),
    key("fsize", Kind::Size, "The largest file that it may write"),
    key("core", Kind::Whole(0, MOST), "Bytes of a core dump; 0 for none"),
];

#[rustfmt::skip]
const SANDBOX: &[Key] = &[
    key("read", Kind::Words { least: 0, once: false }, "Files and folders that it may read and run; relative to the root"),
    key("write", Kind::Words { least: 0, once: false }, "Files and folders that it may also change"),
    key("best_effort", Kind::Flag, "Run without a sandbox where the kernel has none").default("false"),
];

#[rustfmt::skip]
const SPECIALIST: &[Key] = &[
    key("command", Kind::Command, "The program and its arguments; no shell; relative to the root").needed(),
    key("agent", Kind::CodingAgent, "A coding agent in place of a command: claude, codex, gemini, opencode, generic, or one that agents/NAME.toml describes").instead_of("command"),
    key("args", Kind::Words { least: 0, once: false }, "Flags for the coding agent; for generic, its command").beside("agent", "claude"),
    key("prompt", Kind::Text, "A template for the prompt of the coding agent, relative to the root").beside("agent", "claude"),
    key("require_report", Kind::Flag, "A human looks where the coding agent leaves no report").beside("agent", "claude"),
    key("max_usd", Kind::Number(LEAST_USD, MOST_USD), "The most that one attempt may cost, where the coding agent can keep to it").beside("agent", "claude"),
    key("workspace", Kind::Word(&["root", "worktree"]), "worktree: the command and verify run in a git worktree of the repository, and what they leave is committed").default("\"root\"").wants("worktree", "repository"),
    key("repository", Kind::Text, "What the worktrees are of; relative to the root").beside("workspace", "worktree"),
    key("base", Kind::Text, "The branch or commit where a first worktree begins; the repository's HEAD where nothing is set").beside("workspace", "root"),
    key("copy", Kind::PathsInside, "Files that a new worktree gets from the repository").beside("workspace", "root"),
    key("setup", Kind::Command, "The command that prepares a new worktree, once").beside("workspace", "root"),
    key("account", Kind::Text, "A hold (a quota) of one specialist holds all that share the account"),
    key("working_dir", Kind::Text, "The working folder, relative to the root; default: the root"),
    key("env", Kind::Variables, "Environment variables for the command"),
    key("pass_env", Kind::VariableNames, "Environment variables of the daemon to pass on"),
    key("timeout", LIMIT, "The limit for one attempt; at most defaults.max_timeout"),
    key("stall_timeout", LIMIT, "The limit for an attempt that shows no sign of life"),
    key("kill_grace", ANY_DURATION, "The time between SIGTERM and SIGKILL"),
    key("linger", ANY_DURATION, "How long an attempt may run on after it wrote a complete result"),
    key("max_concurrent", Kind::Whole(1, 10_000), "Attempts that run at the same time"),
    key("mode", Kind::Word(&["spawn", "resident"]), "spawn: a process for each attempt; resident: one that stays, with one JSON line per handoff on stdin and one as the answer on stdout").default("\"spawn\""),
    key("max_handoffs", Kind::Whole(1, U32), "Only with mode = resident: replace the process after this many handoffs").only_with("mode", "resident"),
    key("max_age", LIMIT, "Only with mode = resident: replace the process at this age, between two handoffs").only_with("mode", "resident"),
    key("rate", Kind::Rate, "Most starts per time, such as 30/min; also /s, /h, /day"),
    key("retry", Kind::Table(RETRY), "How failures are retried"),
    key("input_schema", Kind::Text, "A file in schemas/, for requests that name no schema"),
    key("output_schema", Kind::Text, "A file in schemas/, for requests that name no schema"),
    key("verify", Kind::Command, "Gets the record on stdin; exit 0 means verified"),
    key("report", Kind::Files, "The files that may have the report of an attempt, such as out/{task_id}/*.md, relative to its working folder; the newest that the attempt wrote is read like stdout, where neither stdout nor HANDOFF_RESULT has a result"),
    key("umask", Kind::Umask, "The umask of its processes").default("\"027\""),
    key("user", Kind::User, "The user that it runs as, user or user:group; needs a daemon that runs as root"),
    key("rlimits", Kind::Table(RLIMITS), "The system's limits for each of its processes"),
    key("sandbox", Kind::Table(SANDBOX), "The part of the file system that it may use, by Landlock"),
];

#[rustfmt::skip]
const BLOCKED: &[Key] = &[
    key("security_concern", Kind::Agent, "The agent that helps, or human"),
    key("architecture_decision", Kind::Agent, "The agent that helps, or human"),
    key("missing_requirements", Kind::Agent, "The agent that helps, or human"),
    key("test_failures", Kind::Agent, "The agent that helps, or human"),
    key("out_of_scope", Kind::Agent, "The agent that helps, or human"),
    key("unknown", Kind::Agent, "The agent that helps, or human"),
];

#[rustfmt::skip]
const WORKFLOW: &[Key] = &[key("steps", Kind::Tables(1, &[
    key("phase", Kind::Text, "The name of the step").needed(),
    key("agent", Kind::Agent, "The agent that does the step, or human").needed(),
]), "The steps, in order").needed()];

#[rustfmt::skip]
const GATES: &[Key] = &[
    key("name", Kind::Text, "The name of the quality gate").needed(),
    key("phases", Kind::Words { least: 1, once: false }, "The phases that the gate guards").needed(),
    key("command", Kind::Command, "The command; exit code 0 passes").needed(),
];

/// All of `handoffd.toml`.
#[rustfmt::skip]
pub(super) const CONFIG: &[Key] = &[
    key("daemon", Kind::Table(DAEMON), "The daemon"),
    key("defaults", Kind::Table(DEFAULTS), "Defaults for every specialist"),
    key("intake", Kind::Table(&[
        key("strict", Kind::Flag, "Breaking a rule of quality is an error, not a warning").default("false"),
        key("missing_schema", Kind::Word(&["fail", "warn"]), "What to do with a request whose schema does not exist").default("\"fail\""),
    ]), "Checks of requests"),
    key("specialists", Kind::Agents(&Kind::Table(SPECIALIST)), "The specialists, by agent; \"*\" is for every other agent"),
    key("routes", Kind::Table(&[
        key("blocked", Kind::Table(BLOCKED), "The helper for each blocked_reason"),
    ]), "The agent that helps, or human"),
    key("workflows", Kind::Named(&Kind::Table(WORKFLOW)), "The workflows, by name"),
    key("phases", Kind::Table(&[
        key("order", Kind::Words { least: 0, once: true }, "The order of the phases"),
        key("requires", Kind::Named(&Kind::Words { least: 0, once: false }), "Artifact types that a task needs to enter a phase"),
    ]), "The phases of a task"),
    key("gates", Kind::Tables(0, GATES), "Quality gates: commands that must pass before a task enters a phase"),
    key("notify", Kind::Table(&[
        key("failed", Kind::Command, "Runs for each failure, with the record on stdin"),
        key("waiting_human", Kind::Command, "Runs for each handoff that waits for a human"),
        key("completed", Kind::Command, "Runs for each completed handoff"),
    ]), "Commands that notify people"),
    key("audit", Kind::Table(&[
        key("packages", Kind::FlagOr(&["dropped"]), "Which ended handoffs are also kept as packages: dropped, those that came as packages; true, all; false, none").default("\"dropped\""),
        key("anchor", Kind::Anchor, "Where number and hash of the log's last line go: journal, syslog, or file: and the path of a file or FIFO; nowhere where nothing is set"),
        key("anchor_lines", Kind::Whole(1, U32), "An anchor after so many lines").default("1000"),
        key("anchor_interval", Kind::Duration(SECOND, LONGEST), "An anchor after this time, where there are new lines").default("\"10m\""),
    ]), "The audit log"),
    key("retention", Kind::Table(&[
        key("completed", ANY_DURATION, "How long to keep completed handoffs"),
        key("failed", ANY_DURATION, "How long to keep failed handoffs"),
        key("logs", ANY_DURATION, "How long to keep logs"),
        key("worktrees", ANY_DURATION, "How long worktrees of ended chains are kept; branches with commits of their own stay"),
        key("sessions", ANY_DURATION, "How long the files of coding agents' sessions are kept after the end of their handoff"),
    ]), "How long to keep ended handoffs; unset keeps them for ever"),
    key("context", Kind::Table(&[
        key("window_tokens", Kind::Whole(1, U32), "The context window of an agent, in tokens").default("200000"),
        key("compact_at", Kind::Number(0.001, 1.0), "The share of the window above which a record is compacted").default("0.25"),
    ]), "How much of its window an agent is handed"),
    key("metrics", Kind::Table(&[
        key("listen", Kind::Loopback, "The address of the metrics page, on this machine only; unset serves none"),
    ]), "Metrics for monitoring"),
];

/// What the configuration is, in a list of the published formats.
pub const ABOUT: &str = "The configuration, handoffd.toml";

/// The schema of a configuration, as JSON would have it.
pub fn schema() -> Value {
    let mut defs = Map::new();
    let mut body = table(CONFIG, &mut defs);
    body["$defs"] = Value::Object(defs);
    headed("config", ABOUT, body)
}

fn table(keys: &[Key], defs: &mut Map<String, Value>) -> Value {
    let mut properties = Map::new();
    for key in keys {
        let mut schema = described(key.kind.schema(defs), key.about);
        let default = key.default.and_then(|json| serde_json::from_str(json).ok());
        if let (Some(default), Some(schema)) = (default, schema.as_object_mut()) {
            schema.insert("default".to_owned(), default);
        }
        properties.insert(key.name.to_owned(), schema);
    }
    let is_replaced = |key: &Key| keys.iter().any(|it| it.instead_of == Some(key.name));
    let needed = keys.iter().filter(|key| key.needed && !is_replaced(key));
    let needed: Vec<&str> = needed.map(|key| key.name).collect();
    let mut schema = json!({
        "type": "object", "properties": properties, "additionalProperties": false,
    });
    if !needed.is_empty() {
        schema["required"] = json!(needed);
    }
    let bound = keys.iter().filter_map(|key| {
        let rule = match key.only_with? {
            With::Word(other, word) => {
                json!({"required": [other], "properties": {other: {"const": word}}})
            }
            With::Any(other, _) => json!({"required": [other]}),
        };
        Some((key.name.to_owned(), rule))
    });
    let bound: Map<String, Value> = bound.collect();
    if !bound.is_empty() {
        schema["dependentSchemas"] = Value::Object(bound);
    }
    if let Some((key, other)) = keys.iter().find_map(|it| Some((it.name, it.instead_of?))) {
        schema["oneOf"] = json!([{"required": [key]}, {"required": [other]}]);
    }
    let wanting = keys.iter().find_map(|it| Some((it.name, it.wants?)));
    if let Some((key, (word, other))) = wanting {
        schema["if"] = json!({"required": [key], "properties": {key: {"const": word}}});
        schema["then"] = json!({"required": [other]});
    }
    schema
}

impl Kind {
    fn schema(&self, defs: &mut Map<String, Value>) -> Value {
        match self {
            Self::Flag => json!({"type": "boolean"}),
            Self::FlagOr(words) => json!({"enum": flags_and(words)}),
            Self::Whole(least, most) => {
                json!({"type": "integer", "minimum": least, "maximum": most})
            }
            Self::Number(least, most) => {
                json!({"type": "number", "minimum": least, "maximum": most})
            }
            Self::Duration(least, most) => {
                let (from, to) = (Shown(*least), Shown(*most));
                let name = format!("duration-{from}-{to}");
                let schema = json!({
                    "description": format!("A duration from {from} to {to}, such as 30s or 1h 30m"),
                    "type": "string", "pattern": patterns::duration_between(*least, *most),
                    "allOf": [{"pattern": if least.is_zero() { "[0-9]" } else { "[1-9]" }}],
                });
                shared(defs, name, schema)
            }
            Self::Size => shared(defs, "size".to_owned(), size()),
            Self::Rate => json!({
                "type": "string", "examples": ["30/min"],
                "pattern": "^ *0*[1-9][0-9]{0,8} */ *(s|sec|second|min|minute|h|hour|day) *$",
            }),
            Self::Loopback => loopback(),
            Self::Anchor => json!({
                "type": "string", "pattern": "^(journal|syslog|file:/[^\\x00]+)$",
                "examples": ["journal", "file:/var/log/handoffd-anchors/shop"],
            }),
            Self::Word(words) => json!({"enum": words}),
            Self::Text => word(),
            Self::Agent => json!({
                "type": "string", "pattern": patterns::AGENT, "not": {"enum": ["*", "@*"]},
            }),
            Self::Command => {
                json!({
                    "type": "array", "minItems": 1, "prefixItems": [word()], "items": text(),
                })
            }
            Self::CodingAgent => json!({
                "type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]*$",
                "examples": handoffd_agents::run::known_agents(),
            }),
            Self::Words { least, once } => json!({
                "type": "array", "items": word(), "minItems": least, "uniqueItems": once,
            }),
            Self::PathsInside => json!({
                "type": "array",
                "items": {"allOf": [word(), {"not": {"pattern": "^/|(^|/)\\.\\.(/|$)"}}]},
            }),
            Self::Files => json!({"allOf": [
                word(), {"not": {"pattern": "^/|(^|/)\\.\\.(/|$)"}},
                {"pattern": format!("^([^{{}}]|\\{{({})\\}})*$", PLACEHOLDERS.join("|"))},
            ]}),
            Self::Umask => json!({"type": "string", "pattern": "^0?[0-7]{3}$"}),
            Self::User => json!({
                "type": "string", "pattern": "^[^:/\\n\\x00]+(:[^:/\\n\\x00]+)?$",
            }),
            Self::Variables => json!({
                "type": "object", "propertyNames": variable(),
                "additionalProperties": text(),
            }),
            Self::VariableNames => json!({
                "type": "array", "items": variable(),
            }),
            Self::Table(keys) => table(keys, defs),
            Self::Tables(least, keys) => json!({
                "type": "array", "items": table(keys, defs), "minItems": least,
            }),
            Self::Named(kind) => {
                json!({"type": "object", "additionalProperties": kind.schema(defs)})
            }
            Self::Agents(kind) => json!({
                "type": "object", "additionalProperties": kind.schema(defs),
                "propertyNames": {
                    "pattern": patterns::AGENT, "not": {"enum": ["human", "@human"]},
                },
                "allOf": [{"patternProperties": {"^@?[*]$": {
                    "properties": {"mode": {"not": {"const": "resident"}}},
                }}}],
            }),
        }
    }
}

fn flags_and(words: &[&str]) -> Vec<Value> {
    let flags = [true, false].map(Value::from);
    let words = words.iter().map(|word| Value::from(*word));
    words.chain(flags).collect()
}

/// The name of a variable that is not the daemon's own.
fn variable() -> Value {
    json!({"type": "string", "pattern": "^[^=\\x00]+$", "not": {"pattern": "^HANDOFF_"}})
}

fn text() -> Value {
    json!({"type": "string", "pattern": "^[^\\x00]*$"})
}

fn word() -> Value {
    json!({"type": "string", "pattern": "^[^\\x00]+$"})
}

fn shared(defs: &mut Map<String, Value>, name: String, schema: Value) -> Value {
    let reference = json!({"$ref": format!("#/$defs/{name}")});
    defs.entry(name).or_insert(schema);
    reference
}

fn loopback() -> Value {
    let octet = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    let port = patterns::between(1, 65_535);
    json!({
        "type": "string", "examples": ["127.0.0.1:9464"],
        "pattern": format!("^127(\\.{octet}){{3}}:0*({port}|0)$"),
    })
}

/// At least 1 KiB, and no more than 64 bits hold.
fn size() -> Value {
    let units = [
        ("[bB]", 1024, 10_u128.pow(18)),
        ("[kK][bB]", 2, 10_u128.pow(15)),
        ("[kK][iI][bB]", 1, 10_u128.pow(15)),
        ("[mM][iI]?[bB]", 1, 10_u128.pow(12)),
        ("[gG][iI]?[bB]", 1, 10_u128.pow(9)),
    ];
    let parts: Vec<String> = units
        .iter()
        .map(|(unit, least, end)| format!("{} *{unit}", patterns::between(*least, end - 1)))
        .collect();
    json!({
        "description": "A size such as 8MiB (also B, kB, MB, GB, KiB, GiB), or a number of bytes; at least 1KiB",
        "anyOf": [
            {"type": "string", "pattern": format!("^ *0*({}) *$", parts.join("|"))},
            {"type": "integer", "minimum": 1024, "maximum": i64::MAX},
        ],
    })
}

#[cfg(test)]
#[path = "published_tests.rs"]
mod tests;
