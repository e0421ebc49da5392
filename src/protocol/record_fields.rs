//! The fields that the daemon adds to a producer's document, as tables: what a record shows.
//!
//! [`super::record`] reads `handoffd` into types of its own; a test holds the two against each
//! other.

use super::error::ErrorCode;
use super::lifecycle::State;
use super::record::FORMAT;
use super::shape::{COUNT, Field, MOST, Range, Shape, TEXTS, field, needed};

const fn always(name: &'static str, shape: Shape, about: &'static str) -> Field {
    needed(name, shape, about, "the daemon always writes it")
}

const SECONDS: Shape = Shape::Number(Range {
    what: "a number that is not negative",
    least: 0.0,
    open: false,
    most: f64::MAX,
    whole: false,
});

/// Numbers that 32 bits hold, with or without a sign.
const SMALL: Shape = Shape::Number(Range {
    what: "a whole number",
    least: -2_147_483_648.0,
    open: false,
    most: 2_147_483_647.0,
    whole: true,
});
const SMALL_COUNT: Shape = Shape::Number(Range {
    what: "a whole number that is not negative",
    least: 0.0,
    open: false,
    most: 4_294_967_295.0,
    whole: true,
});

const OBJECTS: Shape = Shape::List {
    of: &Shape::Map,
    what: "an array of objects",
    most: MOST,
};

const FIELD_ERRORS: Shape = Shape::List {
    of: &Shape::Object(&[
        always("field", Shape::Text, "The field, such as input.data.name"),
        always("error", Shape::Text, "What is wrong with the field"),
        field(
            "schema_path",
            Shape::Text,
            "The rule of the schema that the field breaks",
        ),
    ]),
    what: "an array of errors",
    most: MOST,
};

const OUTCOME: Shape = Shape::Word(&[
    "completed",
    "failed",
    "timeout",
    "stalled",
    "interrupted",
    "cancelled",
    "blocked",
    "needs_review",
    "delegated",
    "held",
]);

const LAST_RESULT: &[Field] = &[
    always("attempt", SMALL_COUNT, "The number of the attempt"),
    always("outcome", OUTCOME, "How the attempt ended"),
    field("result", Shape::Map, "The result, as the attempt left it"),
    field(
        "ref",
        Shape::Text,
        "The file that holds the result where it is over 256 KiB, or was taken out of the record; \
         relative to the root",
    ),
    field(
        "summary",
        Shape::Text,
        "The result in a line, where a file holds it",
    ),
];

const COMPACTED: &[Field] = &[
    always("part", Shape::Text, "Where it stood in the record"),
    always("count", SMALL_COUNT, "How many entries the file has of it"),
    always("ref", Shape::Text, "The file, relative to the root"),
];

const ATTEMPT: &[Field] = &[
    always(
        "number",
        SMALL_COUNT,
        "Counted from 1; a number is never used again",
    ),
    always("started_at", Shape::Instant, "When the attempt began"),
    field("ended_at", Shape::Instant, "When the attempt ended"),
    field("outcome", OUTCOME, "The outcome of the attempt"),
    field("exit_code", SMALL, "The exit code of the command"),
    field("signal", SMALL, "The signal that killed the command"),
    field(
        "error",
        Shape::Object(&[
            always("code", Shape::Text, "One of the error codes"),
            always("message", Shape::Text, "What happened"),
            field(
                "fields",
                FIELD_ERRORS,
                "The fields that the next attempt has to fix",
            ),
        ]),
        "Why it failed",
    ),
    field(
        "log",
        Shape::Text,
        "The log with its stderr; relative to the root",
    ),
    field("milliseconds", COUNT, "The duration of the attempt"),
    field(
        "usage",
        Shape::Map,
        "What it cost, as metadata.usage of its result says",
    ),
    field(
        "count",
        SMALL_COUNT,
        "How many attempts the entry stands for: of holds in a row, those beyond ten are one entry with \
         the last one's number and times",
    ),
];

