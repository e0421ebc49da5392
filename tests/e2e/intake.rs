//! What nobody should drop but somebody will: bytes, files and names that are no request.

use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::common::{Daemon, Root, orders, text, wait_until};

/// The bytes of a rejected file. They follow their notice.
fn kept(root: &Root, id: &str) -> Vec<u8> {
    let path = root.path(&format!("handoffs/failed/{id}.rejected"));
    wait_until(&format!("the bytes of {id}"), || fs::read(&path).ok())
}

/// Drops these bytes and expects them, untouched, in `failed/`; returns the message.
fn rejected(root: &Root, name: &str, bytes: &[u8]) -> String {
    root.drop_bytes(name, bytes);
    let id = name.rsplit_once('.').unwrap().0;
    let (notice, code) = root.failed(id);
    assert_eq!(code, "SCHEMA_VALIDATION_FAILED", "{id}");
    assert_eq!(notice["status"], "failed");
    assert!(!notice["recovery_actions"].as_array().unwrap().is_empty());
    let kept = kept(root, id);
    assert!(kept == bytes, "{id}: the bytes are not what was dropped");
    assert!(!root.pending(name).exists());
    text(&notice["error"]["message"])
}

/// Drops a document that parses and expects it refused with its fields kept.
fn refused(root: &Root, id: &str, request: &str) -> String {
    root.drop_bytes(&format!("{id}.json"), request.as_bytes());
    let (record, code) = root.failed(id);
    assert_eq!(code, "SCHEMA_VALIDATION_FAILED", "{id}");
    assert_eq!(record["kept"], "as it was", "{id}: {record:#}");
    assert_eq!(record["handoffd"]["attempts"], json!([]));
    assert!(
        !root
            .path(&format!("handoffs/failed/{id}.rejected"))
            .exists()
    );
    text(&record["error"]["message"])
}

#[test]
fn bytes_that_are_no_document_are_set_aside_and_told_where() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let message = rejected(&root, "broken.json", b"{\n  \"a\": 1,\n  \"b\": oops\n}\n");
    assert!(
        message.contains("line 3") && message.contains("column 8"),
        "{message}"
    );
    let message = rejected(&root, "cut.json", b"{\"target\": {\"agent_id\": \"@fa");
    assert!(
        message.contains("line 1") && message.contains("column"),
        "{message}"
    );
    let message = rejected(&root, "double.json", b"{\"a\": 1,\n\"a\": 2}");
    assert!(
        message.contains("\"a\"") || message.contains("`a`"),
        "{message}"
    );
    let message = rejected(&root, "yaml.yaml", b"a: b\n  c: [\n");
    assert!(message.contains("line"), "{message}");
    rejected(&root, "empty.json", b"");
    rejected(&root, "blank.yaml", b"\n \n");
    rejected(&root, "array.json", b"[1, 2]");
    rejected(&root, "number.json", b"42");
    rejected(&root, "latin1.json", b"{\"a\": \"\xe9t\xe9\"}");
    rejected(&root, "zeros.json", &[0; 64]);
    rejected(&root, "two.json", b"{} {}");
    rejected(&root, "words.md", b"# Only words\n");
    let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    let deep = [
        br#"{"target":{"agent_id":"@fake"},"x":"#.as_slice(),
        &deep,
        b"}",
    ]
    .concat();
    rejected(&root, "deep.json", &deep);
    rejected(&root, "deep-too.yaml", &b"- ".repeat(100_000));
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for n in 1..12 {
        let again = vec![format!("*a{}", n - 1); 10].join(",");
        writeln!(bomb, "a{n}: &a{n} [{again}]").unwrap();
    }
    rejected(&root, "bomb.yaml", bomb.as_bytes());
    root.assert_works("good");
    root.assert_audit_is_sound();
}

