//! The published schemas: shipped as the program prints them, matched by every example in the
//! repository, and at least as strict as the readers.
//!
//! After a change of a format, `just schemas` writes the shipped ones anew.

mod published {
    pub mod examples;
    pub mod mutate;
}

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use handoffd::config::Config;
use handoffd::policy::receive::{Findings, Rules, receive};
use handoffd::protocol::control;
use handoffd::protocol::id::HandoffId;
use handoffd::protocol::record::Record;
use handoffd::protocol::request::Request;
use handoffd::protocol::result::wrong_fields;
use handoffd::protocol::view::View;
use handoffd::store::schemas::{Checked, Schemas};
use handoffd_agents::generic::Description;
use jsonschema::Validator;
use serde_json::{Map, Value, json};

use published::examples::{Example, all};
use published::mutate::{Mutation, mutations};

const NAMES: [&str; 7] = [
    "request", "package", "report", "record", "result", "control", "config",
];

fn handoffd(args: &[&str]) -> Output {
    let nowhere = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_handoffd"))
        .args(args)
        .current_dir(nowhere.path())
        .env_remove("HANDOFFD_ROOT")
        .output()
        .unwrap()
}

fn schema(name: &str) -> Value {
    match name {
        "config" => handoffd::config::published::schema(),
        name => handoffd::protocol::published::schema(name).unwrap(),
    }
}

fn validator(name: &str) -> Validator {
    jsonschema::validator_for(&schema(name)).unwrap()
}

#[test]
fn the_shipped_schemas_are_what_the_program_prints() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");
    for name in NAMES {
        let printed = handoffd(&["schema", name]);
        assert!(printed.status.success(), "{name}");
        let printed = String::from_utf8(printed.stdout).unwrap();
        let shipped = folder.join(format!("handoffd-{name}.schema.json"));
        if std::env::var_os("UPDATE_SCHEMAS").is_some() {
            fs::write(&shipped, &printed).unwrap();
        }
        let is = fs::read_to_string(&shipped).unwrap_or_default();
        assert!(is == printed, "{} is old: just schemas", shipped.display());
        assert_eq!(
            serde_json::from_str::<Value>(&printed).unwrap(),
            schema(name)
        );
    }
}

#[test]
fn the_command_lists_the_formats_and_refuses_others() {
    let list = String::from_utf8(handoffd(&["schema"]).stdout).unwrap();
    let names: Vec<&str> = list
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(names, NAMES);
    let list: Value = serde_json::from_slice(&handoffd(&["schema", "--json"]).stdout).unwrap();
    assert_eq!(list[6]["name"], "config");
    let refused = handoffd(&["schema", "requests"]);
    assert_eq!(refused.status.code(), Some(2));
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(told.contains("possible values: request, package"), "{told}");
}

#[test]
fn every_schema_is_one_and_tells_what_its_fields_are_for() {
    for name in NAMES {
        let schema = schema(name);
        jsonschema::meta::validate(&schema).unwrap();
        assert_eq!(
            schema["$schema"],
            "https://json-schema.org/draft/2020-12/schema"
        );
        assert_eq!(schema["$id"], format!("handoffd:{name}"));
        assert_eq!(schema["title"], format!("handoffd {name}"));
        // Not every engine can look ahead or behind.
        assert!(!schema.to_string().contains("(?"), "{name}");
        for (key, field) in schema["properties"].as_object().unwrap() {
            let told = field["description"]
                .as_str()
                .is_some_and(|text| !text.is_empty());
            assert!(told || key == "handoffd", "{name}: {key}");
        }
    }
}

/// What the daemon's own reader says against a document, in words; `None` where it takes it.
fn refusal(name: &str, document: &Value) -> Option<String> {
    let Value::Object(map) = document else {
        return Some("not an object".to_owned());
    };
    match name {
        "request" | "package" | "report" => refused_submission(map),
        "record" => Record::from_document(map.clone())
            .err()
            .map(|error| error.to_string()),
        "control" => control::Command::from_document(map)
            .err()
            .map(|errors| format!("{errors:?}")),
        "result" => Some(wrong_fields(map))
            .filter(|errors| !errors.is_empty())
            .map(|errors| format!("{errors:?}")),
        "config" => {
            let text = toml_of(map)?;
            Config::parse(&text, Path::new("h.toml"))
                .err()
                .map(|error| error.to_string())
        }
        other => panic!("{other}"),
    }
}

fn refused_submission(map: &Map<String, Value>) -> Option<String> {
    let view = View::of_document(map);
    let id = view.id().and_then(|id| HandoffId::parse_made(id).ok());
    let stem = id.unwrap_or_else(|| HandoffId::parse("x").unwrap());
    match Request::from_document(map, &stem) {
        // A schema can't compare two values.
        Err(errors)
            if errors
                .iter()
                .all(|one| one.error.ends_with("must be the same")) =>
        {
            None
        }
        Err(errors) => Some(format!("{errors:?}")),
        Ok(_) => receive(&view, &Findings::default(), Rules::default())
            .refusal
            .map(|refusal| refusal.message),
    }
}

