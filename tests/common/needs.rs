//! What some tests need of the machine: root, another user, a sandbox, a tool.
//!
//! Where it is missing, the test names itself and ends. A skipped attack proves nothing, so with
//! `CI=true` it fails instead; `CI_MAY_SKIP=true` permits it for a machine that can't do better.

use std::fs::File;
use std::io::Write;

/// Says by name that a test is not tried here. `.ci/run` lists what `SKIPPED` collects.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let line = format!("skipped {}: {why}\n", thread.name().unwrap_or("a test"));
    eprint!("{line}");
    let is = |name: &str| std::env::var(name).is_ok_and(|value| value == "true");
    assert!(
        !is("CI") || is("CI_MAY_SKIP"),
        "{line}CI must try it: provide what is missing, or set CI_MAY_SKIP=true"
    );
    if let Some(list) = std::env::var_os("SKIPPED") {
        let list = File::options().append(true).create(true).open(list);
        list.and_then(|mut list| list.write_all(line.as_bytes()))
            .unwrap();
    }
}
