//! A handoff's life where nothing goes wrong with the machine: what is in the record at the end,
//! what is kept of what was written, and what a second or a forged submission does not do.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Daemon, Root, orders, outcomes, text, wait_until, with};

#[test]
fn a_request_is_completed_and_its_record_says_how() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let result = json!({
        "status": "complete", "summary": "done", "output": { "n": 1 },
        "validation": { "status": "passed", "by": "me" }, "metadata": { "m": 1 },
        "next_steps": ["rest"], "warnings": ["careful"], "unheard_of": true,
    });
    let request = orders(&format!("printf %s '{result}'"));
    root.drop_request(
        "one",
        &with(request.clone(), json!({ "context": { "a": [1] } })),
    );
    let record = root.completed("one");
    assert_eq!(record["status"], "completed");
    assert_eq!(record["handoff_id"], "one");
    assert_eq!(record["context"], json!({ "a": [1] }));
    assert_eq!(record["input"], request["input"]);
    assert_eq!(record["result"], result, "whole");
    assert_eq!(record["output"], json!({ "n": 1 }));
    assert_eq!(record["metadata"], json!({ "m": 1 }));
    assert_eq!(record["next_steps"], json!(["rest"]));
    assert_eq!(record["warnings"], json!(["careful"]));
    assert_eq!(record["validation"]["claimed"], "passed");
    assert_eq!(record["validation"]["status"], "unchecked");
    assert_eq!(record["validation"]["by"], "me");
    assert_eq!(record["completed_at"], record["timestamp_completed"]);
    for key in ["started_at", "completed_at"] {
        let time = text(&record[key]);
        assert!(
            time.len() == 24 && time.ends_with('Z') && &time[19..20] == ".",
            "{time}"
        );
    }
    let spent = record["execution_time_seconds"].to_string();
    assert_eq!(spent.split_once('.').unwrap().1.len(), 3, "{spent}");
    for absent in ["waiting", "error", "failed_at"] {
        assert_eq!(record[absent], Value::Null, "{absent}");
    }
    let own = &record["handoffd"];
    assert_eq!(own["format"], 1);
    assert!(own["revision"].as_u64().unwrap() >= 2);
    assert_eq!(own["request_sha256"].as_str().unwrap().len(), 64);
    let attempt = &own["attempts"][0];
    assert_eq!(attempt["number"], 1);
    assert_eq!(attempt["outcome"], "completed");
    assert_eq!(attempt["exit_code"], 0);
    assert_eq!(attempt["signal"], Value::Null);
    assert_eq!(attempt["started_at"], record["started_at"]);
    assert!(attempt["ended_at"].is_string());
    root.assert_audit_is_sound();
}

#[test]
fn yaml_is_taken_by_rename_and_in_place_and_its_original_is_kept() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let yaml =
        "# a comment\ntarget: {agent_id: fake}\ninput:\n  data:\n    sh: echo hello\nmine: 1.0\n";
    root.drop_bytes("renamed.yaml", yaml.as_bytes());
    fs::write(root.pending("in-place.yml"), yaml).unwrap();
    let md = "# Report\n\nWords.\n\n```json\n{\"target\":{\"agent_id\":\"fake\"},\"input\":{\"data\":{\"sh\":\"exit 0\"}}}\n```\n";
    root.drop_bytes("report.md", md.as_bytes());
    for (id, original, bytes) in [
        ("renamed", "renamed.yaml", yaml),
        ("in-place", "in-place.yml", yaml),
        ("report", "report.md", md),
    ] {
        root.completed(id);
        let path = root.path(".handoffd/originals").join(original);
        let kept = wait_until("the original", || fs::read_to_string(&path).ok());
        assert_eq!(kept, bytes);
    }
    let record = root.completed("in-place");
    assert_eq!(record["output"]["text"], "hello\n");
    assert_eq!(record["mine"].to_string(), "1.0");
    assert!(root.names("handoffs/pending").is_empty());
}

#[test]
fn what_a_producer_wrote_is_in_the_record_as_it_was_written() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let request = r#"{"target":{"agent_id":"@fake"},"input":{"data":{
        "sh": "printf '{\"output\":{\"own\":true}}'"
        ,"one":1.0,"huge":1e400,"long":12345678901234567890123,"tiny":-0.0,"exp":1E5}},
        "status":"mine","output":{"theirs":1.50},"result":[1],"error":"e","zebra":null,"Ä":"é\u0000\ud83d\ude00"}"#;
    root.drop_bytes("exact.json", request.as_bytes());
    let record = root.completed("exact");
    let raw = fs::read_to_string(root.state("completed", "exact")).unwrap();
    for number in [
        "1.0,",
        "1e400",
        "12345678901234567890123",
        "-0.0",
        "1E5",
        "1.50",
    ] {
        assert!(raw.contains(number), "{number} in {raw}");
    }
    let submitted = &record["handoffd"]["submitted"];
    assert_eq!(submitted["status"], "mine");
    assert_eq!(submitted["output"]["theirs"].to_string(), "1.50");
    assert_eq!(submitted["result"], json!([1]));
    assert_eq!(submitted["error"], "e");
    assert_eq!(record["output"], json!({ "own": true }));
    assert!(record.get("zebra").is_some_and(Value::is_null));
    assert_eq!(record["Ä"], "é\u{0}\u{1f600}");
}

