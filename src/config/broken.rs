//! Broken configurations, each with the exact place and the words that help.

use std::path::Path;

use super::Config;

/// Text, line, column, key, and what the message must contain.
type Row = (&'static str, usize, usize, &'static str, &'static str);

const DURATION: &str = r#"use a duration like "30s" or "5m""#;
const A: &str = "[specialists.x]\n";
const X: &str = "[specialists.x]\ncommand = [\"x\"]\n";

#[rustfmt::skip]
const BROKEN: &[Row] = &[
    // Keys that nobody knows, at every level.
    ("[deamon]\n", 1, 2, "deamon", "did you mean `daemon`?"),
    ("colour = 1\n", 1, 1, "colour", "known here: daemon, defaults,"),
    ("[daemon]\nsettel = \"1s\"\n", 2, 1, "daemon.settel", "did you mean `settle`?"),
    ("[daemon]\nmax-hops = 1\n", 2, 1, "daemon.max-hops", "did you mean `max_hops`?"),
    ("[defaults]\nretry = { dely = \"1s\" }\n", 2, 11, "defaults.retry.dely", "`delay`"),
    ("[intake]\nstrickt = true\n", 2, 1, "intake.strickt", "`strict`"),
    ("[routes]\nblock = {}\n", 2, 1, "routes.block", "`blocked`"),
    ("[routes.blocked]\nbored = \"human\"\n", 2, 1, "routes.blocked.bored", "security_concern, arch"),
    ("[phases]\norders = []\n", 2, 1, "phases.orders", "`order`"),
    ("[notify]\nfail = [\"x\"]\n", 2, 1, "notify.fail", "`failed`"),
    ("[audit]\npackage = true\n", 2, 1, "audit.package", "`packages`"),
    ("[context]\nwindow_token = 1\n", 2, 1, "context.window_token", "`window_tokens`"),
    ("[context]\ncompact_at = 25\n", 2, 14, "context.compact_at", "found 25; use a number from 0.001 to 1"),
    ("[retention]\nlog = \"1d\"\n", 2, 1, "retention.log", "`logs`"),
    ("[workflows.w]\nstep = []\nsteps = [{phase=\"p\", agent=\"a\"}]\n", 2, 1, "workflows.w.step", "`steps`"),
    ("[workflows.w]\nsteps = [{ phase=\"p\", agent=\"a\", x=1 }]\n", 2, 34, "workflows.w.steps[0].x", "known here: phase, agent"),
    // Types and ranges.
    ("daemon = 3\n", 1, 10, "daemon", "found 3; use a table"),
    ("[daemon]\nsettle = 30\n", 2, 10, "daemon.settle", DURATION),
    ("[daemon]\nsettle = \"30\"\n", 2, 10, "daemon.settle", DURATION),
    ("[daemon]\nsettle = \"2h\"\n", 2, 10, "daemon.settle", "found \"2h\"; use a duration from 0s to 1h"),
    ("[daemon]\nrescan = \"99ms\"\n", 2, 10, "daemon.rescan", "from 100ms to 1h"),
    ("[daemon]\nshutdown_grace = \"101years\"\n", 2, 18, "daemon.shutdown_grace", "from 0s to 100years"),
    ("[daemon]\nmax_concurrent = 0\n", 2, 18, "daemon.max_concurrent", "a whole number from 1 to 10000"),
    ("[daemon]\nmax_concurrent = 10001\n", 2, 18, "daemon.max_concurrent", "found 10001; use"),
    ("[daemon]\nmax_concurrent = -1\n", 2, 18, "daemon.max_concurrent", "found -1; use"),
    ("[daemon]\nmax_concurrent = \"4\"\n", 2, 18, "daemon.max_concurrent", "found \"4\"; use a whole number"),
    ("[daemon]\nmax_interruptions = 0\n", 2, 21, "daemon.max_interruptions", "from 1 to"),
    ("[daemon]\nmax_hops = 99999999999999999999\n", 2, 12, "daemon.max_hops", "from 0 to 4294967295"),
    ("[daemon]\nwatch = \"fsevents\"\n", 2, 9, "daemon.watch", r#"use "auto" or "inotify" or "poll""#),
    ("[daemon]\ndurability = \"none\"\n", 2, 14, "daemon.durability", r#"use "full" or "relaxed""#),
    ("[daemon]\non_stop = true\n", 2, 11, "daemon.on_stop", r#"found true; use "finish" or "detach""#),
    ("[daemon]\nmax_request_size = \"8M\"\n", 2, 20, "daemon.max_request_size", "\"8MiB\""),
    ("[daemon]\nmax_output_size = 1023\n", 2, 19, "daemon.max_output_size", "at least \"1KiB\""),
    ("[daemon]\nallow_network_fs = \"no\"\n", 2, 20, "daemon.allow_network_fs", "use true or false"),
    ("[defaults]\ntimeout = \"0s\"\n", 2, 11, "defaults.timeout", "from 1ms"),
    ("[defaults]\ntimeout = \"2d\"\n", 2, 11, "defaults.timeout", "at most defaults.max_timeout, 1day"),
    ("[defaults]\nmax_timeout = \"1m\"\n", 2, 15, "defaults.max_timeout", "use at least 5m, or set defaults.timeout lower"),
    ("[defaults]\nmax_timeout = \"1m\"\ntimeout = 3\n", 3, 11, "defaults.timeout", DURATION),
    ("[defaults]\nretry = { max_retries = 1001 }\n", 2, 25, "defaults.retry.max_retries", "from 0 to 1000"),
    ("[defaults]\nretry = { multiplier = 0.5 }\n", 2, 24, "defaults.retry.multiplier", "found 0.5; use a number from 1 to 1000"),
    ("[defaults]\nretry = { multiplier = inf }\n", 2, 24, "defaults.retry.multiplier", "found inf"),
    ("[defaults]\nretry = { jitter = nan }\n", 2, 20, "defaults.retry.jitter", "found nan"),
    ("[defaults.retry]\njitter = 1.1\n", 2, 10, "defaults.retry.jitter", "from 0 to 1"),
    ("[intake]\nmissing_schema = \"ignore\"\n", 2, 18, "intake.missing_schema", r#""fail" or "warn""#),
    ("[retention]\ncompleted = 30\n", 2, 13, "retention.completed", DURATION),
    ("[audit]\npackages = 1\n", 2, 12, "audit.packages", "use true or false or \"dropped\""),
    // Specialists.
    ("[specialists.\"@x\"]\n", 1, 14, "specialists.\"@x\".command", "missing; use a program"),
    ("[specialists]\nx = \"sh\"\n", 2, 5, "specialists.x", "found \"sh\"; use a table"),
    ("[specialists.x]\ncommand = \"sh\"\n", 2, 11, "specialists.x.command", "[\"python3\", \"work.py\"]"),
    ("[specialists.x]\ncommand = []\n", 2, 11, "specialists.x.command", "found an empty array"),
    ("[specialists.x]\ncommand = [\"\"]\n", 2, 12, "specialists.x.command[0]", "not empty"),
    ("[specialists.x]\ncommand = [\"a\", \"\\u0000\"]\n", 2, 17, "specialists.x.command[1]", "NUL"),
    ("[specialists.x]\ncommand = [\"a\", 1]\n", 2, 17, "specialists.x.command[1]", "found 1; use a string"),
    ("[specialists.human]\ncommand = [\"a\"]\n", 1, 14, "specialists.human", "reserved"),
    ("[specialists.\"@\"]\ncommand = [\"a\"]\n", 1, 14, "specialists.\"@\"", "must not be empty"),
    ("[specialists.x]\ncommand = [\"a\"]\n[specialists.\"@x\"]\ncommand = [\"a\"]\n", 3, 14, "specialists.\"@x\"", "\"x\" and \"@x\" are the same agent"),
    ("X env = { \"A=B\" = \"1\" }\n", 3, 9, "specialists.x.env.\"A=B\"", "must not contain `=` or NUL"),
    ("X env = { \"\" = \"1\" }\n", 3, 9, "specialists.x.env.\"\"", "must not be empty"),
    ("X env = { HANDOFF_ID = \"1\" }\n", 3, 9, "specialists.x.env.HANDOFF_ID", "reserved for the daemon"),
    ("X env = { A = 1 }\n", 3, 13, "specialists.x.env.A", "found 1; use a string in quotes"),
    ("X pass_env = [\"HANDOFF_ID\"]\n", 3, 13, "specialists.x.pass_env[0]", "reserved for the daemon"),
    ("X pass_env = \"A\"\n", 3, 12, "specialists.x.pass_env", "use an array of names"),
    ("X timeout = \"25h\"\n", 3, 11, "specialists.x.timeout", "from 1ms to 1day"),
    ("X stall_timeout = \"0s\"\n", 3, 17, "specialists.x.stall_timeout", "from 1ms"),
    ("X max_concurrent = 0\n", 3, 18, "specialists.x.max_concurrent", "from 1 to"),
    ("X mode = \"forever\"\n", 3, 8, "specialists.x.mode", r#"use "spawn" or "resident""#),
    ("X max_handoffs = 3\n", 3, 16, "specialists.x.max_handoffs", "only with mode = \"resident\""),
    ("X max_age = \"1h\"\n", 3, 11, "specialists.x.max_age", "only with mode = \"resident\""),
    ("X mode = \"resident\"\nmax_handoffs = 0\n", 4, 16, "specialists.x.max_handoffs", "from 1 to"),
    ("X mode = \"resident\"\nmax_age = \"0s\"\n", 4, 11, "specialists.x.max_age", "from 1ms"),
    ("[specialists.\"*\"]\ncommand = [\"a\"]\nmode = \"resident\"\n", 3, 8, "specialists.\"*\".mode", "give resident agents entries of their own"),
    ("X rate = \"0/min\"\n", 3, 8, "specialists.x.rate", "use a rate like \"30/min\""),
    ("X rate = 30\n", 3, 8, "specialists.x.rate", "found 30; use a rate"),
    ("X retry = { jitter = 2 }\n", 3, 20, "specialists.x.retry.jitter", "from 0 to 1"),
    ("X working_dir = \"\"\n", 3, 15, "specialists.x.working_dir", "not empty"),
    ("X verify = [\"\"]\n", 3, 11, "specialists.x.verify[0]", "not empty"),
    ("X timout = \"1s\"\n", 3, 1, "specialists.x.timout", "did you mean `timeout`?"),
    // Coding agents.
    ("A agent = \"claud\"\n", 2, 9, "specialists.x.agent", "did you mean \"claude\"? known: claude, codex,"),
    ("A agent = \"zzz\"\n", 2, 9, "specialists.x.agent", "found \"zzz\"; known: claude, codex, generic, gemini, opencode; describe another agent"),
    ("A agent = \"claude\"\ncommand = [\"x\"]\n", 2, 1, "specialists.x.agent", "keep `agent` or `command`, not both"),
    ("A agent = \"claude\"\nmode = \"resident\"\n", 2, 1, "specialists.x.agent", "started for each attempt"),
    ("A agent = \"claude\"\nargs = [\"--output-format=text\"]\n", 3, 1, "specialists.x.args", "--output-format=text is set by handoffd itself"),
    ("A agent = \"claude\"\nargs = \"--model\"\n", 3, 8, "specialists.x.args", "use an array of strings"),
    ("A agent = \"claude\"\nmax_usd = 0\n", 3, 11, "specialists.x.max_usd", "from 0.01 to 1000000"),
    ("A agent = \"claude\"\nmcp = true\n", 3, 1, "specialists.x.mcp", "unknown key"),
    ("A agent = \"claude\"\nprompt = \"\"\n", 3, 10, "specialists.x.prompt", "not empty"),
    ("A agent = \"generic\"\n", 1, 14, "specialists.x.args", "runs the command in `args`"),
    ("X prompt = \"p.md\"\n", 3, 1, "specialists.x.prompt", "only with `agent`"),
    ("X max_usd = 1\n", 3, 1, "specialists.x.max_usd", "only with `agent`"),
    ("X repository = \".\"\n", 3, 1, "specialists.x.repository", "only with workspace = \"worktree\""),
    ("X workspace = \"worktree\"\n", 3, 1, "specialists.x.workspace", "needs its repository"),
    ("X workspace = \"tree\"\n", 3, 13, "specialists.x.workspace", "use \"root\" or \"worktree\""),
    ("X workspace = \"worktree\"\nrepository = \".\"\nworking_dir = \"a\"\n", 3, 1, "specialists.x.workspace", "take out `working_dir`"),
    ("X workspace = \"worktree\"\nrepository = \".\"\nmode = \"resident\"\n", 3, 1, "specialists.x.workspace", "take out mode"),
    ("X workspace = \"worktree\"\nrepository = \".\"\nbase = \"-d\"\n", 5, 8, "specialists.x.base", "the name of a branch"),
    ("X workspace = \"worktree\"\nrepository = \".\"\ncopy = [\"a\", \"../b\"]\n", 5, 8, "specialists.x.copy", "\"../b\" is not inside the repository"),
    ("X workspace = \"worktree\"\nrepository = \".\"\nsetup = []\n", 5, 9, "specialists.x.setup", "a program and its arguments"),
    ("X account = \"\"\n", 3, 11, "specialists.x.account", "not empty"),
    // What follows from results.
    ("[routes.blocked]\nunknown = \"*\"\n", 2, 11, "routes.blocked.unknown", "name one agent"),
    ("[workflows.w]\n", 1, 12, "workflows.w.steps", "missing"),
    ("[workflows.w]\nsteps = []\n", 2, 9, "workflows.w.steps", "found an empty array"),
    ("[workflows.w]\nsteps = [{ phase = \"p\" }]\n", 2, 10, "workflows.w.steps[0].agent", "missing"),
    ("[phases]\norder = [\"a\", \"a\"]\n", 2, 9, "phases.order", "lists \"a\" twice"),
    ("[phases]\nrequires = { a = \"b\" }\n", 2, 18, "phases.requires.a", "an array of strings"),
    ("[gates]\nname = \"g\"\n", 1, 1, "gates", "[[gates]]"),
    ("[[gates]]\nphases = [\"p\"]\ncommand = [\"c\"]\n", 1, 1, "gates[0].name", "missing"),
    ("[[gates]]\nname = \"g\"\nphases = []\ncommand = [\"c\"]\n", 3, 10, "gates[0].phases", "found an empty array"),
    ("[notify]\nfailed = [1]\n", 2, 11, "notify.failed[0]", "use a string in quotes"),
    // Not TOML at all.
    ("[daemon]\nsettle = 5m\n", 2, 10, "settle", "not valid TOML"),
    ("[daemon]\nsettle = \"5m\n", 2, 13, "settle", "not valid TOML"),
    ("[audit]\n[audit]\n", 2, 2, "audit", "duplicate key"),
    ("[daemon\n", 1, 8, "", "not valid TOML"),
    ("[daemon]\nmax_hops = 1\nmax_hops = 2\n", 3, 1, "max_hops", "duplicate key; keep one of them"),
];

#[test]
fn every_mistake_is_placed_and_explained() {
    let mut wrong = Vec::new();
    for (text, line, column, key, fragment) in BROKEN {
        let text = text
            .strip_prefix("X ")
            .map(|rest| X.to_owned() + rest)
            .or_else(|| Some(A.to_owned() + text.strip_prefix("A ")?))
            .unwrap_or_else(|| (*text).to_owned());
        let Err(error) = Config::parse(&text, Path::new("dir/handoffd.toml")) else {
            wrong.push(format!("accepted:\n{text}"));
            continue;
        };
        let shown = error.to_string();
        let problems = error.problems();
        let found = &problems[0];
        let right = problems.len() == 1
            && (found.line, found.column, found.key.as_str()) == (*line, *column, *key)
            && found.message.contains(fragment)
            && shown.starts_with(&format!("dir/handoffd.toml:{line}:{column}: "))
            && shown.lines().count() <= 3;
        if !right {
            wrong.push(format!("{line}:{column} {key} {fragment}\n{shown}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n---\n"));
}

#[test]
fn all_mistakes_are_told_at_once_in_the_order_of_the_file() {
    let text = "[specialists.x]\nretry = { dely = 1 }\n\n[daemon]\n\tsettle = 3 # ü\nmax_hop = 1\n";
    let error = Config::parse(text, Path::new("h.toml")).unwrap_err();
    let expected = r#"h.toml:1:14: specialists.x.command: missing; use a program and its arguments like ["python3", "work.py"], or a coding agent like agent = "claude"
    [specialists.x]
                 ^
h.toml:2:11: specialists.x.retry.dely: unknown key; did you mean `delay`?
    retry = { dely = 1 }
              ^^^^
h.toml:5:11: daemon.settle: found 3; use a duration like "30s" or "5m"
    	settle = 3 # ü
    	         ^
h.toml:6:1: daemon.max_hop: unknown key; did you mean `max_hops`?
    max_hop = 1
    ^^^^^^^"#;
    assert_eq!(error.to_string(), expected);
}