/// The value of `handoffd`.
pub const META: &[Field] = &[
    always(
        "format",
        Shape::Number(Range {
            what: "a format that this version knows",
            least: 1.0,
            open: false,
            #[expect(clippy::cast_precision_loss, reason = "formats are few")]
            most: FORMAT as f64,
            whole: true,
        }),
        "The version of the stored format",
    ),
    field(
        "revision",
        COUNT,
        "Up by one with every change of the record",
    ),
    field(
        "attempts",
        Shape::List {
            of: &Shape::Object(ATTEMPT),
            what: "an array of attempts",
            most: MOST,
        },
        "Every attempt, in order",
    ),
    field(
        "spent",
        COUNT,
        "How many attempts belong to earlier retry budgets",
    ),
    field(
        "retries",
        SMALL_COUNT,
        "Automatic retries in this retry budget",
    ),
    field(
        "interruptions",
        SMALL_COUNT,
        "Attempts lost in this retry budget",
    ),
    field(
        "request_sha256",
        Shape::Text,
        "The hash of the dropped bytes",
    ),
    field(
        "rerun_of",
        Shape::Id,
        "The completed handoff whose request this is, submitted anew",
    ),
    field(
        "submitted",
        Shape::Map,
        "The producer's values of keys that the daemon writes itself",
    ),
    field("lifted", TEXTS, "Keys that come from the result"),
    field(
        "previous",
        Shape::List {
            of: &Shape::Any,
            what: "an array",
            most: MOST,
        },
        "Earlier outcomes",
    ),
    field(
        "to",
        Shape::Word(&State::STATUSES),
        "The folder of a decided move",
    ),
    field(
        "timer",
        Shape::Object(&[
            always("boot", Shape::Text, "The boot that at_boot_ms refers to"),
            always("at_boot_ms", COUNT, "When the wait ends, since that boot"),
            always("length_ms", COUNT, "The length of the whole wait"),
            always("until", Shape::Instant, "When the wait ends"),
        ]),
        "A wait with a time",
    ),
    field(
        "boot",
        Shape::Text,
        "The boot in which the daemon claimed the attempt",
    ),
    field(
        "holds_agent",
        Shape::Bool,
        "The specialist's other handoffs wait too",
    ),
    field("applied", TEXTS, "Commands that the daemon carried out"),
    field("rejected", Shape::Text, "What identifies the refused bytes"),
    field("destination", Shape::Text, "The path of the artifact"),
    field(
        "last_result",
        Shape::Object(LAST_RESULT),
        "The result of the last attempt that left one and did not complete the handoff",
    ),
    field(
        "compacted",
        Shape::List {
            of: &Shape::Object(COMPACTED),
            what: "an array of objects",
            most: MOST,
        },
        "What was taken out of the record and stands in a file",
    ),
    field("chain", Shape::Any, "The chain of the handoff"),
    field("hop", Shape::Any, "The hop in the chain"),
    field("parent", Shape::Id, "The parent of the handoff"),
    field(
        "mark",
        Shape::Text,
        "Proof that the daemon created it for its parent",
    ),
    field(
        "worktree",
        Shape::Object(&[
            always("line", Shape::Id, "The id that names the branch"),
            always("from", Shape::Id, "The line at whose tip the branch begins"),
        ]),
        "The git worktree of a handoff that runs beside others",
    ),
    field("children", OF_IDS, "The children of the handoff"),
    field("returns", OBJECTS, "The returns of the children"),
    field(
        "written",
        Shape::Map,
        "The parts of input.data that come from the parent's result: the number of entries at \
         the end of a list, or true for a whole value",
    ),
    field(
        "carried",
        Shape::Map,
        "Values of the chain under names that input.data uses for its own",
    ),
    field(
        "gathered",
        Shape::Map,
        "decisions, artifacts and open_questions of earlier results and of helpers",
    ),
    field(
        "returned",
        Shape::Text,
        "The outcome that the package returned to its sender",
    ),
];

const OF_IDS: Shape = Shape::List {
    of: &Shape::Id,
    what: "an array of ids",
    most: MOST,
};

const WAITING: &[Field] = &[
    always(
        "on",
        Shape::Word(&["retry", "time", "dependency", "handoff", "human"]),
        "What the handoff waits for",
    ),
    field("until", Shape::Instant, "The latest end of the wait"),
    field("ids", TEXTS, "The handoffs or artifacts to wait for"),
    field("reason", Shape::Text, "Why"),
];

