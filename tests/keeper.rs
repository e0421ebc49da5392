//! The keeper with real processes, in both of its ways to hold a tree together: cgroups (where
//! this machine lets us make some) and minders.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use handoffd::clock::boot_ms;
use handoffd::keeper::wire::{Exit, Held, Key, Report, State, Why};
use handoffd::keeper::{Client, Launch, Reader, Setup, alive_outside, journal};
use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(20);
const FAR: u64 = 600_000;

fn wait_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn key(id: &str) -> Key {
    Key::new(id, 1)
}

fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// The fields of a process's stat from its state on; none if it is gone or a zombie.
fn stat(pid: i32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<String> = text[text.rfind(')')? + 2..]
        .split(' ')
        .map(str::to_owned)
        .collect();
    (fields[0] != "Z").then_some(fields)
}

fn is_alive(pid: i32) -> bool {
    stat(pid).is_some()
}

/// A daemon's end of the line, with every report it has got.
struct Daemon {
    client: Client,
    reports: Arc<Mutex<Vec<Report>>>,
    lost: Arc<Mutex<bool>>,
}

impl Daemon {
    fn new((client, mut reader): (Client, Reader)) -> Self {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let lost = Arc::new(Mutex::new(false));
        let (into, gone) = (Arc::clone(&reports), Arc::clone(&lost));
        std::thread::spawn(move || {
            while let Ok(report) = reader.next() {
                into.lock().unwrap().push(report);
            }
            *gone.lock().unwrap() = true;
        });
        Self {
            client,
            reports,
            lost,
        }
    }

    fn find<T>(&self, what: &str, look: impl Fn(&Report) -> Option<T>) -> T {
        wait_until(what, || self.reports.lock().unwrap().iter().find_map(&look))
    }

    fn started(&self, id: &str) -> i32 {
        self.find(&format!("start of {id}"), |report| match report {
            Report::Started { key, pid, .. } if key.id == id => Some(*pid),
            _ => None,
        })
    }

    fn ended(&self, id: &str) -> (Exit, Option<Why>) {
        self.find(&format!("end of {id}"), |report| match report {
            Report::Ended { key, exit, why } if key.id == id => Some((*exit, *why)),
            Report::StartFailed { key, errno, what } if key.id == id => {
                panic!("{id} failed to start: {errno} {what}")
            }
            _ => None,
        })
    }

    fn failed(&self, id: &str) -> (i32, String) {
        self.find(&format!("failure of {id}"), |report| match report {
            Report::StartFailed { key, errno, what } if key.id == id => {
                Some((*errno, what.clone()))
            }
            _ => None,
        })
    }

    fn inventory(&self) -> Vec<Held> {
        self.reports.lock().unwrap().clear();
        self.client.inventory().unwrap();
        self.find("an inventory", |report| match report {
            Report::Inventory { entries } => Some(entries.clone()),
            _ => None,
        })
    }

    fn held(&self, id: &str) -> Option<Held> {
        self.inventory().into_iter().find(|held| held.key.id == id)
    }
}

/// A root with a keeper.
struct Bench {
    dir: tempfile::TempDir,
    setup: Setup,
}

