//! The fields of the three dialects, as tables: what the daemon reads, and what it only
//! carries but must be able to rely on.

use super::request::GateKind;
use super::shape::{Field, MOST, Range, Shape, TEXT_OR_TEXTS, TEXTS, field, needed};

/// How many handoffs one may depend on.
pub const MAX_DEPENDENCIES: usize = 1000;

const DEPENDENCIES: Shape = Shape::Either(
    &[
        Shape::Id,
        Shape::List {
            of: &Shape::Id,
            what: "an array of strings",
            most: MAX_DEPENDENCIES,
        },
    ],
    "an array of strings",
);

const SECONDS_ABOVE_0: Shape = Shape::Number(Range {
    what: "a number greater than 0",
    least: 0.0,
    open: true,
    most: f64::MAX,
    whole: false,
});

const RETRY_POLICY: &[Field] = &[
    field(
        "max_retries",
        Shape::Number(Range {
            what: "a whole number from 0 to 1000",
            least: 0.0,
            open: false,
            most: 1000.0,
            whole: true,
        }),
        "Retries after the first attempt",
    ),
    field(
        "retry_delay_seconds",
        Shape::Number(Range {
            what: "a number that is not negative",
            least: 0.0,
            open: false,
            most: f64::MAX,
            whole: false,
        }),
        "The wait before the first retry",
    ),
    field(
        "backoff_multiplier",
        Shape::Number(Range {
            what: "a number from 1 to 1000",
            least: 1.0,
            open: false,
            most: 1000.0,
            whole: false,
        }),
        "The factor from one wait to the next",
    ),
];

const WORKFLOW_STATE: &[Field] = &[
    field(
        "name",
        Shape::Text,
        "A key of [workflows]; with workflows configured, an unknown name is refused",
    ),
    field(
        "current_step",
        Shape::Number(Range {
            what: "a whole number from 1",
            least: 1.0,
            open: false,
            most: 1_000_000.0,
            whole: true,
        }),
        "Counted from 1",
    ),
    field("completed_steps", STEPS, "Named by phase"),
    field("remaining_steps", STEPS, "Named by phase"),
];

const STEPS: Shape = Shape::List {
    of: &Shape::Phase,
    what: "an array of phases",
    most: MOST,
};

pub const GATE: &[Field] = &[
    field(
        "type",
        Shape::Word(&GateKind::WORDS),
        "blocking (the default) holds the handoff; advisory only notifies people",
    ),
    field("name", Shape::Text, "The name of the gate"),
    field("step", Shape::Any, "The step of the workflow"),
    field("deadline", Shape::Deadline, "The deadline for an answer"),
    field(
        "warn_before",
        Shape::Duration,
        "How long before the deadline to warn people",
    ),
    field(
        "on_expiry",
        Shape::Word(&["reject", "approve", "escalate"]),
        "What happens without an answer at the deadline",
    ),
    field(
        "escalate_to",
        Shape::Agent,
        "Who decides after the deadline",
    ),
    field(
        "on_reject",
        Shape::Word(&["fail", "rerun"]),
        "What happens after a rejection",
    ),
];

pub const VALIDATION_REQUEST: &[Field] = &[
    field("items", TEXT_OR_TEXTS, "What the human should look at"),
    field(
        "options",
        Shape::Either(&[TEXTS, Shape::Map], "an object or an array of strings"),
        "The answers that the human can choose from",
    ),
];

/// Read at the top of a request; in packages and reports inside `handoff` first, then at the
/// top.
pub const ACTED_ON: &[Field] = &[
    field(
        "timeout_seconds",
        SECONDS_ABOVE_0,
        "The limit for one attempt",
    ),
    field(
        "priority",
        Shape::Word(&["critical", "high", "normal", "low"]),
        "How urgent it is",
    ),
    field("retry_policy", Shape::Object(RETRY_POLICY), "When to retry"),
    field("not_before", Shape::Instant, "The earliest start"),
    field(
        "depends_on",
        DEPENDENCIES,
        "Handoffs that must complete first",
    ),
    field(
        "requires_artifacts",
        TEXTS,
        "Artifacts, by id or path, that must exist first",
    ),
    field(
        "input",
        Shape::Object(&[
            field("schema", Shape::Text, "A file in schemas/"),
            field("data", Shape::Any, "The document that must match it"),
        ]),
        "What the specialist works on",
    ),
    field(
        "expected_output",
        Shape::Object(&[
            field("schema", Shape::Text, "A file in schemas/"),
            field("artifact_type", Shape::Text, "The type of the artifact"),
            field(
                "destination",
                Shape::Destination,
                "The path below artifacts/; the daemon fills in {handoff_id}, {task_id}, \
                 {agent}, {phase}, {artifact_type} and {timestamp}",
            ),
        ]),
        "The artifact that must come out, and its path",
    ),
    field(
        "workflow_state",
        Shape::Object(WORKFLOW_STATE),
        "The position in a workflow",
    ),
    field("gate", Shape::Object(GATE), "A question to a human"),
    field(
        "validation_request",
        Shape::Object(VALIDATION_REQUEST),
        "The question for the human",
    ),
];

