//! Destinations: where an artifact is to go, with placeholders.
//!
//! A destination is checked when the request is read, and filled in once, at the first claim.
//! What is filled in can't lead elsewhere: it is one name, never a path.

use std::fmt::Write;

/// What may stand in braces.
pub const PLACEHOLDERS: [&str; 6] = [
    "handoff_id",
    "task_id",
    "agent",
    "phase",
    "artifact_type",
    "timestamp",
];

/// What the placeholders of one handoff stand for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Values<'a> {
    pub handoff_id: &'a str,
    pub task_id: Option<&'a str>,
    pub agent: &'a str,
    pub phase: Option<&'a str>,
    pub artifact_type: Option<&'a str>,
    pub timestamp: i64,
}

/// Fills a destination in, or says what is wrong with it.
pub fn resolve(template: &str, values: &Values<'_>) -> Result<String, String> {
    let path = fill(template, values)?;
    check(&path)?;
    Ok(path)
}

/// Replaces the placeholders of a path, or says which of them can't be filled in.
pub fn fill(template: &str, values: &Values<'_>) -> Result<String, String> {
    let mut path = String::with_capacity(template.len() + 32);
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        path.push_str(&rest[..at]);
        let inside = rest[at..]
            .strip_prefix('{')
            .and_then(|inside| inside.split_once('}'));
        let Some((name, after)) = inside else {
            return Err("has an unmatched brace".to_owned());
        };
        let value = value_of(name, values)?;
        path.push_str(&tame(&value));
        rest = after;
    }
    path.push_str(rest);
    Ok(path)
}

fn value_of(name: &str, values: &Values<'_>) -> Result<String, String> {
    let needs = |value: Option<&str>, from: &str| {
        value
            .filter(|value| !value.is_empty())
            .map(str::to_owned)
            .ok_or_else(|| format!("uses {{{name}}}, but the request has no {from}"))
    };
    match name {
        "handoff_id" => Ok(values.handoff_id.to_owned()),
        "task_id" => needs(values.task_id, "context.task_id"),
        "agent" => Ok(values.agent.to_owned()),
        "phase" => needs(values.phase, "phase"),
        "artifact_type" => needs(values.artifact_type, "expected_output.artifact_type"),
        "timestamp" => Ok(values.timestamp.to_string()),
        _ => Err(format!(
            "uses {{{}}}, which is not one of {{{}}}",
            name.escape_debug(),
            PLACEHOLDERS.join("}, {")
        )),
    }
}

/// One name out of any text: what is filled in never adds a part to a path.
fn tame(value: &str) -> String {
    let mut tame = String::with_capacity(value.len());
    for c in value.chars() {
        if c.is_alphanumeric() || "._@-~".contains(c) {
            tame.push(c);
        } else {
            tame.push('_');
        }
    }
    if tame.starts_with('.') {
        tame.replace_range(..1, "_");
    }
    if tame.len() > 100 {
        let cut = (0..=100).rev().find(|at| tame.is_char_boundary(*at));
        tame.truncate(cut.unwrap_or(0));
        let _ = write!(tame, "-{}", value.len());
    }
    tame
}

fn check(path: &str) -> Result<(), String> {
    if path.starts_with('/') {
        return Err("is absolute; it must be relative to the root, like artifacts/x.json".into());
    }
    if path.split('/').any(|part| part == "..") {
        return Err("leads up with `..`; it must stay below artifacts/".to_owned());
    }
    let Some(below) = path.strip_prefix("artifacts/") else {
        return Err("must start with artifacts/".to_owned());
    };
    if below.split('/').any(|part| part.is_empty() || part == ".") {
        return Err("must end in a file's name, without empty parts".to_owned());
    }
    if below == "registry.jsonl" {
        return Err("is the registry itself; choose another name".to_owned());
    }
    if path.chars().any(char::is_control) {
        return Err("contains control characters".to_owned());
    }
    if path.len() > 1024 || below.split('/').any(|part| part.len() > 240) {
        return Err("is too long for a file system".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: Values<'static> = Values {
        handoff_id: "h-1",
        task_id: Some("T-9"),
        agent: "react/../x",
        phase: Some("13"),
        artifact_type: None,
        timestamp: 1_705_147_532_000,
    };

    #[test]
    fn placeholders_are_filled_in_and_stay_in_place() {
        for (template, path) in [
            (
                "artifacts/phase-{phase}/a-{timestamp}.json",
                "artifacts/phase-13/a-1705147532000.json",
            ),
            (
                "artifacts/{task_id}/{handoff_id}.md",
                "artifacts/T-9/h-1.md",
            ),
            ("artifacts/{agent}.md", "artifacts/react_.._x.md"),
            ("artifacts/plain", "artifacts/plain"),
        ] {
            assert_eq!(resolve(template, &VALUES).as_deref(), Ok(path));
        }
        let long = "é".repeat(300);
        let values = Values {
            task_id: Some(&long),
            ..VALUES
        };
        assert!(resolve("artifacts/{task_id}", &values).unwrap().len() < 130);
        let values = Values {
            task_id: Some(".."),
            ..VALUES
        };
        assert_eq!(
            resolve("artifacts/{task_id}/x", &values).unwrap(),
            "artifacts/_./x"
        );
    }

    #[test]
    fn what_leads_elsewhere_is_refused() {
        for (template, why) in [
            ("/etc/passwd", "absolute"),
            ("artifacts/../x", "leads up"),
            ("../artifacts/x", "leads up"),
            ("out/x.json", "must start with artifacts/"),
            ("artifacts/", "file's name"),
            ("artifacts//x", "empty parts"),
            ("artifacts/./x", "empty parts"),
            ("artifacts/registry.jsonl", "registry"),
            ("artifacts/{nope}.json", "uses {nope}, which is not one of"),
            (
                "artifacts/{artifact_type}",
                "no expected_output.artifact_type",
            ),
            ("artifacts/{phase.json", "brace"),
            ("artifacts/phase}.json", "brace"),
            ("artifacts/a\u{0}b", "control"),
        ] {
            let error = resolve(template, &VALUES).unwrap_err();
            assert!(error.contains(why), "{template}: {error}");
        }
    }
}
