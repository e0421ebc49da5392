//! Failures of the agent's own, each with what to do about it.
//!
//! An agent's messages change with its versions, so each kind is known by several marks, and a
//! message that fits none is passed on as the agent wrote it.

use serde_json::{Map, Value, json};

/// Why an agent could not do the work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub kind: Kind,
    /// What the agent said, or what was found.
    pub said: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The program is not there, or can't be executed.
    NotFound,
    /// Nobody is logged in, or the key is wrong.
    NotLoggedIn,
    UnknownModel,
    NoNetwork,
    /// The program does not know an option that the adapter needs.
    TooOld,
    /// The stream ended in the middle.
    CutOff,
    /// The agent's own limit on money or turns for one attempt.
    LimitReached,
    /// The specialist's settings are wrong: prompt template, agent file.
    Settings,
    /// Anything else that the agent calls an error.
    Other,
}

impl Kind {
    /// `error.code` of the result; the daemon keeps it as `detail_code`.
    pub fn code(self) -> &'static str {
        match self {
            Self::NotFound => "AGENT_NOT_FOUND",
            Self::NotLoggedIn => "AGENT_NOT_LOGGED_IN",
            Self::UnknownModel => "AGENT_UNKNOWN_MODEL",
            Self::NoNetwork => "AGENT_NO_NETWORK",
            Self::TooOld => "AGENT_TOO_OLD",
            Self::CutOff => "AGENT_STREAM_CUT_OFF",
            Self::LimitReached => "AGENT_LIMIT_REACHED",
            Self::Settings => "AGENT_SETTINGS",
            Self::Other => "AGENT_ERROR",
        }
    }

    /// Whether the same attempt may succeed later without anybody's help.
    pub fn retryable(self) -> bool {
        match self {
            Self::NoNetwork | Self::CutOff | Self::Other => true,
            Self::NotFound
            | Self::NotLoggedIn
            | Self::UnknownModel
            | Self::TooOld
            | Self::LimitReached
            | Self::Settings => false,
        }
    }
}

/// Marks in what an agent says, in lower case, by kind. The first kind that has one wins.
const MARKS: &[(Kind, &[&str])] = &[
    (
        Kind::NotLoggedIn,
        &[
            "401",
            "403 forbidden",
            "invalid api key",
            "invalid x-api-key",
            "authentication_error",
            "authentication_failed",
            "not logged in",
            "please run /login",
            "oauth token has expired",
            "missing environment variable",
            "api key not found",
            "api key not valid",
            "api_key environment variable",
            "invalid auth method",
        ],
    ),
    (
        Kind::UnknownModel,
        &[
            "model_not_found",
            "unknown model",
            "model not found",
            "not_found_error",
            "may not exist or you may not have access",
            "issue with the selected model",
            "does not exist or you do not have access",
            "is not supported when using codex",
        ],
    ),
    (
        Kind::NoNetwork,
        &[
            "enotfound",
            "econnrefused",
            "econnreset",
            "etimedout",
            "ehostunreach",
            "connection error",
            "connection refused",
            "network error",
            "unable to connect",
            "error sending request",
            "dns error",
            "fetch failed",
            "stream disconnected",
            "stream_truncated",
        ],
    ),
    (
        Kind::TooOld,
        &[
            "unknown option",
            "unexpected argument",
            "unrecognized option",
            "unknown argument",
        ],
    ),
];

/// What marks a used-up quota in what an agent says, in lower case.
const QUOTA_MARKS: &[&str] = &[
    "429",
    "rate_limit",
    "rate limit",
    "usage limit",
    "quota",
    "too many requests",
    "resource_exhausted",
    "overloaded",
];

/// Which kind of trouble a message is about.
pub fn kind_of(said: &str) -> Kind {
    let said = said.to_lowercase();
    let found = MARKS
        .iter()
        .find(|(_, marks)| marks.iter().any(|mark| has(&said, mark)));
    found.map_or(Kind::Other, |(kind, _)| *kind)
}

/// Whether a message says that a quota is used up.
pub fn is_quota(said: &str) -> bool {
    let said = said.to_lowercase();
    QUOTA_MARKS.iter().any(|mark| has(&said, mark))
}

/// A number is a mark only by itself: ids and sizes have digits too.
fn has(said: &str, mark: &str) -> bool {
    if mark.bytes().all(|byte| byte.is_ascii_digit()) {
        let mut words = said.split(|c: char| !c.is_alphanumeric());
        return words.any(|word| word == mark);
    }
    said.contains(mark)
}

