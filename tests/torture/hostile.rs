//! Entries that nobody should drop: in `pending/`, in `control/`, and where requests lead to.
//!
//! After each the daemon lives, another handoff completes, nothing outside of the root was read
//! or written, and the entry ended as the contract says.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, FileType, IFlags, mknodat};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::canary::Outside;
use crate::common::{Daemon, Root, is_alive, orders, wait_until, with};
use crate::report::{Row, times};

/// How an entry in a folder may end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// As it was, beside a notice.
    Rejected,
    /// As a record that failed, its fields kept.
    Refused,
    Completed,
    /// It stays, and is reported.
    Reported,
    /// It stays: a temporary file of somebody's.
    Left,
}
use End::{Completed, Left, Refused, Rejected, Reported};

type Make = fn(&Path, &Outside);

struct Entry {
    name: OsString,
    make: Make,
    ends: &'static [End],
}

fn entry(name: impl AsRef<OsStr>, make: Make, ends: &'static [End]) -> Entry {
    let name = name.as_ref().to_owned();
    Entry { name, make, ends }
}

fn bytes(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
}

fn good(path: &Path, _: &Outside) {
    bytes(path, orders("exit 0").to_string().as_bytes());
}

fn node(path: &Path, kind: FileType, device: u64) {
    mknodat(CWD, path, kind, 0o600.into(), device).unwrap();
}

fn sparse(path: &Path, size: u64) {
    File::create(path).unwrap().set_len(size).unwrap();
}

