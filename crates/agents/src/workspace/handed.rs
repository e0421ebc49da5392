//! The result of a command in a worktree, with what stands on the branch.
//!
//! The addition goes to the place that the queue reads: the result file if the command left one, else what it
//! printed. What is no result stays what it is, so that nothing broken passes for a success.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::commit::Standing;
use super::git::WorkspaceError;
use super::run::Printed;

/// Hands out what the command left, with branch, base, commit, diffstat and warnings.
pub fn hand_out(
    read: fn(&[u8]) -> Printed,
    printed: &[u8],
    succeeded: bool,
    standing: &Standing,
    warnings: Vec<String>,
    out: &mut dyn Write,
) -> Result<(), WorkspaceError> {
    let failed =
        |error: std::io::Error| WorkspaceError::passing(format!("can't write the result: {error}"));
    if let Some(path) = std::env::var_os("HANDOFF_RESULT").map(PathBuf::from)
        && let Some(bytes) = in_file(&path)
    {
        let found = read(&bytes);
        if found != Printed::Nothing {
            // A broken result file is a failure, and stays one.
            if !matches!(found, Printed::Broken { .. })
                && let Some(text) = complete(found, read, standing, warnings)
            {
                let temporary = path.with_extension("workspace.tmp");
                fs::write(&temporary, text).map_err(failed)?;
                crate::session::replace(&temporary, &path).map_err(failed)?;
            }
            return out.write_all(printed).map_err(failed);
        }
    }
    let found = match read(printed) {
        // A text that should become an artifact goes around a block, so that it still does.
        Printed::Text { text, remark } if succeeded && asks_for_artifact() => Printed::Result {
            result: Map::from_iter([("status".to_owned(), "complete".into())]),
            text: Some(text),
            remark,
        },
        found => found,
    };
    match complete(found, read, standing, warnings) {
        Some(text) => out.write_all(text.as_bytes()),
        None => out.write_all(printed),
    }
    .map_err(failed)
}

fn asks_for_artifact() -> bool {
    std::env::var_os("HANDOFF_ARTIFACT").is_some_and(|path| !path.is_empty())
}

/// The result file, if it is a plain one: the queue follows no link either.
fn in_file(path: &Path) -> Option<Vec<u8>> {
    fs::symlink_metadata(path)
        .ok()
        .filter(fs::Metadata::is_file)?;
    fs::read(path).ok()
}

/// The completed result as text. None where there is nothing to add to.
fn complete(
    found: Printed,
    read: fn(&[u8]) -> Printed,
    standing: &Standing,
    mut warnings: Vec<String>,
) -> Option<String> {
    let (mut result, text) = match found {
        Printed::Result {
            result,
            text,
            remark,
        } => {
            warnings.extend(remark);
            (result, text)
        }
        // A text stays a text: the branch is named where a reader of the record finds it.
        Printed::Text { text, remark } => {
            warnings.extend(remark);
            (
                Map::from_iter([("output".to_owned(), json!({ "text": text }))]),
                None,
            )
        }
        Printed::Broken { why, text } => {
            warnings.push(format!(
                "stdout starts like a JSON result but does not parse ({why}); kept as text"
            ));
            (
                Map::from_iter([("output".to_owned(), json!({ "text": text }))]),
                None,
            )
        }
        Printed::Nothing => (Map::new(), None),
        Printed::Unusable => return None,
    };
    add(&mut result, standing, warnings);
    let bare = format!("{}\n", Value::Object(result.clone()));
    let Some(around) = text else {
        return Some(bare);
    };
    // The text goes before its block again. Where it would hide the block (an open fence), it is left out.
    let whole = format!("{around}\n\n```json\n{bare}```\n");
    let same =
        matches!(read(whole.as_bytes()), Printed::Result { result: again, .. } if again == result);
    Some(if same { whole } else { bare })
}

fn add(result: &mut Map<String, Value>, standing: &Standing, warnings: Vec<String>) {
    let mut output = match result.shift_remove("output") {
        Some(Value::Object(output)) => output,
        Some(Value::Null) | None => Map::new(),
        Some(other) => Map::from_iter([("value".to_owned(), other)]),
    };
    for (key, value) in [
        ("branch", &standing.branch),
        ("base", &standing.base),
        ("commit", &standing.commit),
        ("diffstat", &standing.diffstat),
    ] {
        output.insert(key.to_owned(), value.clone().into());
    }
    result.insert("output".to_owned(), Value::Object(output));
    if !warnings.is_empty() {
        let mut all = match result.shift_remove("warnings") {
            Some(Value::Array(theirs)) => theirs,
            Some(Value::Null) | None => Vec::new(),
            Some(other) => vec![other],
        };
        all.extend(warnings.into_iter().map(Value::String));
        result.insert("warnings".to_owned(), Value::Array(all));
    }
}