impl Bench {
    fn new(no_cgroup: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = dir.path().join("run");
        fs::create_dir(&run_dir).unwrap();
        let setup = Setup {
            program: PathBuf::from(env!("CARGO_BIN_EXE_handoffd")),
            run_dir,
            root: dir.path().to_owned(),
            no_cgroup,
        };
        Self { dir, setup }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn connect(&self) -> Daemon {
        Daemon::new(self.setup.connect_or_start().unwrap())
    }

    fn launch(&self, id: &str, argv: &[&str]) -> Launch {
        let open = |name: String| -> OwnedFd {
            let mut options = File::options();
            let file = options.append(true).create(true).open(self.path(&name));
            file.unwrap().into()
        };
        let env = [
            ("PATH", std::env::var_os("PATH").unwrap()),
            ("HANDOFF_ROOT", self.dir.path().into()),
            ("HANDOFF_ID", id.into()),
            ("HANDOFF_ATTEMPT", "1".into()),
        ];
        Launch {
            key: key(id),
            argv: argv.iter().map(OsString::from).collect(),
            env: env.map(|(name, value)| (name.into(), value)).into(),
            cwd: self.dir.path().to_owned(),
            deadline_boot_ms: boot_ms() + FAR,
            grace_ms: FAR,
            note: serde_json::json!({ "of": id }),
            stdio: [
                File::open("/dev/null").unwrap().into(),
                open(format!("{id}.out")),
                open(format!("{id}.err")),
            ],
            confine: None,
        }
    }

    fn script(&self, id: &str, script: &str) -> Launch {
        self.launch(id, &["sh", "-c", script])
    }

    /// Waits for a pid that a script wrote.
    fn pid_in(&self, name: &str) -> i32 {
        wait_until(name, || {
            let text = fs::read_to_string(self.path(name)).ok()?;
            text.strip_suffix('\n')?.parse().ok()
        })
    }

    /// The processes that this program runs for this root, by what they call themselves.
    fn named(&self, name: &str) -> Vec<i32> {
        let run_dir = self.setup.run_dir.as_os_str().as_bytes();
        fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|pid: &i32| {
                let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                read("comm") == format!("{name}\n").as_bytes()
                    && read("cmdline").split(|&b| b == 0).any(|arg| arg == run_dir)
                    && is_alive(*pid)
            })
            .collect()
    }

    fn kill_keeper(&self) {
        let keepers = self.named("handoffd-keeper");
        assert_eq!(keepers.len(), 1);
        kill(keepers[0], Signal::KILL);
        wait_until("the keeper's death", || {
            (!is_alive(keepers[0])).then_some(())
        });
    }

    /// Whether the keeper really uses cgroups here.
    fn has_cgroup(&self, pid: i32) -> bool {
        let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        !self.setup.no_cgroup && cgroup.contains("handoffd-")
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for name in ["handoffd-keeper", "handoffd-minder"] {
            for pid in self.named(name) {
                // One that has nothing to keep leaves by itself, and cleans up behind itself.
                if std::thread::panicking() || name.ends_with("minder") {
                    let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
                }
            }
        }
        for stray in alive_outside(self.dir.path(), None).unwrap_or_default() {
            let _ = kill_process(Pid::from_raw(stray.pid).unwrap(), Signal::KILL);
        }
    }
}