impl Trouble {
    pub fn new(kind: Kind, said: impl Into<String>) -> Self {
        Self {
            kind,
            said: said.into(),
        }
    }

    pub fn of(said: impl Into<String>) -> Self {
        let said = said.into();
        Self {
            kind: kind_of(&said),
            said,
        }
    }

    /// What happened and what to do, in one message.
    pub fn message(&self, agent: &str, program: &str) -> String {
        let said = self.said.trim();
        let (what, advice) = match self.kind {
            Kind::NotFound => (
                format!("can't start {program}"),
                format!(
                    "Install {agent}, or set the specialist's `program` to the full path; the \
                     daemon searches its own PATH"
                ),
            ),
            Kind::NotLoggedIn => (
                format!("{agent} is not logged in"),
                format!(
                    "Log in as the user that the daemon runs as, or list the variable with the \
                     key in the specialist's `pass_env`; test it with `{program}` in a terminal; \
                     then retry"
                ),
            ),
            Kind::UnknownModel => (
                format!("{agent} does not know the model"),
                "Correct the model in the specialist's `args`; then retry".to_owned(),
            ),
            Kind::NoNetwork => (
                format!("{agent} can't reach its model"),
                "Check the network, the `network` key of the specialist's sandbox, and the \
                 profile of the service"
                    .to_owned(),
            ),
            Kind::TooOld => (
                format!("{agent} does not support a required option"),
                format!(
                    "Update {agent}, or remove the option from the specialist's `args`; then \
                retry"
                ),
            ),
            Kind::CutOff => (
                format!("the output of {agent} ended before its result"),
                "Read the attempt's log to see how far it got; the next attempt continues in the \
                 same session"
                    .to_owned(),
            ),
            Kind::LimitReached => (
                format!("{agent} reached its own limit for one attempt"),
                "Raise `max_usd` or the limit in the specialist's `args`, or give the agent less \
                 work; then retry: it continues in the same session"
                    .to_owned(),
            ),
            Kind::Settings => (
                "the specialist's settings are wrong".to_owned(),
                "Correct the named setting; then retry".to_owned(),
            ),
            Kind::Other => (
                format!("{agent} failed"),
                "Read the attempt's log for more".to_owned(),
            ),
        };
        if said.is_empty() {
            format!("{what}. {advice}")
        } else {
            format!("{what}: {said}. {advice}")
        }
    }

    /// A result that says so.
    pub fn result(&self, agent: &str, program: &str) -> Map<String, Value> {
        let message = self.message(agent, program);
        let error = json!({
            "code": self.kind.code(), "message": message, "retryable": self.kind.retryable(),
        });
        Map::from_iter([
            ("status".to_owned(), "failed".into()),
            ("summary".to_owned(), message.into()),
            ("error".to_owned(), error),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_agents_say_is_understood() {
        for (said, kind) in [
            ("Invalid API key · Fix external API key", Kind::NotLoggedIn),
            (
                "unexpected status 401 Unauthorized: invalid x-api-key, url: http://127.0.0.1/v1/responses",
                Kind::NotLoggedIn,
            ),
            ("Not logged in · Please run /login", Kind::NotLoggedIn),
            (
                "There's an issue with the selected model (x). It may not exist or you may not have access to it.",
                Kind::UnknownModel,
            ),
            (
                "API Error: Unable to connect to API (ECONNREFUSED)",
                Kind::NoNetwork,
            ),
            ("error: unknown option '--json-schema'", Kind::TooOld),
            ("something else", Kind::Other),
            ("request req_0140111 failed after 4290 bytes", Kind::Other),
        ] {
            assert_eq!(kind_of(said), kind, "{said}");
        }
    }

    #[test]
    fn a_used_up_quota_is_no_failure() {
        for said in [
            "exceeded retry limit, last status: 429 Too Many Requests",
            "You've hit your usage limit. Try again at 3 PM.",
            "RESOURCE_EXHAUSTED",
        ] {
            assert!(is_quota(said), "{said}");
        }
        assert!(!is_quota("unexpected status 401 Unauthorized"));
        assert!(!is_quota("the answer has 14290 bytes"));
    }

    #[test]
    fn a_message_says_what_happened_and_what_to_do() {
        let trouble = Trouble::of("Invalid API key");
        let message = trouble.message("claude", "claude");
        assert!(message.starts_with("claude is not logged in: Invalid API key. Log in"));
        let result = trouble.result("claude", "claude");
        assert_eq!(result["error"]["retryable"], false);
        assert_eq!(result["error"]["code"], "AGENT_NOT_LOGGED_IN");
    }
}
