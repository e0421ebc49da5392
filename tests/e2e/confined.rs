//! What specialists are held to: descriptors, umask, limits, another user, a sandbox; and
//! folders that everybody may write to.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::process::Signal;
use serde_json::json;

use crate::common::{Daemon, Root, outcomes, skip, text, wait_until};

/// A root with a specialist `@held` that runs this script, with these keys besides.
fn held(script: &str, keys: &[&str]) -> Root {
    let root = Root::new();
    hold(&root, script, keys);
    chmod(root.dir(), 0o755);
    root
}

fn hold(root: &Root, script: &str, keys: &[&str]) {
    fs::write(root.path("held.sh"), script).unwrap();
    let usual = ["command = ['sh', 'held.sh']", "retry.max_retries = 0"];
    let lines = usual.iter().chain(keys);
    let lines: Vec<String> = lines
        .map(|key| format!("specialists.'@held'.{key}"))
        .collect();
    root.configure(&lines.join("\n"));
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn drop_for_held(root: &Root, id: &str, artifact: bool) {
    let mut request = json!({ "target": { "agent_id": "@held" } });
    if artifact {
        request["expected_output"] = json!({
            "artifact_type": "text", "destination": format!("artifacts/deep/{id}.txt"),
        });
    }
    root.drop_request(id, &request);
}

/// What the only attempt of `id` wrote to stderr.
fn log(root: &Root, id: &str) -> String {
    fs::read_to_string(root.path(&format!(".handoffd/logs/{id}.1.log"))).unwrap_or_default()
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip("only root can run attempts as another user");
    }
    is_root
}

fn has_landlock() -> bool {
    let can = handoffd::keeper::confine::can_sandbox();
    if let Err(why) = &can {
        skip(&format!("this kernel can't hold a sandbox ({why})"));
    }
    can.is_ok()
}

#[test]
fn nothing_is_open_but_stdin_stdout_and_stderr() {
    // The last one is ls's own, for looking.
    let script = "env | cut -d= -f1 | sort | tr '\\n' ' ' >&2; exec ls -m /proc/self/fd >&2";
    for cgroups in [true, false] {
        let root = Root::with(&format!(
            "specialists.'@held'.command = ['sh', '-c', \"{}\"]",
            script.replace('\\', "\\\\")
        ));
        let change = |command: &mut std::process::Command| {
            command.env("A_SECRET", "of the daemon's");
            if !cgroups {
                command.env("HANDOFFD_NO_CGROUP", "1");
            }
        };
        let _daemon = Daemon::start_with(&root, change);
        drop_for_held(&root, "x", false);
        root.completed("x");
        let said = log(&root, "x");
        let (names, open) = said.rsplit_once(" 0,").unwrap();
        assert_eq!(open, " 1, 2, 3\n", "{said}");
        assert!(
            said.contains("HANDOFF_ID") && !said.contains("A_SECRET"),
            "{said}"
        );
        for word in names.split_whitespace() {
            let known = [
                "PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "SHELL", "PWD", "OLDPWD",
            ];
            let known = known.contains(&word) || ["SHLVL", "_"].contains(&word);
            assert!(known || word.starts_with("HANDOFF_"), "{word} in {said}");
        }
    }
}

#[test]
fn files_are_made_with_the_umask_and_processes_within_the_limits() {
    let script = "umask >&2; ulimit -n >&2; ulimit -c >&2; ulimit -t >&2; ulimit -v >&2; \
                  ulimit -f >&2; echo x > made";
    let root = held(script, &[]);
    let daemon = Daemon::start(&root);
    drop_for_held(&root, "usual", false);
    root.completed("usual");
    assert!(
        log(&root, "usual").starts_with("0027\n"),
        "{}",
        log(&root, "usual")
    );
    let mode = |name: &str| fs::metadata(root.path(name)).unwrap().mode() & 0o777;
    assert_eq!(mode("made"), 0o640);
    let limits = "{ nofile = 77, core = 0, cpu = '9s', as = '2GiB', fsize = '1MiB', nproc = 5000 }";
    hold(
        &root,
        script,
        &["umask = '077'", &format!("rlimits = {limits}")],
    );
    daemon.signal(Signal::HUP);
    wait_until("the new limits", || {
        let id = format!("held-{}", root.names("handoffs/completed").len());
        // One that the former limits still made would keep its mode.
        fs::remove_file(root.path("made")).unwrap();
        drop_for_held(&root, &id, false);
        root.completed(&id);
        (log(&root, &id) == "0077\n77\n0\n9\n2097152\n2048\n").then_some(())
    });
    assert_eq!(mode("made"), 0o600);
}

