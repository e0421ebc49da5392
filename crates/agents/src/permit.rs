//! A hook that an agent asks before it uses a tool: a shell script that knows what a person permitted.
//!
//! The rules of an agent are patterns, and a pattern may allow more than a person was asked for. The
//! script compares the very text. It gets the request as JSON, in which a quote inside a text has a
//! backslash before it, so a key and its value fit the whole text or nothing.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;

/// What is permitted: a key of the tool's input, and its value.
pub type Permitted<'a> = (&'a str, &'a str);

/// Writes the script, and says how it is called. Without an answer for the others, the agent decides as
/// it does without a hook.
pub fn write(
    folder: &Path,
    permitted: &[Permitted<'_>],
    allow: &Value,
    others: Option<&Value>,
) -> io::Result<String> {
    let path = folder.join("permit.sh");
    fs::write(&path, script(permitted, allow, others))?;
    Ok(format!("/bin/sh {}", quoted(&path.display().to_string())))
}

pub fn script(permitted: &[Permitted<'_>], allow: &Value, others: Option<&Value>) -> String {
    let mut script = "request=$(cat)\ncase \"$request\" in\n".to_owned();
    let allow = quoted(&allow.to_string());
    for (key, value) in permitted {
        let wanted = format!("\"{key}\":{}", Value::from(*value));
        _ = writeln!(script, "*[{{,]{}[,}}]*) echo {allow};;", quoted(&wanted));
    }
    if let Some(others) = others {
        _ = writeln!(script, "*) echo {};;", quoted(&others.to_string()));
    }
    script.push_str("esac\n");
    script
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use serde_json::json;

    use super::*;

    /// What the script says to a request.
    fn says(permitted: &[Permitted<'_>], asked: &Value) -> String {
        let script = script(permitted, &json!("yes"), Some(&json!("no")));
        let mut child = Command::new("/bin/sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(asked.to_string().as_bytes()).unwrap();
        drop(stdin);
        let said = child.wait_with_output().unwrap().stdout;
        serde_json::from_slice(&said).unwrap()
    }

    #[test]
    fn the_very_command_is_allowed_and_no_other() {
        let asks = |command: &str, why: &str| json!({"tool_name": "Bash", "tool_input": {"description": why, "command": command}});
        let odd = "echo 'it''s' \"$HOME\" > \\tmp/*\n# ü";
        for (granted, command, expected) in [
            ("git push", "git push", "yes"),
            ("git push", "git push --force", "no"),
            ("git push", "git pus", "no"),
            ("git push", "x; git push", "no"),
            ("git *", "git push", "no"),
            ("git [a-z]*", "git push", "no"),
            (odd, odd, "yes"),
            ("a\\", "a\\", "yes"),
            ("a\\", "a\\\"b", "no"),
        ] {
            let said = says(&[("command", granted)], &asks(command, "why"));
            assert_eq!(said, expected, "{granted} {command}");
        }
        let quotes = ",\"command\":\"git push\",";
        let asked = asks("rm -r .", quotes);
        assert_eq!(
            says(&[("command", "git push")], &asked),
            "no",
            "words of the agent"
        );
        assert_eq!(says(&[], &asks("git push", "why")), "no");
        let two = [("command", "a"), ("url", "b")];
        assert_eq!(says(&two, &json!({"tool_input": {"url": "b"}})), "yes");
        assert_eq!(says(&two, &json!({"tool_input": {"command": "b"}})), "no");
    }

    #[test]
    fn without_an_answer_for_others_nothing_is_said() {
        let script = script(&[("command", "a")], &json!("yes"), None);
        assert_eq!(script.lines().count(), 4, "{script}");
    }
}