macro_rules! in_both_ways {
    ($($name:ident)*) => {
        mod cgroup {
            $(#[test] fn $name() { super::$name(&super::Bench::new(false)); })*
        }
        mod minder {
            $(#[test] fn $name() { super::$name(&super::Bench::new(true)); })*
        }
    };
}

in_both_ways! {
    exit_codes_and_signals_are_told
    what_cannot_be_started_says_why
    one_that_ignores_sigterm_is_killed_after_its_grace
    a_second_end_shortens_the_grace_and_keeps_the_reason
    an_end_right_after_the_start_is_not_lost
    what_left_its_session_ends_too
    one_that_keeps_forking_away_ends
    leftovers_end_when_the_main_process_does
    a_deadline_holds_with_no_daemon
    a_new_daemon_learns_of_a_hundred_attempts
    a_newer_daemon_replaces_an_older
    many_at_once
    a_killed_keeper_is_followed_by_one_that_takes_over
    an_end_whose_last_line_was_not_written_is_known
    an_exit_with_no_keeper_is_known_as_far_as_can_be
    a_deadline_survives_the_keeper
    a_stray_is_ended_before_anything_else
    an_attempt_starts_with_nothing_of_the_keepers
    odd_bytes_arrive_as_they_are
    processor_time_is_told
    what_is_forgotten_is_gone_and_the_keeper_leaves
    many_that_connect_at_once_meet_one_keeper
    it_does_not_mind_sigterm
    another_version_is_refused
    an_attempt_can_not_give_orders
    a_torn_journal_is_no_obstacle
}

fn exit_codes_and_signals_are_told(bench: &Bench) {
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

fn what_cannot_be_started_says_why(bench: &Bench) {
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

fn one_that_ignores_sigterm_is_killed_after_its_grace(bench: &Bench) {
    let daemon = bench.connect();
    let script = "trap '' TERM; echo $$ > ready; while :; do sleep 0.05; done";
    daemon.client.start(bench.script("x", script)).unwrap();
    let pid = bench.pid_in("ready");
    assert_eq!(pid, daemon.started("x"));
    let begun = Instant::now();
    daemon.client.end(&key("x"), Why::Cancelled, 300).unwrap();
    let (exit, why) = daemon.ended("x");
    let took = begun.elapsed().as_millis();
    assert_eq!((exit, why), (Exit::Signal(9), Some(Why::Cancelled)));
    assert!((300..1300).contains(&took), "{took} ms");
    assert!(!is_alive(pid));
}

fn a_second_end_shortens_the_grace_and_keeps_the_reason(bench: &Bench) {
    let daemon = bench.connect();
    let script = "trap '' TERM; echo $$ > ready; while :; do sleep 0.05; done";
    daemon.client.start(bench.script("x", script)).unwrap();
    bench.pid_in("ready");
    daemon.client.end(&key("x"), Why::Stalled, FAR).unwrap();
    wait_until("its ending", || {
        (daemon.held("x")?.state == State::Ending).then_some(())
    });
    let on_disk = journal::read(&bench.setup.run_dir).unwrap();
    assert_eq!(on_disk[0].why, Some(Why::Stalled));
    daemon.client.end(&key("x"), Why::Stop, 10).unwrap();
    assert_eq!(daemon.ended("x"), (Exit::Signal(9), Some(Why::Stalled)));
}

fn an_end_right_after_the_start_is_not_lost(bench: &Bench) {
    let daemon = bench.connect();
    for at in 0..20 {
        let id = format!("x{at}");
        let launch = bench.launch(&id, &["sleep", "1000"]);
        daemon.client.start(launch).unwrap();
        daemon.client.end(&key(&id), Why::Cancelled, FAR).unwrap();
    }
    for at in 0..20 {
        let ended = daemon.ended(&format!("x{at}"));
        assert_eq!(ended, (Exit::Signal(15), Some(Why::Cancelled)));
    }
}

fn what_left_its_session_ends_too(bench: &Bench) {
    let daemon = bench.connect();
    let stubborn = "trap '' TERM HUP; echo $$ > deep; while :; do sleep 0.05; done";
    fs::write(bench.path("stubborn.sh"), stubborn).unwrap();
    let script = "(setsid env -i PATH=$PATH setsid sh stubborn.sh &) ; exec sleep 1000";
    daemon.client.start(bench.script("x", script)).unwrap();
    let deep = bench.pid_in("deep");
    wait_until("a double fork", || {
        let ppid: i32 = stat(deep)?[1].parse().ok()?;
        (ppid != daemon.started("x")).then_some(())
    });
    daemon.client.end(&key("x"), Why::Cancelled, 100).unwrap();
    let (exit, why) = daemon.ended("x");
    assert_eq!((exit, why), (Exit::Signal(15), Some(Why::Cancelled)));
    assert!(!is_alive(deep));
}

fn one_that_keeps_forking_away_ends(bench: &Bench) {
    let daemon = bench.connect();
    let hop = "trap '' TERM; echo $$ >> hops; sleep 0.01; setsid sh hop.sh &";
    fs::write(bench.path("hop.sh"), hop).unwrap();
    let script = "for i in 1 2 3; do sh hop.sh & done; sleep 1000";
    daemon.client.start(bench.script("x", script)).unwrap();
    let hops = || fs::read_to_string(bench.path("hops")).unwrap_or_default();
    wait_until("some hops", || (hops().lines().count() > 20).then_some(()));
    daemon.client.end(&key("x"), Why::Timeout, 50).unwrap();
    daemon.ended("x");
    let count = hops().lines().count();
    for pid in hops().lines() {
        assert!(!is_alive(pid.parse().unwrap()));
    }
    assert_eq!(alive_outside(bench.dir.path(), None).unwrap(), []);
    assert_eq!(hops().lines().count(), count);
}

fn leftovers_end_when_the_main_process_does(bench: &Bench) {
    let daemon = bench.connect();
    let stubborn = "trap '' TERM; echo $$ > left; while :; do sleep 0.05; done";
    fs::write(bench.path("stubborn.sh"), stubborn).unwrap();
    let script = "setsid sh stubborn.sh & while ! [ -s left ]; do sleep 0.01; done; exit 5";
    let mut launch = bench.script("x", script);
    launch.grace_ms = 200;
    daemon.client.start(launch).unwrap();
    let left = bench.pid_in("left");
    assert_eq!(daemon.ended("x"), (Exit::Code(5), None));
    assert!(!is_alive(left));
}

fn a_deadline_holds_with_no_daemon(bench: &Bench) {
    let daemon = bench.connect();
    let mut launch = bench.script("x", "echo $$ > ready; exec sleep 1000");
    launch.deadline_boot_ms = boot_ms() + 700;
    let due = launch.deadline_boot_ms;
    daemon.client.start(launch).unwrap();
    let pid = bench.pid_in("ready");
    drop_daemon(daemon);
    wait_until("its end", || (!is_alive(pid)).then_some(()));
    assert!(boot_ms() >= due);
    let next = bench.connect();
    let held = wait_until("its being over", || {
        next.held("x").filter(|held| held.state != State::Ending)
    });
    assert_eq!(held.why, Some(Why::Timeout));
    assert_eq!(held.state, State::Ended(Exit::Signal(15)));
}

/// A daemon that is killed leaves nothing but a closed socket.
fn drop_daemon(daemon: Daemon) {
    daemon.client.hang_up();
    drop(daemon);
}

fn a_new_daemon_learns_of_a_hundred_attempts(bench: &Bench) {
    let daemon = bench.connect();
    for at in 0..100 {
        let script = match at % 2 {
            0 => format!("exit {at}"),
            _ => format!("while ! [ -e go ]; do sleep 0.05; done; exit {at}"),
        };
        let launch = bench.script(&format!("x{at}"), &script);
        daemon.client.start(launch).unwrap();
    }
    daemon.started("x99");
    drop_daemon(daemon);
    let second = bench.connect();
    let seen = wait_until("the quick ones", || {
        let seen = second.inventory();
        let ended = |held: &&Held| matches!(held.state, State::Ended(_));
        (seen.iter().filter(ended).count() == 50).then_some(seen)
    });
    assert_eq!(seen.len(), 100);
    drop_daemon(second);
    File::create(bench.path("go")).unwrap();
    let third = bench.connect();
    let seen = wait_until("all of them", || {
        let seen = third.inventory();
        let ended = |held: &Held| matches!(held.state, State::Ended(_));
        seen.iter().all(ended).then_some(seen)
    });
    for held in seen {
        let code = held.key.id[1..].parse().unwrap();
        assert_eq!(held.state, State::Ended(Exit::Code(code)), "{}", held.key);
        assert_eq!(held.note, serde_json::json!({ "of": held.key.id }));
        assert!(held.pid.is_some() && held.why.is_none());
    }
}

fn a_newer_daemon_replaces_an_older(bench: &Bench) {
    let old = bench.connect();
    let new = bench.connect();
    wait_until("the older one's loss", || {
        old.lost.lock().unwrap().then_some(())
    });
    new.client.start(bench.script("x", "exit 0")).unwrap();
    assert_eq!(new.ended("x").0, Exit::Code(0));
}

fn many_at_once(bench: &Bench) {
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

const UNTIL_GO: &str = "echo $$ > ready; while ! [ -e go ]; do sleep 0.02; done; exit 7";

fn a_killed_keeper_is_followed_by_one_that_takes_over(bench: &Bench) {
    let daemon = bench.connect();
    daemon.client.start(bench.script("runs", UNTIL_GO)).unwrap();
    let stubborn = "trap '' TERM; echo $$ > stubborn; while :; do sleep 0.05; done";
    let mut launch = bench.script("ends", stubborn);
    launch.grace_ms = 500;
    daemon.client.start(launch).unwrap();
    daemon
        .client
        .start(bench.script("ended", "exit 4"))
        .unwrap();
    daemon.ended("ended");
    let (runs, stubborn) = (bench.pid_in("ready"), bench.pid_in("stubborn"));
    let has_cgroup = bench.has_cgroup(runs);
    daemon.client.end(&key("ends"), Why::Linger, FAR).unwrap();
    wait_until("the reason on disk", || {
        let entries = journal::read(&bench.setup.run_dir).unwrap();
        entries
            .iter()
            .find(|entry| entry.why == Some(Why::Linger))
            .map(|_| ())
    });
    bench.kill_keeper();
    wait_until("the loss", || daemon.lost.lock().unwrap().then_some(()));
    assert!(is_alive(runs) && is_alive(stubborn));

    let next = bench.connect();
    let held = next.held("runs").unwrap();
    assert_eq!((held.state, held.pid), (State::Running, Some(runs)));
    assert_eq!(held.note, serde_json::json!({ "of": "runs" }));
    let held = next.held("ended").unwrap();
    assert_eq!(held.state, State::Ended(Exit::Code(4)));
    let ended = wait_until("the end it had begun", || {
        next.held("ends").filter(|held| held.state != State::Ending)
    });
    assert_eq!(ended.why, Some(Why::Linger));
    assert!(matches!(ended.state, State::Ended(_)) && !is_alive(stubborn));
    File::create(bench.path("go")).unwrap();
    let ended = wait_until("its own end", || {
        next.held("runs")
            .filter(|held| held.state != State::Running)
            .filter(|held| held.state != State::Ending)
    });
    assert!(!is_alive(runs));
    if !has_cgroup {
        assert_eq!(ended.state, State::Ended(Exit::Code(7)), "its minder knew");
    }
    assert_eq!(ended.why, None);
}

fn an_end_whose_last_line_was_not_written_is_known(bench: &Bench) {
    let daemon = bench.connect();
    daemon.client.start(bench.script("x", "exit 4")).unwrap();
    assert_eq!(daemon.ended("x"), (Exit::Code(4), None));
    let known = journal::read(&bench.setup.run_dir).unwrap();
    assert_eq!(known[0].exit, Some(Exit::Code(4)));
    if let journal::Held::Cgroup(dir) = &known[0].held {
        assert!(!known[0].gone, "it waits for the next line");
        wait_until("its cgroup's removal", || (!dir.exists()).then_some(()));
    }
    bench.kill_keeper();
    let next = bench.connect();
    assert_eq!(next.held("x").unwrap().state, State::Ended(Exit::Code(4)));
    next.client.forget(&key("x")).unwrap();
    assert_eq!(next.inventory(), []);
}

fn an_exit_with_no_keeper_is_known_as_far_as_can_be(bench: &Bench) {
    let daemon = bench.connect();
    daemon.client.start(bench.script("x", UNTIL_GO)).unwrap();
    let pid = bench.pid_in("ready");
    let has_cgroup = bench.has_cgroup(pid);
    daemon.started("x");
    bench.kill_keeper();
    File::create(bench.path("go")).unwrap();
    wait_until("its end", || (!is_alive(pid)).then_some(()));
    let held = bench.connect().held("x").unwrap();
    let exit = if has_cgroup {
        Exit::Unknown
    } else {
        Exit::Code(7)
    };
    let known = wait_until("what the journal knows", || {
        let held = bench.connect().held("x")?;
        (held.state != State::Ending).then_some(held.state)
    });
    assert_eq!(known, State::Ended(exit));
    assert_eq!((held.pid, held.why), (Some(pid), None));
}

fn a_deadline_survives_the_keeper(bench: &Bench) {
    let daemon = bench.connect();
    let mut launch = bench.script("x", "echo $$ > ready; exec sleep 1000");
    launch.deadline_boot_ms = boot_ms() + 1500;
    daemon.client.start(launch).unwrap();
    let pid = bench.pid_in("ready");
    daemon.started("x");
    bench.kill_keeper();
    let next = bench.connect();
    assert!(is_alive(pid));
    assert_eq!(next.ended("x").1, Some(Why::Timeout));
    assert!(!is_alive(pid));
}

fn a_stray_is_ended_before_anything_else(bench: &Bench) {
    let daemon = bench.connect();
    daemon
        .client
        .start(bench.script("known", UNTIL_GO))
        .unwrap();
    let known = bench.pid_in("ready");
    bench.kill_keeper();
    let mut stray = std::process::Command::new("sh");
    let mut stray = stray
        .args([
            "-c",
            "trap '' TERM; echo $$ > stray; while :; do sleep 0.05; done",
        ])
        .current_dir(bench.dir.path())
        .env("HANDOFF_ROOT", bench.dir.path())
        .env("HANDOFF_ID", "stray")
        .env("HANDOFF_ATTEMPT", "4")
        .spawn()
        .unwrap();
    let pid = bench.pid_in("stray");
    let found = alive_outside(bench.dir.path(), Some("stray")).unwrap();
    assert!(
        found
            .iter()
            .any(|it| it.pid == pid && it.key == Key::new("stray", 4))
    );
    let next = bench.connect();
    assert!(!is_alive(pid));
    stray.wait().unwrap();
    assert!(is_alive(known));
    assert_eq!(next.held("known").unwrap().state, State::Running);
    next.client.end(&key("known"), Why::Stop, 100).unwrap();
    next.ended("known");
}

fn an_attempt_starts_with_nothing_of_the_keepers(bench: &Bench) {
    let daemon = bench.connect();
    for id in ["first", "second"] {
        let mut launch = bench.launch(id, &["sleep", "1000"]);
        launch.env.push(("OWN".into(), "value".into()));
        let env = launch.env.clone();
        daemon.client.start(launch).unwrap();
        let pid = daemon.started(id);
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap();
        wait_until("its exec", || (read("comm") == b"sleep\n").then_some(()));
        let mut fds: Vec<String> = fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        fds.sort();
        assert_eq!(fds, ["0", "1", "2"]);
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

fn odd_bytes_arrive_as_they_are(bench: &Bench) {
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

fn processor_time_is_told(bench: &Bench) {
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

fn what_is_forgotten_is_gone_and_the_keeper_leaves(bench: &Bench) {
    let daemon = bench.connect();
    daemon.client.start(bench.script("kept", "exit 1")).unwrap();
    daemon
        .client
        .start(bench.script("forgotten", "exit 2"))
        .unwrap();
    daemon.client.start(bench.script("runs", UNTIL_GO)).unwrap();
    daemon.ended("kept");
    daemon.ended("forgotten");
    daemon.client.forget(&key("forgotten")).unwrap();
    daemon.client.forget(&key("runs")).unwrap();
    let ids = |held: Vec<Held>| held.into_iter().map(|held| held.key.id).collect::<Vec<_>>();
    assert_eq!(
        ids(daemon.inventory()),
        ["kept", "runs"],
        "what runs is not forgotten"
    );
    bench.pid_in("ready");
    drop_daemon(daemon);
    File::create(bench.path("go")).unwrap();
    wait_until("the keeper's leaving", || {
        bench.named("handoffd-keeper").is_empty().then_some(())
    });
    assert_eq!(bench.named("handoffd-minder"), Vec::<i32>::new());
    let next = bench.connect();
    assert_eq!(ids(next.inventory()), ["kept", "runs"]);
    assert_eq!(
        next.held("kept").unwrap().state,
        State::Ended(Exit::Code(1))
    );
    assert_eq!(
        next.held("runs").unwrap().state,
        State::Ended(Exit::Code(7))
    );
}

fn many_that_connect_at_once_meet_one_keeper(bench: &Bench) {
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| bench.setup.connect_or_start().unwrap()))
            .collect();
        let held: Vec<_> = all.into_iter().map(|one| one.join().unwrap()).collect();
        assert_eq!(bench.named("handoffd-keeper").len(), 1);
        drop(held);
    });
}

fn it_does_not_mind_sigterm(bench: &Bench) {
    let daemon = bench.connect();
    daemon.client.start(bench.script("x", UNTIL_GO)).unwrap();
    bench.pid_in("ready");
    for name in ["handoffd-keeper", "handoffd-minder"] {
        for pid in bench.named(name) {
            for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
                kill(pid, signal);
            }
        }
    }
    File::create(bench.path("go")).unwrap();
    assert_eq!(daemon.ended("x"), (Exit::Code(7), None));
}

fn another_version_is_refused(bench: &Bench) {
    let _daemon = bench.connect();
    let path = bench.setup.run_dir.join("keeper.v1.sock");
    let mut socket = std::os::unix::net::UnixStream::connect(path).unwrap();
    let hello = br#"{"hello":{"version":2}}"#;
    let length = u32::try_from(hello.len()).unwrap();
    socket.write_all(&length.to_be_bytes()).unwrap();
    socket.write_all(hello).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    assert_eq!(
        &answer[4..],
        br#"{"hello":{"version":1,"can":["confine"]}}"#
    );
}

/// What an attempt says that comes to its keeper: the length of the answer it got.
#[test]
fn a_visitor() {
    let Some(path) = std::env::var_os("VISIT") else {
        return;
    };
    let mut socket = std::os::unix::net::UnixStream::connect(path).unwrap();
    let hello = br#"{"hello":{"version":1}}"#;
    let length = u32::try_from(hello.len()).unwrap();
    let mut answer = [0; 8];
    let _ = socket.write_all(&[&length.to_be_bytes()[..], hello].concat());
    eprintln!("answered {}", socket.read(&mut answer).unwrap_or(0));
}

fn an_attempt_can_not_give_orders(bench: &Bench) {
    let daemon = bench.connect();
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    let path = bench.setup.run_dir.join("keeper.v1.sock");
    let mut visit = bench.launch("x", &[own, "--exact", "a_visitor", "--nocapture"]);
    visit.env.push(("VISIT".into(), path.clone().into()));
    daemon.client.start(visit).unwrap();
    daemon.started("x");
    assert_eq!(daemon.ended("x"), (Exit::Code(0), None));
    let said = fs::read_to_string(bench.path("x.err")).unwrap();
    assert!(said.contains("answered 0"), "{said}");
    // The same from outside is heard.
    let outside = std::process::Command::new(own)
        .args(["--exact", "a_visitor", "--nocapture"])
        .env("VISIT", path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&outside.stderr);
    assert!(said.contains("answered 8"), "{said}");
}

/// One that was started before there was anything to hold attempts to.
#[test]
fn an_older_keeper_is_not_given_what_it_would_not_hold() {
    let bench = Bench::new(true);
    let path = bench.setup.run_dir.join("keeper.v1.sock");
    let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    let older = std::thread::spawn(move || {
        let mut socket = listener.accept().unwrap().0;
        let hello = br#"{"hello":{"version":1}}"#;
        let length = u32::try_from(hello.len()).unwrap();
        socket
            .write_all(&[&length.to_be_bytes()[..], hello].concat())
            .unwrap();
        let mut heard = Vec::new();
        socket.read_to_end(&mut heard).unwrap();
        heard
    });
    let (client, reader) = bench.setup.connect_or_start().unwrap();
    let mut launch = bench.script("x", "exit 0");
    launch.confine = Some(Box::default());
    let refused = client.start(launch).unwrap_err();
    assert!(refused.to_string().contains("older"), "{refused}");
    client.hang_up();
    drop((client, reader));
    let heard = older.join().unwrap();
    assert!(!String::from_utf8_lossy(&heard).contains("start"));
}

fn a_torn_journal_is_no_obstacle(bench: &Bench) {
    let daemon = bench.connect();
    daemon.client.start(bench.script("x", UNTIL_GO)).unwrap();
    let pid = bench.pid_in("ready");
    daemon.started("x");
    bench.kill_keeper();
    let path = bench.setup.run_dir.join("attempts.0.jsonl");
    let mut file = File::options().append(true).open(path).unwrap();
    file.write_all(br#"{"gone":{"key":{"id":"x","#).unwrap();
    let next = bench.connect();
    assert_eq!(next.held("x").unwrap().state, State::Running);
    next.client.end(&key("x"), Why::Cancelled, 1000).unwrap();
    assert_eq!(next.ended("x").1, Some(Why::Cancelled));
    assert!(!is_alive(pid));
}

#[test]
fn a_killed_minder_does_not_free_its_attempt() {
    let bench = Bench::new(true);
    let daemon = bench.connect();
    let script = "setsid sh -c 'echo $$ > other; sleep 1000' & echo $$ > ready; exec sleep 1000";
    daemon.client.start(bench.script("x", script)).unwrap();
    let (main, other) = (bench.pid_in("ready"), bench.pid_in("other"));
    kill(bench.named("handoffd-minder")[0], Signal::KILL);
    let keeper = bench.named("handoffd-keeper")[0].to_string();
    wait_until("the keeper's taking them", || {
        (stat(main)?[1] == keeper).then_some(())
    });
    assert_eq!(daemon.held("x").unwrap().state, State::Running);
    daemon.client.end(&key("x"), Why::Cancelled, 1000).unwrap();
    let ended = daemon.ended("x");
    assert_eq!(ended, (Exit::Signal(15), Some(Why::Cancelled)));
    assert!(!is_alive(main) && !is_alive(other));
}

#[test]
fn cgroups_are_removed_with_their_attempts() {
    let bench = Bench::new(false);
    let daemon = bench.connect();
    daemon.client.start(bench.script("x", UNTIL_GO)).unwrap();
    let pid = bench.pid_in("ready");
    daemon.started("x");
    let entries = journal::read(&bench.setup.run_dir).unwrap();
    let journal::Held::Cgroup(dir) = &entries[0].held else {
        return; // not on this machine
    };
    assert!(bench.has_cgroup(pid) && dir.is_dir());
    File::create(bench.path("go")).unwrap();
    daemon.ended("x");
    wait_until("its removal", || (!dir.exists()).then_some(()));
    drop_daemon(daemon);
    let base: &Path = dir.parent().unwrap();
    wait_until("the removal of all", || (!base.exists()).then_some(()));
}

#[test]
fn a_cgroup_is_used_again_unless_it_was_killed() {
    let bench = Bench::new(false);
    let daemon = bench.connect();
    let code = |id: &str| {
        daemon.client.start(bench.script(id, "exit 3")).unwrap();
        assert_eq!(daemon.ended(id), (Exit::Code(3), None), "{id}");
    };
    code("first");
    daemon
        .client
        .start(bench.script("second", UNTIL_GO))
        .unwrap();
    bench.pid_in("ready");
    daemon
        .client
        .end(&key("second"), Why::Cancelled, 0)
        .unwrap();
    daemon.ended("second");
    code("third");
    let entries = journal::read(&bench.setup.run_dir).unwrap();
    let held = |id: &str| {
        entries
            .iter()
            .find(|it| it.key == key(id))
            .unwrap()
            .held
            .clone()
    };
    if matches!(held("first"), journal::Held::Cgroup(_)) {
        assert_eq!(held("first"), held("second"));
        assert_ne!(held("second"), held("third"));
    }
}