const ERROR: &[Field] = &[
    always("code", Shape::Word(&ErrorCode::WORDS), "The error code"),
    always("message", Shape::Text, "What happened"),
    field("severity", Shape::Text, "error"),
    field("timestamp", Shape::Instant, "When"),
    field("detail_code", Shape::Text, "The specialist's own code"),
];

const STATE_DELTA: &[Field] = &[
    always("artifacts_added", COUNT, "How many artifacts were added"),
    always("decisions_made", COUNT, "How many decisions were added"),
    always("blocking_issues", COUNT, "How many issues are open"),
];

const HANDOFF_COMMAND: &[Field] = &[
    always("task_id", Shape::Text, "The task"),
    always(
        "target_agent",
        Shape::Text,
        "The agent that continues the task",
    ),
    always("phase", Shape::Any, "The phase of the task"),
    always(
        "state_delta",
        Shape::Object(STATE_DELTA),
        "What the previous handoff, or this package itself, added to the task",
    ),
    always(
        "context_summary",
        Shape::Text,
        "A summary for the agent, in fewer than 500 tokens",
    ),
    always(
        "state_file",
        Shape::Text,
        "The file with the whole state, relative to the root",
    ),
];

/// What the daemon writes at the top of a record.
pub const RECORD: &[Field] = &[
    always("handoff_id", Shape::Id, "The same as the file's stem"),
    always(
        "status",
        Shape::Word(&State::STATUSES),
        "The same as the folder",
    ),
    field("started_at", Shape::Instant, "When the last attempt began"),
    field("completed_at", Shape::Instant, "When the handoff completed"),
    field(
        "timestamp_completed",
        Shape::Instant,
        "The same as completed_at",
    ),
    field("failed_at", Shape::Instant, "When the handoff failed"),
    field("timestamp_failed", Shape::Instant, "The same as failed_at"),
    field(
        "execution_time_seconds",
        SECONDS,
        "The duration of all attempts of this retry budget; earlier ones are in handoffd.previous",
    ),
    field("result", Shape::Map, "The whole result of the specialist"),
    field("error", Shape::Object(ERROR), "Why it failed"),
    field(
        "waiting",
        Shape::Object(WAITING),
        "What the handoff waits for",
    ),
    field("retry_available", Shape::Bool, "Whether a retry may help"),
    field("retry_count", SMALL_COUNT, "Automatic retries so far"),
    field("max_retries", SMALL_COUNT, "The most automatic retries"),
    field("recovery_actions", TEXTS, "What to do next"),
    field(
        "answer",
        Shape::Map,
        "The answer of a human: action, choice, comment, by, at",
    ),
    field(
        "acknowledgment",
        Shape::Map,
        "What the receiver understood: received, from, understood, questions, starting; or \
         blockers and action",
    ),
    field(
        "handoff_command",
        Shape::Object(HANDOFF_COMMAND),
        "What the last attempt got of its task (context.task_id)",
    ),
    field(
        "output",
        Shape::Any,
        "The output: artifact_id, artifact_path, artifact_type, schema_compliance, sha256, \
         size_bytes, artifacts",
    ),
    field(
        "validation",
        Shape::Any,
        "status: the daemon's finding (passed, failed, unchecked); claimed: the specialist's \
         own; errors: the wrong fields",
    ),
    field("metadata", Shape::Any, "From the result"),
    field("next_steps", Shape::Any, "From the result"),
    field(
        "warnings",
        Shape::Any,
        "Warnings of the result and of the daemon",
    ),
    field("errors", Shape::Any, "From the result"),
    field(
        "dropped_as",
        Shape::Any,
        "The name of a file that is not a request",
    ),
    field("rejected_file", Shape::Any, "The file with its bytes"),
    always("handoffd", Shape::Object(META), "The daemon's own data"),
];

/// What must be there, by status.
pub const BY_STATUS: &[(&str, &[&str])] = &[
    ("in_progress", &["started_at"]),
    ("waiting", &["waiting"]),
    (
        "completed",
        &[
            "completed_at",
            "timestamp_completed",
            "execution_time_seconds",
            "result",
        ],
    ),
    (
        "failed",
        &[
            "failed_at",
            "timestamp_failed",
            "execution_time_seconds",
            "error",
            "retry_available",
            "retry_count",
            "max_retries",
            "recovery_actions",
        ],
    ),
];
