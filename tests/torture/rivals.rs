//! Many daemons on one root: exactly one works, the others say whose root it is.

use std::fs;
use std::process::{Command, Stdio};

use crate::common::{Daemon, Root, orders, wait_until};
use crate::report::{Row, times};

/// How many start at once.
const RIVALS: usize = 8;

#[test]
fn of_many_daemons_on_one_root_exactly_one_works() {
    let mut row = Row::new("eight daemons on one root");
    for round in 0..times("rivals", 2, 100) {
        row.tried(one_round(round));
    }
    row.finish();
}

fn one_round(round: usize) -> Vec<String> {
    let root = Root::new();
    let each = 10;
    for number in 0..each {
        root.drop_request(&format!("r{round}-{number}"), &orders("mark start"));
    }
    let mut rivals: Vec<_> = (0..RIVALS)
        .map(|_| {
            Command::new(env!("CARGO_BIN_EXE_handoffd"))
                .args(["run", "--root"])
                .arg(root.dir())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut broken = Vec::new();
    let mut refused = 0;
    wait_until("all rivals but one to give up", || {
        rivals.retain_mut(|rival| match rival.try_wait().unwrap() {
            None => true,
            Some(status) => {
                refused += 1;
                if status.code() != Some(3) {
                    broken.push(format!("a rival ended with {status}, not with 3"));
                }
                false
            }
        });
        (rivals.len() <= 1).then_some(())
    });
    if refused != RIVALS - 1 {
        broken.push(format!("{refused} gave up"));
    }
    for number in 0..each {
        let id = format!("r{round}-{number}");
        root.completed(&id);
        let starts =
            fs::read_to_string(root.path(&format!("marks/{id}.start"))).unwrap_or_default();
        if starts.lines().count() != 1 {
            broken.push(format!("{id} was started {} times", starts.lines().count()));
        }
    }
    for mut rival in rivals {
        rival.kill().unwrap();
        rival.wait().unwrap();
    }
    // What is left is a root like any other.
    let after = Daemon::start(&root);
    root.assert_works("after");
    after.terminate();
    broken
}
