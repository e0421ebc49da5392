//! An agent is handed no more than its share of a context window: what the daemon added to the
//! record beyond that stands in a file.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, ask, child, children, text, with};

/// 2,000 tokens, which these tests' words are well above and their records well below.
const SMALL: &str = "context.window_tokens = 8000\ndefaults.retry.delay = '10ms'\n";
const MOST_BYTES: usize = 2000 * 6;

/// `words N` prints N times four words.
const WORDS: &str = "words() { i=0; while [ $i -lt $1 ]; do printf 'one two three four '; \
                     i=$((i+1)); done; }\n\
                     seen() { cat >marks/$HANDOFF_ID.$HANDOFF_ATTEMPT.tmp; \
                     mv marks/$HANDOFF_ID.$HANDOFF_ATTEMPT.tmp marks/$HANDOFF_ID.$HANDOFF_ATTEMPT; }\n";

fn team(config: &str, specialists: &[(&str, &str)]) -> Root {
    let specialists: Vec<(&str, String)> = specialists
        .iter()
        .map(|(name, sh)| (*name, format!("{WORDS}{sh}")))
        .collect();
    let specialists: Vec<(&str, &str)> = specialists
        .iter()
        .map(|(name, sh)| (*name, sh.as_str()))
        .collect();
    Root::team(&format!("{SMALL}{config}"), &specialists)
}

/// What an attempt read, which is never more than it may be.
fn handed(root: &Root, id: &str, attempt: u32) -> Value {
    let bytes = fs::read(root.path(&format!("marks/{id}.{attempt}"))).unwrap();
    assert!(bytes.len() < MOST_BYTES, "{} bytes", bytes.len());
    serde_json::from_slice(&bytes).unwrap()
}

/// The file that has the rest.
fn rest(root: &Root, id: &str) -> Value {
    let bytes = fs::read(root.path(&rest_of(id))).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

fn rest_of(id: &str) -> String {
    format!(".handoffd/context/{id}.json")
}

#[test]
fn returns_of_helpers_are_cut_to_what_fits_and_kept_in_a_file() {
    let root = team(
        "",
        &[
            (
                "lead",
                r#"seen; case $HANDOFF_ATTEMPT in
                1) echo '{"status": "delegate", "summary": "split", "handoff": {"children": [
                   {"agent": "@h", "input": {"n": 100}}, {"agent": "@h", "input": {"n": 900}},
                   {"agent": "@h", "input": {"n": 101}}]}}';;
                2) echo '{"status": "failed", "summary": "again"}';;
                *) echo '{"status": "complete", "summary": "joined"}';; esac"#,
            ),
            (
                "h",
                r#"n=$(sed -n 's/.*"n": \([0-9]*\).*/\1/p'); printf '{"status": "complete", "summary": "did %s", "text": "%s"}' "$n" "$(words $n)""#,
            ),
        ],
    );
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &with(ask("@lead"), json!({ "note": "mine" })));
    let record = root.completed("x");
    let ids = children(&record);
    let second = handed(&root, "x", 2);
    let returns = second["handoffd"]["returns"].as_array().unwrap();
    let cut = &returns[0];
    assert_eq!(cut["count"], 1);
    assert_eq!(cut["ref"], rest_of("x"));
    assert_eq!(
        cut["summary"],
        format!("1 return: {} (@h, completed)", ids[1])
    );
    assert_eq!(
        (&returns[1]["id"], &returns[2]["id"]),
        (&json!(ids[0]), &json!(ids[2]))
    );
    assert_eq!(returns[1]["result"]["summary"], "did 100");
    let compacted = json!([{ "part": "handoffd.returns", "count": 1, "ref": rest_of("x") }]);
    assert_eq!(second["handoffd"]["compacted"], compacted);
    assert_eq!(second["note"], "mine");
    let third = handed(&root, "x", 3);
    assert_eq!(third["handoffd"]["returns"], second["handoffd"]["returns"]);
    assert_eq!(record["handoffd"]["compacted"], compacted, "it stays so");
    let kept = rest(&root, "x");
    let whole = &kept["handoffd.returns"][0];
    assert_eq!(
        (&whole["id"], &whole["result"]["summary"]),
        (&json!(ids[1]), &json!("did 900"))
    );
    assert!(text(&whole["result"]["text"]).len() > 9000);

    let pruned = root.cli(&["prune", "--completed", "0s"]);
    assert!(
        pruned.status.success(),
        "{}",
        String::from_utf8_lossy(&pruned.stderr)
    );
    assert!(
        !root.path(&rest_of("x")).exists(),
        "it goes with its record"
    );
}

