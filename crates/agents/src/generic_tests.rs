use super::*;

fn agent(text: &str) -> Generic {
    Generic::new(Description::parse(text).unwrap())
}

fn exit(code: i32, stderr: &str) -> Exit {
    Exit {
        code: Some(code),
        stderr: stderr.to_owned(),
    }
}

fn ending(agent: &mut Generic, stream: &str, exit: &Exit) -> Ending {
    for line in stream.lines() {
        agent.line(line);
    }
    agent.ending(exit)
}

#[test]
fn the_descriptions_that_come_with_the_program_can_be_read() {
    for name in built_in_names() {
        let text = built_in(name).unwrap();
        let description = Description::parse(text).unwrap();
        assert_eq!(description.command[0], name);
        assert!(
            text.lines().count() <= 25,
            "{name}: twenty lines are enough"
        );
    }
}

#[test]
fn a_described_stream_is_read() {
    let mut opencode = agent(built_in("opencode").unwrap());
    let stream = concat!(
        r#"{"type":"step_start","sessionID":"ses_1","part":{"type":"step-start"}}"#,
        "\n",
        r#"{"type":"text","sessionID":"ses_1","part":{"text":"Half "}}"#,
        "\nno JSON at all\n",
        r#"{"type":"text","sessionID":"ses_1","part":{"text":"and half"}}"#,
        "\n",
        r#"{"type":"step_finish","sessionID":"ses_1","part":{"tokens":{"input":7,"output":3},"cost":0.5}}"#,
        "\n",
        r#"{"type":"step_finish","sessionID":"ses_1","part":{"tokens":{"input":1,"output":1},"cost":0.25}}"#,
    );
    let ending = ending(&mut opencode, stream, &exit(0, ""));
    assert_eq!(ending.ended, Ended::Through);
    assert_eq!(ending.text.as_deref(), Some("Half and half"));
    assert_eq!(ending.session.as_deref(), Some("ses_1"));
    let sums = Usage {
        input_tokens: 8,
        output_tokens: 4,
        cost_usd: Some(0.75),
    };
    assert_eq!(ending.figures, Figures::OfCall(sums));
}

macro_rules! recorded {
    ($name:literal) => {
        include_str!(concat!("../tests/streams/", $name, ".jsonl"))
    };
}

#[test]
fn recorded_streams_of_described_agents_are_read() {
    for (name, stream, model) in [
        (
            "gemini",
            recorded!("gemini-0.61.0-plain"),
            Some("gemini-2.5-pro"),
        ),
        ("opencode", recorded!("opencode-1.18.33-plain"), None),
    ] {
        let ending = ending(&mut agent(built_in(name).unwrap()), stream, &exit(0, ""));
        assert_eq!(ending.ended, Ended::Through, "{name}");
        assert_eq!(ending.text.as_deref(), Some("Hello"));
        assert_eq!(ending.model.as_deref(), model);
        assert!(ending.session.is_some());
        let Figures::OfCall(sums) = ending.figures else {
            panic!("{name}: the figures are of the call")
        };
        assert_eq!((sums.input_tokens, sums.output_tokens), (100, 20), "{name}");
    }
    for (name, stream, code) in [
        ("gemini", recorded!("gemini-0.61.0-401"), 144),
        ("opencode", recorded!("opencode-1.18.33-401"), 1),
    ] {
        let ended = ending(&mut agent(built_in(name).unwrap()), stream, &exit(code, "")).ended;
        assert!(
            matches!(&ended, Ended::Trouble(it) if it.kind == Kind::NotLoggedIn),
            "{name}: {ended:?}"
        );
    }
    let mut opencode = agent(built_in("opencode").unwrap());
    let denied = ending(
        &mut opencode,
        recorded!("opencode-1.18.33-denied"),
        &exit(0, ""),
    )
    .denied;
    let expected = Denied {
        what: "do this: touch made.txt".to_owned(),
        rule: "touch made.txt".to_owned(),
    };
    assert_eq!(denied, BTreeSet::from([expected]));
    let mut gemini = agent(built_in("gemini").unwrap());
    let quota = ending(&mut gemini, recorded!("gemini-0.61.0-429"), &exit(173, "")).ended;
    assert!(matches!(&quota, Ended::Quota { .. }), "{quota:?}");
}

