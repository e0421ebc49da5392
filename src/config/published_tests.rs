//! The table and the reader, held against each other: same keys, same values.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::super::Config;
use super::{CONFIG, Key, Kind, With, schema};

fn problems(text: &str) -> Vec<String> {
    match Config::parse(text, Path::new("h.toml")) {
        Ok(_) => Vec::new(),
        Err(error) => error.problems().iter().map(|p| p.message.clone()).collect(),
    }
}

/// Values of a kind in TOML: some that are right, and some that are not.
#[rustfmt::skip]
#[expect(clippy::too_many_lines, reason = "a table, one entry for each kind")]
fn samples(kind: &Kind) -> (Vec<String>, Vec<String>) {
    let own = |good: &[&str], bad: &[&str]| {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        (owned(good), owned(bad))
    };
    let (good, mut bad) = match kind {
        Kind::FlagOr(words) => (
            words.iter().map(|word| format!("{word:?}")).chain(own(&["true", "false"], &[]).0).collect(),
            own(&[], &["\"no-such-word\"", "\"true\"", "\"\"", "1"]).1,
        ),
        Kind::Flag => own(&["true", "false"], &["\"true\""]),
        Kind::Whole(least, most) => (
            vec![least.to_string(), most.to_string()],
            vec![(i128::from(*least) - 1).to_string(), (most + 1).to_string(), "1.5".into(), "\"4\"".into()],
        ),
        Kind::Number(least, most) => (
            vec![format!("{least:?}"), format!("{most:?}"), "1".into()],
            vec![format!("{:?}", least - 0.1), format!("{:?}", most + 0.1), "\"1\"".into()],
        ),
        Kind::Duration(least, most) if most.as_secs() == 3600 => {
            let (mut good, mut bad) = own(
                &["\"250ms\"", "\"1h\"", "\"60m\"", "\"1m 30s\"", "\"59m59s\"", "\"2.5s\"", "\"0.5s\"", "\"0.1s\"", "\"0.05h\"", "\"3600s\"", "\"59 minutes\"", "\"100ms\""],
                &["\"61m\"", "\"1h 1s\"", "\"2h\"", "\"3601s\"", "\"3600001ms\"", "\"1d\"", "\"-1s\"", "\"\"", "\"5\"", "\"60.5m\""],
            );
            let edge = if least.is_zero() { &mut good } else { &mut bad };
            edge.extend(["\"0s\"", "\"99ms\"", "\"0.09s\"", "\"0.0h\""].map(str::to_owned));
            (good, bad)
        }
        Kind::Duration(least, _) => {
            let (mut good, mut bad) = own(
                &["\"1ms\"", "\"5m\"", "\"1h 30m\"", "\"1h30m\"", "\"1.5h\"", "\"0.5s\"", "\"0.001s\"", "\"0.5d\"", "\"24h\"", "\"7d\"", "\"3 weeks\""],
                &["\"101years\"", "\"30\"", "\"5 parsecs\"", "\"-1s\"", "\"\"", "\"99999999999999999999s\"", "\"36526d\"", "\"100y 1s\"", "\"1.s\""],
            );
            if least.as_secs() > 0 {
                let short = |text: &String| ["1ms", "0.5s", "0.001s"].iter().any(|it| text.contains(it));
                bad.extend(good.iter().filter(|it| short(it)).cloned());
                good.retain(|it| !short(it));
            }
            let edge = if least.is_zero() { &mut good } else { &mut bad };
            edge.extend(["\"0s\"", "\"0m 0s\"", "\"999us\"", "\"0.5ms\"", "\"0.00d\""].map(str::to_owned));
            (good, bad)
        }
        Kind::Size => own(
            &["\"1KiB\"", "\"8MiB\"", "\"2kb\"", "\"1024B\"", "\"1 GiB\"", "1024", "9999999"],
            &["\"1kB\"", "\"1023B\"", "1023", "-1", "\"8M\"", "\"8\"", "\"1.5MiB\"", "\"99999999999999GiB\"", "\"\"", "\"0GiB\""],
        ),
        Kind::Loopback => own(
            &["\"127.0.0.1:9464\"", "\"127.1.2.3:0\"", "\"127.0.0.1:65535\""],
            &["\"0.0.0.0:9464\"", "\"10.0.0.1:9464\"", "\"127.0.0.1\"", "\"127.0.0.256:1\"", "\"127.0.0.1:65536\"", "\"localhost:9464\"", "\":9464\"", "9464", "\"\""],
        ),
        Kind::Anchor => own(
            &["\"journal\"", "\"syslog\"", "\"file:/var/log/x\""],
            &["\"\"", "\"file\"", "\"file:\"", "\"file:/\"", "\"file:x\"", "\"/var/log/x\"", "\"file:/a\\u0000\"", "\"journald\"", "3"],
        ),
        Kind::Rate => own(
            &["\"30/min\"", "\"1/s\"", "\"7 / day\""],
            &["\"0/min\"", "\"30\"", "\"30/fortnight\"", "\"/min\"", "\"-1/s\"", "\"9999999999/s\"", "30"],
        ),
        Kind::Word(words) => (
            words.iter().map(|word| format!("{word:?}")).collect(),
            vec!["\"no-such-word\"".into(), "\"\"".into()],
        ),
        Kind::Text => own(&["\"x\"", "\" \""], &["\"\"", "\"a\\u0000\""]),
        Kind::Agent => own(
            &["\"@x\"", "\"x y\"", "\"human\""],
            &["\"\"", "\"@\"", "\"*\"", "\"@*\"", "\"a\\nb\"", "\"a\\u0085\""],
        ),
        Kind::Command => own(
            &["[\"x\"]", "[\"x\", \"\"]"],
            &["[]", "[\"\"]", "\"x\"", "[\"x\", 1]", "[\"x\", \"\\u0000\"]"],
        ),
        Kind::CodingAgent => own(
            &["\"claude\"", "\"codex\"", "\"gemini\"", "\"opencode\""],
            &["\"\"", "\".x\"", "\"../x\"", "\"a b\"", "1"],
        ),
        Kind::Words { least, once } => {
            let (mut good, mut bad) = own(&["[\"a\", \"b\"]"], &["[\"\"]", "\"a\"", "[1]"]);
            if *least > 0 { &mut bad } else { &mut good }.push("[]".to_owned());
            if *once { &mut bad } else { &mut good }.push("[\"a\", \"a\"]".to_owned());
            (good, bad)
        }
        Kind::PathsInside => own(
            &["[]", "[\"a\", \"a/..b\", \"./c\"]"],
            &["[\"\"]", "\"a\"", "[\"/a\"]", "[\"..\"]", "[\"a/../b\"]"],
        ),
        Kind::Files => own(
            &["\"*.md\"", "\"out/{task_id}/**/a-[0-9].md\"", "\"./.out/..b/{phase}\""],
            &["\"\"", "\"/out/x.md\"", "\"../x\"", "\"a/../x\"", "\"{nope}.md\"", "\"{task_id\"", "\"a}b\"", "[\"*.md\"]"],
        ),
        Kind::Umask => own(
            &["\"027\"", "\"0077\"", "\"000\""],
            &["\"\"", "\"27\"", "\"028\"", "\"1777\"", "27", "\"00027\"", "\"+27\""],
        ),
        Kind::User => own(
            &["\"nobody\"", "\"a:b\"", "\"1000\""],
            &["\"\"", "\":b\"", "\"a:\"", "\"a:b:c\"", "\"a/b\"", "1000"],
        ),
        Kind::Variables => own(
            &["{}", "{ A = \"\" }"],
            &["{ A = 1 }", "{ \"\" = \"x\" }", "{ \"A=B\" = \"x\" }", "{ HANDOFF_ID = \"x\" }", "{ A = \"\\u0000\" }"],
        ),
        Kind::VariableNames => own(&["[]", "[\"A\"]"], &["[\"\"]", "[\"A=B\"]", "[\"HANDOFF_X\"]", "\"A\""]),
        Kind::Table(keys) => (vec![format!("{{ {} }}", needed(keys, ""))], own(&[], &["3", "\"\""]).1),
        Kind::Tables(least, keys) => {
            let one = format!("[{{ {} }}]", needed(keys, ""));
            let (mut good, mut bad) = (vec![one], own(&[], &["{}", "[1]"]).1);
            if *least > 0 { &mut bad } else { &mut good }.push("[]".to_owned());
            (good, bad)
        }
        Kind::Named(kind) => {
            let (good, bad) = samples(kind);
            let name = |value: &String| format!("{{ \"any name\" = {value} }}");
            (good.iter().map(name).collect(), bad.iter().map(name).collect())
        }
        Kind::Agents(kind) => {
            let (good, _) = samples(kind);
            let name = |name: &str| format!("{{ {name:?} = {} }}", good[0]);
            (
                ["@x", "x", "*"].map(name).into(),
                ["", "@", "human", "@human", "a\tb"].map(name).into(),
            )
        }
    };
    bad.push("{ no_such_key = [[]] }".to_owned());
    if !matches!(kind, Kind::Flag | Kind::FlagOr(_)) {
        bad.push("true".to_owned());
    }
    (good, bad)
}

