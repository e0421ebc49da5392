//! The configuration as a user meets it: what is accepted, and what a mistake is told.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::durable::Durability;

const EXAMPLE: &str = include_str!("example.toml");

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("handoffd.toml"))
}

fn agent(name: &str) -> AgentName {
    AgentName::parse(name).unwrap()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn no_configuration_is_the_documented_one() {
    let empty = parse("").unwrap();
    assert_eq!(empty, Config::default());
    let example = parse(EXAMPLE).unwrap();
    assert_eq!(empty.daemon, example.daemon);
    assert_eq!(empty.defaults, example.defaults);
    assert_eq!(empty.intake, example.intake);
    let anchor = example.audit.anchor.clone();
    assert_eq!((empty.audit.anchor.clone(), anchor.is_some()), (None, true));
    assert_eq!(
        Audit {
            anchor,
            ..empty.audit.clone()
        },
        example.audit
    );
    assert_eq!(empty.context, example.context);
    assert_eq!(empty.context.most_tokens(), 50_000);
    assert_eq!(empty.retention, Retention::default());
    assert!(empty.specialists.is_empty() && empty.gates.is_empty());

    let daemon = empty.daemon;
    assert_eq!(daemon.max_concurrent, 4);
    assert_eq!(daemon.settle, Duration::from_millis(250));
    assert_eq!(daemon.rescan, seconds(30));
    assert_eq!(daemon.durability, Durability::Full);
    assert_eq!(daemon.max_request_size, 8 * 1024 * 1024);
    assert_eq!(daemon.max_artifact_size, 1024 * 1024 * 1024);
    assert_eq!(empty.defaults.timeout, seconds(300));
    assert_eq!(empty.defaults.max_timeout, seconds(86_400));
    assert_eq!(empty.defaults.retry.max_retries, 3);
}

#[test]
fn the_whole_example_is_read() {
    let config = parse(EXAMPLE).unwrap();
    let react = &config.specialists[&agent("react-specialist")];
    assert_eq!(react.command, ["python3", "specialists/react.py"]);
    assert_eq!(react.working_dir.as_deref(), Some(Path::new(".")));
    assert_eq!(react.env["NODE_ENV"], "production");
    assert_eq!(react.pass_env, ["ANTHROPIC_API_KEY"]);
    assert_eq!(react.timeout, Some(seconds(600)));
    assert_eq!(react.stall_timeout, Some(seconds(120)));
    assert_eq!((react.kill_grace, react.linger), (None, None));
    assert_eq!(react.max_concurrent, Some(2));
    assert!(!react.is_resident());
    let per = seconds(60);
    assert_eq!(react.rate, Some(Rate { starts: 30, per }));
    assert_eq!(react.verify.as_deref().unwrap(), ["npm", "test"]);
    let retry = react.retry.over(&config.defaults.retry);
    assert_eq!((retry.max_retries, retry.delay), (1, seconds(5)));
    assert_eq!(retry.max_delay, seconds(3600));

    let translator = &config.specialists[&agent("translator")];
    assert!(translator.is_resident());
    assert_eq!(translator.at_once(), Some(2));
    assert_eq!(translator.max_handoffs, Some(1000));
    assert_eq!(translator.max_age, Some(seconds(6 * 3600)));

    let coder = &config.specialists[&agent("coder")];
    let claude = coder.agent.as_ref().unwrap();
    assert_eq!(
        (claude.name.as_str(), &claude.args[..]),
        ("claude", &["--model".to_owned(), "opus".to_owned()][..])
    );
    assert_eq!(
        claude.prompt.as_deref(),
        Some(Path::new("prompts/coder.md"))
    );
    assert_eq!((claude.require_report, claude.max_usd), (false, Some(2.0)));
    let tree = coder.workspace.as_ref().unwrap();
    assert_eq!(tree.repository, Path::new("/srv/src/shop"));
    assert_eq!(tree.base.as_deref(), Some("main"));
    assert_eq!(
        (&tree.copy[..], &tree.setup[..]),
        (
            &[".env".to_owned()][..],
            &["npm".to_owned(), "ci".to_owned()][..]
        )
    );
    assert_eq!(coder.account.as_deref(), Some("team"));
    assert_eq!(
        coder.timeout,
        Some(seconds(3600)),
        "an agent takes its time"
    );
    assert!(coder.command.is_empty());

    assert_eq!(config.routes_blocked.len(), 2);
    assert!(config.routes_blocked["missing_requirements"].is_human());
    let steps = &config.workflows["feature"];
    assert_eq!(steps.len(), 3);
    assert_eq!(steps[2].phase, "testing");
    assert_eq!(steps[2].agent, agent("tester"));
    assert_eq!(config.phases.order.len(), 5);
    assert_eq!(config.phases.requires["testing"], ["source", "test"]);
    assert_eq!(config.gates[0].name, "unit-tests");
    assert_eq!(config.notify.completed, None);
    assert!(config.notify.failed.is_some());
    assert_eq!(config.retention.logs, Some(seconds(7 * 86_400)));
    assert_eq!(config.retention.worktrees, Some(seconds(14 * 86_400)));
    assert_eq!(config.retention.sessions, Some(seconds(30 * 86_400)));
}

#[test]
fn the_shipped_configuration_is_right_and_promises_nothing_it_lacks() {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/handoffd.toml");
    let config = Config::load(Path::new(shipped), true, Path::new("/nowhere")).unwrap();
    for name in ["@echo", "@shout", "@flaky"] {
        assert!(config.specialist(&agent(name)).is_some(), "{name}");
    }
}

#[test]
fn reading_the_same_text_again_changes_nothing() {
    assert_eq!(parse(EXAMPLE).unwrap(), parse(EXAMPLE).unwrap());
    // Not the layout decides, but the values; a marker or other line ends make no difference.
    let windows = format!("\u{feff}{}", EXAMPLE.replace('\n', "\r\n"));
    assert_eq!(parse(EXAMPLE).unwrap(), parse(&windows).unwrap());
    let changed = EXAMPLE.replace("max_hops = 16", "max_hops = 17");
    assert_ne!(parse(EXAMPLE).unwrap(), parse(&changed).unwrap());
}

#[test]
fn look_up_falls_back_to_the_wildcard_but_never_for_a_human() {
    let config = parse(EXAMPLE).unwrap();
    let command = |name| {
        config
            .specialist(&agent(name))
            .map(|s| s.command[0].clone())
    };
    assert_eq!(command("@react-specialist").unwrap(), "python3");
    assert_eq!(command("react-specialist").unwrap(), "python3");
    assert_eq!(command("@nobody").unwrap(), "specialists/default.sh");
    assert_eq!(command("human"), None);
    assert_eq!(Config::default().specialist(&agent("@nobody")), None);
}

#[test]
fn a_partly_given_retry_keeps_the_other_defaults() {
    let retry = |text| parse(text).unwrap().defaults.retry;
    let base = Retry::default();
    let expected = Retry {
        delay: seconds(1),
        multiplier: 3.0,
        ..base
    };
    assert_eq!(
        retry("defaults.retry = { delay = \"1s\", multiplier = 3 }"),
        expected
    );
    assert_eq!(retry("[defaults]\ntimeout = \"1m\""), base);
}

#[test]
fn all_ways_to_write_a_size() {
    for (written, bytes) in [
        ("4096", 4096),
        ("\"16MB\"", 16_000_000),
        ("0x1000", 4096),
        ("+1_000_000", 1_000_000),
    ] {
        let text = format!("daemon.max_request_size = {written}");
        assert_eq!(parse(&text).unwrap().daemon.max_request_size, bytes);
    }
}

#[test]
fn a_file_that_is_not_there_is_fine_unless_it_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("handoffd.toml");
    assert_eq!(
        Config::load(&path, false, dir.path()).unwrap(),
        Config::default()
    );
    let missing = Config::load(&path, true, dir.path()).unwrap_err();
    assert!(matches!(missing, ConfigError::Read { .. }));
    assert!(missing.to_string().contains("handoffd.toml"), "{missing}");

    std::os::unix::fs::symlink("nowhere", &path).unwrap();
    assert!(
        Config::load(&path, false, dir.path()).is_err(),
        "a dangling link"
    );
    std::fs::remove_file(&path).unwrap();

    std::fs::write(&path, "[daemon]\nmax_hops = 3\n").unwrap();
    assert_eq!(
        Config::load(&path, false, dir.path())
            .unwrap()
            .daemon
            .max_hops,
        3
    );
    std::fs::write(&path, b"[daemon]\n# caf\xe9\n").unwrap();
    let error = Config::load(&path, false, dir.path()).unwrap_err();
    let place = &error.problems()[0];
    assert_eq!((place.line, place.column), (2, 6));
    assert!(error.to_string().contains("not UTF-8"), "{error}");
}

#[test]
fn agents_of_the_user_s_own_are_known_by_their_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("handoffd.toml");
    std::fs::write(&path, "[specialists.x]\nagent = \"mine\"\n").unwrap();
    let error = Config::load(&path, true, dir.path())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("known: claude, codex, generic, gemini, opencode; describe another"),
        "{error}"
    );
    std::fs::create_dir(dir.path().join("agents")).unwrap();
    std::fs::write(dir.path().join("agents/mine.toml"), "").unwrap();
    let config = Config::load(&path, true, dir.path()).unwrap();
    let agent = config.specialists.values().next().unwrap().agent.clone();
    assert_eq!(agent.unwrap().name, "mine");
}

#[test]
fn the_timeout_of_an_agent_keeps_to_the_bounds() {
    let timeout = |text: &str| parse(text).unwrap().specialists[&agent("x")].timeout;
    let x = "[specialists.x]\nagent = \"claude\"\n";
    assert_eq!(timeout(x), Some(seconds(3600)));
    assert_eq!(timeout(&format!("{x}timeout = \"2m\"")), Some(seconds(120)));
    let short = format!("[defaults]\nmax_timeout = \"10m\"\n{x}");
    assert_eq!(timeout(&short), Some(seconds(600)));
}