#[test]
fn many_large_returns_stay_with_their_helpers() {
    let root = team(
        "",
        &[
            (
                "lead",
                r#"seen; case $HANDOFF_ATTEMPT in
                1) printf '{"status": "delegate", "handoff": {"children": [';
                   for n in 1 2 3 4 5 6 7; do printf '{"agent": "@h", "input": {"n": %s}},' $n; done
                   echo '{"agent": "@h", "input": {"n": 8}}]}}';;
                *) echo '{"status": "complete", "summary": "joined"}';; esac"#,
            ),
            (
                "h",
                r#"printf '{"status": "complete", "summary": "done", "text": "%s"}' "$(head -c 100000 /dev/zero | tr '\0' x)""#,
            ),
        ],
    );
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &ask("@lead"));
    let record = root.completed("x");
    assert!(
        record.to_string().len() < 300_000,
        "{}",
        record.to_string().len()
    );
    handed(&root, "x", 2);
    let kept = rest(&root, "x");
    let cut = kept["handoffd.returns"].as_array().unwrap();
    let mut referred: Vec<&Value> = cut.iter().filter(|it| it["ref"].is_string()).collect();
    let left = record["handoffd"]["returns"].as_array().unwrap();
    referred.extend(left.iter().filter(|it| it["size_bytes"].is_number()));
    assert_eq!(referred.len(), 6, "{record:#}");
    for one in referred {
        assert_eq!(one["summary"], "done");
        let helper = fs::read(root.path(&text(&one["ref"]))).unwrap();
        let helper: Value = serde_json::from_slice(&helper).unwrap();
        assert_eq!(helper["handoff_id"], one["id"]);
        assert_eq!(text(&helper["result"]["text"]).len(), 100_000);
    }
}

#[test]
fn what_a_chain_accumulated_is_cut_and_its_first_request_is_not() {
    let step = |next: &str| {
        format!(
            r#"seen; printf '{{"status": "complete", "summary": "did it", "phase": "p", "decisions": [
            {{"decision": "%s first", "rationale": "%s"}}, {{"decision": "%s last", "rationale": "short"}}],
            "handoff": {{"next_agent": {next}, "context": "go on"}}}}' $HANDOFF_ID "$(words 250)" $HANDOFF_ID"#
        )
    };
    let agents = [
        ("one", step(r#""@two""#)),
        ("two", step(r#""@three""#)),
        ("three", step("null")),
    ];
    let agents: Vec<(&str, &str)> = agents
        .iter()
        .map(|(name, sh)| (*name, sh.as_str()))
        .collect();
    let root = team("", &agents);
    let _daemon = Daemon::start(&root);
    let first = json!({ "task": "the whole of it", "decisions": ["mine"] });
    root.drop_request(
        "x",
        &with(ask("@one"), json!({ "input": { "data": first } })),
    );
    let second = child(&root.completed("x"));
    let third = child(&root.completed(&second));
    root.completed(&third);
    let at_third = handed(&root, &third, 1);
    let data = &at_third["input"]["data"];
    assert_eq!(
        data["origin"],
        json!({ "handoff_id": "x", "input": { "data": first } })
    );
    assert_eq!(data["context"], "go on");
    let decisions = data["decisions"].as_array().unwrap();
    let cut = &decisions[0];
    assert!(cut["count"].as_u64().unwrap() >= 1, "{data:#}");
    assert!(text(&cut["summary"]).contains("first"), "{cut}");
    // What has the rest is a record of the chain, or the file of this one.
    let kept = fs::read_to_string(root.path(&text(&cut["ref"]))).unwrap();
    assert!(kept.contains("x first"), "{cut}");
    let names: Vec<String> = decisions[1..]
        .iter()
        .map(|it| text(&it["decision"]))
        .collect();
    assert!(
        names.contains(&"x last".to_owned()),
        "the small ones stay: {names:?}"
    );
    assert_eq!(
        names[names.len() - 2..],
        [format!("{second} first"), format!("{second} last")],
        "what the last result wrote stays"
    );
}

#[test]
fn one_result_with_more_entries_than_fit_is_handed_on_with_its_latest() {
    let root = team(
        "",
        &[
            (
                "one",
                r#"seen; printf '{"status": "complete", "summary": "did it", "phase": "p", "decisions": ['
                n=1; while [ $n -lt 300 ]; do printf '{"decision": "d%s", "rationale": "%s"},' $n "$(words 20)"; n=$((n+1)); done
                printf '{"decision": "d300", "rationale": "r"}], "handoff": {"next_agent": "@two", "context": "go on"}}'"#,
            ),
            (
                "two",
                r#"seen; echo '{"status": "complete", "summary": "went on", "phase": "p",
                "handoff": {"next_agent": "@three", "context": "go on"}}'"#,
            ),
            (
                "three",
                r#"seen; echo '{"status": "complete", "summary": "done"}'"#,
            ),
        ],
    );
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &ask("@one"));
    let second = child(&root.completed("x"));
    let third = child(&root.completed(&second));
    let record = root.completed(&third);
    assert_eq!(record["acknowledgment"]["warnings"], Value::Null);
    let at_second = handed(&root, &second, 1);
    let data = &at_second["input"]["data"];
    assert_eq!(
        (&data["context"], &data["summary"]),
        (&json!("go on"), &json!("did it"))
    );
    let left = data["decisions"].as_array().unwrap();
    assert_eq!(left.last().unwrap()["decision"], "d300");
    let kept = rest(&root, &second);
    let kept = kept["input.data.decisions"].as_array().unwrap();
    assert_eq!(kept.len() + left.len() - 1, 300);
    assert_eq!(left[0]["count"], kept.len());
    assert_eq!(kept[0]["decision"], "d1");
    let listed = &at_second["handoffd"]["compacted"][0];
    assert_eq!(
        (&listed["part"], &listed["count"]),
        (&json!("input.data.decisions"), &json!(kept.len()))
    );
    // Further on the same reference goes along.
    let data = handed(&root, &third, 1)["input"]["data"].take();
    let first = &data["decisions"][0];
    assert!(
        first["count"].as_u64().unwrap() >= kept.len() as u64,
        "{first}"
    );
    let path = root.path(&text(&first["ref"]));
    assert!(path.exists(), "{first}");
}

#[test]
fn a_last_result_that_was_cut_is_still_known_to_a_pause() {
    let root = team(
        "",
        &[(
            "one",
            r#"seen; case $HANDOFF_ATTEMPT in
            1) printf '{"status": "failed", "session": "s1", "summary": "half of it", "text": "%s"}' "$(words 900)";;
            2) echo '{"retry_after_seconds": 0.05, "step": 2}';;
            3) echo '{"status": "complete", "summary": "done"}';; esac"#,
        )],
    );
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &ask("@one"));
    root.completed("x");
    for attempt in [2, 3] {
        let record = handed(&root, "x", attempt);
        let last = &record["handoffd"]["last_result"];
        assert_eq!(
            (&last["ref"], &last["summary"]),
            (&json!(rest_of("x")), &json!("half of it"))
        );
        assert_eq!(last["result"], Value::Null);
    }
    let whole = &rest(&root, "x")["handoffd.last_result"][0];
    assert_eq!(
        (&whole["session"], &whole["step"]),
        (&json!("s1"), &json!(2))
    );
}

