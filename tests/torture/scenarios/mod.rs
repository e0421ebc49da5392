//! What a daemon is doing when a fault falls, and what must have come of it in the end.
//!
//! The roots lie in memory, where syncs are quick; they are made all the same. Waits are short,
//! so that thousands of faults can be tried.

mod daemons;
mod verdict;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::common::{Root, orders, with};
use crate::tracer::{Deed, Fault, Kind};

pub use daemons::{Leaving, keep, traced, traced_to_the_end, undisturbed};
pub use verdict::{Strict, breaches};

const CONFIG: &str = "
daemon.max_concurrent = 2
daemon.rescan = '200ms'
daemon.settle = '5ms'
defaults.kill_grace = '20ms'
defaults.retry.delay = '5ms'
defaults.retry.max_retries = 1
defaults.timeout = '30s'
routes.blocked.unknown = '@guard'
specialists.'@guard'.command = ['sh', 'guard.sh']
";

/// The helper of whoever is blocked; it takes the same notes.
const GUARD: &str = r#"note=marks/$HANDOFF_ID.notes
echo "start $HANDOFF_ATTEMPT" >>"$note"
echo '{"status": "complete", "summary": "ask again"}'
"#;

/// Fails when it is run first, whatever the number of that attempt is.
const SECOND_TIME: &str = "if [ -e $HANDOFF_ROOT/marks/$HANDOFF_ID.once ]; then alone true; \
                           else alone mark once; exit 1; fi";

/// Is blocked when it is run first.
const BLOCKED: &str = "if [ -e $HANDOFF_ROOT/marks/$HANDOFF_ID.once ]; then alone true; \
                       else alone mark once; cat $HANDOFF_ROOT/blocked.json; exit 1; fi";
const REPORT: &str = r#"{"status": "blocked", "blocked_reason": "unknown", "phase": "p",
    "attempted": ["a"], "summary": "s", "handoff": {"next_agent": null, "context": "c",
    "blockers": [{"description": "d"}]}}"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// An artifact, a request in YAML, and a file that is refused.
    Success,
    Retry,
    Timeout,
    BlockedAndReturn,
    /// A start after a crash in the middle of all of it.
    Recovery,
}

pub const ALL: [Scenario; 5] = [
    Scenario::Success,
    Scenario::Retry,
    Scenario::Timeout,
    Scenario::BlockedAndReturn,
    Scenario::Recovery,
];

/// What must have become of one id.
struct Expected {
    id: &'static str,
    folder: &'static str,
    /// The attempts' outcomes, without those that never began.
    outcomes: &'static [&'static str],
    code: Option<&'static str>,
}

const ARTIFACT: Expected = Expected {
    id: "a",
    folder: "completed",
    outcomes: &["completed"],
    code: None,
};
const YAML: Expected = Expected {
    id: "y",
    ..ARTIFACT
};
const REFUSED: Expected = Expected {
    id: "b",
    folder: "failed",
    outcomes: &[],
    code: Some("SCHEMA_VALIDATION_FAILED"),
};
const RETRIED: Expected = Expected {
    id: "r",
    folder: "completed",
    outcomes: &["failed", "completed"],
    code: None,
};
const TIMED_OUT: Expected = Expected {
    id: "t",
    folder: "failed",
    outcomes: &["timeout", "timeout"],
    code: Some("TIMEOUT"),
};
const HELPED: Expected = Expected {
    id: "x",
    folder: "completed",
    outcomes: &["blocked", "completed"],
    code: None,
};

impl Scenario {
    fn expected(self) -> &'static [Expected] {
        match self {
            Self::Success => &[ARTIFACT, YAML, REFUSED],
            Self::Retry => &[RETRIED],
            Self::Timeout => &[TIMED_OUT],
            Self::BlockedAndReturn => &[HELPED],
            Self::Recovery => &[ARTIFACT, REFUSED, RETRIED, HELPED],
        }
    }

    /// A root with the scenario's requests in it, and the crash where that is part of it.
    pub fn root(self) -> Root {
        let root = Root::within(&memory(), CONFIG);
        fs::write(root.path("guard.sh"), GUARD).unwrap();
        fs::write(root.path("blocked.json"), REPORT).unwrap();
        for expected in self.expected() {
            submit(&root, expected.id);
        }
        if self == Self::Recovery {
            // Where all four are on their way; the exact state differs from time to time.
            let fault = Fault {
                deed: Deed::KillBefore,
                at: 9,
                stretch: 1,
                falls_on: |call| call.kind == Kind::Move,
            };
            let ended = traced(&root, fault);
            assert!(ended.struck.is_some(), "the crash before did not come");
        }
        root
    }
}

fn submit(root: &Root, id: &str) {
    match id {
        "a" => {
            let sh = r#"alone true; echo '{"artifact": {"made": "whole"}}'"#;
            let destination = json!({ "destination": "artifacts/{handoff_id}.json" });
            let request = with(orders(sh), json!({ "expected_output": destination }));
            root.drop_request(id, &request);
        }
        "y" => root.drop_bytes(
            "y.yaml",
            b"target: {agent_id: '@fake'}\ninput: {data: {sh: alone true}}\n",
        ),
        "b" => root.drop_bytes("b.json", b"{ \"broken\": "),
        "r" => root.drop_request(id, &orders(SECOND_TIME)),
        "t" => {
            let limits = json!({ "timeout_seconds": 0.1 });
            root.drop_request(id, &with(orders("alone forever"), limits));
        }
        "x" => root.drop_request(id, &orders(BLOCKED)),
        other => panic!("no request {other}"),
    }
}

/// A folder in memory, or the usual one where there is none.
fn memory() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() {
        shared.to_owned()
    } else {
        std::env::temp_dir()
    }
}