/// The keys that a table can't do without, but for one.
fn needed(keys: &[Key], but: &str) -> String {
    let pairs = keys.iter().filter(|key| key.needed && key.name != but);
    let pairs: Vec<String> = pairs
        .map(|key| format!("{} = {}", key.name, samples(&key.kind).0[0]))
        .collect();
    pairs.join(", ")
}

/// What must stand beside a key for its value to count.
fn beside(keys: &[Key], key: &Key) -> String {
    let named = |name: &str| keys.iter().find(|it| it.name == name).unwrap();
    let mut others = Vec::new();
    match key.only_with {
        Some(With::Word(other, word) | With::Any(other, word)) => {
            others.push((other, format!("{word:?}")));
            let wants = named(other)
                .wants
                .filter(|(wanting, wanted)| *wanting == word && *wanted != key.name);
            assert_eq!(wants, None, "{}: choose another example", key.name);
        }
        None => {}
    }
    if let Some((_, wanted)) = key.wants {
        others.push((wanted, samples(&named(wanted).kind).0[0].clone()));
    }
    let instead = |name: &str| named(name).instead_of;
    let mut replaced: Vec<&str> = key.instead_of.into_iter().collect();
    replaced.extend(others.iter().filter_map(|(other, _)| instead(other)));
    for it in keys.iter().filter(|it| it.needed && it.name != key.name) {
        if !replaced.contains(&it.name) {
            others.push((it.name, samples(&it.kind).0[0].clone()));
        }
    }
    let pairs: Vec<String> = others
        .iter()
        .map(|(key, value)| format!("{key} = {value}"))
        .collect();
    pairs.join(", ")
}