#[test]
fn what_can_not_be_applied_fails_the_attempt_and_names_the_key() {
    let limits = "rlimits = { nofile = 1073741824 }";
    for cgroups in [true, false] {
        let root = held("exit 0", &[limits]);
        let _daemon = if cgroups {
            Daemon::start(&root)
        } else {
            Daemon::start_without_cgroups(&root)
        };
        drop_for_held(&root, "x", false);
        let (record, code) = root.failed("x");
        assert_eq!(code, "PROCESSING_ERROR");
        let message = text(&record["error"]["message"]);
        assert!(message.contains("rlimits.nofile = 1073741824"), "{message}");
        assert!(message.contains("Operation not permitted"), "{message}");
    }
}

#[test]
fn no_attempt_writes_a_file_that_fills_the_disk() {
    let script = "ulimit -f >&2; exec head -c 1000000 /dev/zero > big";
    let small = "daemon.max_artifact_size = '64KiB'\ndaemon.max_output_size = '1KiB'";
    for cgroups in [true, false] {
        let root = held("", &[]);
        let write = |script: &str, keys: &[&str]| {
            hold(&root, script, keys);
            let text = fs::read_to_string(root.path("handoffd.toml")).unwrap();
            fs::write(root.path("handoffd.toml"), format!("{small}\n{text}")).unwrap();
        };
        write(script, &[]);
        let daemon = if cgroups {
            Daemon::start(&root)
        } else {
            Daemon::start_without_cgroups(&root)
        };
        drop_for_held(&root, "x", false);
        let (record, code) = root.failed("x");
        assert_eq!(code, "PROCESSING_ERROR");
        let message = text(&record["error"]["message"]);
        assert!(message.contains("SIGXFSZ"), "{message}");
        assert!(
            record["recovery_actions"]
                .to_string()
                .contains("rlimits.fsize")
        );
        // Four times the larger of the two, in blocks of 512 bytes.
        assert_eq!(log(&root, "x"), "512\n");
        assert_eq!(fs::metadata(root.path("big")).unwrap().len(), 256 * 1024);
        // The same from below a shell, which is what most specialists are.
        write("head -c 1000000 /dev/zero > big", &[]);
        drop_for_held(&root, "y", false);
        let message = text(&root.failed("y").0["error"]["message"]);
        assert!(message.contains("larger than its limit"), "{message}");
        // A limit of the specialist's own wins, also a higher one.
        write(script, &["rlimits = { fsize = '2MiB' }"]);
        daemon.signal(Signal::HUP);
        wait_until("the new limit", || {
            let id = format!("own-{}", root.names("handoffs/failed").len());
            drop_for_held(&root, &id, false);
            let ended = || {
                ["completed", "failed"]
                    .into_iter()
                    .find(|state| root.record_in(state, &id).is_some())
            };
            (wait_until("its end", ended) == "completed").then_some(())
        });
        assert_eq!(fs::metadata(root.path("big")).unwrap().len(), 1_000_000);
    }
}

const NOBODY_WORKS: &str = r#"
id -un >&2
id -G >&2
cat /dev/stdin > "$TMPDIR/copy"
cmp "$TMPDIR/copy" "$HANDOFF_FILE" || exit 10
echo beat >> "$HANDOFF_HEARTBEAT" || exit 11
echo work > "$HANDOFF_ARTIFACT.part" && mv "$HANDOFF_ARTIFACT.part" "$HANDOFF_ARTIFACT" || exit 12
printf '{"status": "completed", "artifacts": ["%s"]}' "$HANDOFF_ARTIFACT" > "$HANDOFF_RESULT.tmp" || exit 13
mv "$HANDOFF_RESULT.tmp" "$HANDOFF_RESULT" || exit 14
echo again >> /dev/stderr || exit 15
ls "$HANDOFF_ROOT/.handoffd" 2>/dev/null && exit 16
ls "$HANDOFF_ROOT/.handoffd/homes" 2>/dev/null && exit 17
echo x 2>/dev/null > "$HANDOFF_ROOT/handoffs/pending/y.json" && exit 18
echo "home $HOME user $USER" >&2
exit 0
"#;

