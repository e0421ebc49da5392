use super::*;

fn item(payload: &Value) -> String {
    json!({"type": "response_item", "payload": payload}).to_string()
}

fn call(id: &str, command: &str) -> String {
    let arguments = json!({"cmd": command}).to_string();
    item(&json!({"type": "function_call", "call_id": id, "arguments": arguments}))
}

fn output(id: &str, said: &str) -> String {
    item(&json!({"type": "function_call_output", "call_id": id, "output": said}))
}

#[test]
fn what_was_refused_in_the_last_turn_is_found_and_nothing_else() {
    let user = item(&json!({"type": "message", "role": "user"}));
    let refusal = "approval policy is Never; reject command: you cannot ask";
    let lines = [
        user.clone(),
        call("0", "rm old"),
        output("0", refusal),
        user,
        "not JSON".to_owned(),
        call("1", "git push"),
        call("2", "make"),
        output("2", "exit code 0"),
        output("1", refusal),
    ];
    let refused = in_last_turn(lines.into_iter());
    let expected = Denied {
        what: "run outside the sandbox: git push".to_owned(),
        rule: "git push".to_owned(),
    };
    assert_eq!(refused, BTreeSet::from([expected]));
}

#[test]
fn a_grant_replaces_the_sandbox_of_the_settings() {
    let folder = tempfile::tempdir().unwrap();
    let granting = |args: &[&str]| {
        let args: Vec<String> = args.iter().map(|it| (*it).to_owned()).collect();
        super::granting(&["git push".to_owned()], &args, folder.path()).unwrap()
    };
    let args = granting(&["-m", "x", "-s", "workspace-write", "--sandbox=read-only"]);
    assert_eq!(args[0], "--approve-for-me");
    assert_eq!(args[5..], ["-m", "x"]);
    assert!(folder.path().join("permit.sh").exists());
    let open = "--dangerously-bypass-approvals-and-sandbox";
    assert_eq!(granting(&[open]), [open]);
}