/// The context of a request, and what every context may have.
pub const CONTEXT: &[Field] = &[field(
    "task_id",
    Shape::Task,
    "The task whose state this handoff updates",
)];

const AGENT_NEEDED: &str = "the agent that the handoff is for";

/// The rest of a request.
pub const REQUEST: &[Field] = &[
    field("handoff_id", Shape::Id, "The same as the file's stem"),
    field(
        "target",
        Shape::Object(&[
            needed(
                "agent_id",
                Shape::Agent,
                "The agent, or human",
                AGENT_NEEDED,
            ),
            field("phase", Shape::Any, "The phase of this handoff"),
        ]),
        "The target",
    ),
    field(
        "source",
        Shape::Object(&[field("agent_id", Shape::Any, "The sender")]),
        "The sender",
    ),
    field("context", Shape::Object(CONTEXT), "Background of the work"),
];

/// What stands at the top of a package or a report, besides what is acted on.
pub const TOP: &[Field] = &[
    field("handoff_id", Shape::Id, "The same as the file's stem"),
    field(
        "context",
        Shape::Loose(CONTEXT),
        "Used where handoff.context is missing",
    ),
];

/// An artifact that is referred to: a path, or an object that has one.
pub const ARTIFACTS: Shape = Shape::List {
    of: &Shape::Either(
        &[
            Shape::Text,
            Shape::Object(&[
                field("path", Shape::Text, "Relative to the root"),
                field("type", Shape::Text, "The type of the artifact"),
                field("description", Shape::Text, "A description"),
            ]),
        ],
        "a path or an object with one",
    ),
    what: "an array of artifacts",
    most: MOST,
};

pub const NOTES: Shape = Shape::List {
    of: &Shape::Either(&[Shape::Text, Shape::Map], "a text or an object"),
    what: "an array",
    most: MOST,
};

/// What stands in the `handoff` of a package, besides what is acted on.
pub const PACKAGE: &[Field] = &[
    field("id", Shape::Id, "The same as the file's stem"),
    field(
        "from",
        Shape::Object(&[
            field("agent", Shape::Agent, "The sender"),
            field("step", Shape::Any, "The step of the workflow"),
        ]),
        "The sender",
    ),
    field(
        "to",
        Shape::Object(&[
            needed("agent", Shape::Agent, "The agent, or human", AGENT_NEEDED),
            field("reason", Shape::Text, "The reason for this agent"),
            field("phase", Shape::Phase, "The phase of this handoff"),
        ]),
        "The receiver",
    ),
    field(
        "context",
        Shape::Object(&[
            field("summary", Shape::Text, "What was done"),
            field("decisions", NOTES, "Decisions, with the reasons"),
            field("artifacts", ARTIFACTS, "Artifacts so far"),
            field("open_questions", NOTES, "Open questions"),
            field(
                "task_id",
                Shape::Task,
                "The task whose state this handoff updates",
            ),
        ]),
        "The work so far",
    ),
    field(
        "expectations",
        Shape::Object(&[
            field("deliverable", Shape::Text, "What is expected"),
            field("constraints", TEXT_OR_TEXTS, "Constraints on the work"),
            field("success_criteria", TEXT_OR_TEXTS, "Conditions for success"),
        ]),
        "What is expected",
    ),
];

pub const STATUSES: &[&str] = &["complete", "blocked", "needs_review"];

pub const BLOCKED_REASONS: &[&str] = &[
    "security_concern",
    "architecture_decision",
    "missing_requirements",
    "test_failures",
    "out_of_scope",
    "unknown",
];

/// What stands at the top of a report, and of a result that is one.
pub const REPORT: &[Field] = &[
    field("agent", Shape::Text, "The agent that reports"),
    field("output_type", Shape::Text, "The type of the report"),
    field("phase", Shape::Phase, "The phase that ends"),
    field(
        "summary",
        Shape::Text,
        "What was done, in a sentence or two",
    ),
    field(
        "blocked_reason",
        Shape::Word(BLOCKED_REASONS),
        "Why the agent can't continue",
    ),
    field("attempted", TEXT_OR_TEXTS, "What the agent has tried"),
    field("files_modified", TEXTS, "Relative to the root"),
    field("artifacts", ARTIFACTS, "Other files of the work"),
    field(
        "verification",
        Shape::Map,
        "Evidence that the work is right",
    ),
];

/// What stands in the `handoff` of a report.
pub const REPORT_HANDOFF: &[Field] = &[
    field("id", Shape::Id, "The same as the file's stem"),
    field(
        "next_phase",
        Shape::Phase,
        "The next phase; complete ends the work",
    ),
    field("next_agent", Shape::Agent, "The next agent"),
    field(
        "context",
        Shape::Either(
            &[Shape::Text, Shape::Object(CONTEXT)],
            "a text or an object",
        ),
        "What the next agent must know",
    ),
    field("blockers", NOTES, "What blocks the agent"),
];
