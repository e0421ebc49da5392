//! Hostile files that a confined attempt leaves: output files that it still has open, homes that
//! are hard to delete. None of them stops the daemon or gets into another handoff.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::json;

use crate::common::{Daemon, Root, attempts, orders, skip, wait_until};

const NOBODY: u32 = 65_534;

/// A root with `@held`, which runs this script as `nobody`.
fn held(script: &str, more: &str) -> Root {
    hold(Root::new(), script, more)
}

/// The same in memory.
fn held_in_memory(script: &str, more: &str) -> Root {
    hold(in_memory(""), script, more)
}

/// A root in memory, where there is such a folder: very many files take a busy disk minutes.
fn in_memory(config: &str) -> Root {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        Root::within(memory, config)
    } else {
        Root::with(config)
    }
}

fn hold(root: Root, script: &str, more: &str) -> Root {
    fs::write(root.path("held.sh"), script).unwrap();
    root.configure(&format!(
        "specialists.'@held'.command = ['sh', 'held.sh']\n\
         specialists.'@held'.retry.max_retries = 0\n\
         specialists.'@held'.user = 'nobody'\n{more}"
    ));
    fs::set_permissions(root.dir(), Permissions::from_mode(0o755)).unwrap();
    root
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip("only root can run attempts as another user");
    }
    is_root
}

fn has_perl() -> bool {
    let found = Command::new("perl").args(["-e", "1"]).status();
    let has = found.is_ok_and(|status| status.success());
    if !has {
        skip("perl, which makes the files, is not there");
    }
    has
}