/// A document as TOML; `None` where TOML has no word for it.
fn toml_of(map: &Map<String, Value>) -> Option<String> {
    let lines: Option<Vec<String>> = map
        .iter()
        .map(|(key, value)| Some(format!("{} = {}\n", json!(key), inline(value)?)))
        .collect();
    Some(lines?.concat())
}

fn inline(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        Value::Array(items) => {
            let items: Option<Vec<String>> = items.iter().map(inline).collect();
            format!("[{}]", items?.join(", "))
        }
        Value::Object(map) => {
            let pairs: Option<Vec<String>> = map
                .iter()
                .map(|(key, value)| Some(format!("{} = {}", json!(key), inline(value)?)))
                .collect();
            format!("{{{}}}", pairs?.join(", "))
        }
        plain => plain.to_string(),
    })
}

#[test]
fn an_agent_that_a_page_describes_is_read() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/agent-files.md");
    let text = fs::read_to_string(page).unwrap();
    let blocks = text.split("\n```toml agent\n").skip(1);
    let read = blocks.map(|block| {
        let (body, _) = block.split_once("\n```").unwrap();
        Description::parse(body).unwrap()
    });
    assert!(read.count() > 0);
}

#[test]
fn every_example_is_taken_and_matches_its_schema() {
    let examples = all();
    for name in NAMES {
        let validator = validator(name);
        let own: Vec<&Example> = examples.iter().filter(|one| one.format == name).collect();
        assert!(!own.is_empty(), "no example of a {name}");
        for example in own {
            assert_eq!(refusal(name, &example.document), None, "{}", example.from);
            let errors: Vec<String> = validator
                .iter_errors(&example.document)
                .map(|error| format!("{} at {}", error, error.instance_path()))
                .collect();
            assert!(errors.is_empty(), "{} as {name}: {errors:#?}", example.from);
        }
    }
}

/// Where a schema may refuse what its reader takes.
fn may_be_stricter(name: &str, document: &Value, what: &str) -> bool {
    match name {
        // Beside a right one in `handoff`, what stands at the top is not read.
        "package" => what.starts_with("with /") && !what.starts_with("with /handoff"),
        // Records are the daemon's own, and its reader looks at `handoffd` alone.
        "record" => true,
        // TOML has no null.
        "config" => document
            .as_object()
            .is_some_and(|map| toml_of(map).is_none()),
        _ => false,
    }
}

/// What a schema can't know: which agents are described in files below the root.
fn only_the_reader_knows(why: &str) -> bool {
    why.contains("describe another agent in agents/NAME.toml")
}

fn hold(name: &str) {
    let validator = validator(name);
    let (mut tried, mut refused) = (0, 0);
    let (mut slipped, mut strict) = (Vec::new(), Vec::new());
    for example in all().iter().filter(|one| one.format == name) {
        mutations(&example.document, &mut |Mutation { what, document }| {
            tried += 1;
            let why = refusal(name, document);
            refused += usize::from(why.is_some());
            match (why, validator.is_valid(document)) {
                (Some(why), true) if only_the_reader_knows(&why) => {}
                (Some(why), true) => slipped.push(format!("{}, {what}: {why}", example.from)),
                (None, false) if !may_be_stricter(name, document, &what) => {
                    strict.push(format!("{}, {what}", example.from));
                }
                _ => {}
            }
        });
    }
    assert!(refused > 5 && refused < tried, "{refused} of {tried}");
    slipped.truncate(20);
    assert!(slipped.is_empty(), "the schema takes {slipped:#?}");
    strict.truncate(20);
    assert!(strict.is_empty(), "only the schema refuses {strict:#?}");
}

#[test]
fn what_the_reader_of_requests_refuses_the_schema_refuses() {
    hold("request");
}

#[test]
fn what_the_reader_of_packages_refuses_the_schema_refuses() {
    hold("package");
}

#[test]
fn what_the_reader_of_reports_refuses_the_schema_refuses() {
    hold("report");
}

#[test]
fn what_the_reader_of_records_refuses_the_schema_refuses() {
    hold("record");
}

#[test]
fn what_the_reader_of_results_refuses_the_schema_refuses() {
    hold("result");
}

#[test]
fn what_the_reader_of_commands_refuses_the_schema_refuses() {
    hold("control");
}

#[test]
fn what_the_reader_of_configurations_refuses_the_schema_refuses() {
    hold("config");
}

/// They lie where a root has its schemas, so a request can name them like any other.
#[test]
fn the_shipped_schemas_can_be_named_by_requests() {
    let schemas = Schemas::new(&Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas"));
    for example in all() {
        let name = format!("handoffd-{}.schema.json", example.format);
        let checked = schemas.check(&name, &example.document);
        assert_eq!(checked, Checked::Valid, "{} as {name}", example.from);
        let refused = schemas.check(&name, &json!([]));
        assert!(matches!(refused, Checked::Invalid(_)), "{name}");
    }
}
