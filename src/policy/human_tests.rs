//! What people are asked, and what their answers do.

use super::*;
use crate::protocol::lifecycle::State;

const NOW: Now = Now {
    wall: Wall(1_000_000),
    boot_ms: 0,
};

fn config() -> Config {
    let text =
        "[specialists.dev]\ncommand = [\"true\"]\n[specialists.next]\ncommand = [\"true\"]\n";
    Config::parse(text, std::path::Path::new("t.toml")).unwrap()
}

#[test]
fn only_what_can_be_answered_is_offered() {
    let sent = json!({"target": {"agent_id": "human"}, "source": {"agent_id": "@dev"}});
    let dropped = json!({"target": {"agent_id": "human"}});
    for (request, kind, offered) in [
        (&sent, Kind::Task, true),
        (&dropped, Kind::Task, false),
        (&sent, Kind::Gate, false),
        (&dropped, Kind::Review, true),
        (&dropped, Kind::Blocked, true),
    ] {
        let record = parked(request, kind);
        let options = &record.doc["waiting"]["options"];
        assert_eq!(options.get("ask").is_some(), offered, "{kind:?}");
        assert!(options.get("approve").is_some() && options.get("reject").is_some());
    }
}

fn parked(document: &Value, kind: Kind) -> Record {
    let mut record = Record::admit(document.as_object().unwrap().clone(), "x", None);
    ask_person(&mut record, kind, "why", NOW, "boot");
    record
}

fn command(action: Action) -> Command {
    let document = json!({
        "action": action.as_str(), "handoff_id": "x", "by": "ann", "comment": "c",
    });
    Command::from_document(document.as_object().unwrap()).unwrap()
}

fn answered(record: &mut Record, action: Action) -> Result<&'static str, String> {
    answered_with(record, &command(action))
}

fn answered_with(record: &mut Record, command: &Command) -> Result<&'static str, String> {
    let config = config();
    let facts = Facts {
        id: "x",
        config: &config,
        now: NOW,
        boot: "boot",
        max_retries: 3,
        expired: false,
    };
    answer(record, command, &facts)
}

#[test]
fn the_question_stands_in_the_record() {
    let gate = json!({
        "handoff": {
            "from": {"agent": "dev"}, "to": {"agent": "human"},
            "gate": {"type": "blocking", "name": "release", "deadline": "2h"},
            "context": {"summary": "two builds are ready"},
            "validation_request": {"items": ["notes"], "options": {"ship": "now", "hold": "later"}},
        },
    });
    let record = parked(&gate, Kind::Task);
    let waiting = &record.doc["waiting"];
    assert_eq!(waiting["on"], "human");
    assert_eq!(waiting["gate"], "release");
    assert_eq!(waiting["done"], "two builds are ready");
    assert_eq!(waiting["items"], json!(["notes"]));
    assert_eq!(waiting["options"], json!({"ship": "now", "hold": "later"}));
    assert_eq!(waiting["until"], Wall(1_000_000 + 7_200_000).to_string());
}