#[test]
fn a_file_that_another_user_had_is_not_used_for_an_attempt_s_output() {
    if !is_root() {
        return;
    }
    let root = held("exit 0", "");
    // As a daemon leaves it that dies between an outcome and the end of its output files, while
    // something of the attempt still has the file open.
    let run = root.path(".handoffd/run");
    fs::create_dir_all(&run).unwrap();
    let mut theirs = Vec::new();
    for number in 0..4 {
        for end in ["out", "err"] {
            let path = run.join(format!("slot-{number}.{end}"));
            theirs.push(
                File::options()
                    .append(true)
                    .create(true)
                    .open(&path)
                    .unwrap(),
            );
            chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    let _daemon = Daemon::start(&root);
    let forged = r#"{"status": "completed", "summary": "forged"}"#;
    let sh = "echo $$ >marks/up; until [ -e marks/go ]; do sleep 0.02; done";
    root.drop_request("x", &orders(sh));
    root.mark("up");
    for file in &mut theirs {
        file.write_all(forged.as_bytes()).unwrap();
    }
    root.allow("go");
    let record = root.completed("x");
    assert!(!record.to_string().contains("forged"), "{record:#}");
}

#[test]
fn what_a_confined_attempt_printed_to_is_no_other_attempt_s_file() {
    if !is_root() || !has_perl() {
        return;
    }
    // It unlocks its files; the test keeps them open for it.
    let script = "perl -e 'open F, \">&\", \\*STDOUT; flock(F, 8)'; echo $$ >&2\n\
                  until [ -e marks/go ]; do sleep 0.02; done";
    let root = held(script, "daemon.max_concurrent = 1");
    let _daemon = Daemon::start(&root);
    root.assert_works("before");
    let outs = || {
        let names = root.names(".handoffd/run").into_iter();
        names
            .filter(|name| name.starts_with("slot-"))
            .map(|name| root.path(".handoffd/run").join(name))
            .collect::<Vec<_>>()
    };
    let inode = |file: &File| file.metadata().unwrap().ino();
    let former: Vec<File> = outs().iter().map(|it| File::open(it).unwrap()).collect();
    let former: Vec<(File, u64)> = former
        .into_iter()
        .map(|it| {
            let at = inode(&it);
            (it, at)
        })
        .collect();
    root.drop_request("x", &json!({ "target": { "agent_id": "@held" } }));
    let mut theirs = wait_until("the confined attempt", || {
        let open = |path: &std::path::PathBuf| {
            let file = File::options().append(true).open(path).ok()?;
            (file.metadata().ok()?.uid() == NOBODY).then_some(file)
        };
        let files: Vec<File> = outs().iter().filter_map(open).collect();
        (files.len() == 2).then_some(files)
    });
    // Somebody else may have the files of the attempt before it open, too.
    for file in &theirs {
        assert!(former.iter().all(|(_, had)| *had != inode(file)));
    }
    root.allow("go");
    root.completed("x");
    let sh = "echo $$ >marks/up; until [ -e marks/on ]; do sleep 0.02; done";
    root.drop_request("y", &orders(sh));
    root.mark("up");
    let forged = r#"{"status": "completed", "summary": "forged"}"#;
    for file in &mut theirs {
        file.write_all(forged.as_bytes()).unwrap();
    }
    root.allow("on");
    let record = root.completed("y");
    assert!(!record.to_string().contains("forged"), "{record:#}");
}

#[test]
fn what_was_printed_is_gone_from_the_output_files_at_the_end() {
    let root = Root::with("defaults.retry.max_retries = 0");
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &orders("echo a secret; echo another secret >&2"));
    root.completed("x");
    root.drop_request("y", &orders("echo a secret; exit 1"));
    root.failed("y");
    wait_until("empty output files", || {
        let names = root.names(".handoffd/run");
        let slots = names.iter().filter(|name| name.starts_with("slot-"));
        let full = slots.filter(|name| {
            fs::read(root.path(".handoffd/run").join(name)).is_ok_and(|bytes| !bytes.is_empty())
        });
        (full.count() == 0).then_some(())
    });
}

fn homes(root: &Root) -> Vec<String> {
    root.names(".handoffd/homes")
}

#[test]
fn a_home_with_thousands_of_nested_folders_is_deleted() {
    if !is_root() || !has_perl() {
        return;
    }
    let script = "cd \"$TMPDIR\" && exec perl -e 'for (1..17000) { mkdir \"d\"; chdir \"d\" } \
                  open F, \">\", \"f\"'";
    let root = held_in_memory(script, "");
    let _daemon = Daemon::start(&root);
    root.drop_request("x", &json!({ "target": { "agent_id": "@held" } }));
    root.completed("x");
    root.assert_works("after");
    wait_until("its home to go", || homes(&root).is_empty().then_some(()));
    root.assert_works("later");
}

#[test]
fn a_result_that_is_a_folder_with_thousands_of_others_in_it_is_deleted() {
    if !has_perl() {
        return;
    }
    let root = in_memory("defaults.retry.max_retries = 0");
    let _daemon = Daemon::start(&root);
    let sh = "mkdir $HANDOFF_RESULT; cd $HANDOFF_RESULT; exec perl -e 'for (1..17000) \
              { mkdir \"d\"; chdir \"d\" }'";
    root.drop_request("x", &orders(sh));
    root.failed("x");
    root.assert_works("after");
    wait_until("the folder to go", || {
        let names = root.names(".handoffd/run");
        names
            .iter()
            .all(|name| !name.contains("x.1") && !name.starts_with('.'))
            .then_some(())
    });
}

/// How many files four attempts leave together.
const FILES: usize = 200_000;

/// How many files are in homes, also in those that are being deleted.
fn files_in_homes(root: &Root) -> usize {
    let count = |folder: &Path| fs::read_dir(folder).map_or(0, Iterator::count);
    let homes = root.path(".handoffd/homes");
    let of_home = |name: String| {
        let home = homes.join(name);
        // What lies in a folder is brought up before that goes.
        let below = fs::read_dir(&home).into_iter().flatten().flatten();
        below.map(|it| 1 + count(&it.path())).sum::<usize>()
    };
    self::homes(root).into_iter().map(of_home).sum()
}

#[test]
fn homes_with_very_many_files_are_deleted_while_others_end() {
    if !is_root() || !has_perl() {
        return;
    }
    let script = format!(
        "perl -e 'chdir $ENV{{TMPDIR}}; for (1..{}) {{ open F, \">\", $_ }}'\n\
         until [ -e marks/go ]; do sleep 0.02; done",
        FILES / 4
    );
    let root = held_in_memory(&script, "daemon.max_concurrent = 5");
    let daemon = Daemon::start(&root);
    for n in 0..4 {
        let request = json!({ "target": { "agent_id": "@held" } });
        root.drop_request(&format!("x{n}"), &request);
    }
    wait_until("their files", || {
        (files_in_homes(&root) >= FILES).then_some(())
    });
    // All four end at one moment, as the daemon sees it.
    daemon.signal(Signal::STOP);
    root.allow("go");
    wait_until("the ends of the attempts", || {
        attempts(root.dir()).is_empty().then_some(())
    });
    root.drop_request("probe", &orders("exit 0"));
    daemon.signal(Signal::CONT);
    root.completed("probe");
    let left = files_in_homes(&root);
    assert!(left > FILES / 2, "{left} files were left");
    for n in 0..4 {
        root.completed(&format!("x{n}"));
    }
    wait_until("the homes to go", || homes(&root).is_empty().then_some(()));
}

#[test]
fn a_folder_that_may_not_be_entered_is_deleted_by_a_daemon_that_is_not_root() {
    if !is_root() {
        return;
    }
    if let Err(why) = handoffd::keeper::confine::can_sandbox() {
        skip(&format!("this kernel can't hold a sandbox ({why})"));
        return;
    }
    let root = Root::new();
    let script = "cd \"$TMPDIR\" && mkdir -p shut/deep/deeper && echo x >shut/deep/f && \
                  chmod 000 shut/deep shut && chmod 000 ../tmp";
    fs::write(root.path("held.sh"), script).unwrap();
    root.configure(
        "specialists.'@held'.command = ['sh', 'held.sh']\nspecialists.'@held'.sandbox = {}",
    );
    let _daemon = Daemon::start_as(&root, NOBODY, |_| {});
    let path = root.pending("x.json");
    fs::write(
        &path,
        json!({ "target": { "agent_id": "@held" } }).to_string(),
    )
    .unwrap();
    chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
    root.completed("x");
    wait_until("its home to go", || homes(&root).is_empty().then_some(()));
}

#[test]
fn a_file_that_another_process_has_a_lease_on_is_tried_again() {
    use handoffd::spool::look::{Lease, give_up_lease, ignore_lease_signals, try_lease};
    ignore_lease_signals();
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let temporary = root.pending(".x.json.tmp");
    fs::write(&temporary, orders("exit 0").to_string()).unwrap();
    let file = File::open(&temporary).unwrap();
    if let Err(error) = try_lease(&file, Lease::Write) {
        skip(&format!("no lease can be had here ({error})"));
        return;
    }
    fs::rename(&temporary, root.pending("x.json")).unwrap();
    for n in 0..5 {
        root.assert_works(&format!("other-{n}"));
    }
    assert_eq!(root.states_of("x"), ["pending"]);
    give_up_lease(&file).unwrap();
    root.completed("x");
}

#[test]
fn a_document_with_very_many_values_is_refused_before_it_fills_the_memory() {
    let root = Root::new();
    let daemon = Daemon::start(&root);
    let many = format!("[{}0]", "{},".repeat(2_600_000));
    for n in 0..8 {
        let text = format!(r#"{{"target":{{"agent_id":"@fake"}},"input":{{"data":{many}}}}}"#);
        root.drop_bytes(&format!("x{n}.json"), text.as_bytes());
    }
    for n in 0..8 {
        let (record, code) = root.failed(&format!("x{n}"));
        assert_eq!(code, "SCHEMA_VALIDATION_FAILED");
        assert!(record.to_string().contains("at most 500000"), "{record:#}");
    }
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let most: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(most < 400_000, "{most} KiB");
}
