use serde_json::json;

use super::*;

fn record(value: Value) -> Record {
    let Value::Object(doc) = value else {
        panic!("not an object")
    };
    Record { doc }
}

fn filled(template: &str, document: Value, around: &Surroundings) -> String {
    let record = record(document);
    fill(template, &|name| value(name, &record, around)).unwrap()
}

#[test]
fn empty_parts_are_left_out_with_their_headings() {
    let template =
        "Start\n\n# A\n\n{{context}}\n\n## B\n\nB: {{summary}}\n\n# C\n\n{{last_error}}\n";
    let document = json!({"input": {"data": {"summary": "was done"}}});
    let text = filled(template, document, &Surroundings::default());
    assert_eq!(text, "Start\n\n# A\n\n## B\n\nB: was done\n");
}

#[test]
fn a_placeholder_in_a_value_is_text() {
    let document = json!({"input": {"data": {"task": "print {{record}} and {{nonsense}}"}}});
    let text = filled("{{task}}", document, &Surroundings::default());
    assert_eq!(text, "print {{record}} and {{nonsense}}\n");
}

#[test]
fn a_wrong_template_names_line_and_hint() {
    for (template, expected) in [
        (
            "a\n\n{{tasks}}",
            "unknown placeholder {{tasks}} in line 3; did you mean {{task}}?",
        ),
        (
            "{{zzz}}",
            "unknown placeholder {{zzz}} in line 1; known are: agent, answer",
        ),
        (
            "a\nb {{task",
            "the placeholder that begins in line 2 is not closed: write {{name}}",
        ),
    ] {
        let error = check(template).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn the_built_in_templates_can_be_filled_with_every_dialect() {
    for document in [
        json!({"target": {"agent_id": "@coder"}, "input": {"data": {"task": "Build the login"}}}),
        json!({"handoff": {"from": {"agent": "a"}, "to": {"agent": "coder"},
               "context": {"summary": "s", "decisions": [{"decision": "JWT", "rationale": "stateless"}]},
               "expectations": {"deliverable": "Build the login", "constraints": ["no new crate"]}}}),
        json!({"status": "complete", "handoff": {"next_agent": "coder", "context": "Build the login"}}),
    ] {
        let text = filled(NEW, document.clone(), &Surroundings::default());
        assert!(text.contains("Build the login"), "{text}");
        assert!(text.contains("coder"), "{text}");
        assert!(!text.contains("{{"), "{text}");
        if document["handoff"]["context"].is_object() {
            assert!(text.contains("- JWT (rationale: stateless)"), "{text}");
            assert!(text.contains("no new crate"), "{text}");
        }
    }
}

#[test]
fn what_is_new_is_all_that_a_resumed_session_gets() {
    let document = json!({
        "input": {"data": {"task": "Build the login"}},
        "answer": {"action": "reject", "comment": "use the old form", "by": "ann", "choice": null},
        "handoffd": {"returns": [{"agent": "@sec", "status": "completed", "result": {"summary": "rotate"}}]},
    });
    let around = Surroundings {
        last_error: Some("VALIDATION_FAILED: tests".to_owned()),
        ..Surroundings::default()
    };
    let text = filled(RESUME, document, &around);
    assert!(
        text.contains("ann rejected it. Comment: use the old form"),
        "{text}"
    );
    assert!(text.contains("- @sec (completed): rotate"), "{text}");
    assert!(text.contains("VALIDATION_FAILED: tests"), "{text}");
    assert!(!text.contains("Build the login"), "{text}");
}

#[test]
fn what_was_too_large_for_the_record_is_named_with_its_file() {
    let cut = json!({"count": 7, "summary": "7 decisions, the latest: JWT", "ref": "f.json"});
    let document = json!({
        "input": {"data": {"task": "t", "decisions": [cut, {"decision": "no cache"}]}},
        "handoffd": {"returns": [
            {"count": 2, "summary": "2 returns: a; b", "ref": "f.json"},
            {"id": "c", "agent": "@sec", "status": "completed", "summary": "rotate",
             "size_bytes": 9, "ref": "handoffs/completed/c.json"}]},
    });
    for template in [NEW, RESUME] {
        let text = filled(template, document.clone(), &Surroundings::default());
        assert!(
            text.contains("- 2 returns: a; b (in full: f.json)\n"),
            "{text}"
        );
        let large = "- @sec (completed): rotate (in full: handoffs/completed/c.json)\n";
        assert!(text.contains(large), "{text}");
    }
    let text = filled(NEW, document, &Surroundings::default());
    assert!(
        text.contains("- 7 decisions, the latest: JWT (in full: f.json)\n- no cache"),
        "{text}"
    );
}

#[test]
fn input_without_words_is_shown_as_json() {
    let document = json!({"input": {"data": {"feature": "login", "origin": {"handoff_id": "x"}}}});
    let text = filled(NEW, document, &Surroundings::default());
    assert!(text.contains("\"feature\": \"login\""), "{text}");
    assert!(text.contains("\"handoff_id\": \"x\""), "{text}");
    assert!(
        text.contains("Do the work that the input below describes."),
        "{text}"
    );
}

#[test]
fn an_answer_comes_with_the_question_and_what_was_reported() {
    let record = record(json!({
        "answer": {"action": "reject", "comment": "SQLite", "by": "ann"},
        "handoffd": {"last_result": {"attempt": 1, "result": {
            "summary": "the schema is drawn", "question": {"text": "Postgres or SQLite?"},
        }}},
    }));
    let said = value("answer", &record, &Surroundings::default());
    assert_eq!(
        said,
        "You reported: the schema is drawn\nYou asked: Postgres or SQLite?\nann rejected it. Comment: SQLite"
    );
}
