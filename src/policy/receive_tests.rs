//! Tables for [`super::receive`]: what is refused, what is warned about, what is understood.

use serde_json::json;

use super::*;

fn receipt(document: &Value, findings: &Findings, rules: Rules) -> Receipt {
    receive(
        &View::of_document(document.as_object().unwrap()),
        findings,
        rules,
    )
}

fn package(context: &Value, expectations: &Value) -> Value {
    json!({"handoff": {
        "from": {"agent": "architecture"}, "to": {"agent": "security-check"},
        "context": context, "expectations": expectations,
    }})
}

#[test]
fn a_good_package_is_understood() {
    let document = package(
        &json!({"summary": "API architecture defined, needs security review"}),
        &json!({"deliverable": "Risk report", "constraints": ["Focus on authentication"],
                "success_criteria": ["No unaddressed critical risks"]}),
    );
    let receipt = receipt(&document, &Findings::default(), Rules::default());
    assert_eq!(receipt.refusal, None);
    assert_eq!(
        receipt.acknowledgment,
        json!({
            "received": true, "from": "architecture",
            "understood": {"task": "Risk report", "constraints": ["Focus on authentication"]},
            "questions": [], "starting": true,
        })
    );
}

#[test]
fn what_is_missing_in_a_package_is_refused_by_field() {
    for (context, expectations, field) in [
        (json!({}), json!(null), "handoff.context.summary"),
        (
            json!({"summary": " "}),
            json!(null),
            "handoff.context.summary",
        ),
        (
            json!({"summary": "Two approaches compared"}),
            json!({"constraints": ["x"]}),
            "handoff.expectations.deliverable",
        ),
    ] {
        let told = receipt(
            &package(&context, &expectations),
            &Findings::default(),
            Rules::default(),
        );
        let refusal = told.refusal.unwrap();
        assert_eq!(refusal.code, ErrorCode::SchemaValidationFailed);
        assert_eq!(refusal.fields[0].field, field);
        assert_eq!(told.acknowledgment["understood"], "partial");
        assert_eq!(told.acknowledgment["action"], "request_clarification");
    }
}

#[test]
fn quality_is_a_warning_and_an_error_only_where_strict() {
    let document = package(
        &json!({"summary": "It's done", "artifacts": [{"type": "doc"}]}),
        &json!({"deliverable": "d", "constraints": "quickly", "success_criteria": ["Write good code"]}),
    );
    let fields = |warnings: &[FieldError]| {
        let list = warnings.iter().map(|warning| warning.field.clone());
        list.collect::<Vec<_>>()
    };
    let expected = [
        "handoff.context.summary",
        "handoff.context.artifacts[0].path",
        "handoff.expectations.constraints[0]",
        "handoff.expectations.success_criteria[0]",
    ];
    let told = receipt(&document, &Findings::default(), Rules::default());
    assert_eq!(told.refusal, None);
    assert_eq!(fields(&told.warnings), expected);
    assert_eq!(told.acknowledgment["warnings"].as_array().unwrap().len(), 4);
    let strict = Rules {
        strict: true,
        ..Rules::default()
    };
    let told = receipt(&document, &Findings::default(), strict);
    let refusal = told.refusal.unwrap();
    assert_eq!(refusal.code, ErrorCode::SchemaValidationFailed);
    assert_eq!(fields(&refusal.fields), expected);
}

#[test]
fn a_missing_artifact_is_a_missing_dependency() {
    let document = package(
        &json!({"summary": "3 epics done", "artifacts": [{"path": "a.md"}, "b/", {"path": "c"}]}),
        &json!(null),
    );
    let view = View::of_document(document.as_object().unwrap());
    let named = references(&view);
    assert_eq!(named[1].0, "handoff.context.artifacts[1]");
    let found = [
        Found::Missing,
        Found::There,
        Found::Changed("has changed".to_owned()),
    ];
    let references = named
        .into_iter()
        .zip(found)
        .map(|((field, path), found)| Reference { field, path, found })
        .collect();
    let findings = Findings {
        references,
        ..Findings::default()
    };
    let told = receipt(&document, &findings, Rules::default());
    let refusal = told.refusal.unwrap();
    assert_eq!(refusal.code, ErrorCode::DependencyMissing);
    assert!(refusal.message.contains("artifact a.md does not exist"));
    assert_eq!(told.warnings.len(), 1);
}