#[test]
fn what_may_not_be_cut_is_handed_over_whole_with_a_warning() {
    let root = team(
        "",
        &[(
            "one",
            r#"cat >/dev/null; echo '{"status": "complete", "summary": "done"}'"#,
        )],
    );
    let _daemon = Daemon::start(&root);
    let long = "one two three four ".repeat(1000);
    root.drop_request(
        "x",
        &with(
            ask("@one"),
            json!({ "input": { "data": { "text": long } } }),
        ),
    );
    let record = root.completed("x");
    assert_eq!(record["input"]["data"]["text"], long.as_str());
    let warnings = record["acknowledgment"]["warnings"].to_string();
    assert!(warnings.contains("2000 tokens"), "{warnings}");
    assert!(!root.path(&rest_of("x")).exists());
    let explained = root.cli(&["explain", "x"]);
    let explained = String::from_utf8_lossy(&explained.stdout);
    assert!(explained.contains("2000 tokens"), "{explained}");
}

#[test]
fn an_archived_handoff_brings_its_file_back() {
    let root = team(
        "defaults.retry.max_retries = 0",
        &[(
            "one",
            r#"seen; case $HANDOFF_ATTEMPT in 1|2) printf '{"status": "failed", "summary": "no", "text": "%s"}' "$(words 900)"; exit 65;; esac"#,
        )],
    );
    let daemon = Daemon::start(&root);
    root.drop_request("x", &ask("@one"));
    root.failed("x");
    root.command("r.json", &json!({ "action": "retry", "handoff_id": "x" }));
    let two = |record: &Value| record["handoffd"]["attempts"].as_array().unwrap().len() == 2;
    root.record_that("failed", "x", two);
    let before = fs::read(root.path(&rest_of("x"))).unwrap();
    daemon.terminate();
    let packed = root.cli(&["archive", "--older-than", "0s"]);
    assert!(
        packed.status.success(),
        "{}",
        String::from_utf8_lossy(&packed.stderr)
    );
    assert!(!root.path(&rest_of("x")).exists());
    let restored = root.cli(&["archive", "--restore", "x"]);
    assert!(
        restored.status.success(),
        "{}",
        String::from_utf8_lossy(&restored.stderr)
    );
    assert_eq!(fs::read(root.path(&rest_of("x"))).unwrap(), before);
    root.cli(&["retry", "x"]);
    let _daemon = Daemon::start(&root);
    root.record_that("completed", "x", |_| true);
    let file = fs::read(root.path(&rest_of("x"))).unwrap();
    let (before, after): (Value, Value) = (
        serde_json::from_slice(&before).unwrap(),
        serde_json::from_slice(&file).unwrap(),
    );
    for (part, entries) in before.as_object().unwrap() {
        assert!(
            after[part]
                .to_string()
                .contains(entries.to_string().trim_matches(['[', ']'])),
            "{part}"
        );
    }
}
