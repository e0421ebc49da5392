//! Attempts that leave their fence: their processes move themselves into another cgroup, leave their
//! session, clear their environment and lose their parent. They are ended like all others.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::common::{Daemon, Root, ask, is_alive, kill, skip, wait_until};
use rustix::process::Signal;

/// The cgroup that this process is in.
fn own_cgroup() -> std::io::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let mut mounts = mounts.lines().filter(|line| line.contains(" - cgroup2 "));
    let mount = mounts.find_map(|line| line.split(' ').nth(4));
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let (Some(mount), Some(own)) = (mount, own) else {
        return Err(std::io::Error::other("no cgroup v2 is mounted"));
    };
    Ok(Path::new(mount).join(own))
}

/// A cgroup beside the keeper's, for attempts to move to.
struct Elsewhere(PathBuf);

impl Elsewhere {
    /// None where this machine has no cgroups to make, which it says.
    fn make(name: &str) -> Option<Self> {
        let made = own_cgroup().and_then(|own| {
            let dir = own.join(format!("elsewhere-{name}-{}", std::process::id()));
            fs::create_dir(&dir)?;
            let procs = dir.join("cgroup.procs");
            fs::File::options().write(true).open(procs)?;
            Ok(Self(dir))
        });
        made.inspect_err(|error| skip(&format!("no cgroup can be made here ({error})")))
            .ok()
    }

    /// A root whose `@x` runs this script, with `$out` as the file to move by.
    fn root(&self, script: &str) -> Root {
        let out = self.0.join("cgroup.procs");
        let script = format!("out='{}'\n{script}", out.display());
        Root::team("defaults.retry.max_retries = 0", &[("x", &script)])
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        for pid in fs::read_to_string(self.0.join("cgroup.procs"))
            .unwrap_or_default()
            .lines()
        {
            kill(pid.parse().unwrap(), Signal::KILL);
        }
        wait_until("the cgroup's removal", || fs::remove_dir(&self.0).ok());
    }
}

/// Leaves a process that nothing but its descent ties to its attempt.
const RUNS_AWAY: &str = r#"
far="$HANDOFF_ROOT/marks/$HANDOFF_ID.far"
env -i PATH="$PATH" setsid sh -c 'echo $$ > "$1" || exit; sh -c "
    trap \"\" TERM HUP
    echo \$\$ > $2.tmp; mv $2.tmp $2
    while :; do sleep 1; done" &' sh "$out" "$far" >/dev/null 2>&1 </dev/null
until [ -e "$far" ]; do sleep 0.02; done
"#;

#[test]
fn a_process_that_moved_to_another_cgroup_does_not_outlive_its_attempt() {
    let Some(elsewhere) = Elsewhere::make("left") else {
        return;
    };
    for cgroups in [true, false] {
        let root = elsewhere.root(RUNS_AWAY);
        let start = if cgroups {
            Daemon::start
        } else {
            Daemon::start_without_cgroups
        };
        let daemon = start(&root);
        root.drop_request("a", &ask("x"));
        root.completed("a");
        let far = root.pid_mark("a.far");
        assert!(!is_alive(far), "{far} outlived its attempt");
        let checked = root.cli(&["check", "--deep"]);
        let said = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(checked.status.success(), "{said}");
        assert_eq!(daemon.terminate(), Some(0));
    }
}

#[test]
fn a_main_process_that_moved_to_another_cgroup_can_be_cancelled_and_timed_out() {
    let Some(elsewhere) = Elsewhere::make("main") else {
        return;
    };
    let leaves = "echo $$ > \"$out\" || exit 1\ntrap '' TERM\nmark up\nwhile :; do sleep 1; done";
    let root = elsewhere.root(leaves);
    let _daemon = Daemon::start(&root);
    root.drop_request("a", &ask("x"));
    let main = |mark: &str| -> i32 {
        let words = root.mark(mark);
        words.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let pid = main("a.up");
    root.answer("cancel", "a", json!({}));
    assert_eq!(root.failed("a").1, "CANCELLED");
    assert!(!is_alive(pid));
    let mut hasty = ask("x");
    hasty["timeout_seconds"] = json!(1);
    root.drop_request("b", &hasty);
    assert_eq!(root.failed("b").1, "TIMEOUT");
    assert!(!is_alive(main("b.up")));
}

#[test]
fn another_attempt_that_runs_keeps_what_it_has_elsewhere() {
    let Some(elsewhere) = Elsewhere::make("other") else {
        return;
    };
    // A container's monitor does the like: it daemonizes, in a cgroup of its own.
    let monitor = "far=\"$HANDOFF_ROOT/marks/$HANDOFF_ID.far\"\n\
        setsid sh -c 'echo $$ > \"$1\" || exit; sh -c \"echo \\$\\$ > $2.tmp; mv $2.tmp $2; exec sleep 600\" &' \
        sh \"$out\" \"$far\" >/dev/null 2>&1 </dev/null\n\
        until [ -e \"$far\" ]; do sleep 0.02; done\nawait \"$HANDOFF_ID.leave\"";
    let root = elsewhere.root(monitor);
    let _daemon = Daemon::start(&root);
    for id in ["a", "b"] {
        root.drop_request(id, &ask("x"));
    }
    let [first, second] = ["a.far", "b.far"].map(|mark| root.pid_mark(mark));
    root.allow("a.leave");
    root.completed("a");
    assert!(!is_alive(first));
    assert!(
        is_alive(second),
        "it is another attempt's, which still runs"
    );
    root.allow("b.leave");
    root.completed("b");
    assert!(!is_alive(second));
}

#[test]
fn a_deep_check_names_a_process_that_belongs_to_no_attempt() {
    let Some(elsewhere) = Elsewhere::make("deep") else {
        return;
    };
    let root = elsewhere.root(&format!("{RUNS_AWAY}\nawait leave"));
    let _daemon = Daemon::start(&root);
    root.drop_request("a", &ask("x"));
    let far = root.pid_mark("a.far");
    wait_until("the deep check to see it", || {
        let checked = root.cli(&["check", "--deep"]);
        let said = String::from_utf8_lossy(&checked.stdout).into_owned();
        let names = said.contains(&format!("process {far} "));
        (names && !checked.status.success()).then_some(())
    });
    root.allow("leave");
    root.completed("a");
    assert!(root.cli(&["check", "--deep"]).status.success());
}
