//! What a worktree is for: work that is kept apart, committed, and found again.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::shop::{Shop, feed, git, record};

#[test]
fn work_is_committed_on_a_branch_of_the_chain_and_the_result_says_so() {
    let shop = Shop::new();
    let base = shop.git(&["rev-parse", "HEAD"]);
    let said = shop.run(
        &record("login.1-aa", "login"),
        &[],
        r#"echo made > new; echo '{"status":"complete","output":{"own":1}}'"#,
    );
    assert_eq!(said["status"], "complete");
    assert_eq!(said["output"]["own"], 1);
    assert_eq!(said["output"]["branch"], "handoffd/login");
    assert_eq!(said["output"]["base"], base);
    assert_eq!(said["output"]["diffstat"], "1 file changed, 1 insertion(+)");
    assert_eq!(
        said["output"]["commit"],
        shop.git(&["rev-parse", "handoffd/login"])
    );
    assert_eq!(shop.git(&["show", "handoffd/login:new"]), "made");
    assert_eq!(shop.git(&["status", "--porcelain"]), "", "the main tree");
    assert_eq!(shop.git(&["rev-parse", "main"]), base);
}

#[test]
fn a_chain_goes_on_where_it_was_and_each_handoff_knows_where_it_began() {
    let shop = Shop::new();
    let first = shop.run(&record("login", "login"), &[], "echo 1 > a");
    let second = shop.run(&record("login.1-bb", "login"), &[], "cat a; echo 2 > b");
    assert_eq!(second["output"]["text"], "1\n");
    assert_eq!(second["output"]["base"], first["output"]["commit"]);
    // A second attempt of the same handoff began where the first one did.
    let again = shop.run(&record("login.1-bb", "login"), &[], "echo 3 > c");
    assert_eq!(again["output"]["base"], first["output"]["commit"]);
    assert_eq!(
        again["output"]["diffstat"],
        "2 files changed, 2 insertions(+)"
    );
}

#[test]
fn those_that_run_beside_each_other_begin_at_the_tip_and_stay_apart() {
    let shop = Shop::new();
    shop.run(&record("feature", "feature"), &[], "echo plan > plan");
    let beside = |id: &str| {
        let mut record = record(id, "feature");
        record["handoffd"]["worktree"] = json!({"line": id, "from": "feature"});
        record
    };
    let results: Vec<Value> = thread::scope(|scope| {
        let run = |id: &'static str| {
            let (shop, beside) = (&shop, &beside);
            scope.spawn(move || {
                let script = format!("test -e plan && echo {id} > who && sleep 0.2 && cat who");
                shop.run(&beside(id), &[], &script)
            })
        };
        let runs = [run("feature.1-back"), run("feature.1-front")];
        runs.map(|run| run.join().unwrap()).into()
    });
    for (result, id) in results.iter().zip(["feature.1-back", "feature.1-front"]) {
        assert_eq!(result["output"]["branch"], format!("handoffd/{id}"));
        assert_eq!(result["output"]["text"], format!("{id}\n"));
    }
    assert_eq!(git(&shop.tree("feature"), &["status", "--porcelain"]), "");
}