/// Is shown the keys of a table, and what makes a document of a table's content.
type Visit<'v> = dyn FnMut(&'static [Key], &dyn Fn(&str) -> String) + 'v;

/// Visits every table, with what makes a document of its keys.
fn tables(keys: &'static [Key], wrap: &dyn Fn(&str) -> String, visit: &mut Visit<'_>) {
    visit(keys, wrap);
    for key in keys {
        let beside = needed(keys, key.name);
        let comma = if beside.is_empty() { "" } else { ", " };
        let around = |before: &str, body: &str, after: &str| {
            wrap(&format!(
                "{beside}{comma}{} = {before}{{ {body} }}{after}",
                key.name
            ))
        };
        match key.kind {
            Kind::Table(inner) => tables(inner, &|body| around("", body, ""), visit),
            Kind::Tables(_, inner) => tables(inner, &|body| around("[", body, "]"), visit),
            Kind::Named(Kind::Table(inner)) | Kind::Agents(Kind::Table(inner)) => {
                tables(inner, &|body| around("{ x = ", body, " }"), visit);
            }
            _ => {}
        }
    }
}

fn all_tables(visit: &mut Visit<'_>) {
    tables(CONFIG, &str::to_owned, visit);
}

#[test]
fn the_reader_and_the_table_know_the_same_keys() {
    let mut seen = 0;
    all_tables(&mut |keys, wrap| {
        let beside = needed(keys, "");
        let comma = if beside.is_empty() { "" } else { ", " };
        let text = wrap(&format!("{beside}{comma}zzzzzzzzzzzzzzzzzzzz = 1"));
        let told = problems(&text);
        let [one] = &told[..] else {
            panic!("{text}: {told:?}");
        };
        let known = one.strip_prefix("unknown key; known here: ").unwrap();
        let known: BTreeSet<&str> = known.split(", ").collect();
        let table: BTreeSet<&str> = keys.iter().map(|key| key.name).collect();
        assert_eq!(known, table, "{text}");
        seen += 1;
    });
    assert_eq!(seen, 20);
}

fn inline(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let pairs: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{key} = {}", inline(value)))
                .collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        plain => plain.to_string(),
    }
}

#[test]
fn the_reader_and_the_schema_agree_on_values() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let matches = |text: &str| {
        let table: toml::Table = text.parse().unwrap();
        validator.is_valid(&serde_json::to_value(table).unwrap())
    };
    let mut wrong = Vec::new();
    all_tables(&mut |keys, wrap| {
        for key in keys {
            let beside = beside(keys, key);
            let (good, bad) = samples(&key.kind);
            for (value, right) in good
                .iter()
                .map(|value| (value, true))
                .chain(bad.iter().map(|value| (value, false)))
            {
                let comma = if beside.is_empty() { "" } else { ", " };
                let text = wrap(&format!("{beside}{comma}{} = {value}", key.name));
                let told = problems(&text);
                // What one time-out means for another is not in the schema.
                let other = |told: &String| {
                    told.contains("max_timeout")
                        || told.contains("set defaults.timeout")
                        || told.ends_with("to 1day")
                };
                let read = told.is_empty() || right && told.iter().all(other);
                if (read, matches(&text)) != (right, right) {
                    wrong.push(format!("{text}: {told:?}, schema {}", matches(&text)));
                }
            }
            if key.needed {
                let text = wrap(&beside);
                if problems(&text).is_empty() || matches(&text) {
                    wrong.push(format!("{} is needed in {text}", key.name));
                }
            }
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_defaults_of_the_schema_are_those_of_the_code() {
    let mut lines = Vec::new();
    for section in CONFIG {
        let Kind::Table(keys) = section.kind else {
            continue;
        };
        for key in keys {
            if let Some(default) = key.default {
                let value: Value = serde_json::from_str(default).unwrap();
                let line = format!("{}.{} = {}\n", section.name, key.name, inline(&value));
                lines.push(line);
            }
        }
    }
    assert_eq!(lines.len(), 29);
    let config = Config::parse(&lines.concat(), Path::new("h.toml")).unwrap();
    assert_eq!(config, Config::default());
}
