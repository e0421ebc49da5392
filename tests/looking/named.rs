//! What `check` says of programs, agents and schemas that the configuration names.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::Root;
use super::bare::tree;

/// What is found with this configuration besides a specialist `coder`: problems and warnings.
fn found(root: &Root, config: &str) -> (Vec<(String, String)>, String) {
    let coder = "[specialists.coder]\ncommand = [\"true\"]\n";
    fs::write(root.path("handoffd.toml"), format!("{config}\n{coder}")).unwrap();
    let before = tree(root.dir.path());
    let output = root.run(&["check", "--json"]);
    assert_eq!(tree(root.dir.path()), before, "{config}: it made something");
    let told: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let findings = told["findings"].as_array().unwrap();
    let is_fine = output.status.code() == Some(0);
    assert_eq!(is_fine, findings.is_empty(), "{config}: {told:#}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let findings = findings
        .iter()
        .map(|finding| (text(&finding["problem"]), text(&finding["do"])));
    (findings.collect(), told["warnings"].to_string())
}

fn with_files() -> Root {
    let root = Root::new();
    for folder in ["schemas", "tools"] {
        fs::create_dir(root.path(folder)).unwrap();
    }
    for (name, mode) in [("tools/run.sh", 0o755), ("tools/text", 0o644)] {
        fs::write(root.path(name), "#!/bin/sh\n").unwrap();
        fs::set_permissions(root.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    for (name, text) in [
        ("good.json", r#"{"type": "object", "required": ["a"]}"#),
        ("cut.json", r#"{"type": "#),
        ("wrong.json", r#"{"type": "thing"}"#),
        ("refers.json", r#"{"$ref": "gone.json"}"#),
    ] {
        fs::write(root.path("schemas").join(name), text).unwrap();
    }
    root
}

#[test]
fn what_is_there_is_fine() {
    let root = with_files();
    for config in [
        "[notify]\nfailed = [\"tools/run.sh\"]\nwaiting_human = [\"sh\", \"tools/none\"]\n",
        "[[gates]]\nname = \"g\"\nphases = [\"p\"]\ncommand = [\"true\"]\n",
        "[workflows.w]\nsteps = [{ phase = \"p\", agent = \"coder\" }, { phase = \"q\", agent = \
         \"human\" }]\n",
        "[routes.blocked]\nunknown = \"human\"\nout_of_scope = \"@coder\"\n",
        "[workflows.w]\nsteps = [{ phase = \"p\", agent = \"@any\" }]\n[specialists.\"*\"]\ncommand \
         = [\"true\"]\n",
        "[specialists.a]\ncommand = [\"true\"]\nverify = [\"tools/run.sh\"]\ninput_schema = \
         \"good.json\"\noutput_schema = \"good.json\"\n",
    ] {
        assert_eq!(found(&root, config).0, [], "{config}");
    }
}

#[test]
fn what_is_not_there_is_found_before_a_handoff_needs_it() {
    let root = with_files();
    let specialist = |line: &str| format!("[specialists.a]\ncommand = [\"true\"]\n{line}\n");
    let gate = "[[gates]]\nname = \"units\"\nphases = [\"p\"]\ncommand = [\"no-such-program\"]\n";
    for (config, what, do_this) in [
        (
            specialist("verify = [\"no-such-program\"]"),
            "can't run the verify command of @a: no-such-program",
            "correct verify",
        ),
        (
            specialist("verify = [\"tools/text\"]"),
            "can't run the verify command of @a: ",
            "chmod +x",
        ),
        (
            "[notify]\nfailed = [\"tools/none.sh\"]\n".to_owned(),
            "can\'t run the command of notify.failed: ",
            "correct notify.failed",
        ),
        (
            "[notify]\nwaiting_human = [\"tools\"]\n".to_owned(),
            "can\'t run the command of notify.waiting_human: tools",
            "correct notify.waiting_human",
        ),
        (
            "[notify]\ncompleted = [\"./tools\"]\n".to_owned(),
            "can\'t run the command of notify.completed: ",
            "correct notify.completed",
        ),
        (
            gate.to_owned(),
            "can't run the command of the gate units: no-such-program",
            "install the program",
        ),
        (
            "[workflows.w]\nsteps = [{ phase = \"p\", agent = \"@nobody\" }]\n".to_owned(),
            "the step p of the workflow w names @nobody",
            "[specialists.\"@nobody\"]",
        ),
        (
            "[routes.blocked]\nunknown = \"nobody\"\n".to_owned(),
            "routes.blocked.unknown names @nobody",
            "[specialists.\"@nobody\"]",
        ),
        (
            specialist("input_schema = \"none.json\""),
            "the input_schema of @a is unusable: no schema",
            "put it into schemas/",
        ),
        (
            specialist("output_schema = \"cut.json\""),
            "the output_schema of @a is unusable: the schema 'cut.json' is not JSON",
            "fix the schema",
        ),
        (
            specialist("output_schema = \"wrong.json\""),
            "is not a valid JSON Schema",
            "fix the schema",
        ),
        (
            specialist("input_schema = \"refers.json\""),
            "refers to 'gone.json', which is not in schemas/",
            "put it into schemas/",
        ),
    ] {
        let (found, _) = found(&root, &config);
        let [(problem, advice)] = found.as_slice() else {
            panic!("{config}: {found:?}")
        };
        assert!(problem.contains(what), "{config}: {problem}");
        assert!(advice.contains(do_this), "{config}: {advice}");
    }
}

#[test]
fn a_schema_that_may_be_missing_is_a_warning() {
    let root = with_files();
    let (found, warnings) = found(
        &root,
        "[intake]\nmissing_schema = \"warn\"\n[specialists.a]\ncommand = \
         [\"true\"]\ninput_schema = \"none.json\"\n",
    );
    assert_eq!(found, []);
    assert!(warnings.contains("input_schema of @a"), "{warnings}");
}

#[test]
fn check_names_a_link_where_the_daemon_then_writes_nothing() {
    use std::os::unix::fs::symlink;
    let root = Root::new();
    let _ = fs::remove_dir_all(root.path("artifacts"));
    symlink("elsewhere", root.path("artifacts")).unwrap();
    let told = root.run(&["check"]).stdout;
    let told = String::from_utf8(told).unwrap();
    assert!(told.contains("writes no artifacts there"), "{told}");
    for (folder, is_link) in [
        ("context", true),
        ("context/state", true),
        ("context/state", false),
    ] {
        let root = Root::new();
        let path = root.path(folder);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = std::fs::remove_dir_all(&path);
        let elsewhere = tempfile::tempdir().unwrap();
        if is_link {
            symlink(elsewhere.path(), &path).unwrap();
        } else {
            std::fs::write(&path, "").unwrap();
        }
        for args in [&["check"][..], &["check", "--deep"]] {
            let output = root.command(args).output().unwrap();
            let told = String::from_utf8(output.stdout).unwrap();
            assert_eq!(output.status.code(), Some(2), "{folder}: {told}");
            assert!(told.contains(&path.display().to_string()), "{told}");
            assert!(told.contains("writes no task states"), "{told}");
        }
        let state = serde_json::json!({
            "task_id": "T", "task_title": "t", "phase": "planning", "version": 1
        });
        std::fs::write(root.path("state.json"), state.to_string()).unwrap();
        let file = root.path("state.json").display().to_string();
        let output = root.command(&["state", "save", &file]).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("replace it with a folder"), "{told}");
        assert_eq!(elsewhere.path().read_dir().unwrap().count(), 0);
    }
}
