//! The files that a service manager reads: well-formed, taken by systemd, in step with each other.
//!
//! systemd's own check is asked where it is installed, and skipped with a word where it is not.
//! The binary of the test stands in for the installed one, so that it is found.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const BINARY: &str = env!("CARGO_BIN_EXE_handoffd");
const UNITS: [&str; 3] = [
    "systemd/handoffd.service",
    "systemd/handoffd@.service",
    "systemd/user/handoffd.service",
];
const PROFILES: [&str; 2] = [
    "systemd/profiles/offline.conf",
    "systemd/profiles/agents.conf",
];
const PLIST: &str = "launchd/com.handoffd.plist";

fn shipped(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The settings of a unit, and a complaint about every line that is none.
fn settings(name: &str, text: &str) -> Vec<(String, String)> {
    let mut section = None;
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(title) = line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            assert!(
                ["Unit", "Service", "Install"].contains(&title),
                "{name}:{}: {line}",
                at + 1
            );
            section = Some(title);
            continue;
        }
        let (key, value) = line
            .split_once('=')
            .unwrap_or_else(|| panic!("{name}:{}: {line}", at + 1));
        assert!(section.is_some(), "{name}:{}: before a section", at + 1);
        assert!(
            !key.is_empty() && key.chars().all(|it| it.is_ascii_alphanumeric()),
            "{name}:{}: {line}",
            at + 1
        );
        found.push((key.to_owned(), value.to_owned()));
    }
    found
}

/// Opened and closed, in order: all that a file which we write ourselves can have wrong.
fn check_xml(name: &str, text: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        assert!(!rest[..start].contains('>'), "{name}: a stray >");
        rest = &rest[start..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            let end = comment.find("--").expect("a comment ends");
            assert!(comment[end..].starts_with("-->"), "{name}: -- in a comment");
            rest = &comment[end + 3..];
            continue;
        }
        let end = rest.find('>').expect("a tag ends");
        let tag = &rest[1..end];
        rest = &rest[end + 1..];
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "{name}");
        } else if !tag.starts_with(['?', '!']) && !tag.ends_with('/') {
            open.push(tag.split(' ').next().unwrap());
        }
    }
    assert!(open.is_empty(), "{name}: left open: {open:?}");
}

