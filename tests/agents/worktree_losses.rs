//! Work that could get lost with a worktree, and does not: kills while trees are removed, links that break,
//! commits and files that no branch has.

use std::fs;
use std::process::Output;

use crate::shop::{Shop, feed, git, record};
use crate::worktree_faults::killer;

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

#[test]
fn a_prune_that_is_killed_at_any_call_of_git_loses_nothing() {
    let path = std::env::var("PATH").unwrap();
    for when in ["before", "after"] {
        let mut at = 0;
        loop {
            at += 1;
            let shop = Shop::new();
            let done = shop.run(&record("x", "x"), &[], "mkdir d; echo w > d/w; echo v > v");
            shop.ended("x", &done["output"]);
            fs::write(shop.tree("x").join("late"), "late").unwrap();
            let tools = tempfile::tempdir().unwrap();
            killer(tools.path());
            let output = shop
                .handoffd()
                .args(["worktrees", "prune"])
                .env("PATH", format!("{}:{path}", tools.path().display()))
                .env("KILL_AT", at.to_string())
                .env("KILL_WHEN", when)
                .output()
                .unwrap();
            let killed = output.status.code().is_none();
            let again = shop.run(&record("x", "x"), &[], "cat d/w v late");
            assert_eq!(
                again["output"]["text"], "w\nv\nlate",
                "{when} {at}: {again}"
            );
            let pruned = shop.cli(&["worktrees", "prune"]);
            assert!(pruned.status.success(), "{when} {at}: {}", said(&pruned));
            assert!(!shop.tree("x").exists(), "{when} {at}");
            let trees = shop.git(&["worktree", "list", "--porcelain"]);
            assert_eq!(trees.matches("worktree ").count(), 1, "{when} {at}");
            assert_eq!(shop.git(&["show", "handoffd/x:d/w"]), "w", "{when} {at}");
            if !killed {
                assert!(at > 8, "only {at} calls of git were seen");
                break;
            }
        }
    }
}

