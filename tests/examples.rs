//! The examples, run as a reader would run them: `examples/` is copied and a daemon works on the
//! copy. Every file in it is listed here with its outcome, so none can be added or break unseen.
//!
//! Where an interpreter is missing, what needs it is left out, and said so.

#![expect(
    clippy::disallowed_methods,
    reason = "these tests play producers, who rename as they like"
)]

#[expect(
    dead_code,
    unused_imports,
    reason = "the harness of the end-to-end tests; the examples need little of it"
)]
mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::{Daemon, Root, outcomes, wait_until};
use serde_json::{Value, json};

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A copy of the examples, as a root.
fn copied() -> Root {
    let root = Root::new();
    let copied = Command::new("cp")
        .arg("-r")
        .arg(repository().join("examples/."))
        .arg(root.dir())
        .status();
    assert!(copied.unwrap().success());
    root
}

/// Whether a program can be started here; if not, says what is left out.
fn is_here(program: &str, needed_for: &str) -> bool {
    let here = Command::new(program)
        .arg(if program == "go" {
            "version"
        } else {
            "--version"
        })
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !here {
        println!("{program} is not here: {needed_for} is left out");
    }
    here
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().path().is_file())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Drops a file of the copy under an id.
fn drop_file(root: &Root, file: &str, id: &str) {
    let ext = Path::new(file).extension().unwrap().to_str().unwrap();
    let bytes = fs::read(root.path(file)).unwrap();
    root.drop_bytes(&format!("{id}.{ext}"), &bytes);
}

