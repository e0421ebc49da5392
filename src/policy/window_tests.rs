//! What is cut, in which order, and what stays in its place.

use serde_json::json;

use super::*;
use crate::protocol::links::Links;

const FILE: &str = ".handoffd/context/x.json";

fn record(doc: &Value, meta: impl FnOnce(&mut Record)) -> Record {
    let mut record = Record::admit(doc.as_object().unwrap().clone(), "x", None);
    meta(&mut record);
    record
}

/// Words that are hardly more bytes than tokens would be too easy.
fn text(words: usize) -> String {
    "one two three four five ".repeat(words.div_ceil(5))
}

fn entry(n: usize, words: usize) -> Value {
    json!({ "decision": format!("d{n}"), "rationale": text(words), "handoff_id": "p" })
}

fn carrying(entries: &[Value], written: &Value) -> Record {
    let doc = json!({ "input": { "data": { "summary": "s", "origin": { "handoff_id": "p" },
                                           "decisions": entries } } });
    let mut record = record(&doc, |_| {});
    record.meta.links = Links {
        parent: Some("p".to_owned()),
        mark: Some("m".to_owned()),
        written: written.as_object().unwrap().clone(),
        ..Links::default()
    };
    record
}

fn decisions(record: &Record) -> &Vec<Value> {
    record.doc["input"]["data"]["decisions"].as_array().unwrap()
}

fn size(record: &Record) -> usize {
    count(&record.to_bytes(), usize::MAX)
}

#[test]
fn what_fits_is_handed_over_as_it_is() {
    let mut small = carrying(&[entry(1, 10)], &json!({}));
    let before = small.clone();
    let most = small.to_bytes().len();
    let fitted = fit(&mut small, most, FILE, LastEntries::Stay);
    assert_eq!((small.clone(), fitted.cut.len()), (before, 0));
    assert_eq!(fitted.bytes, small.to_bytes());
    let tokens = size(&small);
    assert!(tokens < most / 2);
    assert_eq!(
        fit(&mut small, tokens, FILE, LastEntries::Stay).cut,
        [],
        "tokens count, not bytes"
    );
}

#[test]
fn the_oldest_of_a_list_go_first_and_those_that_the_result_wrote_stay() {
    let entries: Vec<Value> = (0..50).map(|n| entry(n, 100)).collect();
    let mut record = carrying(&entries, &json!({ "decisions": 3 }));
    let most = size(&record) / 2;
    let fitted = fit(&mut record, most, FILE, LastEntries::Stay);
    assert!(!fitted.is_over && size(&record) <= most);
    let cut = &fitted.cut[0];
    assert_eq!((cut.part, cut.before), ("input.data.decisions", 0));
    let gone = cut.entries.len();
    assert!((20..30).contains(&gone), "no more than has to go: {gone}");
    assert_eq!(cut.entries, entries[..gone]);
    let left = decisions(&record);
    assert_eq!(left[1..], entries[gone..]);
    assert_eq!(left[0]["count"], gone);
    assert_eq!(left[0]["ref"], FILE);
    let told = left[0]["summary"].as_str().unwrap();
    let latest = format!("{gone} decisions, the latest: d{}; ", gone - 1);
    assert!(told.starts_with(&latest), "{told}");
    assert_eq!(
        record.meta.compacted,
        [json!({ "part": "input.data.decisions", "count": gone, "ref": FILE })]
    );

    // The second time the same reference stands for all of them.
    let fitted = fit(&mut record, most / 2, FILE, LastEntries::Stay);
    assert_eq!(fitted.cut[0].before, gone);
    let all = gone + fitted.cut[0].entries.len();
    assert_eq!(decisions(&record)[0]["count"], all);
    assert_eq!(record.meta.compacted[0]["count"], all);
    assert_eq!(decisions(&record)[1..], entries[all..]);

    let fitted = fit(&mut record, 10, FILE, LastEntries::Stay);
    assert!(fitted.is_over, "what is left is not the daemon's");
    assert_eq!(decisions(&record)[1..], entries[47..]);
}

#[test]
fn entries_of_the_last_result_go_where_nothing_else_is_enough() {
    let entries: Vec<Value> = (0..50).map(|n| entry(n, 100)).collect();
    let mut record = carrying(&entries, &json!({ "decisions": 30 }));
    let whole = size(&record);
    let fitted = fit(&mut record, whole - whole / 5, FILE, LastEntries::Go);
    assert!(!fitted.is_over);
    assert_eq!(
        record.meta.links.written["decisions"], 30,
        "the others were enough"
    );

    let fitted = fit(&mut record, whole / 4, FILE, LastEntries::Go);
    assert!(!fitted.is_over && size(&record) <= whole / 4);
    let left = &decisions(&record)[1..];
    assert_eq!(*left, entries[50 - left.len()..], "the latest stay");
    assert_eq!(record.meta.links.written["decisions"], left.len());
    assert_eq!(decisions(&record)[0]["count"], 50 - left.len());
    let work = crate::policy::follow::work_in(&record.doc["input"]["data"], &record.meta.links);
    assert_eq!(
        work.unwrap()["decisions"].as_array().unwrap(),
        left,
        "no reference among them"
    );
}