/// What is put into `pending/`.
#[rustfmt::skip]
fn pending_entries() -> Vec<Entry> {
    let mut list = vec![
        entry("empty.json", |p, _| bytes(p, b""), &[Rejected]),
        entry("broken.json", |p, _| bytes(p, b"{\"a\": oops}"), &[Rejected]),
        entry("truncated.json", |p, _| bytes(p, b"{\"target\": {\"agent_id\": \"@fa"), &[Rejected]),
        entry("scalar.json", |p, _| bytes(p, b"42"), &[Rejected]),
        entry("array.json", |p, _| bytes(p, b"[]"), &[Rejected]),
        entry("two.json", |p, _| bytes(p, b"{}{}"), &[Rejected]),
        entry("latin1.json", |p, _| bytes(p, b"{\"a\": \"\xe9\"}"), &[Rejected]),
        entry("utf16.json", |p, _| bytes(p, b"\xff\xfe{\0}\0"), &[Rejected]),
        entry("zeros.json", |p, _| bytes(p, &[0; 4096]), &[Rejected]),
        entry("nul.json", |p, _| bytes(p, b"{\"a\": \"\0\"}"), &[Rejected]),
        entry("twice.json", |p, _| bytes(p, b"{\"a\": 1, \"a\": 2}"), &[Rejected]),
        entry("deep.json", |p, _| bytes(p, &[vec![b'['; 200_000], vec![b']'; 200_000]].concat()), &[Rejected]),
        entry("deep-object.json", |p, _| bytes(p, "{\"a\":".repeat(100_000).as_bytes()), &[Rejected]),
        entry("deep2.yaml", |p, _| bytes(p, "- ".repeat(50_000).as_bytes()), &[Rejected]),
        entry("surrogate.json", |p, _| bytes(p, br#"{"target": {"agent_id": "\ud800"}}"#), &[Rejected]),
        entry("bomb.yaml", |p, _| {
            let mut lines = vec!["a0: &a0 [x]".to_owned()];
            lines.extend((1..12).map(|n| format!("a{n}: &a{n} [{}]", vec![format!("*a{}", n - 1); 10].join(","))));
            bytes(p, lines.join("\n").as_bytes());
        }, &[Rejected]),
        entry("tag.yaml", |p, _| bytes(p, b"!!python/object/apply:os.system [id]\n"), &[Rejected]),
        entry("words.md", |p, _| bytes(p, b"# only words"), &[Rejected]),
        entry("fence.md", |p, _| bytes(p, b"```json\n{\"a\": \n```"), &[Rejected]),
        entry("large.json", |p, _| bytes(p, &vec![b' '; (8 << 20) + 1]), &[Rejected]),
        entry("sparse.json", |p, _| sparse(p, 1 << 30), &[Rejected]),
        entry("endless.json", |p, _| sparse(p, 1 << 42), &[Rejected]),
        entry("long-text.json", |p, _| bytes(p, with(orders("exit 0"), json!({"x": "y".repeat(5 << 20)})).to_string().as_bytes()), &[Completed]),
        entry("to-file.json", |p, o| symlink(o.path("request.json"), p).unwrap(), &[Rejected]),
        entry("to-secret.md", |p, o| symlink(o.path("secret.txt"), p).unwrap(), &[Rejected]),
        entry("to-folder.json", |p, o| symlink(o.path("folder"), p).unwrap(), &[Rejected]),
        entry("to-passwd.json", |p, _| symlink("/etc/passwd", p).unwrap(), &[Rejected]),
        entry("to-zero.json", |p, _| symlink("/dev/zero", p).unwrap(), &[Rejected]),
        entry("dangling.json", |p, _| symlink("nowhere", p).unwrap(), &[Rejected]),
        entry("loop.json", |p, _| symlink("loop.json", p).unwrap(), &[Rejected]),
        entry("to-pending.json", |p, _| symlink(".", p).unwrap(), &[Rejected]),
        entry("to-in-progress.json", |p, _| symlink("../in-progress/x.json", p).unwrap(), &[Rejected]),
        entry("pipe.json", |p, _| node(p, FileType::Fifo, 0), &[Rejected]),
        entry("pipe2.md", |p, _| node(p, FileType::Fifo, 0), &[Rejected]),
        entry("socket.json", |p, _| drop(UnixListener::bind(p).unwrap()), &[Rejected]),
        entry("folder.json", |p, _| fs::create_dir(p).unwrap(), &[Reported]),
        entry("full.json", |p, _| { fs::create_dir(p).unwrap(); bytes(&p.join("x.json"), b"{}"); }, &[Reported]),
        entry("linked.json", |p, o| fs::hard_link(o.path("secret.txt"), p).unwrap(), &[Rejected]),
        entry("closed.json", |p, o| { good(p, o); chmod(p, 0); }, &[Completed, Rejected]),
        entry("open.json", |p, o| { good(p, o); chmod(p, 0o666); }, &[Completed]),
        entry("setuid.json", |p, o| { good(p, o); chmod(p, 0o6777); }, &[Completed]),
        entry("-rf.json", good, &[Completed]),
        entry("--help.json", good, &[Completed]),
        entry("a b.json", good, &[Rejected]),
        entry("new\nline.json", good, &[Rejected]),
        entry("esc\u{1b}[31m.json", good, &[Rejected]),
        entry("bidi\u{202e}.json", good, &[Rejected]),
        entry("\u{e9}.json", good, &[Rejected]),
        entry("$(id).json", good, &[Rejected]),
        entry("x~2.json", good, &[Rejected]),
        entry("*.json", good, &[Rejected]),
        entry("upper.JSON", good, &[Rejected]),
        entry("text.txt", good, &[Rejected]),
        entry("nothing", good, &[Rejected]),
        entry("...json", good, &[Left]),
        entry("half.json.part", good, &[Left]),
        entry("back.json~", good, &[Left]),
        entry(OsStr::from_bytes(b"bytes\xff\xfe.json"), good, &[Rejected]),
        entry("i".repeat(200) + ".json", good, &[Completed]),
        entry("i".repeat(201) + ".json", good, &[Rejected]),
        entry("n".repeat(250) + ".json", good, &[Rejected]),
    ];
    if rustix::process::geteuid().is_root() {
        list.push(entry("zero.json", |p, _| node(p, FileType::CharacterDevice, rustix::fs::makedev(1, 5)), &[Rejected]));
        list.push(entry("disk.json", |p, _| node(p, FileType::BlockDevice, rustix::fs::makedev(7, 250)), &[Rejected]));
    }
    list
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The id under which a name in `pending/` ends.
fn id_of(name: &OsStr) -> String {
    let text = name.to_str().unwrap_or("\u{fffd}");
    if let Some((stem, ext)) = text.rsplit_once('.') {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._@-".contains(c);
        let fits = ["json", "yaml", "yml", "md"].contains(&ext)
            && (1..=200).contains(&stem.len())
            && stem.chars().all(plain);
        if fits {
            return stem.to_owned();
        }
    }
    let digest = Sha256::digest(name.as_bytes());
    let hex: Vec<String> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("rejected-{}", hex[..6].concat())
}

fn end_of(root: &Root, name: &OsStr, place: &Path) -> Option<End> {
    let id = id_of(name);
    let there = fs::symlink_metadata(place).is_ok();
    let shown = name.to_string_lossy().escape_debug().to_string();
    if root.record_in("completed", &id).is_some() {
        Some(Completed)
    } else if let Some(record) = root.record_in("failed", &id) {
        assert!(record["error"]["message"].is_string(), "{id}: {record}");
        let bytes = root.path(&format!("handoffs/failed/{id}.rejected"));
        match fs::symlink_metadata(bytes) {
            Ok(_) if !there => Some(Rejected),
            Ok(_) => None,
            // The bytes follow their notice.
            Err(_) if record["dropped_as"].is_string() => None,
            Err(_) => Some(Refused),
        }
    } else if there
        && root
            .problems()
            .contains(json!(shown).to_string().trim_matches('"'))
    {
        Some(Reported)
    } else {
        None
    }
}

#[test]
fn whatever_is_dropped_ends_as_promised_and_stops_nobody() {
    let mut row = Row::new("hostile entries in pending/");
    for round in 0..times("hostile", 1, 20) {
        let (root, outside) = (Root::new(), Outside::new());
        let daemon = Daemon::start(&root);
        let mut left = Vec::new();
        for (number, Entry { name, make, ends }) in pending_entries().into_iter().enumerate() {
            let temporary = root.pending(".hostile.tmp");
            let place = root.pending("").join(&name);
            make(&temporary, &outside);
            fs::rename(&temporary, &place).unwrap();
            let end = if ends == [Left] {
                left.push(place.clone());
                Left
            } else {
                wait_until(&format!("{name:?} to end"), || end_of(&root, &name, &place))
            };
            let id = format!("good-{round}-{number}");
            root.assert_works(&id);
            let mut broken = Vec::new();
            if !ends.contains(&end) {
                broken.push(format!("{name:?} ended as {end:?}, not as {ends:?}"));
            }
            if !is_alive(daemon.pid()) {
                broken.push(format!("the daemon died of {name:?}"));
            }
            row.tried(broken);
        }
        for place in &left {
            assert!(place.exists(), "{} was taken", place.display());
        }
        // A link to a file outside is that file, also under its new name.
        let linked = root.path("handoffs/failed/linked.rejected");
        row.tried(outside.broken(root.dir(), &[&linked]));
        root.assert_audit_is_sound();
    }
    row.finish();
}

#[test]
fn a_file_that_can_not_be_moved_or_grows_for_ever_stops_nobody() {
    let mut row = Row::new("files that can't be moved, or never end");
    let root = Root::new();
    let daemon = Daemon::start(&root);
    let growing = AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = File::create(root.pending("grows.json")).unwrap();
            while growing.load(Ordering::SeqCst) {
                file.write_all(b"{\"and\": ").unwrap();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        for number in 0..10 {
            root.assert_works(&format!("beside-{number}"));
        }
        row.tried((!root.pending("grows.json").exists()).then(|| "it was taken".to_owned()));
        growing.store(false, Ordering::SeqCst);
    });
    root.failed("grows");
    // Both would be first in the queue, for a daemon that starts anew.
    daemon.terminate();
    let fixed = ["fixed.json", "broken.json"].map(|name| root.pending(name));
    fs::write(&fixed[0], orders("exit 0").to_string()).unwrap();
    fs::write(&fixed[1], "{").unwrap();
    let files = fixed.map(|path| File::open(path).unwrap());
    let marked = files.iter().try_for_each(|file| set_immutable(file, true));
    let daemon = Daemon::start(&root);
    if let Err(error) = marked {
        row.note(format!("no immutable files here: {error}"));
    } else {
        for number in 0..5 {
            root.assert_works(&format!("around-{number}"));
        }
        for name in ["fixed.json", "broken.json"] {
            let told = || {
                root.problems()
                    .contains(&format!("can't move handoffs/pending/{name}"))
                    .then_some(())
            };
            wait_until("both to be reported", told);
        }
        root.assert_works("after-both");
        for file in &files {
            set_immutable(file, false).unwrap();
        }
        row.tried(None);
    }
    drop(files);
    root.completed("fixed");
    root.failed("broken");
    wait_until("nothing to be reported", || {
        (!root.problems().contains("can't be moved")).then_some(())
    });
    row.tried((!is_alive(daemon.pid())).then(|| "the daemon died".to_owned()));
    row.finish();
}

fn set_immutable(file: impl AsFd, on: bool) -> rustix::io::Result<()> {
    let mut flags = rustix::fs::ioctl_getflags(&file)?;
    flags.set(IFlags::IMMUTABLE, on);
    rustix::fs::ioctl_setflags(&file, flags)
}

/// What is put into `control/`: all but the folder are set aside with the reason.
#[test]
fn whatever_is_put_into_control_is_set_aside_and_stops_nobody() {
    let mut row = Row::new("hostile entries in control/");
    let (root, outside) = (Root::new(), Outside::new());
    let daemon = Daemon::start(&root);
    let command: Make = |p, _| bytes(p, br#"{"action": "cancel", "handoff_id": "no-such"}"#);
    let entries = [
        entry("empty.json", |p, _| bytes(p, b""), &[Rejected]),
        entry("broken.json", |p, _| bytes(p, b"{"), &[Rejected]),
        entry("sparse.json", |p, _| sparse(p, 1 << 30), &[Rejected]),
        entry(
            "deep.json",
            |p, _| bytes(p, "[".repeat(200_000).as_bytes()),
            &[Rejected],
        ),
        entry(
            "twice.json",
            |p, _| bytes(p, br#"{"action": "cancel", "action": "retry"}"#),
            &[Rejected],
        ),
        entry(
            "path.json",
            |p, _| bytes(p, br#"{"action": "cancel", "handoff_id": "../../x"}"#),
            &[Rejected],
        ),
        entry(
            "to-file.json",
            |p, o| symlink(o.path("request.json"), p).unwrap(),
            &[Rejected],
        ),
        entry(
            "to-passwd.json",
            |p, _| symlink("/etc/passwd", p).unwrap(),
            &[Rejected],
        ),
        entry(
            "to-zero.json",
            |p, _| symlink("/dev/zero", p).unwrap(),
            &[Rejected],
        ),
        entry(
            "dangling.json",
            |p, _| symlink("nowhere", p).unwrap(),
            &[Rejected],
        ),
        entry(
            "loop.json",
            |p, _| symlink("loop.json", p).unwrap(),
            &[Rejected],
        ),
        entry("pipe.json", |p, _| node(p, FileType::Fifo, 0), &[Rejected]),
        entry(
            "socket.json",
            |p, _| drop(UnixListener::bind(p).unwrap()),
            &[Rejected],
        ),
        entry(
            "linked.json",
            |p, o| fs::hard_link(o.path("secret.txt"), p).unwrap(),
            &[Rejected],
        ),
        entry("unknown.json", command, &[Rejected]),
        entry("new\nline.json", command, &[Rejected]),
        entry(OsStr::from_bytes(b"\xff.json"), command, &[Rejected]),
        entry("c".repeat(250) + ".json", command, &[Rejected]),
        entry("-rf.json", command, &[Rejected]),
        entry("folder.json", |p, _| fs::create_dir(p).unwrap(), &[Left]),
        entry("half.json.part", command, &[Left]),
    ];
    let mut refused = 0;
    for (number, Entry { name, make, ends }) in entries.into_iter().enumerate() {
        let temporary = root.path("handoffs/control/.hostile.tmp");
        let place = root.path("handoffs/control").join(&name);
        make(&temporary, &outside);
        fs::rename(&temporary, &place).unwrap();
        if ends == [Rejected] {
            refused += 1;
            wait_until(&format!("{name:?} to be set aside"), || {
                let names = root.names("handoffs/control/rejected");
                let reasons = names
                    .iter()
                    .filter(|it| it.ends_with(".reason.json"))
                    .count();
                (reasons == refused
                    && names.len() == 2 * refused
                    && fs::symlink_metadata(&place).is_err())
                .then_some(())
            });
        }
        root.assert_works(&format!("good-{number}"));
        let taken = ends == [Left] && fs::symlink_metadata(&place).is_err();
        row.tried(taken.then(|| format!("{name:?} was taken")));
    }
    let linked = root.path("handoffs/control/rejected/linked.json");
    row.tried(outside.broken(root.dir(), &[&linked]));
    row.tried((!is_alive(daemon.pid())).then(|| "the daemon died".to_owned()));
    row.finish();
}

/// Where requests lead to: schemas, artifacts, states of tasks.
#[test]
#[rustfmt::skip]
fn whatever_stands_where_requests_lead_to_is_not_followed() {
    let mut row = Row::new("hostile targets of requests");
    let (root, outside) = (Root::with("defaults.dependency_wait = '100ms'\ndefaults.retry.max_retries = 0"), Outside::new());
    for folder in ["schemas", "artifacts", "context/state"] {
        fs::create_dir_all(root.path(folder)).unwrap();
    }
    symlink(outside.path("schema.json"), root.path("schemas/link.json")).unwrap();
    symlink(outside.dir(), root.path("schemas/out")).unwrap();
    symlink("/dev/zero", root.path("schemas/zero.json")).unwrap();
    node(&root.path("schemas/pipe.json"), FileType::Fifo, 0);
    sparse(&root.path("schemas/sparse.json"), 1 << 30);
    fs::create_dir(root.path("schemas/folder.json")).unwrap();
    bytes(&root.path("schemas/broken.json"), b"{");
    bytes(&root.path("schemas/ref-file.json"), format!(r#"{{"$ref": "file://{}"}}"#, outside.path("schema.json").display()).as_bytes());
    bytes(&root.path("schemas/ref-up.json"), br#"{"$ref": "../../../../etc/passwd"}"#);
    bytes(&root.path("schemas/ref-net.json"), br#"{"$ref": "http://localhost:1/x"}"#);
    bytes(&root.path("schemas/self.json"), br##"{"$ref": "#"}"##);
    symlink(outside.path("folder"), root.path("artifacts/out")).unwrap();
    symlink(outside.path("secret.txt"), root.path("artifacts/secret.txt")).unwrap();
    node(&root.path("artifacts/pipe.txt"), FileType::Fifo, 0);
    symlink(outside.path("state.json"), root.path("context/state/linked.json")).unwrap();
    symlink("/dev/zero", root.path("context/state/zero.json")).unwrap();
    node(&root.path("context/state/pipe.json"), FileType::Fifo, 0);
    sparse(&root.path("context/state/sparse.json"), 1 << 30);
    let daemon = Daemon::start(&root);
    let schema = |name: &str| with(orders("exit 0"), json!({"input": {"schema": name, "data": {"sh": "exit 0"}}}));
    let destination = |path: &str| with(orders("echo text > \"$HANDOFF_ARTIFACT\""), json!({"expected_output": {"destination": path}}));
    let needs = |path: &str| with(orders("exit 0"), json!({"requires_artifacts": [path]}));
    let task = |id: &str| with(orders("exit 0"), json!({"context": {"task_id": id}}));
    let listed = |path: &str| orders(&format!("result '{{\"status\": \"complete\", \"artifacts\": [\"{path}\"]}}'"));
    let mut cases: Vec<(String, Value, bool)> = Vec::new();
    for name in ["link.json", "out/schema.json", "zero.json", "pipe.json", "sparse.json", "folder.json", "broken.json", "ref-file.json", "ref-up.json", "ref-net.json", "../handoffd.toml", "/etc/passwd", "..", "out/../../x", "no-such.json"] {
        cases.push((format!("schema {name}"), schema(name), false));
    }
    cases.push(("schema self".into(), schema("self.json"), true));
    for path in ["../out.txt", "/tmp/out.txt", "artifacts/../../out.txt", "artifacts/out/new.txt", "artifacts/out/deep/new.txt", "artifacts/secret.txt", "artifacts/pipe.txt", "artifacts/registry.jsonl", "handoffs/pending/x.json", "handoffd.toml", "artifacts", "artifacts/", "artifacts/a\nb", "artifacts/./x", "artifacts/{handoff_id}/../../x"] {
        cases.push((format!("destination {path}"), destination(path), false));
    }
    for path in ["artifacts/out", "artifacts/secret.txt", "artifacts/pipe.txt", "../x", "/etc/passwd"] {
        cases.push((format!("needs {path}"), needs(path), false));
        cases.push((format!("listed {path}"), listed(path), false));
    }
    for id in ["linked", "zero", "pipe", "sparse", "../../x", "a/b", "..", "", "current"] {
        cases.push((format!("task {id}"), task(id), true));
    }
    for (number, (what, request, may_pass)) in cases.into_iter().enumerate() {
        let id = format!("t{number}");
        root.drop_request(&id, &request);
        let completed = wait_until(&format!("{what} to end"), || {
            let ended = |state: &str| root.record_in(state, &id).map(|_| state == "completed");
            ended("completed").or_else(|| ended("failed"))
        });
        let passed = completed && !may_pass;
        root.assert_works(&format!("good-{number}"));
        row.tried(passed.then(|| format!("{what} was completed")));
    }
    row.tried(outside.broken(root.dir(), &[]));
    row.tried((!is_alive(daemon.pid())).then(|| "the daemon died".to_owned()));
    row.finish();
}