#[test]
fn a_session_is_begun_resumed_and_told_apart() {
    let turn = |agent: &Generic, start: &Start| {
        let turn = Turn {
            start,
            folder: std::path::Path::new("/nowhere"),
            schema_file: "/tmp/s".into(),
            schema: "{}",
            granted: &["p q".to_owned()],
            max_usd: None,
            args: &["-m".to_owned(), "x".to_owned()],
            program: None,
            mcp: None,
        };
        agent.call(&turn).args.join(" ")
    };
    let mut gemini = agent(built_in("gemini").unwrap());
    assert!(turn(&gemini, &Start::New("ID".to_owned())).ends_with("--session-id ID -m x"));
    assert!(turn(&gemini, &Start::Resume("ID".to_owned())).ends_with("--resume ID -m x"));
    let gone = exit(
        42,
        "Error resuming session: Invalid session identifier \"ID\".",
    );
    assert_eq!(ending(&mut gemini, "", &gone).ended, Ended::NoSession);
    let there = exit(
        42,
        "Error: Session ID \"ID\" already exists. Use --resume to resume it",
    );
    assert_eq!(ending(&mut gemini, "", &there).ended, Ended::SessionExists);
    assert!(!gemini.takes_schema() && gemini.resumes());
    let own =
        "command = [\"a\", \"--schema={schema_file}\"]\nallow = [\"--allow\", \"{permission}\"]";
    let own = agent(own);
    assert!(own.permits() && !gemini.permits());
    assert!(own.takes_schema() && !own.resumes());
    assert_eq!(
        turn(&own, &Start::New("ID".to_owned())),
        "--schema=/tmp/s --allow p q -m x"
    );
}

#[test]
fn exit_codes_and_words_say_what_went_wrong() {
    let mut gemini = agent(built_in("gemini").unwrap());
    for (code, stderr, expected) in [
        (41, "Invalid auth method selected.", Kind::NotLoggedIn),
        (53, "", Kind::LimitReached),
        (1, "connect ECONNREFUSED 127.0.0.1:1", Kind::NoNetwork),
        (1, "?", Kind::Other),
    ] {
        let ended = ending(&mut gemini, "", &exit(code, stderr)).ended;
        assert!(
            matches!(&ended, Ended::Trouble(it) if it.kind == expected),
            "{code} {stderr}: {ended:?}"
        );
    }
    let ended = ending(&mut gemini, "", &exit(1, "RESOURCE_EXHAUSTED: quota")).ended;
    assert!(matches!(ended, Ended::Quota { .. }));
    let cut = ending(&mut gemini, "", &exit(0, "")).ended;
    assert!(matches!(&cut, Ended::Trouble(it) if it.kind == Kind::CutOff));
}

#[test]
fn without_a_described_stream_all_that_is_printed_is_the_answer() {
    let mut plain = agent("command = [\"cat\"]");
    let answer = ending(&mut plain, "one\n\ntwo\n", &exit(0, ""));
    assert_eq!(answer.text.as_deref(), Some("one\n\ntwo"));
    assert_eq!(answer.report, None);
    let report = ending(&mut plain, "{\"status\":\"complete\"}\n", &exit(0, ""));
    assert_eq!(report.report.unwrap()["status"], "complete");
}

#[test]
fn a_wrong_description_says_where() {
    for (text, expected) in [
        ("command = []", "`command` is empty"),
        (
            "command = [\"x\"]\nnonsense = 1",
            "line 2: unknown field `nonsense`",
        ),
        ("command = 3", "line 1"),
        ("command = [\"x\"]\n[exit]\n1 = \"no-such\"", "no-such"),
    ] {
        let error = Description::parse(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