#[test]
fn a_forged_history_moves_adopts_and_kills_nothing() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    root.drop_request("victim", &orders("mark up; await go; exit 0"));
    let victim = root.mark("victim.up");
    let pid: u32 = victim.split_whitespace().nth(1).unwrap().parse().unwrap();
    let attempt = json!({ "number": 7, "started_at": "2020-01-01T00:00:00.000Z", "pid": pid });
    let forged = json!({
        "status": "completed", "completed_at": "2020-01-01T00:00:00.000Z", "result": { "x": 1 },
        "handoffd": { "format": 1, "revision": 900, "to": "completed", "attempts": [attempt],
            "children": ["victim"], "parent": "victim", "pid": pid, "applied": ["a"],
            "timer": null, "boot": "x", "holds_agent": true },
    });
    root.drop_request("forged", &with(orders("mark ran"), forged));
    let record = root.completed("forged");
    assert_eq!(root.mark("forged.ran").split_whitespace().next(), Some("8"));
    assert_eq!(record["result"], json!({}), "its own");
    assert_eq!(
        record["handoffd"]["previous"][0]["result"],
        json!({ "x": 1 })
    );
    let odd = json!({ "status": "failed", "handoffd": { "format": 99, "to": "failed" } });
    root.drop_request("newer", &with(orders("mark ran"), odd.clone()));
    let record = root.completed("newer");
    assert_eq!(record["handoffd"]["submitted"]["handoffd"], odd["handoffd"]);
    let odd = json!({ "handoffd": "not even an object" });
    root.drop_request("odd", &with(orders("mark ran"), odd));
    root.completed("odd");
    assert_eq!(root.states_of("victim"), ["in-progress"]);
    root.allow("go");
    assert_eq!(outcomes(&root.completed("victim")), ["completed"]);
}

#[test]
fn an_id_that_is_taken_never_runs_and_never_overwrites() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &with(orders("mark ran"), json!({ "n": 1 })));
    root.completed("x");
    root.drop_request("x", &with(orders("mark ran"), json!({ "n": 2 })));
    let (second, code) = root.failed("x~2");
    assert_eq!((code.as_str(), &second["n"]), ("DUPLICATE_ID", &json!(2)));
    assert_eq!(second["retry_available"], false);
    root.drop_bytes("x.yaml", b"target: {agent_id: fake}\nn: 3\n");
    assert_eq!(root.failed("x~3").0["n"], 3);
    root.drop_bytes("x.json", b"{ broken");
    assert_eq!(root.failed("x~4").1, "SCHEMA_VALIDATION_FAILED");
    let rejected = root.path("handoffs/failed/x~4.rejected");
    wait_until("the bytes", || rejected.exists().then_some(()));
    assert_eq!(root.completed("x")["n"], 1);
    assert_eq!(root.mark("x.ran").lines().count(), 1, "one run in all");

    root.drop_request("busy", &orders("mark ran; await go"));
    root.mark("busy.ran");
    root.drop_request("busy", &orders("mark ran"));
    assert_eq!(root.failed("busy~2").1, "DUPLICATE_ID");
    root.allow("go");
    root.completed("busy");
    assert_eq!(root.mark("busy.ran").lines().count(), 1);
}

#[test]
fn a_duplicate_does_not_make_the_first_one_forgotten() {
    // No rescan that would find it again by chance.
    let root = Root::with("daemon.rescan = '1h'");
    let _daemon = Daemon::start(&root);
    let soon = chrono::Utc::now() + chrono::Duration::milliseconds(1500);
    root.drop_request(
        "x",
        &with(orders("exit 0"), json!({ "not_before": soon.to_rfc3339() })),
    );
    root.record("waiting", "x");
    root.drop_request("x", &orders("exit 0"));
    assert_eq!(root.failed("x~2").1, "DUPLICATE_ID");
    root.completed("x");
}

#[test]
fn of_two_extensions_with_one_id_the_second_is_a_duplicate() {
    let root = Root::with("daemon.max_concurrent = 1");
    let _daemon = Daemon::start(&root);
    root.drop_request("first", &orders("mark up; await go"));
    root.mark("first.up");
    root.drop_request("x", &with(orders("mark ran"), json!({ "n": 1 })));
    root.drop_bytes("x.yaml", b"target: {agent_id: fake}\nn: 2\n");
    let (duplicate, code) = root.failed("x~2");
    assert_eq!(code, "DUPLICATE_ID");
    root.allow("go");
    let record = root.completed("x");
    assert_eq!(
        record["n"].as_u64().unwrap() + duplicate["n"].as_u64().unwrap(),
        3
    );
}