#[test]
fn each_answer_does_what_its_kind_means() {
    let request = json!({"target": {"agent_id": "@dev"}, "source": {"agent_id": "@dev"}});
    for (kind, action, expected) in [
        (
            Kind::Review,
            Action::Approve,
            Ok((State::Completed, "approved")),
        ),
        (
            Kind::Review,
            Action::Reject,
            Ok((State::Failed, "rejected")),
        ),
        (Kind::Review, Action::Ask, Ok((State::Waiting, "asked"))),
        (
            Kind::Gate,
            Action::Approve,
            Ok((State::Waiting, "approved")),
        ),
        (Kind::Gate, Action::Reject, Ok((State::Failed, "rejected"))),
        (Kind::Gate, Action::Ask, Err("no attempt has run")),
        (
            Kind::Blocked,
            Action::Approve,
            Ok((State::Waiting, "approved")),
        ),
        (Kind::Blocked, Action::Ask, Ok((State::Waiting, "asked"))),
        (
            Kind::Task,
            Action::Approve,
            Ok((State::Completed, "approved")),
        ),
        (Kind::Task, Action::Ask, Ok((State::Waiting, "asked"))),
    ] {
        let mut record = parked(&request, kind);
        let answered = answered(&mut record, action);
        match (answered, expected) {
            (Ok(event), Ok((to, word))) => {
                assert_eq!(
                    (record.meta.to, event),
                    (Some(to), word),
                    "{kind:?} {action:?}"
                );
                assert_eq!(record.doc["answer"]["by"], "ann");
                assert_eq!(record.doc["answer"]["action"], action.as_str());
            }
            (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
            (found, _) => panic!("{kind:?} {action:?}: {found:?}"),
        }
    }
    for (source, part) in [
        (Value::Null, "no agent sent it"),
        (json!({"agent_id": "@gone"}), "its sender @gone"),
    ] {
        let request = json!({"target": {"agent_id": "human"}, "source": source});
        let why = answered(&mut parked(&request, Kind::Task), Action::Ask).unwrap_err();
        assert!(
            why.contains(part) && why.contains("approve or reject it"),
            "{why}"
        );
    }
    let mut asked = parked(&request, Kind::Task);
    answered(&mut asked, Action::Ask).unwrap();
    assert_eq!(asked.doc["waiting"]["on"], "handoff");
    assert_eq!(
        asked.meta.links.spawns[0].request["target"]["agent_id"],
        "@dev"
    );
}

#[test]
fn approval_sets_in_motion_what_the_result_asked_for() {
    let mut record = parked(&json!({"target": {"agent_id": "@dev"}}), Kind::Review);
    record.set(
        "result",
        json!({"handoff": {"next_agent": "next", "context": "c"}}),
    );
    answered(&mut record, Action::Approve).unwrap();
    assert_eq!(record.meta.links.spawns.len(), 1);
    assert_eq!(
        record.meta.links.children,
        [record.meta.links.spawns[0].id.clone()]
    );
}

#[test]
fn a_choice_must_be_one_of_the_options() {
    let request = json!({"target": {"agent_id": "human"},
                         "validation_request": {"options": ["a", "b"]}});
    let mut record = parked(&request, Kind::Task);
    let mut with = command(Action::Approve);
    with.choice = Some("c".to_owned());
    let why = answered_with(&mut record, &with).unwrap_err();
    assert!(why.contains("a, b"), "{why}");
    with.choice = Some("b".to_owned());
    answered_with(&mut record, &with).unwrap();
    assert_eq!(record.doc["result"]["choice"], "b");
}

#[test]
fn where_no_option_is_listed_any_choice_will_do() {
    for own in [json!([]), json!({}), json!([1]), json!("a"), json!(null)] {
        let request =
            json!({"target": {"agent_id": "human"}, "validation_request": {"options": own}});
        let mut record = parked(&request, Kind::Task);
        let options = record.doc["waiting"]["options"].as_object().unwrap();
        assert!(options.contains_key("approve"), "{own}");
        let mut with = command(Action::Approve);
        with.choice = Some("c".to_owned());
        answered_with(&mut record, &with).unwrap();
        assert_eq!(record.doc["answer"]["choice"], "c");
    }
}

/// A record whose last result asks a question.
fn asking(question: &Value) -> Record {
    let document = json!({"target": {"agent_id": "@dev"}});
    let mut record = Record::admit(document.as_object().unwrap().clone(), "x", None);
    record.set(
        "result",
        json!({"status": "needs_review", "question": question}),
    );
    ask_person(&mut record, Kind::Review, "why", NOW, "boot");
    record
}

#[test]
fn a_question_says_what_its_answers_do() {
    let (completed, failed, again) = (State::Completed, State::Failed, State::Waiting);
    for (question, approved, rejected) in [
        (json!("Is it right?"), completed, failed),
        (json!({"text": "t"}), completed, failed),
        (json!({"on_approve": "rerun"}), again, failed),
        (json!({"on_reject": "rerun"}), completed, again),
        (
            json!({"on_approve": "rerun", "on_reject": "rerun"}),
            again,
            again,
        ),
        (
            json!({"on_approve": "complete", "on_reject": "fail"}),
            completed,
            failed,
        ),
    ] {
        for (action, expected) in [(Action::Approve, approved), (Action::Reject, rejected)] {
            let mut record = asking(&question);
            answered(&mut record, action).unwrap();
            assert_eq!(record.meta.to, Some(expected), "{question} {action}");
            assert_eq!(record.doc["answer"]["action"], action.as_str());
            assert_eq!(record.doc["answer"]["comment"], "c");
            if expected == again {
                assert_eq!(record.doc["waiting"]["on"], "retry");
                assert_eq!(record.meta.retries, 0, "no retry of the budget");
            }
        }
    }
}

#[test]
fn the_options_of_a_question_are_what_a_choice_must_be() {
    let mut record = asking(&json!({"text": "Which?", "options": ["red", "blue"]}));
    assert_eq!(
        record.doc["waiting"]["options"],
        json!({"red": "", "blue": ""})
    );
    let mut wrong = command(Action::Approve);
    wrong.choice = Some("green".to_owned());
    let refused = answered_with(&mut record, &wrong).unwrap_err();
    assert!(refused.contains("red, blue"), "{refused}");
    wrong.choice = Some("blue".to_owned());
    answered_with(&mut record, &wrong).unwrap();
    assert_eq!(record.doc["answer"]["choice"], "blue");
}

#[test]
fn a_question_that_nobody_answers_in_time_never_runs_again() {
    for action in [Action::Approve, Action::Reject] {
        let mut record = asking(&json!({"on_approve": "rerun", "on_reject": "rerun"}));
        let config = config();
        let facts = Facts {
            id: "x",
            config: &config,
            now: NOW,
            boot: "boot",
            max_retries: 3,
            expired: true,
        };
        answer(&mut record, &command(action), &facts).unwrap();
        assert_eq!(record.meta.to, Some(State::Failed), "{action}");
        assert_eq!(record.doc["error"]["code"], "REJECTED");
    }
}