#[test]
fn schemas_speak_of_the_input() {
    let document = json!({"target": {"agent_id": "@a"}, "source": {"agent_id": "@s"},
                          "input": {"data": {"title": "Profile page"}}});
    let with = |input: SchemaCheck, rules: Rules| {
        let findings = Findings {
            input,
            ..Findings::default()
        };
        receipt(&document, &findings, rules)
    };
    let fine = with(SchemaCheck::Valid, Rules::default());
    assert_eq!(fine.acknowledgment["understood"]["task"], "Profile page");
    assert_eq!(fine.acknowledgment["from"], "@s");
    let wrong = vec![FieldError::new("a[0]", "missing required field 'type'")];
    let told = with(SchemaCheck::Invalid(wrong), Rules::default())
        .refusal
        .unwrap();
    assert!(told.message.contains("a[0]: missing required field 'type'"));
    assert!(told.actions[0].contains("a[0]"));
    let broken = SchemaCheck::BadSchema("x.json is no schema".to_owned());
    let told = with(broken, Rules::default()).refusal.unwrap();
    let message = "its schema is unusable: input.schema: x.json is no schema";
    assert_eq!(told.message, message);
    let gone = || SchemaCheck::NoSchema("schemas/x.json is not there".to_owned());
    let told = with(gone(), Rules::default()).refusal.unwrap();
    assert_eq!(told.code, ErrorCode::DependencyMissing);
    for strict in [false, true] {
        let lenient = Rules {
            schema_may_be_missing: true,
            strict,
        };
        let told = with(gone(), lenient);
        assert_eq!((told.refusal, told.warnings.len()), (None, 1));
    }
}

#[test]
fn what_is_wrong_and_what_is_missing_is_told_together() {
    let document = package(
        &json!({"summary": "3 epics done", "artifacts": ["a.md"]}),
        &json!({"deliverable": ""}),
    );
    let findings = Findings {
        references: vec![Reference {
            field: "handoff.context.artifacts[0]".to_owned(),
            path: "a.md".to_owned(),
            found: Found::Missing,
        }],
        ..Findings::default()
    };
    let told = receipt(&document, &findings, Rules::default())
        .refusal
        .unwrap();
    assert_eq!(told.code, ErrorCode::SchemaValidationFailed);
    assert!(told.message.contains("artifact a.md does not exist"));
    assert!(told.actions[0].starts_with("Fix handoff.expectations.deliverable"));
    assert!(told.actions[1].starts_with("Provide what is missing: handoff.context.artifacts[0]"));
}

#[test]
fn a_misnamed_field_is_a_warning_and_refused_to_the_letter() {
    let document = json!({"target": {"agent_id": "@a"}, "priorty": "high"});
    let said = "priorty: unknown field; did you mean `priority`?";
    let told = receipt(&document, &Findings::default(), Rules::default());
    assert_eq!(told.refusal, None);
    assert_eq!(told.acknowledgment["warnings"], json!([said]));
    let strict = Rules {
        strict: true,
        ..Rules::default()
    };
    let told = receipt(&document, &Findings::default(), strict);
    let refusal = told.refusal.unwrap();
    assert_eq!(refusal.code, ErrorCode::SchemaValidationFailed);
    assert!(refusal.message.contains(said), "{}", refusal.message);
    assert!(
        refusal.message.starts_with("unknown fields"),
        "{}",
        refusal.message
    );
}