#[test]
fn another_user_has_all_that_an_attempt_needs_and_no_more() {
    if !is_root() {
        return;
    }
    for cgroups in [true, false] {
        let verify = "verify = ['sh', '-c', 'cat \"$HANDOFF_ARTIFACT\" >&2; id -un >&2']";
        let root = held(NOBODY_WORKS, &["user = 'nobody'", verify]);
        let _daemon = if cgroups {
            Daemon::start(&root)
        } else {
            Daemon::start_without_cgroups(&root)
        };
        drop_for_held(&root, "x", true);
        let record = root.completed("x");
        assert_eq!(record["validation"]["status"], "passed", "{record:#}");
        // Listed under the name that it was given, it is the one at its destination.
        let artifacts = record["output"]["artifacts"].as_array().unwrap();
        assert_eq!(artifacts.len(), 1, "{artifacts:?}");
        let said = log(&root, "x");
        assert!(
            said.starts_with("nobody\n") && said.contains("again\n"),
            "{said}"
        );
        assert!(
            !said
                .lines()
                .nth(1)
                .unwrap()
                .split(' ')
                .any(|gid| gid == "0"),
            "{said}"
        );
        assert!(
            said.contains("user nobody") && !said.contains("home /root"),
            "{said}"
        );
        let verified = fs::read_to_string(root.path(".handoffd/logs/x~verify.1.log")).unwrap();
        assert_eq!(verified, "work\nnobody\n");
        let artifact = root.path("artifacts/deep/x.txt");
        assert_eq!(fs::read_to_string(&artifact).unwrap(), "work\n");
        assert_eq!(fs::metadata(&artifact).unwrap().uid(), 0);
        wait_until("its folder to go", || {
            root.names(".handoffd/homes").is_empty().then_some(())
        });
        assert_eq!(record["result"]["status"], "completed");
    }
}

#[test]
fn an_attempt_of_another_user_outlives_the_daemon_with_what_it_leaves() {
    if !is_root() {
        return;
    }
    let script = "chmod 700 .; : > \"$TMPDIR/up\"; until [ -e go ]; do sleep 0.05; done\n\
                  echo work > \"$HANDOFF_ARTIFACT\"";
    let root = held(script, &["user = 'nobody'"]);
    let daemon = Daemon::start(&root);
    drop_for_held(&root, "x", true);
    wait_until("the attempt to be up", || {
        root.path(".handoffd/homes/x.1/tmp/up")
            .exists()
            .then_some(())
    });
    daemon.kill();
    let _next = Daemon::start(&root);
    fs::write(root.path("go"), "").unwrap();
    let record = root.completed("x");
    assert_eq!(outcomes(&record), ["completed"]);
    let work = fs::read_to_string(root.path("artifacts/deep/x.txt")).unwrap();
    assert_eq!(work, "work\n");
}

