//! What claude was refused, and how a person's approval reaches it.
//!
//! A file is permitted by a rule of claude's own. Commands and addresses are not: in its rules a `*` stands for
//! anything. For these a hook of the call compares the very text.

use serde_json::{Value, json};

use crate::adapter::{Denied, Turn, one_line};
use crate::permit;

/// Tools that the hook permits, each with the key that says what it does.
const HOOKED: [(&str, &str); 2] = [("Bash", "command"), ("WebFetch", "url")];

/// What a refused use of a tool wanted, and what permits just that.
pub fn permission(tool: &str, input: &Value) -> Denied {
    let field = |key: &str| input.get(key).and_then(Value::as_str);
    let (what, rule) = match tool {
        "Bash" => {
            let command = field("command").unwrap_or_default();
            (format!("run: {command}"), format!("Bash({command})"))
        }
        "Write" | "Edit" | "MultiEdit" | "NotebookEdit" => {
            let file = field("file_path").or_else(|| field("notebook_path"));
            let file = file.unwrap_or_default();
            (format!("write {file}"), format!("Edit({})", anchored(file)))
        }
        "Read" => {
            let file = field("file_path").unwrap_or_default();
            (format!("read {file}"), format!("Read({})", anchored(file)))
        }
        "WebFetch" => {
            let address = field("url").unwrap_or_default();
            (format!("fetch {address}"), format!("WebFetch({address})"))
        }
        other => (format!("use {other}"), other.to_owned()),
    };
    Denied {
        what: one_line(&what),
        rule,
    }
}

/// A path as the rules have it. Two slashes: an absolute path, not one below the folder of the settings.
/// What would be a pattern is made plain.
fn anchored(file: &str) -> String {
    let mut path = if file.starts_with('/') {
        "/".to_owned()
    } else {
        String::new()
    };
    for c in file.chars() {
        if "\\*?[]".contains(c) {
            path.push('\\');
        }
        path.push(c);
    }
    path
}

/// Flags that permit what a person permitted.
pub fn granting(turn: &Turn<'_>) -> Vec<String> {
    let mut args = Vec::new();
    let mut permitted = Vec::new();
    for rule in turn.granted {
        let hooked = HOOKED.iter().find_map(|(tool, key)| {
            let value = rule.strip_prefix(tool)?.strip_prefix('(')?;
            Some((*key, value.strip_suffix(')')?))
        });
        match hooked {
            Some(it) => permitted.push(it),
            None => args.push(format!("--allowedTools={rule}")),
        }
    }
    if permitted.is_empty() {
        return args;
    }
    if turn
        .args
        .iter()
        .any(|arg| arg.split('=').next() == Some("--settings"))
    {
        // One flag replaces the other. The user's settings stay, and a person is asked again.
        eprintln!("(`--settings` in `args` leaves no room for the permission that a human gave)");
        return args;
    }
    let allow = json!({"hookSpecificOutput": {
        "hookEventName": "PreToolUse", "permissionDecision": "allow",
        "permissionDecisionReason": "a human permitted it",
    }});
    match permit::write(turn.folder, &permitted, &allow, None) {
        Ok(command) => {
            let hook = json!({"type": "command", "command": command});
            let matcher = HOOKED.map(|(tool, _)| tool).join("|");
            let settings =
                json!({"hooks": {"PreToolUse": [{"matcher": matcher, "hooks": [hook]}]}});
            args.extend(["--settings".to_owned(), settings.to_string()]);
        }
        // Claude is refused again, and a person asked again.
        Err(error) => eprintln!("(can't pass the permission on: {error})"),
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permission_is_of_one_file_one_command_or_one_address() {
        for (tool, input, what, rule) in [
            (
                "Bash",
                json!({"command": "git push"}),
                "run: git push",
                "Bash(git push)",
            ),
            (
                "Write",
                json!({"file_path": "/a/b"}),
                "write /a/b",
                "Edit(//a/b)",
            ),
            (
                "Edit",
                json!({"file_path": "/app/[id]/*"}),
                "write /app/[id]/*",
                "Edit(//app/\\[id\\]/\\*)",
            ),
            ("Read", json!({"file_path": "x"}), "read x", "Read(x)"),
            (
                "WebFetch",
                json!({"url": "https://x/y"}),
                "fetch https://x/y",
                "WebFetch(https://x/y)",
            ),
            ("Other", json!({}), "use Other", "Other"),
        ] {
            let expected = Denied {
                what: what.to_owned(),
                rule: rule.to_owned(),
            };
            assert_eq!(permission(tool, &input), expected);
        }
    }

    #[test]
    fn commands_are_permitted_by_a_hook_and_files_by_a_rule() {
        let folder = tempfile::tempdir().unwrap();
        let start = crate::session::Start::New("ID".to_owned());
        let granted = ["Bash(touch a*)".to_owned(), "Edit(//a)".to_owned()];
        let turn = |args| {
            let turn = Turn {
                start: &start,
                folder: folder.path(),
                schema_file: "s".into(),
                schema: "{}",
                granted: &granted,
                max_usd: None,
                args,
                program: None,
                mcp: None,
            };
            granting(&turn)
        };
        let flags = turn(&[]);
        assert_eq!(flags[..2], ["--allowedTools=Edit(//a)", "--settings"]);
        let settings: Value = serde_json::from_str(&flags[2]).unwrap();
        let hook = &settings["hooks"]["PreToolUse"][0];
        assert_eq!(hook["matcher"], "Bash|WebFetch");
        let script = std::fs::read_to_string(folder.path().join("permit.sh")).unwrap();
        assert!(script.contains("\"command\":\"touch a*\""), "{script}");
        assert_eq!(
            turn(&["--settings=x".to_owned()]),
            ["--allowedTools=Edit(//a)"]
        );
    }
}