fn read(root: &Root, file: &str) -> String {
    fs::read_to_string(root.path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

struct Example {
    /// In the folder of examples.
    file: &'static str,
    /// What its specialist is written in.
    runs_on: &'static str,
    state: &'static str,
    outcomes: &'static [&'static str],
    /// What the record must hold, by JSON pointer; `null` for what must not be there.
    record: Value,
    /// A file that it must leave, and what is in it.
    leaves: Option<(&'static str, &'static str)>,
}

const SH: &str = "sh";
const PYTHON: &str = "python3";
const DONE: &[&str] = &["completed"];

/// One that is completed by its first attempt.
fn done(file: &'static str, runs_on: &'static str, record: Value) -> Example {
    Example {
        file,
        runs_on,
        state: "completed",
        outcomes: DONE,
        record,
        leaves: None,
    }
}

impl Example {
    fn leaves(self, file: &'static str, content: &'static str) -> Self {
        Self {
            leaves: Some((file, content)),
            ..self
        }
    }

    fn ends(self, state: &'static str, outcomes: &'static [&'static str]) -> Self {
        Self {
            state,
            outcomes,
            ..self
        }
    }

    /// As `cp returns/* handoffs/pending/` would name them; the dialects share their stems.
    fn id(&self) -> String {
        match self.file.strip_prefix("returns/") {
            Some(name) => name.trim_end_matches(".json").to_owned(),
            None => self.file.replace('.', "-"),
        }
    }

    fn check(&self, root: &Root) {
        let id = self.id();
        let record = match self.state {
            "waiting" => root.record_that("waiting", &id, |it| it["waiting"]["on"] == "human"),
            state => root.record(state, &id),
        };
        assert_eq!(outcomes(&record), self.outcomes, "{record:#}");
        for (pointer, expected) in self.record.as_object().unwrap() {
            let found = record.pointer(pointer).unwrap_or(&Value::Null);
            assert_eq!(found, expected, "{id}{pointer}");
        }
        if let Some((file, content)) = self.leaves {
            assert_eq!(read(root, file), content, "{file}");
        }
    }
}

/// Drops all of them at once and checks each.
fn run(examples: &[Example]) {
    let root = copied();
    let _daemon = Daemon::start(&root);
    let python = is_here(PYTHON, "every example whose specialist is in Python");
    let runs = || {
        examples
            .iter()
            .filter(|example| python || example.runs_on != PYTHON)
    };
    for example in runs() {
        drop_file(&root, example.file, &example.id());
    }
    for example in runs() {
        example.check(&root);
    }
    let verified = root.cli(&["artifacts", "verify"]);
    assert!(verified.status.success(), "{verified:?}");
    if python {
        check_board(&root);
    }
}

/// Both sets of examples have a package or a request of the project `pages`.
fn check_board(root: &Root) {
    wait_until("a phase that is completed, on the board", || {
        let bytes = fs::read(root.path("context/phase-status.json")).ok()?;
        let board: Value = serde_json::from_slice(&bytes).ok()?;
        let phases = board["projects"]["pages"]["phases"].as_object()?;
        phases
            .values()
            .any(|phase| phase["status"] == "completed")
            .then_some(())
    });
}

fn assert_all_are_listed(folder: &str, examples: &[Example]) {
    let mut here = names(&repository().join("examples").join(folder));
    here.retain(|name| name != "README.md" && name != "handoffd.toml");
    let mut listed: Vec<&str> = examples
        .iter()
        .map(|example| example.file.strip_prefix(folder).unwrap())
        .collect();
    listed.sort_unstable();
    assert_eq!(here, listed);
}

#[test]
fn one_for_each_dialect() {
    let examples = [
        done(
            "request.json",
            SH,
            json!({"/result/summary": "echoed request-json",
                   "/output/received/input": {"data": {"text": "hello"}},
                   "/validation": {"status": "unchecked"}}),
        ),
        done(
            "request.yaml",
            PYTHON,
            json!({"/output": {"text": "HELLO FROM YAML"}}),
        ),
        done(
            "package.yaml",
            PYTHON,
            json!({"/acknowledgment": {
                       "received": true,
                       "from": "@architect",
                       "understood": {
                           "task": "A review of the schema, as Markdown",
                           "constraints": ["no change of schemas/page.schema.json"],
                       },
                       "questions": [],
                       "starting": true,
                   },
                   "/output/artifact_path": "artifacts/reviews/package-yaml.md",
                   "/output/artifact_type": "documentation"}),
        )
        .leaves(
            "artifacts/reviews/package-yaml.md",
            "# Review\n\nReviewed: The schema of page summaries has 3 fields, title, words and \
             language, and allows no others.\n\nNo objections.",
        ),
        done(
            "package.json",
            SH,
            json!({"/validation/status": "passed",
                   "/output/artifact_path": "artifacts/scripts/package-json.sh"}),
        )
        .leaves(
            "artifacts/scripts/package-json.sh",
            "#!/bin/sh\necho built by package-json\n",
        ),
        done(
            "report.json",
            PYTHON,
            json!({"/handoffd/submitted/status": "complete", "/output/objections": 0,
                   "/acknowledgment/from": "@architect"}),
        )
        .leaves(
            "artifacts/report-json.md",
            "# Review\n\nReviewed: The schema has 3 fields and is in \
             schemas/summary.schema.json.\n\nNo objections.",
        ),
        done(
            "report.md",
            SH,
            json!({"/summary": "reviewed 3 schemas, no objections", "/started_at": null}),
        )
        .ends("completed", &[])
        .leaves(
            ".handoffd/originals/report-md.md",
            include_str!("../examples/report.md"),
        ),
    ];
    assert_all_are_listed("", &examples);
    run(&examples);
}

#[test]
fn one_for_each_way_to_return_a_result() {
    let examples: Vec<Example> = successes().into_iter().chain(others()).collect();
    assert_all_are_listed("returns/", &examples);
    run(&examples);
}

fn successes() -> [Example; 6] {
    [
        done(
            "returns/json-on-stdout.json",
            SH,
            json!({"/result/status": "complete", "/result/summary": "echoed json-on-stdout"}),
        ),
        done(
            "returns/result-file.json",
            PYTHON,
            json!({"/output": {"text": "HELLO"}, "/result/summary": "shouted 5 characters"}),
        ),
        done(
            "returns/markdown.json",
            PYTHON,
            json!({"/result/summary": "no objections", "/output/artifact_type": "report",
                   "/output/artifact_path": "artifacts/markdown.md"}),
        )
        .leaves(
            "artifacts/markdown.md",
            "# Review\n\nReviewed: the schema of page summaries\n\nNo objections.",
        ),
        done(
            "returns/text.json",
            SH,
            json!({"/result": {}, "/output": {
                "text": "The schemas of this root:\nlanguage.schema.json\npage.schema.json\n\
                         summary.schema.json\n",
            }}),
        ),
        done(
            "returns/nothing.json",
            SH,
            json!({"/result": {}, "/output": null}),
        ),
        done(
            "returns/artifact-file.json",
            SH,
            json!({"/output/artifact_path": "artifacts/builder/artifact-file.sh",
            "/output/artifact_type": "source",
            "/validation": {"status": "passed", "verify": {
                "exit_code": 0, "output": "the shell can read it",
            }}}),
        )
        .leaves(
            "artifacts/builder/artifact-file.sh",
            "#!/bin/sh\necho built by artifact-file\n",
        ),
    ]
}

/// Those that wait, fail, or take more than one attempt.
fn others() -> [Example; 7] {
    const AGAIN: &[&str] = &["failed", "completed"];
    [
        done(
            "returns/artifact-in-result.json",
            PYTHON,
            json!({"/output/artifact_id": "artifact-in-result",
            "/output/artifact_path": "artifacts/summaries/artifact-in-result.json",
            "/output/schema_compliance": "valid",
            "/validation": {"status": "passed"},
            "/handoffd/attempts/0/error/code": "VALIDATION_FAILED",
            "/handoffd/attempts/0/error/fields": [{
                "field": "artifact", "error": "missing required field 'language'",
                "schema_path": "#/required",
            }]}),
        )
        .ends("completed", AGAIN)
        .leaves(
            "artifacts/summaries/artifact-in-result.json",
            "{\n  \"title\": \"Hello\",\n  \"words\": 6,\n  \"language\": \"en\"\n}\n",
        ),
        done(
            "returns/needs-an-artifact.json",
            // Waits for an artifact that comes from a specialist in Python.
            PYTHON,
            json!({"/result/summary": "echoed needs-an-artifact"}),
        ),
        done(
            "returns/retry-after.json",
            SH,
            json!({"/output": {"text": "bonjour"}}),
        )
        .ends("completed", &["held", "completed"]),
        done(
            "returns/exit-code.json",
            SH,
            json!({"/output": {"attempt": 2}}),
        )
        .ends("completed", AGAIN),
        done(
            "returns/blocked.json",
            SH,
            json!({"/error/code": "BLOCKED", "/error/message":
                "the specialist is blocked (architecture_decision): sessions or tokens: both \
                 would do, and the request does not say"}),
        )
        .ends("failed", &["blocked"]),
        done(
            "returns/needs-review.json",
            SH,
            json!({
                "/waiting/on": "human", "/waiting/kind": "review",
                "/waiting/reason": "the text is ready; one name could not be checked",
                "/waiting/options/approve": "go on",
            }),
        )
        .ends("waiting", &["needs_review"]),
        done(
            "returns/failed.json",
            SH,
            json!({"/error/code": "PROCESSING_ERROR", "/error/detail_code": "SITE_CLOSED",
                   "/error/message": "the site takes no more pages", "/retry_count": 0}),
        )
        .ends("failed", &["failed"]),
    ]
}

/// Every specialist of the examples is used by one, and can be started.
#[test]
fn the_configuration_is_sound_and_has_no_idle_specialist() {
    let root = copied();
    let checked = root.cli(&["check"]);
    assert!(checked.status.success(), "{checked:?}");
    let config = read(&root, "handoffd.toml");
    for name in names(&repository().join("examples/specialists")) {
        assert!(config.contains(&format!("specialists/{name}")), "{name}");
    }
    let mut requests = String::new();
    for folder in ["examples", "examples/returns"] {
        for name in names(&repository().join(folder)) {
            if name != "handoffd.toml" && name != "README.md" {
                requests += &fs::read_to_string(repository().join(folder).join(name)).unwrap();
            }
        }
    }
    let agents = config
        .lines()
        .filter_map(|line| line.strip_prefix("[specialists.\"")?.strip_suffix("\"]"));
    for agent in agents {
        assert!(requests.contains(&format!("{agent}\"")), "{agent}");
    }
}

/// A producer prints the record, and says by its exit code how it ended.
fn check_producer(root: &Root, produce: impl Fn(bool) -> Command) {
    let end = |good: bool| -> (Option<i32>, Value) {
        let Output {
            status,
            stdout,
            stderr,
        } = produce(good).arg(root.dir()).output().unwrap();
        let record = serde_json::from_slice(&stdout).unwrap_or_else(|error| {
            let said = String::from_utf8_lossy(&stderr);
            panic!("{error}: {} {said}", String::from_utf8_lossy(&stdout))
        });
        (status.code(), record)
    };
    let (code, record) = end(true);
    assert_eq!((code, &record["status"]), (Some(0), &"completed".into()));
    assert_eq!(record["input"]["data"]["text"], "hello");
    let (code, record) = end(false);
    assert_eq!((code, &record["status"]), (Some(1), &"failed".into()));
}

#[test]
fn producers_in_every_language_drop_and_wait() {
    let folder = repository().join("examples/producers");
    let listed = [
        "submit.go",
        "submit.mjs",
        "submit.py",
        "submit.rs",
        "submit.sh",
    ];
    assert_eq!(names(&folder), listed);
    for name in listed {
        let lines = fs::read_to_string(folder.join(name)).unwrap();
        assert!(lines.lines().count() < 30, "{name} is long");
    }
    let root = copied();
    let _daemon = Daemon::start(&root);
    let file = |good: bool| {
        root.path(if good {
            "request.json"
        } else {
            "returns/failed.json"
        })
    };
    let agent = |good: bool| if good { "@echo" } else { "@nobody" };
    let producer = |name: &str| root.path("producers").join(name);

    check_producer(&root, |good| {
        let mut command = Command::new("sh");
        command.arg(producer("submit.sh")).arg(file(good));
        command
    });
    for (program, name) in [("python3", "submit.py"), ("node", "submit.mjs")] {
        if is_here(program, name) {
            check_producer(&root, |good| {
                let mut command = Command::new(program);
                command.arg(producer(name)).args([agent(good), "hello"]);
                command
            });
        }
    }
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    if is_here(&rustc, "submit.rs") {
        compile(
            &root,
            &mut Command::new(rustc),
            &producer("submit.rs"),
            &file,
        );
    }
    if is_here("go", "submit.go") {
        let mut go = Command::new("go");
        go.arg("build");
        compile(&root, &mut go, &producer("submit.go"), &file);
    }
}

/// Compiles a producer and runs it.
fn compile(root: &Root, compile: &mut Command, source: &Path, file: &dyn Fn(bool) -> PathBuf) {
    let program = source.with_extension("bin");
    let ended = compile.arg("-o").arg(&program).arg(source).output();
    let ended = ended.unwrap();
    assert!(ended.status.success(), "{ended:?}");
    check_producer(root, |good| {
        let mut command = Command::new(&program);
        command.arg(file(good));
        command
    });
}

/// A root of its own, with a specialist in each of two languages that stays.
#[test]
fn specialists_that_stay_do_one_handoff_after_the_other() {
    let stay = Root::new();
    let copied = Command::new("cp")
        .arg("-r")
        .arg(repository().join("examples/resident/."))
        .arg(stay.dir())
        .status();
    assert!(copied.unwrap().success());
    for script in names(&stay.path("specialists")) {
        let lines = read(&stay, &format!("specialists/{script}"))
            .lines()
            .count();
        assert!(lines < 40, "{script} has {lines} lines");
    }
    let _daemon = Daemon::start(&stay);
    let bad = |agent: &str| json!({ "target": { "agent_id": agent }, "input": { "data": 1 } });
    if is_here("python3", "classifier.py") {
        for n in 0..3 {
            drop_file(&stay, "classify.json", &format!("classify-{n}"));
        }
        for n in 0..3 {
            let record = stay.completed(&format!("classify-{n}"));
            assert_eq!(record["output"]["label"], "bug");
            let log = record["handoffd"]["attempts"][0]["log"].as_str().unwrap();
            assert_eq!(read(&stay, log), "attempt 1: 35 characters\n");
        }
        stay.drop_request("not-text", &bad("@classifier"));
        assert_eq!(outcomes(&stay.failed("not-text").0), ["failed"]);
    }
    if is_here("node", "counter.mjs") {
        for n in 0..3 {
            let id = format!("count-{n}");
            drop_file(&stay, "count.json", &id);
            let record = stay.completed(&id);
            assert_eq!(record["output"]["words"], 4);
            assert_eq!(
                record["output"]["handoffs_before"], n,
                "by the same process"
            );
        }
        stay.drop_request("no-words", &bad("@counter"));
        assert_eq!(outcomes(&stay.failed("no-words").0), ["failed"]);
    }
}

/// What the first screen of the README shows is run as it stands there.
#[test]
fn the_python_of_the_readme_runs() {
    if !is_here("python3", "the README's producer") {
        return;
    }
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    let (_, rest) = readme.split_once("```python\n").unwrap();
    let (code, _) = rest.split_once("```\n").unwrap();
    let root = copied();
    let _daemon = Daemon::start(&root);
    let ran = Command::new("python3")
        .args(["-c", code])
        .current_dir(root.dir())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(said, "echoed from-python\n", "{ran:?}");
}
