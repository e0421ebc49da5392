//! Worktrees and bad luck: repositories that can't be used, agents that stray, kills at every call of
//! git.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::shop::{Shop, feed, git, record, result};

fn fails(said: &Value, expected: &str, retryable: bool) {
    let message = said["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains(expected), "{said}");
    assert_eq!(said["status"], "failed");
    assert_eq!(said["error"]["retryable"], retryable, "{said}");
}

#[test]
fn a_repository_that_cannot_be_used_is_a_clear_error_before_the_command_starts() {
    let shop = Shop::new();
    let ran = shop.root.join("ran");
    let script = format!("touch {}", ran.display());
    let run = |flags: &[&str]| shop.run(&record("x", "x"), flags, &script);
    fails(
        &run(&["--base", "nowhere"]),
        "no branch or commit nowhere",
        false,
    );
    fails(
        &run(&["--copy", "../x"]),
        "must be a file below the repository",
        false,
    );
    fails(
        &run(&["--copy", "absent"]),
        "can't copy absent (in `copy`)",
        false,
    );
    let failing = r#"["sh","-c","echo no registry >&2; exit 9"]"#;
    fails(
        &run(&["--setup", failing]),
        "failed with exit status: 9",
        true,
    );
    fails(
        &run(&["--setup", r#"["no-such-program"]"#]),
        "can't start `setup`",
        false,
    );
    let lock = shop.repository.join(".git/index.lock");
    fs::write(&lock, "").unwrap();
    fails(&run(&[]), "is locked", false);
    fs::remove_file(&lock).unwrap();
    fs::write(
        shop.repository.join(".git/MERGE_HEAD"),
        shop.git(&["rev-parse", "HEAD"]),
    )
    .unwrap();
    fails(
        &run(&[]),
        "in the middle of a merge; finish it with git merge --continue or --abort",
        false,
    );
    fs::remove_file(shop.repository.join(".git/MERGE_HEAD")).unwrap();
    assert!(!ran.exists());
    let at = |path: &Path| {
        let mut command = shop.handoffd();
        command.args(["workspace", "--repository"]).arg(path);
        command.args(["--", "sh", "-c", &script]);
        result(&feed(&mut command, &record("x", "x")))
    };
    fails(
        &at(&shop.root.join("nowhere")),
        "does not exist; correct the specialist's `repository`",
        false,
    );
    let plain = shop.root.join("plain");
    fs::create_dir(&plain).unwrap();
    fails(&at(&plain), "is not a git repository", false);
    let bare = shop.root.join("bare");
    shop.git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    fails(&at(&bare), "is bare", false);
    let empty = shop.root.join("empty");
    fs::create_dir(&empty).unwrap();
    git(&empty, &["init", "-q"]);
    fails(&at(&empty), "has no commit yet", false);
    assert!(!ran.exists());
    assert_eq!(run(&[])["output"]["branch"], "handoffd/x");
    assert!(ran.exists());
}

#[test]
fn odd_repositories_work_all_the_same() {
    let shop = Shop::new();
    // Hooks that fail, a detached HEAD, a dirty main tree, an LFS pointer, and a submodule.
    for hook in ["post-checkout", "pre-commit", "commit-msg", "post-commit"] {
        let path = shop.repository.join(".git/hooks").join(hook);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "#!/bin/sh\nexit 1\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let library = Shop::new();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
    shop.write("big.bin", pointer);
    shop.git(&[
        "submodule",
        "--quiet",
        "add",
        library.repository.to_str().unwrap(),
        "lib",
    ]);
    shop.git(&["add", "."]);
    shop.git(&["commit", "-q", "--no-verify", "-m", "odd"]);
    shop.git(&[
        "-c",
        "core.hooksPath=/dev/null",
        "checkout",
        "-q",
        "--detach",
    ]);
    shop.write("README", "dirty\n");
    shop.git(&["branch", "handoffd/x", "main~1"]);
    let said = shop.run(&record("x", "x"), &[], "ls; echo w > w");
    assert_eq!(
        said["output"]["text"], "README\n",
        "the branch that was there is used"
    );
    let said = shop.run(&record("y", "y"), &[], "cat big.bin; ls lib; echo w > w");
    assert_eq!(said["output"]["text"], pointer);
    assert_eq!(shop.git(&["show", "handoffd/y:w"]), "w");
    assert_eq!(
        fs::read_to_string(shop.repository.join("README")).unwrap(),
        "dirty\n"
    );
    assert!(said.get("warnings").is_none(), "{said}");
}

#[test]
fn an_agent_that_leaves_its_branch_or_its_tree_is_noticed() {
    let shop = Shop::new();
    let script = "git checkout -q --detach; echo d > d; git add -A; \
                  git -c user.name=a -c user.email=a@b commit -qm d";
    let said = shop.run(&record("x", "x"), &[], script);
    assert_eq!(shop.git(&["show", "handoffd/x:d"]), "d");
    let warning = said["warnings"][0].as_str().unwrap();
    assert!(
        warning.contains("the work is on no branch; moved handoffd/x there"),
        "{warning}"
    );
    let outside = format!("echo oops > {}/oops", shop.repository.display());
    let said = shop.run(&record("x", "x"), &[], &outside);
    let warning = said["warnings"][0].as_str().unwrap();
    assert!(
        warning.contains("files outside the worktree changed"),
        "{warning}"
    );
    assert!(warning.ends_with(": oops"), "{warning}");
}

#[test]
fn a_tree_that_was_half_made_in_the_middle_of_git_is_made_anew() {
    let shop = Shop::new();
    let said = shop.run(&record("x", "x"), &[], "echo w > w");
    let entry = shop.repository.join(".git/worktrees/x");
    // As a kill leaves it between creating a file and writing it: git then refuses to list any tree.
    for name in ["commondir", "handoffd-ready"] {
        fs::write(entry.join(name), "").unwrap();
    }
    fs::remove_file(entry.join("handoffd-ready")).unwrap();
    fs::write(entry.join("locked"), "initializing").unwrap();
    for name in ["README", "w"] {
        fs::remove_file(shop.tree("x").join(name)).unwrap();
    }
    let other = shop.run(&record("y", "y"), &[], "echo w > w");
    assert_eq!(other["output"]["branch"], "handoffd/y", "{other}");
    let again = shop.run(&record("x", "x"), &[], "cat w");
    assert_eq!(again["output"]["text"], "w\n", "{again}");
    assert_eq!(again["output"]["commit"], said["output"]["commit"]);
}

#[test]
fn fifty_worktrees() {
    let shop = Shop::new();
    for n in 0..50 {
        let id = format!("chain-{n}");
        let said = shop.run(&record(&id, &id), &[], "echo $HANDOFF_WORKSPACE > w");
        assert_eq!(said["output"]["branch"], format!("handoffd/{id}"));
    }
    let listed = shop.git(&["worktree", "list", "--porcelain"]);
    assert_eq!(listed.matches("worktree ").count(), 51);
}

/// A `git` that kills the program under test at its n-th call, before it or after it.
pub fn killer(folder: &Path) {
    let real = Command::new("sh")
        .args(["-c", "command -v git"])
        .output()
        .unwrap();
    let real = String::from_utf8(real.stdout).unwrap().trim().to_owned();
    let script = format!(
        "#!/bin/sh\n\
         n=$(( $(cat {folder}/count 2>/dev/null || echo 0) + 1 ))\n\
         echo $n > {folder}/count\n\
         if [ $n = \"$KILL_AT\" ] && [ \"$KILL_WHEN\" = before ]; then kill -9 $PPID; exit 1; fi\n\
         {real} \"$@\"; code=$?\n\
         if [ $n = \"$KILL_AT\" ]; then kill -9 $PPID; fi\n\
         exit $code\n",
        folder = folder.display()
    );
    let path = folder.join("git");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_kill_at_any_call_of_git_loses_no_work_and_leaves_no_half_made_tree() {
    let path = std::env::var("PATH").unwrap();
    let script = "echo made >> made; echo '{\"status\":\"complete\"}'";
    for when in ["before", "after"] {
        let mut at = 0;
        loop {
            at += 1;
            let shop = Shop::new();
            shop.write(".env", "KEY\n");
            let tools = tempfile::tempdir().unwrap();
            killer(tools.path());
            let flags = ["--copy", ".env", "--setup", "[\"touch\",\"prepared\"]"];
            let output = feed(
                shop.workspace(&flags, script)
                    .env("PATH", format!("{}:{path}", tools.path().display()))
                    .env("KILL_AT", at.to_string())
                    .env("KILL_WHEN", when),
                &record("x", "x"),
            );
            let killed = output.status.code().is_none();
            let tree = shop.tree("x");
            let ran = tree.join("made").exists();
            // Whoever comes next finds a tree that is whole, and the work of before in it.
            let said = shop.run(&record("x", "x"), &flags, script);
            assert_eq!(said["status"], "complete", "{when} {at}: {said}");
            let lines = shop.git(&["show", "handoffd/x:made"]).lines().count();
            assert_eq!(lines, 1 + usize::from(ran), "{when} {at}");
            for file in [".env", "prepared"] {
                assert!(tree.join(file).exists(), "{when} {at}: {file}");
            }
            assert_eq!(
                git(&tree, &["status", "--porcelain", "--", ":(exclude).env"]),
                "",
                "{when} {at}"
            );
            let trees = shop.git(&["worktree", "list", "--porcelain"]);
            assert_eq!(
                trees.matches("worktree ").count(),
                2,
                "{when} {at}: {trees}"
            );
            if !killed {
                assert!(at > 10, "only {at} calls of git were seen");
                break;
            }
        }
    }
}
