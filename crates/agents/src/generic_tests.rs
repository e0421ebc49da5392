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
        ("command = [\"x\"]\nnonsense = 1", "nonsense"),
        ("command = 3", "line 1"),
        ("command = [\"x\"]\n[exit]\n1 = \"no-such\"", "no-such"),
    ] {
        let error = Description::parse(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
