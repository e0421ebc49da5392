//! Processes that give orders to a keeper without being its daemon: confined attempts of another
//! root, a confined attempt whose own keeper was killed, and a process that sees the root
//! read-only. All of them run as the daemon's user, and none of them may have a command started.

use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use handoffd::keeper::frame;
use handoffd::keeper::wire::{Key, Order, Os, Start, VERSION};
use serde_json::{Value, json};

use crate::common::{Daemon, Root, find_keeper, kill_keeper, skip, wait_until};

const ME: [&str; 3] = ["--exact", "commanders::a_commander", "--nocapture"];
/// How long the attacker waits for an answer, and for its chance.
const PATIENCE: Duration = Duration::from_secs(20);

/// The attacker. It is this test program, started again: it connects to the keeper of `VICTIM`, shows
/// that it may write to the run folder, as far as it can, and orders a command that writes `LOOT`.
#[test]
fn a_commander() {
    let Some(victim) = std::env::var_os("VICTIM").map(PathBuf::from) else {
        return;
    };
    let here = |name: &str| std::env::var_os(name).map(PathBuf::from);
    if let (Some(up), Some(go)) = (here("UP"), here("GO")) {
        fs::write(up, "").unwrap();
        let begun = Instant::now();
        while !go.exists() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let said = command(&victim, &here("LOOT").unwrap());
    println!("the keeper: {said:?}");
    if let Some(done) = here("DONE") {
        fs::write(done, format!("{said:?}\n")).unwrap();
    }
}

/// Connects to the keeper of `VICTIM` again and again, until the file `GO` is there.
#[test]
fn a_caller() {
    let here = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let (Some(victim), Some(calls), Some(go)) = (here("VICTIM"), here("CALLS"), here("GO")) else {
        return;
    };
    let begun = Instant::now();
    let mut kept = std::collections::VecDeque::new();
    let mut is_told = false;
    while !go.exists() && begun.elapsed() < Duration::from_mins(5) {
        for _ in 0..100 {
            let path = victim.join(".handoffd/run").join(frame::SOCKET);
            let Ok(socket) = UnixStream::connect(path) else {
                continue;
            };
            let hello = Order::Hello { version: VERSION };
            let _ = frame::send(&socket, &frame::encode(&hello).unwrap(), &[]);
            kept.push_back(socket);
            if kept.len() > 64 {
                kept.pop_front();
            }
        }
        if !is_told {
            fs::write(calls.with_extension(std::process::id().to_string()), "").unwrap();
            is_told = true;
        }
    }
}

/// Orders the theft, and gives back all that the keeper answered.
fn command(victim: &Path, loot: &Path) -> std::io::Result<String> {
    let run = victim.join(".handoffd/run");
    let mut socket = UnixStream::connect(run.join(frame::SOCKET))?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    let hello = Order::Hello { version: VERSION };
    frame::send(&socket, &frame::encode(&hello)?, &[])?;
    let mut answer = vec![0; 4096];
    let length = socket.read(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
    let hello: Value = serde_json::from_str(answer.get(4..).unwrap_or("")).unwrap_or_default();
    if let Some(number) = hello["hello"]["prove"].as_u64() {
        let shown = fs::write(run.join(format!(".greeting-{number}")), "");
        println!("to prove itself: {shown:?}");
        let prove = serde_json::to_vec("prove")?;
        let prove = [
            &u32::try_from(prove.len()).unwrap().to_be_bytes()[..],
            &prove,
        ]
        .concat();
        frame::send(&socket, &prove, &[])?;
    }
    let script = format!("echo taken > '{}'", loot.display());
    let argv = ["/bin/sh", "-c", script.as_str()].map(Os::from);
    let theft = Order::Start(Box::new(Start {
        key: Key::new("theft", std::process::id()),
        argv: argv.into(),
        env: Vec::new(),
        cwd: "/".into(),
        deadline_boot_ms: handoffd::clock::boot_ms() + 60_000,
        grace_ms: 1000,
        note: json!({}),
        quiet: false,
        confine: None,
        fsize: None,
        turn: None,
    }));
    let null = || -> std::io::Result<OwnedFd> {
        let file = fs::File::options().read(true).write(true).open("/dev/null");
        Ok(file?.into())
    };
    let files = [null()?, null()?, null()?];
    let _ = frame::send(
        &socket,
        &frame::encode(&theft)?,
        &files.each_ref().map(AsFd::as_fd),
    );
    let mut rest = vec![0; 4096];
    let length = socket.read(&mut rest).unwrap_or(0);
    Ok(answer + &String::from_utf8_lossy(&rest[..length]))
}

fn has_landlock() -> bool {
    let can = handoffd::keeper::confine::can_sandbox();
    if let Err(why) = &can {
        skip(&format!("this kernel can't hold a sandbox ({why})"));
    }
    can.is_ok()
}

/// A root whose specialist `@thief` is the attacker, in a sandbox that may write to `free/` only and
/// may read all of the victim's root.
fn thieving(victim: &Path, loot: &Path) -> Root {
    let root = Root::new();
    let own = std::env::current_exe().unwrap();
    let [exact, name, nocapture] = ME;
    let free = root.path("free");
    let named = |name: &str| free.join(name).display().to_string();
    root.configure(&format!(
        "specialists.'@thief'.command = ['{}', '{exact}', '{name}', '{nocapture}']\n\
         specialists.'@thief'.sandbox = {{ read = ['{victim}'], write = ['free'] }}\n\
         specialists.'@thief'.env = {{ VICTIM = '{victim}', LOOT = '{}', UP = '{}', GO = '{}', DONE = '{}' }}",
        own.display(),
        loot.display(),
        named("up"),
        named("go"),
        named("done"),
        victim = victim.display(),
    ));
    fs::create_dir(&free).unwrap();
    root
}

fn drop_theft(root: &Root) {
    root.drop_request("theft", &json!({ "target": { "agent_id": "@thief" } }));
}

/// Waits until the attacker has tried, and says what the keeper answered.
fn tried(root: &Root) -> String {
    wait_until("the attacker's try", || {
        let said = fs::read_to_string(root.path("free/done")).ok()?;
        said.ends_with('\n').then_some(said)
    })
}

/// What a keeper that carried out the order would have done by now: a later order is done.
fn assert_not_taken(victim: &Root, loot: &Path, said: &str) {
    victim.assert_works("after");
    assert!(!loot.exists(), "the keeper took the order: {said}");
    assert!(!said.contains("started"), "{said}");
}

#[test]
fn a_sandboxed_attempt_of_another_root_gives_no_orders() {
    if !has_landlock() {
        return;
    }
    for cgroups in [true, false] {
        let victim = Root::new();
        let start = if cgroups {
            Daemon::start
        } else {
            Daemon::start_without_cgroups
        };
        let _daemon = start(&victim);
        victim.assert_works("before");
        let loot = victim.path("loot");
        let root = thieving(victim.dir(), &loot);
        let _other = start(&root);
        root.drop_request("theft", &json!({ "target": { "agent_id": "@thief" } }));
        fs::write(root.path("free/go"), "").unwrap();
        let said = tried(&root);
        assert_not_taken(&victim, &loot, &said);
    }
}

#[test]
fn an_attempt_whose_keeper_was_killed_does_not_command_the_next() {
    if !has_landlock() {
        return;
    }
    for cgroups in [true, false] {
        let outside = tempfile::tempdir().unwrap();
        let loot = outside.path().join("loot");
        let root = thieving(Path::new("."), &loot);
        let text = fs::read_to_string(root.path("handoffd.toml")).unwrap();
        let own = format!("VICTIM = '{}'", root.dir().display());
        let text = text
            .replace("VICTIM = '.'", &own)
            .replace("read = ['.'], ", "");
        fs::write(root.path("handoffd.toml"), text).unwrap();
        let start = if cgroups {
            Daemon::start
        } else {
            Daemon::start_without_cgroups
        };
        let _daemon = start(&root);
        drop_theft(&root);
        wait_until("the attempt to be up", || {
            root.path("free/up").exists().then_some(())
        });
        let former = find_keeper(root.dir());
        kill_keeper(&root);
        wait_until("the next keeper", || {
            let works = find_keeper(root.dir()).is_some_and(|next| Some(next) != former);
            (works && !root.problems().contains("the keeper is gone")).then_some(())
        });
        fs::write(root.path("free/go"), "").unwrap();
        let said = tried(&root);
        assert_not_taken(&root, &loot, &said);
    }
}

#[test]
fn who_sees_the_root_read_only_gives_no_orders() {
    let can = rustix::process::geteuid().is_root()
        && Command::new("unshare")
            .args(["--mount", "true"])
            .status()
            .is_ok_and(|status| status.success());
    if !can {
        skip("only root can show a root read-only to one process");
        return;
    }
    let victim = Root::new();
    let _daemon = Daemon::start(&victim);
    victim.assert_works("before");
    let loot = victim.path("loot");
    let script = "mount --bind \"$VICTIM\" \"$VICTIM\" && mount -o remount,bind,ro \"$VICTIM\" && \
                  ! touch \"$VICTIM/x\" 2>/dev/null && exec \"$0\" \"$@\"";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .args(ME)
        .env("VICTIM", victim.dir())
        .env("LOOT", &loot)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains("the keeper: "), "it did not try: {said}");
    assert_not_taken(&victim, &loot, &said);
}

/// The socket belongs to the daemon's user: others can't even connect.
#[test]
fn another_user_does_not_reach_the_keeper() {
    if !rustix::process::geteuid().is_root() {
        skip("only root can play another user");
        return;
    }
    let victim = Root::new();
    for above in ["", ".handoffd", ".handoffd/run"] {
        let _ = fs::create_dir_all(victim.path(above));
        fs::set_permissions(victim.path(above), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let _daemon = Daemon::start(&victim);
    victim.assert_works("before");
    let loot = victim.path("loot");
    let script = "cp \"$0\" /tmp/commander.$$ && chmod 755 /tmp/commander.$$ && \
                  setpriv --reuid 65533 --regid 65533 --clear-groups /tmp/commander.$$ \"$@\"; \
                  rm /tmp/commander.$$";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .args(ME)
        .env("VICTIM", victim.dir())
        .env("LOOT", &loot)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("the keeper: "), "it did not try: {output:?}");
    assert_not_taken(&victim, &loot, &said);
}

#[test]
fn who_only_connects_holds_up_neither_attempts_nor_the_next_daemon() {
    const CALLERS: usize = 4;
    if !has_landlock() {
        return;
    }
    let victim = Root::new();
    let daemon = Daemon::start(&victim);
    victim.assert_works("before");
    let root = thieving(victim.dir(), Path::new("/nowhere"));
    let text = fs::read_to_string(root.path("handoffd.toml")).unwrap();
    let calls = root.path("free/calls");
    let text = text
        .replace("commanders::a_commander", "commanders::a_caller")
        .replace(
            "LOOT = '/nowhere'",
            &format!("CALLS = '{}'", calls.display()),
        );
    fs::write(root.path("handoffd.toml"), text).unwrap();
    let _other = Daemon::start(&root);
    for n in 0..CALLERS {
        let request = json!({ "target": { "agent_id": "@thief" } });
        root.drop_request(&format!("caller-{n}"), &request);
    }
    wait_until("the callers", || {
        let names = root.names("free");
        let callers = names.iter().filter(|name| name.starts_with("calls."));
        (callers.count() == CALLERS).then_some(())
    });
    for n in 0..3 {
        victim.assert_works(&format!("during-{n}"));
    }
    daemon.kill();
    let _next = Daemon::start(&victim);
    victim.assert_works("after");
    fs::write(root.path("free/go"), "").unwrap();
    for n in 0..CALLERS {
        root.completed(&format!("caller-{n}"));
    }
}