#[test]
fn a_command_that_breaks_the_link_to_the_repository_loses_no_work() {
    let shop = Shop::new();
    let made = shop.run(&record("x", "x"), &[], "rm .git; echo w > w");
    assert_eq!(made["output"]["diffstat"], "1 file changed, 1 insertion(+)");
    assert_eq!(shop.git(&["show", "handoffd/x:w"]), "w");
    // The repository is moved: the tree and its uncommitted file are found again.
    fs::write(shop.tree("x").join("late"), "late").unwrap();
    let moved = shop.repository.with_file_name("moved");
    fs::rename(&shop.repository, &moved).unwrap();
    let mut command = shop.handoffd();
    command
        .args(["workspace", "--repository"])
        .arg(&moved)
        .args(["--", "cat", "late"]);
    let again = crate::shop::result(&feed(&mut command, &record("x", "x")));
    assert_eq!(again["output"]["text"], "late", "{again}");
    assert_eq!(git(&moved, &["show", "handoffd/x:late"]), "late");
    fs::rename(&moved, &shop.repository).unwrap();
    // A repository of its own in its place is not deleted, and its work not put on the branch.
    let own = shop.run(&record("x", "x"), &[], "rm .git; git init -q; echo o > o");
    let message = own["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("a repository of its own"), "{own}");
    let again = shop.run(&record("x", "x"), &[], "true");
    assert_eq!(again["status"], "failed", "{again}");
    assert!(shop.tree("x").join("o").exists());
}

#[test]
fn commits_that_no_branch_has_get_one_when_the_tree_goes() {
    let shop = Shop::new();
    let script = "echo 1 > 1; git add -A; git -c user.name=a -c user.email=a@b commit -qm 1; \
                  git checkout -q --detach main; echo d > d; git add -A; \
                  git -c user.name=a -c user.email=a@b commit -qm d";
    let done = shop.run(&record("x", "x"), &[], script);
    let warning = done["warnings"][0].as_str().unwrap();
    assert!(warning.contains("does not follow handoffd/x"), "{warning}");
    let commit = done["output"]["commit"].as_str().unwrap().to_owned();
    shop.ended("x", &done["output"]);
    let pruned = said(&shop.cli(&["worktrees", "prune"]));
    let kept = format!("handoffd/x%{}", &commit[..12]);
    assert!(pruned.contains(&kept), "{pruned}");
    assert_eq!(shop.git(&["show", &format!("{kept}:d")]), "d");
    assert_eq!(shop.git(&["show", "handoffd/x:1"]), "1");
}

#[test]
fn repositories_inside_the_tree_are_warned_of_and_keep_it() {
    let shop = Shop::new();
    let script = "echo w > w; git init -q empty; git init -q own; echo o > own/o; git -C own add -A; \
                  git -C own -c user.name=a -c user.email=a@b commit -qm o";
    let done = shop.run(&record("x", "x"), &[], script);
    assert_eq!(shop.git(&["show", "handoffd/x:w"]), "w", "{done}");
    let warnings = done["warnings"].to_string();
    assert!(
        warnings.contains("own in the worktree is a repository"),
        "{warnings}"
    );
    assert!(warnings.contains("not committed: 'empty/'"), "{warnings}");
    shop.ended("x", &done["output"]);
    let pruned = shop.cli(&["worktrees", "prune"]);
    assert_eq!(pruned.status.code(), Some(1));
    assert!(
        said(&pruned).contains("kept the worktree"),
        "{}",
        said(&pruned)
    );
    assert!(shop.tree("x").join("own/o").exists());
    assert!(
        shop.cli(&["worktrees", "prune", "--force"])
            .status
            .success()
    );
    assert!(!shop.tree("x").exists());
}

#[test]
fn locks_of_killed_git_commands_hold_nothing_up() {
    let shop = Shop::new();
    shop.run(&record("x", "x"), &[], "echo w > w");
    let git = shop.repository.join(".git");
    for lock in [
        "worktrees/x/index.lock",
        "worktrees/x/HEAD.lock",
        "refs/heads/handoffd/x.lock",
    ] {
        fs::write(git.join(lock), "").unwrap();
        let done = shop.run(&record("x", "x"), &[], &format!("echo {lock} > w"));
        assert_eq!(shop.git(&["show", "handoffd/x:w"]), lock, "{done}");
    }
}

#[test]
fn a_listing_commits_what_an_interrupted_attempt_left() {
    let shop = Shop::new();
    shop.run(&record("x", "x"), &[], "echo w > w");
    fs::write(shop.tree("x").join("late"), "late").unwrap();
    let listed = said(&shop.cli(&["worktrees", "--json"]));
    assert!(listed.contains("\"uncommitted\":0"), "{listed}");
    assert_eq!(shop.git(&["show", "handoffd/x:late"]), "late");
}

#[test]
fn branches_in_the_way_are_named() {
    let shop = Shop::new();
    shop.git(&["branch", "handoffd"]);
    let refused = shop.run(&record("x", "x"), &[], "true").to_string();
    assert!(refused.contains("a branch named handoffd"), "{refused}");
    shop.git(&["branch", "-m", "handoffd", "other"]);
    shop.git(&["checkout", "-q", "-b", "handoffd/x"]);
    let refused = shop.run(&record("x", "x"), &[], "true").to_string();
    assert!(
        refused.contains("handoffd/x is checked out in"),
        "{refused}"
    );
    shop.git(&["checkout", "-q", "main"]);
    shop.git(&["commit", "-q", "--allow-empty", "-m", "second"]);
    let done = shop.run(&record("x", "x"), &[], "true");
    let warning = done["warnings"][0].as_str().unwrap();
    assert!(warning.contains("handoffd/x existed before"), "{warning}");
}

#[test]
fn a_copied_file_is_not_uncommitted_work() {
    let shop = Shop::new();
    shop.write(".env", "KEY\n");
    let script = "git add -A; git -c user.name=a -c user.email=a@b commit -qm own --allow-empty";
    shop.run(&record("x", "x"), &["--copy", ".env"], script);
    let files = shop.git(&["ls-tree", "--name-only", "handoffd/x"]);
    assert_eq!(
        files, "README",
        "the command's own commit has none of it either"
    );
    let listed = said(&shop.cli(&["worktrees", "--json"]));
    assert!(listed.contains("\"uncommitted\":0"), "{listed}");
    assert!(listed.contains("\"note\":null"), "{listed}");
    // A file that the repository ignores by itself is the usual case.
    shop.write(".gitignore", "secret\n");
    shop.git(&["add", ".gitignore"]);
    shop.git(&["commit", "-q", "-m", "ignore"]);
    shop.write("secret", "KEY\n");
    let done = shop.run(
        &record("y", "y"),
        &["--copy", "secret"],
        "cat secret; echo w >w",
    );
    assert_eq!(done["output"]["text"], "KEY\n", "{done}");
    assert_eq!(done["output"]["diffstat"], "1 file changed, 1 insertion(+)");
    let list = fs::read_to_string(shop.repository.join(".git/info/exclude")).unwrap();
    assert!(!list.contains("secret"), "{list}");
}
