//! Expressions held against the readers that they stand for: what a reader refuses, its
//! expression refuses.

use serde_json::{Value, json};

use super::super::destination::{Values, resolve};
use super::super::shape::{Shape, check};
use super::{between, duration_between};
use std::time::Duration;

fn matches(pattern: &str, text: &str) -> bool {
    let schema = json!({"pattern": pattern});
    jsonschema::validator_for(&schema)
        .unwrap()
        .is_valid(&text.into())
}

#[test]
fn texts_are_taken_or_refused_by_both() {
    let long = "x".repeat(201);
    let cases: &[(Shape, &[&str], &[&str])] = &[
        (
            Shape::Instant,
            &[
                "2026-01-13T10:00:00Z",
                "2026-01-13t10:00:00.25z",
                "2026-01-13 10:00:00+01:30",
                "2026-01-13T10:00:00",
                "2026-01-13 10:00:00.123456789012",
                "2024-02-29T00:00:00Z",
                "2000-02-29T00:00:00Z",
                "2026-12-31T23:59:60Z",
                "2026-01-13T10:00:00-23:59",
            ],
            &[
                "",
                "2026-01-13",
                "2026-02-29T00:00:00Z",
                "1900-02-29T00:00:00Z",
                "2026-04-31T00:00:00Z",
                "2026-13-01T00:00:00Z",
                "2026-00-01T00:00:00Z",
                "2026-01-13T24:00:00Z",
                "2026-01-13T10:60:00Z",
                "2026-01-13T10:00:61Z",
                "2026-01-13T10:00:00+24:00",
                "2026-01-13T10:00:00+0130",
                "2026-01-13t10:00:00",
                "2026-01-13T10:00:00.Z",
                "soon",
                "2026-01-13T10:00:00Z\n",
            ],
        ),
        (
            Shape::Duration,
            &[
                "30m", "1h 30m", "1h30m", "1.5h", "250ms", "3 weeks", "10 years", "2months", "1M",
                "5µs", "7ns", "0s", "0.125s", " 1s ", "90m 90m",
            ],
            &[
                "",
                "30",
                "5 parsecs",
                "-1s",
                "1.s",
                ".5s",
                "99999999999999999999s",
                "1h-",
                "0.0001h",
                "1.5ns",
                "m",
                "1 h h",
                "1S",
            ],
        ),
        (
            Shape::Id,
            &["x", "x~2", "A.b_c@d-9", "-rf", "@x", &long[1..]],
            &["", ".x", "../x", "a/b", "a b", "é", &long, "x\n"],
        ),
        (
            Shape::Task,
            &["x", "currents"],
            &["", ".x", "x~2", "current", &long],
        ),
        (
            Shape::Agent,
            &["x", "@x", "@@", "a b", "é", &long[1..]],
            &["", "@", "a\nb", "a\u{0}", "a\u{85}", "\u{7f}", &long],
        ),
    ];
    for (shape, good, bad) in cases {
        let schema = jsonschema::validator_for(&shape.schema()).unwrap();
        for (text, right) in good
            .iter()
            .map(|t| (t, true))
            .chain(bad.iter().map(|t| (t, false)))
        {
            let value = Value::from(*text);
            let mut errors = Vec::new();
            check(shape, &value, "x", &mut errors);
            assert_eq!(
                errors.is_empty(),
                right,
                "the reader on {text:?}: {errors:?}"
            );
            assert_eq!(schema.is_valid(&value), right, "the schema on {text:?}");
        }
    }
}

#[test]
fn destinations_are_taken_or_refused_by_both() {
    let values = Values {
        handoff_id: "h",
        task_id: Some("t"),
        agent: "a",
        phase: Some("p"),
        artifact_type: Some("k"),
        timestamp: 1,
    };
    let schema = jsonschema::validator_for(&Shape::Destination.schema()).unwrap();
    let (long, part) = ("a/".repeat(520), "x".repeat(241));
    for (template, right) in [
        ("artifacts/x.json", true),
        ("artifacts/{phase}/{handoff_id}-{task_id}.{agent}", true),
        ("artifacts/{artifact_type}{timestamp}", true),
        ("artifacts/.hidden/..x/x..", true),
        ("artifacts/registry.jsonl/x", true),
        ("artifacts/é", true),
        ("", false),
        ("artifacts", false),
        ("artifacts/", false),
        ("artifacts//x", false),
        ("artifacts/x/", false),
        ("artifacts/./x", false),
        ("artifacts/..", false),
        ("artifacts/a/../x", false),
        ("/artifacts/x", false),
        ("x/artifacts/x", false),
        ("artifacts/registry.jsonl", false),
        ("artifacts/{nothing}", false),
        ("artifacts/{phase", false),
        ("artifacts/phase}", false),
        ("artifacts/{{phase}}", false),
        ("artifacts/a\nb", false),
        ("artifacts/a\u{85}b", false),
        (&format!("artifacts/{long}x"), false),
        (&format!("artifacts/{part}"), false),
    ] {
        assert_eq!(resolve(template, &values).is_ok(), right, "{template:?}");
        assert_eq!(schema.is_valid(&template.into()), right, "{template:?}");
    }
}

#[test]
fn numbers_between_two_others() {
    for (least, most) in [
        (0, 0),
        (0, 9),
        (1, 10),
        (5, 123),
        (99, 101),
        (100, 3600),
        (0, 1000),
        (7, 7),
    ] {
        let pattern = format!("^{}$", between(least, most));
        let validator = jsonschema::validator_for(&json!({"pattern": pattern})).unwrap();
        for number in 0..4000 {
            let right = (least..=most).contains(&number);
            assert_eq!(
                validator.is_valid(&number.to_string().into()),
                right,
                "{number} {pattern}"
            );
        }
    }
}

#[test]
fn durations_between_two_others() {
    let pattern = duration_between(Duration::from_millis(100), Duration::from_secs(3600));
    let both = json!({"pattern": pattern, "allOf": [{"pattern": "[1-9]"}]});
    let validator = jsonschema::validator_for(&both).unwrap();
    let units = ["ns", "us", "ms", "s", "min", "h", "d", "w", "M", "y"];
    let numbers = [
        0, 1, 5, 54, 59, 60, 61, 99, 100, 101, 3599, 3600, 3601, 3_600_000, 3_600_001,
    ];
    let parts: Vec<String> = numbers
        .iter()
        .flat_map(|number| units.iter().map(move |unit| format!("{number}{unit}")))
        .collect();
    let within = |text: &str| {
        let read = humantime::parse_duration(text).unwrap();
        (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&read)
    };
    for one in &parts {
        assert_eq!(
            validator.is_valid(&one.as_str().into()),
            within(one),
            "{one}"
        );
        for other in parts.iter().step_by(7) {
            let both = format!("{one} {other}");
            assert!(
                !validator.is_valid(&both.as_str().into()) || within(&both),
                "{both}"
            );
        }
    }
    assert!(matches(&pattern, "59m 59s"));
}
