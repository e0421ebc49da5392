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
        always("field", Shape::Text, "Such as input.data.name"),
        always("error", Shape::Text, "What is wrong with it"),
        field(
            "schema_path",
            Shape::Text,
            "The rule of the schema that it breaks",
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
        "Counted from 1, and never used again",
    ),
    always("started_at", Shape::Instant, "When it began"),
    field("ended_at", Shape::Instant, "When it ended"),
    field("outcome", OUTCOME, "How it ended"),
    field("exit_code", SMALL, "What the command exited with"),
    field("signal", SMALL, "What killed it"),
    field(
        "error",
        Shape::Object(&[
            always("code", Shape::Text, "One of the error codes"),
            always("message", Shape::Text, "What happened"),
            field("fields", FIELD_ERRORS, "What the next attempt has to mend"),
        ]),
        "Why it failed",
    ),
    field(
        "log",
        Shape::Text,
        "What it wrote to stderr; relative to the root",
    ),
    field("milliseconds", COUNT, "How long it ran"),
    field(
        "usage",
        Shape::Map,
        "What it cost, as metadata.usage of its result says",
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
        "Every start, in order",
    ),
    field(
        "spent",
        COUNT,
        "How many attempts belong to earlier budgets",
    ),
    field("retries", SMALL_COUNT, "Automatic retries in this budget"),
    field("interruptions", SMALL_COUNT, "Attempts lost in this budget"),
    field(
        "request_sha256",
        Shape::Text,
        "Of the bytes that were dropped",
    ),
    field(
        "submitted",
        Shape::Map,
        "What the producer wrote under keys that the daemon needs",
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
        "Where a decided move leads",
    ),
    field(
        "timer",
        Shape::Object(&[
            always("boot", Shape::Text, "Which boot at_boot_ms is of"),
            always("at_boot_ms", COUNT, "When it is due, since that boot"),
            always("length_ms", COUNT, "How long the whole wait is"),
            always("until", Shape::Instant, "When it is due"),
        ]),
        "A wait that a clock ends",
    ),
    field(
        "boot",
        Shape::Text,
        "The boot in which the attempt was claimed",
    ),
    field(
        "holds_agent",
        Shape::Bool,
        "The specialist's other handoffs wait too",
    ),
    field("applied", TEXTS, "Commands that were carried out"),
    field("rejected", Shape::Text, "What tells rejected bytes again"),
    field("destination", Shape::Text, "Where the artifact goes"),
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
    field("chain", Shape::Any, "The chain that it belongs to"),
    field("hop", Shape::Any, "Its place in the chain"),
    field("parent", Shape::Id, "The handoff that it follows from"),
    field(
        "mark",
        Shape::Text,
        "Proof that the daemon made it for its parent",
    ),
    field("children", OF_IDS, "Handoffs that follow from it"),
    field("returns", OBJECTS, "What children gave back"),
    field(
        "written",
        Shape::Map,
        "What the result that asked for it wrote of input.data: how many entries at the end of a \
         list, or true for a whole value",
    ),
    field(
        "carried",
        Shape::Map,
        "What the chain carries under names that input.data uses for its own",
    ),
    field(
        "gathered",
        Shape::Map,
        "decisions, artifacts and open_questions of earlier results and of helpers",
    ),
    field(
        "returned",
        Shape::Text,
        "The outcome with which the package has returned to the agent that sent it",
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
        "What it waits for",
    ),
    field("until", Shape::Instant, "When the wait ends at the latest"),
    field("ids", TEXTS, "Handoffs or artifacts that it waits for"),
    field("reason", Shape::Text, "Why"),
];

const ERROR: &[Field] = &[
    always(
        "code",
        Shape::Word(&ErrorCode::WORDS),
        "What kind of failure",
    ),
    always("message", Shape::Text, "What happened"),
    field("severity", Shape::Text, "error"),
    field("timestamp", Shape::Instant, "When"),
    field("detail_code", Shape::Text, "The specialist's own code"),
];

const STATE_DELTA: &[Field] = &[
    always("artifacts_added", COUNT, "How many artifacts came"),
    always("decisions_made", COUNT, "How many decisions came"),
    always("blocking_issues", COUNT, "How many issues there are"),
];

const HANDOFF_COMMAND: &[Field] = &[
    always("task_id", Shape::Text, "The task"),
    always("target_agent", Shape::Text, "Who goes on with it"),
    always("phase", Shape::Any, "The phase that it is in"),
    always(
        "state_delta",
        Shape::Object(STATE_DELTA),
        "What the handoff before this one, or this package itself, brought to the task",
    ),
    always(
        "context_summary",
        Shape::Text,
        "What the agent should know, in fewer than 500 tokens",
    ),
    always(
        "state_file",
        Shape::Text,
        "Where the whole state is, from the root",
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
    field("completed_at", Shape::Instant, "When it was completed"),
    field(
        "timestamp_completed",
        Shape::Instant,
        "The same as completed_at",
    ),
    field("failed_at", Shape::Instant, "When it was given up"),
    field("timestamp_failed", Shape::Instant, "The same as failed_at"),
    field(
        "execution_time_seconds",
        SECONDS,
        "All attempts of this budget together; those before are in handoffd.previous",
    ),
    field("result", Shape::Map, "What the specialist gave back, whole"),
    field("error", Shape::Object(ERROR), "Why it failed"),
    field("waiting", Shape::Object(WAITING), "What it waits for"),
    field(
        "retry_available",
        Shape::Bool,
        "Whether dropping it again may help",
    ),
    field(
        "retry_count",
        SMALL_COUNT,
        "Automatic retries that were made",
    ),
    field("max_retries", SMALL_COUNT, "How many there may be"),
    field("recovery_actions", TEXTS, "What to do next"),
    field(
        "answer",
        Shape::Map,
        "What a person said: action, choice, comment, by, at",
    ),
    field(
        "acknowledgment",
        Shape::Map,
        "What a receiver made of it: received, from, understood, questions, starting; or \
         blockers and action",
    ),
    field(
        "handoff_command",
        Shape::Object(HANDOFF_COMMAND),
        "What the last attempt was given of its task (context.task_id)",
    ),
    field(
        "output",
        Shape::Any,
        "What came out: artifact_id, artifact_path, artifact_type, schema_compliance, sha256, \
         size_bytes, artifacts",
    ),
    field(
        "validation",
        Shape::Any,
        "status is what the daemon found (passed, failed, unchecked), claimed the specialist's \
         word; errors are the fields that are wrong",
    ),
    field("metadata", Shape::Any, "From the result"),
    field("next_steps", Shape::Any, "From the result"),
    field(
        "warnings",
        Shape::Any,
        "From the result, and what the daemon has to say",
    ),
    field("errors", Shape::Any, "From the result"),
    field(
        "dropped_as",
        Shape::Any,
        "The name of a file that is no request",
    ),
    field("rejected_file", Shape::Any, "Where its bytes are"),
    always(
        "handoffd",
        Shape::Object(META),
        "All that is the daemon's own",
    ),
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
