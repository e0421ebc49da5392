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
                "the path of the file",
                &[
                    field("path", Shape::Text, "Relative to the root"),
                    field("artifact_path", Shape::Text, "The same as path"),
                    field("artifact_type", Shape::Text, "The type of the artifact"),
                    field("type", Shape::Text, "The same as artifact_type"),
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
                "One of the error codes; any other is kept as detail_code",
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
                field("issue", Shape::Text, "The issue"),
                field("severity", Shape::Text, "blocker, high, medium or low"),
                field("suggested_action", Shape::Text, "A suggestion"),
                field("requires_human", Shape::Bool, "Whether a human must decide"),
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
            field("text", Shape::Text, "What a human is asked"),
            field(
                "options",
                Shape::Any,
                "What a human may choose from: a list of words, or an object with what each means",
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

/// Work for other agents, with the status delegate.
const CHILDREN: &[Field] = &[field(
    "children",
    Shape::List {
        of: &Shape::Object(&[
            needed(
                "agent",
                Shape::Agent,
                "The agent",
                "the agent for this child",
            ),
            field("context", Shape::Any, "Context for the agent"),
            field("input", Shape::Any, "The input for the agent"),
        ]),
        what: "an array",
        most: MOST,
    },
    "Work for other agents, with the status delegate",
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
        "How the work ended; without it, the exit code decides. done, success and ok mean \
         complete, with a warning",
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
        "A hold: this handoff and the specialist's others wait this long; it does not count as \
         an attempt",
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
        "What a human is asked, where the status is needs_review",
    ),
    field("decisions", NOTES, "Decisions, with the reasons"),
    field(
        "blocking_issues",
        BLOCKING_ISSUES,
        "Issues that block the task",
    ),
    field("summary", Shape::Any, "What was done, in a sentence or two"),
    field("phase", Shape::Any, "The phase that ends"),
    field("output", Shape::Any, "The output of the record"),
    field(
        "artifact",
        Shape::Any,
        "A document that the daemon writes to expected_output.destination",
    ),
    field("artifact_type", Shape::Any, "The type of that artifact"),
    field(
        "validation",
        Shape::Any,
        "What the specialist checked; the status failed is a failure",
    ),
    field("metadata", Shape::Any, "Figures about the work"),
    field("next_steps", Shape::Any, "Suggestions for what comes next"),
    field("warnings", Shape::Any, "Warnings for people"),
    field("errors", Shape::Any, "Errors on the way"),
    field(
        "quality_gates",
        Shape::Any,
        "Quality gates that passed or failed",
    ),
    field("files_modified", Shape::Any, "Relative to the root"),
    field(
        "verification",
        Shape::Any,
        "Evidence that the work is right",
    ),
    field("blocked_reason", Shape::Any, "Why the agent can't continue"),
    field("attempted", Shape::Any, "What the agent has tried"),
    field(
        "acknowledgment",
        Shape::Any,
        "Merged into the record's acknowledgment; the action request_clarification means blocked",
    ),
];