#[test]
fn two_chains_on_one_repository_never_touch_each_other() {
    let shop = Shop::new();
    let script = "for n in 1 2 3 4 5; do echo $HANDOFF_WORKSPACE >> log; git add -A; \
                  git -c user.name=a -c user.email=a@b commit -qm $n; done; sort -u log | wc -l";
    let results: Vec<Value> = thread::scope(|scope| {
        let runs: Vec<_> = (0..6)
            .map(|n| {
                let shop = &shop;
                let id = format!("chain{n}");
                scope.spawn(move || shop.run(&record(&id, &id), &[], script))
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    for result in results {
        assert_eq!(
            result["output"]["text"].as_str().map(str::trim),
            Some("1"),
            "{result}"
        );
    }
    assert_eq!(shop.git(&["status", "--porcelain"]), "");
}

#[test]
fn worktrees_that_somebody_else_makes_meanwhile_do_no_harm() {
    let shop = Shop::new();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let path = shop.root.join("of-a-person");
            while !ended.load(Ordering::Relaxed) {
                // Git itself may fail here, for the same reason.
                for args in [&["add", "--detach"][..], &["remove", "--force"]] {
                    let mut git = Command::new("git");
                    git.arg("-C").arg(&shop.repository).arg("worktree");
                    drop(git.args(args).arg(&path).output());
                }
            }
        });
        for n in 0..8 {
            let id = format!("chain{n}");
            let said = shop.run(&record(&id, &id), &[], "echo w > w");
            assert_eq!(said["output"]["branch"], format!("handoffd/{id}"), "{said}");
        }
        ended.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_new_tree_gets_its_files_and_is_set_up_once() {
    let shop = Shop::new();
    shop.write(".env", "KEY=secret\n");
    let flags = [
        "--copy",
        ".env",
        "--setup",
        r#"["sh","-c","echo once >> set-up.log"]"#,
    ];
    let first = shop.run(&record("x", "x"), &flags, "cat .env set-up.log");
    assert_eq!(first["output"]["text"], "KEY=secret\nonce\n");
    let second = shop.run(&record("x", "x"), &flags, "cat set-up.log");
    assert_eq!(second["output"]["text"], "once\n");
    let files = shop.git(&["ls-tree", "--name-only", "handoffd/x"]);
    assert!(
        !files.contains(".env"),
        "a copied file is nobody's work: {files}"
    );
}

#[test]
fn a_result_in_the_result_file_is_completed_there_and_a_failure_is_passed_on() {
    let shop = Shop::new();
    let file = shop.root.join("result");
    let script =
        r#"echo '{"status":"blocked","summary":"s"}' > $HANDOFF_RESULT; echo words; exit 3"#;
    let output = feed(
        shop.workspace(&[], script).env("HANDOFF_RESULT", &file),
        &record("x", "x"),
    );
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(output.stdout, b"words\n");
    let said: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(said["status"], "blocked");
    assert_eq!(said["output"]["branch"], "handoffd/x");
    // The work of a command that failed is kept too.
    let output = feed(
        &mut shop.workspace(&[], "echo half > half; exit 7"),
        &record("x", "x"),
    );
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(shop.git(&["show", "handoffd/x:half"]), "half");
}

#[test]
fn a_command_that_verifies_runs_in_the_tree_and_only_its_exit_code_counts() {
    let shop = Shop::new();
    shop.run(&record("x", "x"), &[], "echo work > work");
    let output = feed(
        &mut shop.workspace(&["--plain"], "cat work; exit 4"),
        &record("x", "x"),
    );
    assert_eq!(output.stdout, b"work\n");
    assert_eq!(output.status.code(), Some(4));
    let gone = feed(
        &mut shop.workspace(&["--plain", "--base", "nowhere"], "true"),
        &record("other", "other"),
    );
    assert_eq!(gone.status.code(), Some(78));
}

#[test]
fn trees_of_ended_chains_are_pruned_and_own_commits_keep_their_branch() {
    let shop = Shop::new();
    for id in ["merged", "own", "left"] {
        shop.run(
            &record(id, id),
            &["--copy", "README"],
            "echo > $HANDOFF_ID.txt",
        );
        shop.ended(id, &Value::Null);
    }
    shop.git(&["merge", "-q", "handoffd/merged"]);
    fs::write(shop.tree("left").join("late"), "uncommitted").unwrap();
    let waiting = json!({"handoff_id": "open", "status": "waiting", "waiting": {"on": "human"},
        "handoffd": {"format": 1, "revision": 2, "attempts": [], "to": "waiting"}});
    let folder = shop.root.join("handoffs/waiting");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("open.json"), waiting.to_string()).unwrap();
    shop.run(&record("open", "open"), &[], "true");
    let listed = shop
        .handoffd()
        .args(["worktrees", "--json"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout).lines().count(), 4);
    let pruned = shop
        .handoffd()
        .args(["worktrees", "prune"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&pruned.stdout).into_owned();
    assert!(
        pruned.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&pruned.stderr)
    );
    let branches = shop.git(&["branch", "--format=%(refname:short)"]);
    let branches: Vec<&str> = branches.lines().collect();
    assert_eq!(
        branches,
        ["handoffd/left", "handoffd/open", "handoffd/own", "main"],
        "{said}"
    );
    assert!(shop.tree("open").exists());
    assert!(!shop.tree("left").exists());
    assert_eq!(shop.git(&["show", "handoffd/left:late"]), "uncommitted");
}

#[test]
fn the_diff_of_a_handoff_is_what_it_changed() {
    let shop = Shop::new();
    let said = shop.run(&record("x", "x"), &[], "echo more >> README");
    shop.ended("x", &said["output"]);
    let output = shop.handoffd().args(["diff", "x"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("\n+more\n"), "{text}");
}
