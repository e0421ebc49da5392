//! Whether what came matches its schema.

use serde_json::Value;

use super::{Delivery, Undelivered, wrong_artifacts};
use crate::config::{Config, MissingSchema};
use crate::engine::receive::named_whole;
use crate::policy::judge::{Compliance, Failure, Success};
use crate::policy::next::refusal;
use crate::protocol::error::ErrorCode;
use crate::protocol::field::FieldError;
use crate::protocol::json;
use crate::protocol::request::Request;
use crate::store::artifacts::RelPath;
use crate::store::schemas::Checked;

pub(super) fn schema_of<'a>(request: &'a Request, config: &'a Config) -> Option<&'a str> {
    let specialist = config.specialist(&request.agent);
    let own = specialist.and_then(|specialist| specialist.output_schema.as_deref());
    request.output.schema.as_deref().or(own)
}

impl Delivery<'_> {
    pub(super) fn comply_file(
        &mut self,
        path: &RelPath,
        success: &mut Success,
    ) -> Result<Compliance, Undelivered> {
        if self.schema.is_none() {
            return Ok(Compliance::Unchecked);
        }
        let most = self.config.daemon.max_output_size;
        let bytes = match self.world.artifacts.read(path, most) {
            Ok(bytes) => bytes,
            Err(why) => {
                self.problem("artifact", format!("{} {why}", path.as_str()));
                return Ok(Compliance::Unchecked);
            }
        };
        match parsed(&bytes) {
            Ok(artifact) => self.comply(&artifact, success),
            Err(why) => {
                let field = FieldError::new("artifact", format!("{} {why}", path.as_str()));
                let mut told = wrong_artifacts(vec![field], success.result.clone());
                told.invalid_output = true;
                Err(Undelivered::Wrong(told))
            }
        }
    }

    /// Holds an artifact against its schema.
    pub(super) fn comply(
        &mut self,
        artifact: &Value,
        success: &mut Success,
    ) -> Result<Compliance, Undelivered> {
        let Some(schema) = self.schema else {
            return Ok(Compliance::Unchecked);
        };
        let lenient = self.config.intake.missing_schema == MissingSchema::Warn;
        match self.world.schemas.check(schema, artifact) {
            Checked::Valid => Ok(Compliance::Valid),
            Checked::Missing(why) if lenient => {
                success
                    .warnings
                    .push(format!("expected_output.schema: {why}; not checked"));
                Ok(Compliance::Unchecked)
            }
            Checked::Invalid(errors) => {
                let fields = named_whole(errors, "artifact");
                let mut told = wrong_artifacts(fields, success.result.clone());
                told.message = format!("the artifact does not match {schema}: {}", listed(&told));
                told.invalid_output = true;
                Err(Undelivered::Wrong(told))
            }
            Checked::Missing(why) | Checked::Broken(why) => {
                let field = FieldError::new("expected_output.schema", why);
                let mut told = refusal(
                    ErrorCode::DependencyMissing,
                    format!("can't check the artifact: {field}"),
                    vec!["Fix the schema, then retry".to_owned()],
                );
                told.fields = vec![field];
                told.result.clone_from(&success.result);
                Err(Undelivered::Wrong(Box::new(told)))
            }
        }
    }
}

/// A file's content as JSON, read as carefully as a request is.
fn parsed(bytes: &[u8]) -> Result<Value, String> {
    std::str::from_utf8(bytes)
        .map_err(|error| error.to_string())
        .and_then(|text| json::parse(text).map_err(|error| error.to_string()))
        .map_err(|error| format!("is not JSON, so it can't match its schema: {error}"))
}

fn listed(told: &Failure) -> String {
    let list: Vec<String> = told
        .fields
        .iter()
        .take(20)
        .map(ToString::to_string)
        .collect();
    list.join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_is_one_whole_json_document_or_none() {
        assert_eq!(parsed(b" [1, \"a\"]\n"), Ok(json!([1, "a"])));
        for (bytes, place) in [
            (b"not json".as_slice(), "column 2"),
            (b"1, \"b\": 2", "column 2"),
            (b"{}}", "column 3"),
            (b"", "line 1"),
            (b"\"\xff\"", "utf-8"),
        ] {
            let error = parsed(bytes).unwrap_err();
            assert!(error.contains(place), "{error}");
        }
    }
}