fn run(program: &str, args: &[&str]) -> Option<Output> {
    let output = Command::new(program)
        .args(args)
        // A person's manager has one, and a machine without sessions none.
        .env("XDG_RUNTIME_DIR", env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::null())
        .output();
    if output.is_err() {
        println!("skipped: {program} is not installed");
    }
    output.ok()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Asks systemd, which must have nothing to say.
fn verify(unit: &Path, user: bool) {
    let unit = unit.to_str().unwrap();
    let mut args = vec!["verify", "--man=no", "--recursive-errors=yes", unit];
    if user {
        args.insert(1, "--user");
    }
    let Some(output) = run("systemd-analyze", &args) else {
        return;
    };
    let said = text(&output.stderr);
    assert!(output.status.success(), "{unit}: {said}");
}

/// A shipped unit with this test's binary in it, and these profiles beside it.
fn installed(folder: &Path, unit: &str, profile: Option<&str>) -> PathBuf {
    let name = Path::new(unit).file_name().unwrap().to_str().unwrap();
    let path = folder.join(name);
    let text = shipped(unit);
    assert!(text.contains("ExecStart=/usr/bin/handoffd "), "{unit}");
    let text = text.replace(
        "ExecStart=/usr/bin/handoffd",
        &format!("ExecStart={BINARY}"),
    );
    fs::write(&path, text).unwrap();
    if let Some(profile) = profile {
        let beside = folder.join(format!("{name}.d"));
        fs::create_dir_all(&beside).unwrap();
        fs::write(beside.join("50-profile.conf"), shipped(profile)).unwrap();
    }
    path
}

#[test]
fn every_line_of_a_unit_is_a_section_a_comment_or_a_setting() {
    for name in UNITS.iter().chain(&PROFILES) {
        assert!(!settings(name, &shipped(name)).is_empty(), "{name}");
    }
}

#[test]
fn all_units_leave_attempts_alone_and_answer_the_watchdog() {
    for name in UNITS {
        let settings = settings(name, &shipped(name));
        for (key, value) in [
            ("Type", "notify"),
            ("KillMode", "process"),
            ("Delegate", "yes"),
            ("WatchdogSec", "60"),
            ("TimeoutStopSec", "75"),
            ("RestartPreventExitStatus", "2"),
        ] {
            let wanted = (key.to_owned(), value.to_owned());
            assert!(settings.contains(&wanted), "{name}: {key}={value}");
        }
        for (key, _) in settings {
            assert!(
                !["PrivateTmp", "PrivateUsers", "ProcSubset", "RemoveIPC"].contains(&key.as_str()),
                "{name}: {key} harms adopted attempts"
            );
        }
    }
}

#[test]
fn the_template_differs_from_the_unit_only_in_its_place() {
    let one = settings(UNITS[0], &shipped(UNITS[0]));
    let many = settings(UNITS[1], &shipped(UNITS[1]));
    assert_eq!(one.len(), many.len());
    for ((key, value), (other_key, other)) in one.iter().zip(&many) {
        assert_eq!(key, other_key);
        if key != "Description" {
            let other = other.replace("/%i", "").replace("-%i", "");
            assert_eq!(value, &other, "{key}");
        }
    }
}

#[test]
fn each_root_of_the_template_has_a_user_of_its_own() {
    let template = settings(UNITS[1], &shipped(UNITS[1]));
    for (key, value) in [("User", "handoffd-%i"), ("Group", "handoffd-%i")] {
        assert!(
            template.contains(&(key.to_owned(), value.to_owned())),
            "{key}"
        );
    }
    // These come with a user that the system gives to somebody else after a stop.
    assert!(!template.iter().any(|(key, _)| key == "DynamicUser"));
}

#[test]
fn limits_and_the_fence_to_the_cloud_are_on() {
    for (name, key, value) in [
        (UNITS[0], "TasksMax", "4096"),
        (UNITS[0], "MemoryHigh", "80%"),
        (PROFILES[0], "OOMPolicy", "continue"),
        (PROFILES[1], "IPAddressDeny", "link-local"),
    ] {
        let found = settings(name, &shipped(name));
        assert!(
            found.contains(&(key.to_owned(), value.to_owned())),
            "{name}: {key}"
        );
    }
}

/// With a specialist that has a user of its own, the unit is one that can do that.
#[test]
fn a_unit_is_made_for_the_users_of_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[specialists.\"@a\"]\ncommand = [\"true\"]\nuser = \"nobody\"\n";
    fs::write(folder.path().join("handoffd.toml"), config).unwrap();
    let unit = printed(folder.path(), &["systemd"]);
    let found = settings("printed", &unit);
    let value = |wanted: &str| {
        let found = found.iter().find(|(key, _)| key == wanted);
        found.map(|(_, value)| value.clone()).unwrap()
    };
    assert_eq!(value("User"), "root");
    assert!(
        value("CapabilityBoundingSet").contains("CAP_SETUID"),
        "{unit}"
    );
    let path = folder.path().join("handoffd.service");
    fs::write(&path, unit).unwrap();
    verify(&path, false);
    let output = Command::new(BINARY)
        .args(["service", "systemd", "--user", "--root"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn systemd_takes_the_units() {
    let folder = tempfile::tempdir().unwrap();
    verify(&installed(folder.path(), UNITS[0], None), false);
    let template = installed(folder.path(), UNITS[1], None);
    verify(&template.with_file_name("handoffd@a-b.service"), false);
    for profile in PROFILES {
        verify(&installed(folder.path(), UNITS[0], Some(profile)), false);
    }
    let person = tempfile::tempdir().unwrap();
    verify(&installed(person.path(), UNITS[2], None), true);
}

/// No more exposed than this, in tenths, says systemd; 100 is everything.
#[test]
fn the_profiles_expose_little() {
    for (profile, most) in [(PROFILES[0], 10), (PROFILES[1], 20)] {
        let folder = tempfile::tempdir().unwrap();
        let unit = installed(folder.path(), UNITS[0], Some(profile));
        let most = format!("--threshold={most}");
        let unit = unit.to_str().unwrap();
        let args = ["security", "--no-pager", "--offline=true", &most, unit];
        let Some(output) = run("systemd-analyze", &args) else {
            return;
        };
        if text(&output.stderr).contains("unrecognized option") {
            println!("skipped: systemd-analyze is older than 250");
            return;
        }
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{profile}: {said}");
    }
}

#[test]
fn the_property_list_is_well_formed() {
    check_xml(PLIST, &shipped(PLIST));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PLIST);
    check_with_python(&path);
}

fn check_with_python(path: &Path) {
    let program = "import plistlib, sys; plistlib.load(open(sys.argv[1], 'rb'))";
    if let Some(output) = run("python3", &["-c", program, path.to_str().unwrap()]) {
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}

/// What `handoffd service` prints for a root with an awkward name.
fn printed(root: &Path, args: &[&str]) -> String {
    let output = Command::new(BINARY)
        .arg("service")
        .args(args)
        .arg("--root")
        .arg(root)
        .output()
        .unwrap();
    let talk = text(&output.stderr);
    assert!(output.status.success(), "{talk}");
    let lines = talk.lines().filter(|line| line.starts_with("  "));
    assert_eq!(lines.count(), 3, "three lines install it:\n{talk}");
    text(&output.stdout)
}

#[test]
fn a_printed_unit_is_taken_too() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("50% of \"my\" $HOME\\roots");
    fs::create_dir(&root).unwrap();
    for (args, user) in [
        (&["systemd"][..], false),
        (&["systemd", "--user"][..], true),
    ] {
        let unit = printed(&root, args);
        let found = settings("printed", &unit);
        assert_eq!(found.iter().any(|(key, _)| key == "User"), !user);
        let path = folder.path().join("handoffd.service");
        fs::write(&path, unit).unwrap();
        verify(&path, user);
    }
}

#[test]
fn a_printed_property_list_is_well_formed_too() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("<a> & b");
    fs::create_dir(&root).unwrap();
    for args in [&["launchd"][..], &["launchd", "--user"][..]] {
        let plist = printed(&root, args);
        check_xml("printed", &plist);
        assert!(plist.contains("/&lt;a&gt; &amp; b</string>"), "{plist}");
        let path = folder.path().join("com.handoffd.plist");
        fs::write(&path, plist).unwrap();
        check_with_python(&path);
    }
}

#[test]
fn a_root_that_a_unit_can_not_name_is_wrong_usage() {
    let output = Command::new(BINARY)
        .args(["service", "systemd", "--root", "/tmp/a\nUser=root"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
}

/// Stands in for the service manager.
struct Manager {
    socket: UnixDatagram,
    heard: String,
}

impl Manager {
    /// Waits until something was said that contains this.
    fn hears(&mut self, wanted: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.heard.contains(wanted) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no {wanted} in:\n{}", self.heard);
            self.socket.set_read_timeout(Some(left)).unwrap();
            let mut word = [0; 4096];
            if let Ok(length) = self.socket.recv(&mut word) {
                self.heard.push_str(&text(&word[..length]));
            }
        }
        self.heard.clear();
    }
}

#[test]
fn the_manager_hears_of_start_reload_life_and_stop() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let init = Command::new(BINARY).arg("init").arg(&root).output();
    assert!(init.unwrap().status.success());
    let at = folder.path().join("notify");
    let mut manager = Manager {
        socket: UnixDatagram::bind(&at).unwrap(),
        heard: String::new(),
    };
    let mut daemon = Command::new(BINARY)
        .args(["run", "--root"])
        .arg(&root)
        .env("NOTIFY_SOCKET", &at)
        .env("WATCHDOG_USEC", "200000")
        .env_remove("WATCHDOG_PID")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = rustix::process::Pid::from_child(&daemon);
    manager.hears("READY=1\nSTATUS=0 running, 0 waiting, 0 queued\n");
    manager.hears("WATCHDOG=1\n");
    manager.hears("WATCHDOG=1\n");
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    manager.hears("RELOADING=1\nMONOTONIC_USEC=");
    manager.hears("READY=1\nSTATUS=0 running");
    fs::write(root.join("handoffd.toml"), "nonsense = 1\n").unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    manager.hears("READY=1\nSTATUS=the new configuration is broken; keeping the old one");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    manager.hears("STOPPING=1\n");
    assert!(daemon.wait().unwrap().success());
}
