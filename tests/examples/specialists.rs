//! The specialists of the examples: all are of use, and those that stay do.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::common::{Daemon, Root, outcomes};
use crate::{copied, drop_file, is_here, names, read, repository};

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
