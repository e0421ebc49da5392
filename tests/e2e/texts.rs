//! A specialist that only prints a text: the next agent, the human who is asked and the agent that waits get it.

use serde_json::{Value, json};

use crate::common::{Daemon, Root, ask, child, children, text, with};

const STEPS: &str =
    "workflows.w.steps = [{ phase = 'a', agent = '@one' }, { phase = 'b', agent = '@two' }]";

/// Keeps what it read.
const READS: &str = "cat >marks/two; echo >>marks/two; echo '{}'";

fn read(root: &Root, name: &str) -> Value {
    serde_json::from_str(&root.mark(name)).unwrap()
}

#[test]
fn a_text_is_the_summary_that_the_next_step_gets() {
    let long = "head -c 5000 /dev/zero | tr '\\0' x";
    for (prints, expected) in [
        ("echo the plan is a monolith", "the plan is a monolith"),
        (long, "… (the whole text is in the record of p)"),
    ] {
        let root = Root::team(STEPS, &[("one", prints), ("two", READS)]);
        let _daemon = Daemon::start(&root);
        let first = with(
            ask("@one"),
            json!({"workflow_state": {"name": "w", "current_step": 1}}),
        );
        root.drop_request("p", &first);
        root.completed(&child(&root.completed("p")));
        let given = read(&root, "two");
        let summary = text(&given["input"]["data"]["summary"]);
        assert!(summary.ends_with(expected), "{summary}");
        assert!(summary.chars().count() < 4100);
    }
}

#[test]
fn a_text_of_a_helper_comes_back() {
    let asks = r#"cat >"marks/stdin.$HANDOFF_ATTEMPT"; echo >>"marks/stdin.$HANDOFF_ATTEMPT"
        if [ $HANDOFF_ATTEMPT = 1 ]; then
        echo '{"status": "delegate", "handoff": {"children": [{"agent": "@helper"}]}}'; fi"#;
    let root = Root::team("", &[("dev", asks), ("helper", "echo use a header")]);
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &ask("@dev"));
    let record = root.completed("x");
    assert_eq!(children(&record).len(), 1);
    let returned = &read(&root, "stdin.2")["handoffd"]["returns"][0]["result"];
    assert_eq!(text(&returned["output"]["text"]).trim(), "use a header");
}