#[test]
fn nothing_of_a_producer_or_a_result_is_taken() {
    let long = text(5000);
    let doc = json!({
        "context": { "notes": long }, "input": { "data": { "decisions": [long], "origin": long } },
    });
    let mut own = record(&doc, |_| {});
    let before = own.clone();
    let fitted = fit(&mut own, 1000, FILE, LastEntries::Stay);
    assert!(fitted.is_over && fitted.cut.is_empty());
    assert_eq!(own, before);

    let mut forged = record(&doc, |record| {
        record.meta.links.parent = Some("p".to_owned());
    });
    assert_eq!(
        fit(&mut forged, 1000, FILE, LastEntries::Stay).cut,
        [],
        "no daemon made it"
    );

    let mut whole = carrying(&[entry(1, 5000)], &json!({ "decisions": true }));
    assert_eq!(fit(&mut whole, 1000, FILE, LastEntries::Stay).cut, []);
}

#[test]
fn the_largest_goes_first_whatever_it_is() {
    let returned = |n: usize, words: usize| {
        json!({ "id": format!("c{n}"), "agent": "@h", "status": "completed",
                "result": { "summary": "helped", "text": text(words) } })
    };
    let furnished = || {
        record(&json!({ "a": 1 }), |record| {
            record.meta.previous =
                vec![json!({ "status": "failed", "error": { "code": "TIMEOUT" },
                                                "result": { "text": text(500) } })];
            record.meta.links.returns = vec![returned(1, 100), returned(2, 4000), returned(3, 100)];
            record.meta.last_result = json!({ "attempt": 1, "outcome": "failed",
                "result": { "summary": "half of it", "text": text(2000) } })
            .as_object()
            .unwrap()
            .clone();
        })
    };
    let whole = size(&furnished());
    for (most, parts) in [
        (whole - 1000, &["handoffd.returns"][..]),
        (whole - 5000, &["handoffd.returns", "handoffd.last_result"]),
        (
            1000,
            &[
                "handoffd.previous",
                "handoffd.returns",
                "handoffd.last_result",
            ],
        ),
    ] {
        let mut record = furnished();
        let fitted = fit(&mut record, most, FILE, LastEntries::Stay);
        let named: Vec<&str> = fitted.cut.iter().map(|cut| cut.part).collect();
        assert_eq!(named, parts, "{most}");
        assert!(!fitted.is_over && size(&record) <= most);
        let returns = &record.meta.links.returns;
        assert_eq!(returns[0]["count"], 1);
        assert_eq!(returns[0]["summary"], "1 return: c2 (@h, completed)");
        assert_eq!(returns[1..], [returned(1, 100), returned(3, 100)]);
        let last = &record.meta.last_result;
        assert_eq!(last["attempt"], 1);
        if parts.len() > 1 {
            assert_eq!(
                (&last["ref"], &last["summary"]),
                (&json!(FILE), &json!("half of it"))
            );
            assert!(!last.contains_key("result"));
        }
        if parts.len() > 2 {
            assert_eq!(
                record.meta.previous[0]["summary"],
                "1 earlier outcome: failed (TIMEOUT)"
            );
        }
    }
}

#[test]
fn a_part_that_the_record_no_longer_has_is_forgotten() {
    let mut record = record(&json!({}), |record| {
        record.meta.compacted = vec![
            json!({ "part": "handoffd.last_result", "count": 1, "ref": FILE }),
            json!({ "part": "handoffd.returns", "count": 2, "ref": FILE }),
            json!({ "part": "elsewhere", "count": 2, "ref": FILE }),
        ];
        record.meta.links.returns = vec![reference(2, String::new(), FILE)];
    });
    fit(&mut record, 100_000, FILE, LastEntries::Stay);
    let parts: Vec<&Value> = record.meta.compacted.iter().map(|it| &it["part"]).collect();
    assert_eq!(parts, ["handoffd.returns"]);
}

#[test]
fn returns_that_are_too_large_are_left_with_their_helpers() {
    let returned = |id: &str, status: &str, length: usize| {
        json!({ "id": id, "agent": "@h", "status": status,
                "result": { "summary": format!("of {id}"), "text": "x".repeat(length) } })
    };
    let mut returns = vec![
        returned("a", "completed", 100_000),
        returned("b", "failed", 200_000),
        returned("c", "completed", 50_000),
    ];
    let before = returns.clone();
    refer_to_helpers(&mut returns[2..]);
    assert_eq!(returns, before);
    refer_to_helpers(&mut returns);
    assert_eq!((&returns[0], &returns[2]), (&before[0], &before[2]));
    let size = before[1]["result"].to_string().len();
    assert_eq!(
        returns[1],
        json!({ "id": "b", "agent": "@h", "status": "failed", "summary": "of b",
                "size_bytes": size, "ref": "handoffs/failed/b.json" })
    );
}
