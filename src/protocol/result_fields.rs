//! The fields of a result, as a table: what the daemon acts on has a shape, the rest is carried.

use super::fields::{NOTES, REPORT_HANDOFF};
use super::question::{ON_APPROVE, ON_REJECT};
use super::shape::{Field, MOST, Range, Shape, field, needed};

/// What a result may claim.
pub const RESULT_STATUSES: &[&str] = &[
    "complete",
    "completed",
    "blocked",
    "needs_review",
    "delegate",
    "failed",
    "done",
    "success",
    "ok",
];

/// Files that the specialist wrote itself.
const WRITTEN: Shape = Shape::List {
    of: &Shape::Either(
        &[
            Shape::Text,
            Shape::OneOf(
                &["path", "artifact_path"],
                "it says where the file is",
                &[
                    field("path", Shape::Text, "Relative to the root"),
                    field("artifact_path", Shape::Text, "Another word for path"),
                    field("artifact_type", Shape::Text, "What kind of artifact"),
                    field("type", Shape::Text, "Another word for artifact_type"),
                ],
            ),
        ],
        "a path or an object with one",
    ),
    what: "an array of artifacts",
    most: MOST,
};

const ERROR: Shape = Shape::Either(
    &[
        Shape::Text,
        Shape::Object(&[
            field(
                "code",
                Shape::Text,
                "One of the error codes; another is kept as detail_code",
            ),
            field("message", Shape::Text, "What went wrong"),
            field("retryable", Shape::Bool, "Whether to try again"),
        ]),
    ],
    "a text or an object",
);

const BLOCKING_ISSUES: Shape = Shape::List {
    of: &Shape::Either(
        &[
            Shape::Text,
            Shape::Object(&[
                field("issue", Shape::Text, "What is wrong"),
                field("severity", Shape::Text, "blocker, high, medium or low"),
                field("suggested_action", Shape::Text, "What to do about it"),
                field(
                    "requires_human",
                    Shape::Bool,
                    "Whether a person must decide",
                ),
            ]),
        ],
        "a text or an object",
    ),
    what: "an array",
    most: MOST,
};

const QUESTION: Shape = Shape::Either(
    &[
        Shape::Text,
        Shape::Object(&[
            field("text", Shape::Text, "What a person is asked"),
            field(
                "options",
                Shape::Any,
                "What a person may choose from: a list of words, or an object with what each means",
            ),
            field(
                "on_approve",
                Shape::Word(ON_APPROVE),
                "complete: approving completes it; rerun: it runs again with the answer",
            ),
            field(
                "on_reject",
                Shape::Word(ON_REJECT),
                "fail: rejecting fails it; rerun: it runs again with the answer",
            ),
        ]),
    ],
    "a text or an object",
);

/// Tasks for others, where the status is delegate.
const CHILDREN: &[Field] = &[field(
    "children",
    Shape::List {
        of: &Shape::Object(&[
            needed(
                "agent",
                Shape::Agent,
                "Which specialist",
                "it says who is to do it",
            ),
            field("context", Shape::Any, "What the agent must know"),
            field("input", Shape::Any, "What it works on"),
        ]),
        what: "an array",
        most: MOST,
    },
    "Tasks for others, where the status is delegate",
)];

/// What stands in the `handoff` of a result: as in a report, but it has no id.
pub const RESULT_HANDOFF: [&[Field]; 2] = [
    match REPORT_HANDOFF {
        [_, rest @ ..] => rest,
        [] => &[],
    },
    CHILDREN,
];

/// What stands at the top of a result, besides `handoff`.
pub const RESULT: &[Field] = &[
    field(
        "status",
        Shape::Word(RESULT_STATUSES),
        "What became of the work; without it the exit code says so. done, success and ok are read \
         as complete, with a warning",
    ),
    field(
        "retry_after_seconds",
        Shape::Number(Range {
            what: "a number greater than 0",
            least: 0.0,
            open: true,
            most: f64::MAX,
            whole: false,
        }),
        "Not now: this handoff and the specialist's others wait this long, and no attempt is \
         counted",
    ),
    field("error", ERROR, "What went wrong"),
    field(
        "artifacts",
        WRITTEN,
        "Files that the specialist wrote itself",
    ),
    field(
        "question",
        QUESTION,
        "What a person is asked, where the status is needs_review",
    ),
    field("decisions", NOTES, "What was decided, and why"),
    field("blocking_issues", BLOCKING_ISSUES, "What stands in the way"),
    field("summary", Shape::Any, "What was done, in a sentence or two"),
    field("phase", Shape::Any, "The phase that ends"),
    field("output", Shape::Any, "What the record shows as output"),
    field(
        "artifact",
        Shape::Any,
        "A document that the daemon writes to expected_output.destination",
    ),
    field("artifact_type", Shape::Any, "What kind of artifact that is"),
    field(
        "validation",
        Shape::Any,
        "What the specialist checked; a status failed is a failure",
    ),
    field("metadata", Shape::Any, "Figures about the work"),
    field("next_steps", Shape::Any, "What could come next"),
    field("warnings", Shape::Any, "What somebody should know"),
    field("errors", Shape::Any, "What went wrong on the way"),
    field("quality_gates", Shape::Any, "Which gates passed"),
    field("files_modified", Shape::Any, "Relative to the root"),
    field("verification", Shape::Any, "Why it is right"),
    field("blocked_reason", Shape::Any, "Why it can't go on"),
    field("attempted", Shape::Any, "What was tried before"),
    field(
        "acknowledgment",
        Shape::Any,
        "Added to the record's; its action request_clarification means blocked",
    ),
];
