//! What an attempt starts with, and what is told of it until it ends by itself.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use handoffd::keeper::journal;
use handoffd::keeper::wire::{Exit, Report, State, Why};

use crate::bench::{Bench, key, stat, wait_until};

pub fn exit_codes_and_signals_are_told(bench: &Bench) {
    let daemon = bench.connect();
    for (id, script, exit) in [
        ("zero", "exit 0", Exit::Code(0)),
        ("three", "echo out; echo err >&2; exit 3", Exit::Code(3)),
        ("killed", "kill -KILL $$", Exit::Signal(9)),
        ("termed", "kill -TERM $$", Exit::Signal(15)),
    ] {
        daemon.client.start(bench.script(id, script)).unwrap();
        assert!(daemon.started(id) > 0);
        assert_eq!(daemon.ended(id), (exit, None), "{id}");
        let held = daemon.held(id).unwrap();
        assert_eq!(held.state, State::Ended(exit));
        assert_eq!(held.note, serde_json::json!({ "of": id }));
    }
    assert_eq!(fs::read(bench.path("three.out")).unwrap(), b"out\n");
    assert_eq!(fs::read(bench.path("three.err")).unwrap(), b"err\n");
    let again = bench.script("three", "exit 4");
    daemon.client.start(again).unwrap();
    assert_eq!(daemon.failed("three").0, libc::EEXIST);
}

pub fn what_cannot_be_started_says_why(bench: &Bench) {
    let daemon = bench.connect();
    let plain = bench.path("plain");
    fs::write(&plain, "text").unwrap();
    let plain = plain.to_str().unwrap();
    let mut nowhere = bench.script("nowhere", "true");
    nowhere.cwd = bench.path("no such folder");
    let mut zero = bench.script("zero", "true");
    zero.argv.push("a\0b".into());
    let mut found = bench.launch("found", &["only-here"]);
    fs::create_dir(bench.path("bin")).unwrap();
    std::os::unix::fs::symlink("/bin/true", bench.path("bin/only-here")).unwrap();
    found.env[0].1 = format!("/nowhere:{}", bench.path("bin").display()).into();
    for (launch, errno, what) in [
        (
            bench.launch("missing", &["/no/such/program"]),
            libc::ENOENT,
            "exec /no/such/program",
        ),
        (
            bench.launch("unknown", &["no-such-program"]),
            libc::ENOENT,
            "exec no-such-program",
        ),
        (bench.launch("plain", &[plain]), libc::EACCES, plain),
        (nowhere, libc::ENOENT, "no such folder"),
        (zero, libc::EINVAL, "zero byte"),
        (bench.launch("empty", &[]), libc::EINVAL, "empty"),
    ] {
        let id = launch.key.id.clone();
        daemon.client.start(launch).unwrap();
        let failed = daemon.failed(&id);
        assert_eq!(failed.0, errno, "{id}");
        assert!(failed.1.contains(what), "{id}: {}", failed.1);
    }
    let held = daemon.held("missing").unwrap();
    assert!(matches!(held.state, State::Failed(failure) if failure.errno == libc::ENOENT));
    daemon.client.start(found).unwrap();
    assert_eq!(daemon.ended("found").0, Exit::Code(0));
}

pub fn many_at_once(bench: &Bench) {
    let daemon = bench.connect();
    for at in 0..200 {
        let launch = bench.launch(&format!("x{at}"), &["true"]);
        daemon.client.start(launch).unwrap();
    }
    for at in 0..200 {
        assert_eq!(daemon.ended(&format!("x{at}")), (Exit::Code(0), None));
        daemon.client.forget(&key(&format!("x{at}"))).unwrap();
    }
    assert_eq!(daemon.inventory(), []);
    assert_eq!(journal::read(&bench.setup.run_dir).unwrap(), []);
}

pub fn an_attempt_starts_with_nothing_of_the_keepers(bench: &Bench) {
    let daemon = bench.connect();
    for id in ["first", "second"] {
        let mut launch = bench.launch(id, &["sleep", "1000"]);
        launch.env.push(("OWN".into(), "value".into()));
        let env = launch.env.clone();
        daemon.client.start(launch).unwrap();
        let pid = daemon.started(id);
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap();
        wait_until("its exec", || (read("comm") == b"sleep\n").then_some(()));
        // The dynamic loader has files open for a moment after the exec. One of the keeper's would
        // stay.
        wait_until("nothing but its own descriptors", || {
            let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
            let fds = entries.map(|entry| entry.file_name().into_string().unwrap());
            let mut fds: Vec<String> = fds.collect();
            fds.sort();
            (fds == ["0", "1", "2"]).then_some(())
        });
        let status = String::from_utf8(read("status")).unwrap();
        for none in ["SigBlk:\t", "SigIgn:\t", "SigCgt:\t"] {
            let line = status.lines().find_map(|line| line.strip_prefix(none));
            assert_eq!(line, Some("0000000000000000"), "{none}");
        }
        let environ: Vec<u8> = env
            .iter()
            .flat_map(|(n, v)| [n.as_bytes(), b"=", v.as_bytes(), b"\0"].concat())
            .collect();
        assert_eq!(read("environ"), environ);
        let fields = stat(pid).unwrap();
        assert_eq!(
            fields[2..4],
            [pid.to_string(), pid.to_string()],
            "its own session"
        );
        let cwd = fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
        assert_eq!(cwd, bench.dir.path().canonicalize().unwrap());
        let limits = |pid: u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
            text.lines()
                .find(|line| line.starts_with("Max open files"))
                .map(str::to_owned)
        };
        assert_eq!(limits(pid.cast_unsigned()), limits(std::process::id()));
    }
    for id in ["first", "second"] {
        daemon.client.end(&key(id), Why::Stop, 1000).unwrap();
        daemon.ended(id);
    }
}

pub fn odd_bytes_arrive_as_they_are(bench: &Bench) {
    let daemon = bench.connect();
    let odd = OsString::from_vec(vec![b'a', 0xff, b'\n', 0xc3, b'"']);
    let mut launch = bench.launch("x", &["sh", "-c", r#"printf '%s|%s' "$ODD" "$1""#, "sh"]);
    launch.env.push(("ODD".into(), odd.clone()));
    launch.argv.push(odd.clone());
    daemon.client.start(launch).unwrap();
    assert_eq!(daemon.ended("x").0, Exit::Code(0));
    let expected = [odd.as_bytes(), b"|", odd.as_bytes()].concat();
    assert_eq!(fs::read(bench.path("x.out")).unwrap(), expected);
}

pub fn processor_time_is_told(bench: &Bench) {
    let daemon = bench.connect();
    daemon
        .client
        .start(bench.script("x", "(while :; do :; done) & wait"))
        .unwrap();
    daemon.started("x");
    let usage = || {
        daemon.reports.lock().unwrap().clear();
        daemon.client.usage(&key("x")).unwrap();
        daemon.find("usage", |report| match report {
            Report::Usage { cpu_ms, .. } => Some(*cpu_ms),
            _ => None,
        })
    };
    wait_until("some use", || (usage()? > 100).then_some(()));
    daemon.client.end(&key("x"), Why::Stop, 1000).unwrap();
    daemon.ended("x");
    assert_eq!(usage(), None);
}
