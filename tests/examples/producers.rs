//! The producers in `examples/producers/` and the one in the README, each run in its language.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::{Daemon, Root};
use crate::{copied, is_here, names, repository};

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

    let odd = "say \"hi\" \\ and\nbye";
    let mut shell = Command::new("sh");
    shell.arg(producer("submit.sh")).args([agent(true), odd]);
    let printed = shell.arg(root.dir()).output().unwrap().stdout;
    let record: Value = serde_json::from_slice(&printed).unwrap();
    assert_eq!(record["input"]["data"]["text"], odd);
    for (program, name) in [
        ("sh", "submit.sh"),
        ("python3", "submit.py"),
        ("node", "submit.mjs"),
    ] {
        if program == "sh" || is_here(program, name) {
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