#[test]
fn fields_of_wrong_types_are_named_and_the_document_is_kept() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let cases = [
        ("target", r#""target": "fake""#),
        ("target.agent_id", r#""target": {"agent_id": 7}"#),
        ("target.agent_id", r#""target": {"agent_id": ""}"#),
        ("timeout_seconds", r#""timeout_seconds": -1"#),
        ("timeout_seconds", r#""timeout_seconds": 0"#),
        ("timeout_seconds", r#""timeout_seconds": 1e400"#),
        ("timeout_seconds", r#""timeout_seconds": "soon""#),
        ("priority", r#""priority": "asap""#),
        ("retry_policy", r#""retry_policy": []"#),
        (
            "retry_policy.max_retries",
            r#""retry_policy": {"max_retries": 1.5}"#,
        ),
        (
            "retry_policy.max_retries",
            r#""retry_policy": {"max_retries": 99999999999999999999}"#,
        ),
        (
            "retry_policy.retry_delay_seconds",
            r#""retry_policy": {"retry_delay_seconds": -5}"#,
        ),
        (
            "retry_policy.backoff_multiplier",
            r#""retry_policy": {"backoff_multiplier": "2"}"#,
        ),
        ("not_before", r#""not_before": "tomorrow""#),
        ("depends_on", r#""depends_on": {"a": 1}"#),
        ("depends_on", r#""depends_on": ["../x"]"#),
        ("input", r#""input": 3"#),
        ("handoff_id", r#""handoff_id": 3"#),
    ];
    for (n, (field, wrong)) in cases.iter().enumerate() {
        let target = r#""target": {"agent_id": "@fake"}, "#;
        let target = if wrong.contains("target") { "" } else { target };
        let message = refused(
            &root,
            &format!("case-{n}"),
            &format!(r#"{{"kept": "as it was", {target}{wrong}}}"#),
        );
        assert!(message.contains(field), "{wrong}: {message}");
    }
    let message = refused(&root, "nothing", r#"{"kept": "as it was"}"#);
    assert!(message.contains("target"), "{message}");
    root.assert_works("good");
}

#[test]
fn what_is_no_plain_file_is_moved_and_never_opened() {
    let root = Root::with("daemon.max_request_size = '1KiB'");
    let _daemon = Daemon::start(&root);
    let outside = root.path("outside.json");
    fs::write(&outside, orders("mark ran").to_string()).unwrap();
    symlink(&outside, root.pending("link.json")).unwrap();
    symlink("/dev/zero", root.pending("zero.json")).unwrap();
    symlink("nowhere", root.pending("dangling.json")).unwrap();
    let fifo = root.pending("pipe.json");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let _socket = UnixListener::bind(root.pending("socket.json")).unwrap();
    for (id, word) in [
        ("link", "link"),
        ("zero", "link"),
        ("dangling", "link"),
        ("pipe", "pipe"),
        ("socket", "socket"),
    ] {
        let (notice, code) = root.failed(id);
        assert_eq!(code, "SCHEMA_VALIDATION_FAILED");
        assert!(text(&notice["error"]["message"]).contains(word));
        let kept = root.path(&format!("handoffs/failed/{id}.rejected"));
        wait_until(id, || fs::symlink_metadata(&kept).ok());
    }
    let link = fs::read_link(root.path("handoffs/failed/link.rejected")).unwrap();
    assert_eq!(link, outside, "moved, not followed");
    assert!(outside.exists() && !root.path("marks/link.ran").exists());

    let large = format!("{{\"x\": \"{}\"}}", "y".repeat(2000));
    let message = rejected(&root, "large.json", large.as_bytes());
    assert!(message.contains("max_request_size"), "{message}");

    // A hard link is a plain file: it runs, and its other name is not written through.
    let twin = root.path("twin.json");
    let bytes = orders("exit 0").to_string();
    fs::write(&twin, &bytes).unwrap();
    fs::hard_link(&twin, root.pending("hard.json")).unwrap();
    root.completed("hard");
    assert_eq!(fs::read_to_string(&twin).unwrap(), bytes);
    root.assert_works("good");
}

#[test]
fn a_folder_in_pending_is_left_alone_and_reported() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let folder = root.pending("folder.json");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("inner.json"), orders("exit 0").to_string()).unwrap();
    wait_until("the report", || {
        root.problems().contains("folder.json").then_some(())
    });
    root.assert_works("good");
    assert!(folder.join("inner.json").exists());
    fs::remove_dir_all(&folder).unwrap();
    wait_until("it is forgotten", || {
        (root.problems() == "[]").then_some(())
    });
}

fn rejected_id(name: &[u8]) -> String {
    let digest = Sha256::digest(name);
    let number = digest[..6]
        .iter()
        .fold(0u64, |n, byte| n << 8 | u64::from(*byte));
    format!("rejected-{number:012x}")
}

#[test]
fn names_that_can_t_be_ids_are_refused_under_their_hash() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let long = [b"x".repeat(201), b".json".to_vec()].concat();
    let names: [&[u8]; 12] = [
        b"two words.json",
        b"new\nline.json",
        b"\xff\xfe.json",
        b"stem",
        b"notes.txt",
        b"UPPER.JSON",
        b"x~2.json",
        b"semi;colon.json",
        b"$(touch x).json",
        b"-rf *.json",
        b"caf\xc3\xa9.json",
        &long,
    ];
    let bytes = orders("mark ran").to_string();
    for name in names {
        let path = root.path("handoffs/pending").join(OsStr::from_bytes(name));
        fs::write(path, &bytes).unwrap();
    }
    for name in names {
        let id = rejected_id(name);
        let (notice, code) = root.failed(&id);
        assert_eq!(
            code,
            "SCHEMA_VALIDATION_FAILED",
            "{:?}",
            OsStr::from_bytes(name)
        );
        assert_eq!(notice["handoffd"]["attempts"], json!([]));
        assert!(kept(&root, &id) == bytes.as_bytes());
    }
    // The same bad name again: numbered, like any id that is taken.
    fs::write(root.pending("notes.txt"), "again").unwrap();
    root.failed(&format!("{}~2", rejected_id(b"notes.txt")));
    // Odd, but ids all the same.
    for id in ["a..b", "-rf", "@x", "x.json"] {
        root.drop_request(id, &orders("exit 0"));
        root.completed(id);
    }
    assert!(root.names("marks").is_empty(), "none of the refused ran");
    root.assert_works(&"y".repeat(200));
}

#[test]
fn producers_temporary_files_are_left_alone() {
    let root = Root::new();
    let _daemon = Daemon::start(&root);
    let names = [
        ".hidden.json",
        "x.json.tmp",
        "x.part",
        ".x.json.swp",
        "x.swp",
        "x.json~",
    ];
    for name in names {
        fs::write(root.pending(name), orders("mark ran").to_string()).unwrap();
    }
    root.assert_works("one");
    root.assert_works("two");
    for name in names {
        assert!(root.pending(name).exists(), "{name}");
    }
    assert!(root.names("handoffs/failed").is_empty());
    assert!(!root.path("marks/x.ran").exists());
}

#[test]
fn a_file_that_is_heard_of_again_and_again_is_refused_once() {
    let root = Root::with("daemon.settle = \"1ms\"");
    let _daemon = Daemon::start(&root);
    for n in 0..20 {
        let path = root.pending(&format!("b{n}.json"));
        root.drop_bytes(&format!("b{n}.json"), b"{ no request");
        // Each close is heard, while nothing changes.
        while fs::OpenOptions::new().append(true).open(&path).is_ok() {}
    }
    for n in 0..20 {
        kept(&root, &format!("b{n}"));
    }
    for n in 0..20 {
        let id = format!("b{n}");
        let told = root.cli(&["audit", &id, "--json"]).stdout;
        let refused = String::from_utf8_lossy(&told)
            .matches("\"refused\"")
            .count();
        assert_eq!(refused, 1, "{id}");
    }
}