#[test]
fn what_another_user_plants_in_its_folder_is_not_followed() {
    if !is_root() {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    chmod(outside.path(), 0o755);
    let secret = outside.path().join("x.txt");
    fs::write(&secret, "canary").unwrap();
    let plants = [
        format!("ln -s {} \"$HANDOFF_ARTIFACT\"", secret.display()),
        format!(
            "rmdir \"${{HANDOFF_ARTIFACT%/*}}\"; ln -s {} \"${{HANDOFF_ARTIFACT%/*}}\"",
            outside.path().display()
        ),
        format!("ln -s {} \"$HANDOFF_RESULT\"", secret.display()),
        "mkfifo \"$HANDOFF_ARTIFACT\"".to_owned(),
    ];
    for plant in plants {
        let root = held(&plant, &["user = 'nobody'"]);
        let _daemon = Daemon::start(&root);
        drop_for_held(&root, "x", true);
        let (record, _) = root.failed("x");
        assert!(
            !record.to_string().contains("canary"),
            "{plant}: {record:#}"
        );
        assert!(!root.path("artifacts/deep/x.txt").exists(), "{plant}");
        assert_eq!(fs::read_to_string(&secret).unwrap(), "canary", "{plant}");
    }
}

#[test]
fn a_user_that_can_not_be_had_stops_the_start_and_says_what_to_do() {
    let root = held("exit 0", &["user = 'no-such-user'"]);
    for command in ["run", "check"] {
        let refused = root.cli(&[command]);
        assert_eq!(refused.status.code(), Some(2));
        let said = [refused.stdout, refused.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("no user \"no-such-user\" exists"), "{said}");
    }
}

const SANDBOXED: &str = r#"
cat /dev/stdin > "$TMPDIR/copy" || exit 10
cmp "$TMPDIR/copy" "$HANDOFF_FILE" || exit 11
echo beat >> "$HANDOFF_HEARTBEAT" || exit 12
echo work > "$HANDOFF_ARTIFACT" || exit 13
echo said > /dev/stderr || exit 14
echo x > /dev/null || exit 15
[ "$(cat given/read)" = readable ] || exit 16
echo x 2>/dev/null > given/read && exit 17
echo written > free/file || exit 18
cat "$SECRET" 2>/dev/null && exit 19
true 2>/dev/null > "$SECRET" && exit 20
ls handoffs 2>/dev/null && exit 21
ls .handoffd/run 2>/dev/null && exit 22
echo x 2>/dev/null > handoffs/pending/y.json && exit 23
kill -0 "$DAEMON" 2>/dev/null && exit 24
grep -q '^NoNewPrivs:.*1' /proc/self/status || exit 25
exit 0
"#;

#[test]
fn a_sandbox_lets_an_attempt_work_and_nothing_else() {
    if !has_landlock() {
        return;
    }
    let users: &[&str] = if is_root() {
        &["", "user = 'nobody'"]
    } else {
        &[""]
    };
    for user in users {
        let outside = tempfile::tempdir().unwrap();
        chmod(outside.path(), 0o777);
        let secret = outside.path().join("secret");
        fs::write(&secret, "canary").unwrap();
        chmod(&secret, 0o666);
        let root = held("", &[]);
        for folder in ["given", "free"] {
            fs::create_dir(root.path(folder)).unwrap();
            chmod(&root.path(folder), 0o777);
        }
        fs::write(root.path("given/read"), "readable").unwrap();
        let env = format!("env = {{ SECRET = '{}' }}", secret.display());
        let mut keys = vec!["sandbox = { read = ['given'], write = ['free'] }", &env];
        keys.extend(Some(*user).filter(|user| !user.is_empty()));
        let script = SANDBOXED.replace("$DAEMON", &std::process::id().to_string());
        hold(&root, &script, &keys);
        let _daemon = if user.is_empty() {
            Daemon::start_without_cgroups(&root)
        } else {
            Daemon::start(&root)
        };
        drop_for_held(&root, "x", true);
        root.completed("x");
        assert_eq!(log(&root, "x"), "said\n");
        let work = fs::read_to_string(root.path("artifacts/deep/x.txt")).unwrap();
        assert_eq!(work, "work\n");
        assert_eq!(fs::read_to_string(&secret).unwrap(), "canary");
    }
}

#[test]
fn a_path_of_the_sandbox_that_is_missing_fails_the_attempt_and_is_named() {
    if !has_landlock() {
        return;
    }
    let root = held("exit 0", &["sandbox = { write = ['no/such/folder'] }"]);
    let _daemon = Daemon::start(&root);
    drop_for_held(&root, "x", false);
    let (record, code) = root.failed("x");
    assert_eq!(code, "PROCESSING_ERROR");
    let message = text(&record["error"]["message"]);
    assert!(message.contains("sandbox.write: "), "{message}");
    assert!(message.contains("no/such/folder"), "{message}");
    assert!(message.contains("No such file"), "{message}");
}

#[test]
fn a_folder_that_everybody_may_write_to_is_refused_at_the_start() {
    for below in ["handoffs/pending", "handoffs/control", ""] {
        let root = Root::new();
        chmod(&root.path(below), 0o777);
        let refused = root.cli(&["run"]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(
            said.contains("0777") && said.contains("chmod o-w"),
            "{said}"
        );
        root.configure("daemon.allow_shared = true");
        let daemon = Daemon::start(&root);
        root.assert_works("good");
        daemon.terminate();
        root.configure("");
        chmod(&root.path(below), 0o770);
        let _daemon = Daemon::start(&root);
        root.assert_works("better");
    }
}

#[test]
fn a_folder_that_is_opened_to_everybody_meanwhile_is_left_until_it_is_closed() {
    let root = Root::with("daemon.rescan = '200ms'");
    let _daemon = Daemon::start(&root);
    root.assert_works("before");
    chmod(&root.path("handoffs/pending"), 0o777);
    wait_until("the problem", || {
        root.problems().contains("chmod o-w").then_some(())
    });
    root.drop_request("x", &crate::common::orders("exit 0"));
    // One more round of looking has passed when a folder that was deleted is there again.
    for _ in 0..2 {
        fs::remove_dir(root.path("handoffs/control/rejected")).unwrap();
        fs::remove_dir(root.path("handoffs/control")).unwrap();
        wait_until("another look", || {
            root.path("handoffs/control").exists().then_some(())
        });
        wait_until("all of it", || {
            root.path("handoffs/control/rejected")
                .exists()
                .then_some(())
        });
    }
    assert_eq!(root.states_of("x"), ["pending"]);
    chmod(&root.path("handoffs/pending"), 0o770);
    root.completed("x");
    assert!(!root.problems().contains("chmod"), "{}", root.problems());
}
