//! The figures, from outside: served by a daemon, made from the files, named in the dashboard.

#![expect(
    clippy::disallowed_methods,
    reason = "these tests play producers, who rename as they like"
)]

#[path = "../common/mod.rs"]
#[expect(
    dead_code,
    unused_imports,
    reason = "a small part of what the daemon's other tests use"
)]
mod common;
mod openmetrics;

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpListener};

use handoffd::figures::families::FAMILIES;
use handoffd::figures::http::fetch;
use handoffd::figures::openmetrics::Kind;
use serde_json::Value;

use common::{Daemon, Root, orders, wait_until, with};
use openmetrics::{Exposition, read};

const ON: &str = "metrics.listen = '127.0.0.1:0'";

fn address(root: &Root) -> SocketAddr {
    wait_until("the address in daemon.json", || {
        let bytes = fs::read(root.path(".handoffd/daemon.json")).ok()?;
        let shown: Value = serde_json::from_slice(&bytes).ok()?;
        shown["metrics"].as_str()?.parse().ok()
    })
}

fn scraped(root: &Root) -> Exposition {
    read(&fetch(address(root)).unwrap()).unwrap_or_else(|error| panic!("{error}"))
}

fn from_files(root: &Root) -> Exposition {
    let output = root.cli(&["metrics", "--files"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    read(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn families(page: &Exposition) -> BTreeSet<String> {
    page.families.keys().cloned().collect()
}

#[test]
fn a_daemon_serves_what_happened_and_how_things_stand() {
    let root = Root::with(&format!("{ON}\ndaemon.max_concurrent = 3"));
    let _daemon = Daemon::start(&root);
    root.drop_request("good", &orders("exit 0"));
    root.drop_request(
        "bad",
        &with(orders("exit 64"), serde_json::json!({"priority": "low"})),
    );
    root.drop_request("long", &orders("mark began; await go"));
    fs::write(root.pending("broken.json"), "{").unwrap();
    root.completed("good");
    root.failed("bad");
    root.failed("broken");
    root.mark("long.began");
    let fake = ("agent", "@fake");
    // A start is told with the claim, which may wait a moment for its outcome.
    let page = wait_until("the figures", || {
        let page = scraped(&root);
        let completed = page.value("handoffd_handoffs", &[("state", "completed")]);
        let started = page.value("handoffd_attempts_started_total", &[fake]);
        (completed == Some(1.0) && started == Some(3.0)).then_some(page)
    });
    let value = |name: &str, labels: &[(&str, &str)]| page.value(name, labels);
    assert_eq!(
        value("handoffd_handoffs", &[("state", "failed")]),
        Some(2.0)
    );
    assert_eq!(
        value("handoffd_handoffs", &[("state", "in_progress")]),
        Some(1.0)
    );
    assert_eq!(value("handoffd_slots", &[]), Some(3.0));
    assert_eq!(value("handoffd_slots_used", &[]), Some(1.0));
    assert_eq!(value("handoffd_running", &[fake]), Some(1.0));
    assert_eq!(value("handoffd_attempts_started_total", &[fake]), Some(3.0));
    let completed = [fake, ("state", "completed")];
    assert_eq!(value("handoffd_ended_total", &completed), Some(1.0));
    let failed = [fake, ("code", "PROCESSING_ERROR"), ("state", "failed")];
    assert_eq!(value("handoffd_ended_total", &failed), Some(1.0));
    let refused = [
        ("agent", "(none)"),
        ("code", "SCHEMA_VALIDATION_FAILED"),
        ("state", "failed"),
    ];
    assert_eq!(value("handoffd_ended_total", &refused), Some(1.0));
    assert_eq!(
        value("handoffd_attempt_duration_seconds_count", &[fake]),
        Some(2.0)
    );
    assert_eq!(value("handoffd_pickup_seconds_count", &[]), Some(3.0));
    assert!(value("handoffd_commit_batch_changes_count", &[]) > Some(0.0));
    assert!(value("handoffd_start_time_seconds", &[]) > Some(1.6e9));
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    assert_eq!(value("handoffd_build_info", &version), Some(1.0));
    root.allow("go");
    root.completed("long");
}

#[test]
fn the_files_tell_the_same_without_a_daemon() {
    let root = Root::with(ON);
    let daemon = Daemon::start(&root);
    root.drop_request("good", &orders("exit 0"));
    root.drop_request("bad", &orders("exit 64"));
    root.completed("good");
    root.failed("bad");
    let served = wait_until("the figures", || {
        let page = scraped(&root);
        (page.value("handoffd_handoffs", &[("state", "failed")]) == Some(1.0)).then_some(page)
    });
    let through_cli = root.cli(&["metrics"]);
    let through_cli = read(&String::from_utf8(through_cli.stdout).unwrap()).unwrap();
    assert!(through_cli.value("handoffd_pickup_seconds_count", &[]) > Some(0.0));
    assert_eq!(daemon.terminate(), Some(0));
    let files = from_files(&root);
    assert_eq!(families(&files), families(&served));
    for name in [
        "handoffd_handoffs",
        "handoffd_ended_total",
        "handoffd_attempts_started_total",
        "handoffd_attempt_duration_seconds_count",
        "handoffd_slots",
    ] {
        assert_eq!(files.samples(name), served.samples(name), "{name}");
    }
    assert_eq!(files.value("handoffd_pickup_seconds_count", &[]), None);
}

#[test]
fn waits_and_problems_are_figures() {
    let root = Root::with(ON);
    let daemon = Daemon::start(&root);
    let waits = with(
        orders("exit 0"),
        serde_json::json!({"depends_on": ["nobody"]}),
    );
    root.drop_request("waits", &waits);
    root.record("waiting", "waits");
    fs::write(root.path("handoffd.toml"), "nonsense = 1\n").unwrap();
    daemon.signal(rustix::process::Signal::HUP);
    wait_until("the problem", || {
        let page = scraped(&root);
        let waiting = page.value("handoffd_waiting", &[("on", "dependency")]);
        (waiting == Some(1.0) && page.value("handoffd_problems", &[]) == Some(1.0)).then_some(())
    });
}

#[test]
fn a_port_that_is_taken_and_an_address_of_others_stop_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let root = Root::with(&format!("metrics.listen = '{address}'"));
    let mut daemon = Daemon::spawn(&root, |_| {});
    assert_eq!(daemon.exit_code(), Some(2));
    let said = fs::read_to_string(root.path("daemon-log/00.log")).unwrap();
    assert!(
        said.contains(&format!("can't serve metrics at {address}")),
        "{said}"
    );
    assert!(said.contains("in use"), "{said}");
    root.configure("metrics.listen = '0.0.0.0:9464'");
    let output = root.cli(&["check"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("127.0.0.1:9464"), "{said}");
}

#[test]
fn nothing_listens_unless_it_is_asked_for() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let shown: Value =
        serde_json::from_slice(&fs::read(root.path(".handoffd/daemon.json")).unwrap()).unwrap();
    assert_eq!(shown["metrics"], Value::Null);
}

/// All names that a query may use.
fn names() -> BTreeSet<String> {
    let suffixes = |kind: Kind| match kind {
        Kind::Gauge => &[""][..],
        Kind::Counter => &["_total"],
        Kind::Info => &["_info"],
        Kind::Histogram => &["_bucket", "_count", "_sum"],
    };
    FAMILIES
        .iter()
        .flat_map(|family| {
            let name = family.name;
            suffixes(family.kind)
                .iter()
                .map(move |it| format!("{name}{it}"))
        })
        .collect()
}

/// The words of a text that look like figures of ours.
fn mentioned(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("handoffd_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_dashboard_and_the_documentation_name_only_what_there_is() {
    let known = names();
    let read = |path: &str| fs::read_to_string(path).unwrap();
    let text = read("docs/grafana-dashboard.json");
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut asked = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let words = mentioned(target["expr"].as_str().unwrap());
            assert!(!words.is_empty(), "{target}");
            asked.extend(words);
        }
    }
    assert!(asked.len() > 8, "{asked:?}");
    assert_eq!(asked.difference(&known).collect::<Vec<_>>(), [""; 0]);
    let operations = read("docs/operations.md");
    for word in mentioned(&operations) {
        let is_family = FAMILIES.iter().any(|family| family.name == word);
        assert!(is_family || known.contains(&word), "{word} is no figure");
    }
    for family in &FAMILIES {
        assert!(
            operations.contains(family.name),
            "{} is not told of",
            family.name
        );
    }
}