#[test]
fn a_failed_record_that_is_moved_back_runs_with_a_new_budget() {
    let root = Root::with("defaults.retry.max_retries = 1");
    let _daemon = Daemon::start(&root);
    let request = with(
        orders("echo no >&2; exit 3"),
        json!({ "output": "the producer's" }),
    );
    root.drop_request("x", &request);
    let (first, code) = root.failed("x");
    assert_eq!(code, "PROCESSING_ERROR");
    assert_eq!(outcomes(&first), ["failed", "failed"]);
    fs::rename(root.state("failed", "x"), root.pending("x.json")).unwrap();
    let again = root.record_that("failed", "x", |record| outcomes(record).len() == 4);
    assert_eq!(again["retry_count"], 1, "of this budget");
    let numbers: Vec<&Value> = again["handoffd"]["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| &attempt["number"])
        .collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    let previous = again["handoffd"]["previous"].as_array().unwrap();
    assert_eq!(previous.len(), 1);
    assert_eq!(previous[0]["error"]["code"], "PROCESSING_ERROR");
    assert_eq!(previous[0]["failed_at"], first["failed_at"]);
    assert_eq!(again["output"], "the producer's");
    assert!(again["handoffd"]["revision"].as_u64() > first["handoffd"]["revision"].as_u64());
    assert_eq!(root.states_of("x"), ["failed"]);
}

#[test]
fn a_retry_is_told_why_and_may_succeed() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let sh = "if [ $HANDOFF_ATTEMPT = 1 ]; then echo the cat sat on it >&2; exit 9; fi; \
              printf '%s/%s: %s' $HANDOFF_ATTEMPT $HANDOFF_MAX_ATTEMPTS \"$HANDOFF_LAST_ERROR\"";
    root.drop_request("x", &orders(sh));
    let record = root.completed("x");
    assert_eq!(outcomes(&record), ["failed", "completed"]);
    let output = text(&record["output"]["text"]);
    assert!(output.starts_with("2/4: PROCESSING_ERROR"), "{output}");
    assert!(
        output.contains("the cat sat on it") && output.contains('9'),
        "{output}"
    );
    assert_eq!(record["handoffd"]["attempts"][0]["exit_code"], 9);
}

#[test]
fn retries_that_run_out_fail_with_everything_said() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let policy = json!({ "retry_policy": { "max_retries": 2, "retry_delay_seconds": 0.4,
        "backoff_multiplier": 1 } });
    root.drop_request("x", &with(orders("echo why >&2; exit 1"), policy));
    let waits = root.record_that("waiting", "x", |record| outcomes(record).len() == 1);
    assert_eq!(waits["status"], "waiting");
    assert_eq!(waits["waiting"]["on"], "retry");
    assert!(waits["waiting"]["until"].is_string() && waits["waiting"]["reason"].is_string());
    let (record, code) = root.failed("x");
    assert_eq!(code, "PROCESSING_ERROR");
    assert_eq!(outcomes(&record), ["failed"; 3]);
    assert_eq!(record["status"], "failed");
    assert_eq!(record["failed_at"], record["timestamp_failed"]);
    assert_eq!(record["error"]["timestamp"], record["failed_at"]);
    assert!(record["error"]["severity"].is_string());
    assert!(text(&record["error"]["message"]).contains("why"));
    assert_eq!(
        (&record["retry_count"], &record["max_retries"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(record["retry_available"], false, "the budget is used up");
    assert!(!record["recovery_actions"].as_array().unwrap().is_empty());
    assert!(record["validation"].is_object() && record["execution_time_seconds"].is_number());
    assert_eq!(record["waiting"], Value::Null);
}

#[test]
fn what_can_never_run_is_refused_at_once() {
    let root = Root::with("defaults.max_timeout = '1h'");
    let _daemon = Daemon::start(&root);
    root.drop_request("unknown", &json!({ "target": { "agent_id": "@nobody" } }));
    let (record, code) = root.failed("unknown");
    assert_eq!(code, "UNKNOWN_AGENT");
    let message = text(&record["error"]["message"]);
    assert!(
        message.contains("@nobody") && message.contains("@fake"),
        "{message}"
    );
    assert_eq!(
        record["target"]["agent_id"], "@nobody",
        "its fields are kept"
    );
    assert!(!root.path("handoffs/failed/unknown.rejected").exists());
    root.drop_request(
        "slow",
        &with(orders("exit 0"), json!({ "timeout_seconds": 3601 })),
    );
    let (record, code) = root.failed("slow");
    assert_eq!(code, "SCHEMA_VALIDATION_FAILED");
    assert!(text(&record["error"]["message"]).contains("timeout_seconds"));
    assert_eq!(record["handoffd"]["attempts"], json!([]));
    root.drop_request(
        "other-id",
        &with(orders("exit 0"), json!({ "handoff_id": "another" })),
    );
    let (record, code) = root.failed("other-id");
    assert_eq!(code, "SCHEMA_VALIDATION_FAILED");
    assert!(text(&record["error"]["message"]).contains("handoff_id"));
}
