//! The words between daemon and keeper, held against literal fixtures.

use super::super::turn::Claim;
use super::*;
use serde_json::json;

fn key() -> Key {
    Key::new("x", 2)
}

fn note() -> Value {
    serde_json::from_str(r#"{"n":12345678901234567890123,"f":1.0}"#).unwrap()
}

/// The words of version 1, as they went over real sockets. A change here needs a new
/// version, and a keeper that still understands the old one or is kept until it is idle.
#[test]
fn the_orders_of_version_1_stay_as_they_are() {
    let odd = Os(OsString::from_vec(vec![b'a', 0xff]));
    let orders = [
        (Order::Hello { version: 1 }, r#"{"hello":{"version":1}}"#),
        (Order::Prove, r#""prove""#),
        (
            Order::Start(Box::new(Start {
                key: key(),
                argv: vec!["sh".into(), "-c".into()],
                env: vec![("PATH".into(), "/bin".into()), ("ODD".into(), odd)],
                cwd: "/root".into(),
                deadline_boot_ms: 90_000,
                grace_ms: 500,
                note: note(),
                quiet: true,
                confine: None,
                fsize: Some(4096),
                turn: None,
            })),
            r#"{"start":{"key":{"id":"x","attempt":2},"argv":["sh","-c"],"env":[["PATH","/bin"],["ODD",{"hex":"61ff"}]],"cwd":"/root","deadline_boot_ms":90000,"grace_ms":500,"note":{"n":12345678901234567890123,"f":1.0},"quiet":true,"fsize":4096}}"#,
        ),
        (
            Order::End {
                key: key(),
                why: Why::Cancelled,
                grace_ms: 10,
            },
            r#"{"end":{"key":{"id":"x","attempt":2},"why":"cancelled","grace_ms":10}}"#,
        ),
        (
            Order::Forget { key: key() },
            r#"{"forget":{"key":{"id":"x","attempt":2}}}"#,
        ),
        (Order::Inventory, r#""inventory""#),
        (Order::GiveBack, r#""give_back""#),
        (
            Order::Usage { key: key() },
            r#"{"usage":{"key":{"id":"x","attempt":2}}}"#,
        ),
    ];
    for (order, text) in orders {
        assert_eq!(serde_json::to_string(&order).unwrap(), text);
        assert_eq!(serde_json::from_str::<Order>(text).unwrap(), order);
    }
}

#[test]
fn a_turn_stays_as_it_is() {
    let turn = Turn {
        at_most: 2,
        patience_ms: 50,
        timeout_ms: 300_000,
        deadline_var: "UNTIL".into(),
        claim: Claim {
            from: "/a".into(),
            to: "/b".into(),
            content: "/c".into(),
            stamps: vec![7, 90],
            device: 1,
            inode: 2,
            size: 3,
            modified_ns: -4,
        },
    };
    let text = r#"{"at_most":2,"patience_ms":50,"timeout_ms":300000,"deadline_var":"UNTIL","claim":{"from":"/a","to":"/b","content":"/c","stamps":[7,90],"device":1,"inode":2,"size":3,"modified_ns":-4}}"#;
    assert_eq!(serde_json::to_string(&turn).unwrap(), text);
    assert_eq!(serde_json::from_str::<Turn>(text).unwrap(), turn);
}

#[test]
fn the_reports_of_version_1_stay_as_they_are() {
    let held = |state, why| Held {
        key: key(),
        note: note(),
        pid: Some(7),
        starttime: Some(99),
        why,
        state,
    };
    let failed = State::Failed(Failure {
        errno: 2,
        what: "exec /x".to_owned(),
    });
    let reports = [
        (
            Report::Inventory {
                entries: vec![
                    held(State::Running, None),
                    held(State::Ending, Some(Why::Stop)),
                    held(State::Ended(Exit::Code(3)), None),
                    held(failed, None),
                ],
            },
            r#"{"inventory":{"entries":[{"key":{"id":"x","attempt":2},"note":{"n":12345678901234567890123,"f":1.0},"pid":7,"starttime":99,"why":null,"state":"running"},{"key":{"id":"x","attempt":2},"note":{"n":12345678901234567890123,"f":1.0},"pid":7,"starttime":99,"why":"stop","state":"ending"},{"key":{"id":"x","attempt":2},"note":{"n":12345678901234567890123,"f":1.0},"pid":7,"starttime":99,"why":null,"state":{"ended":{"code":3}}},{"key":{"id":"x","attempt":2},"note":{"n":12345678901234567890123,"f":1.0},"pid":7,"starttime":99,"why":null,"state":{"failed":{"errno":2,"what":"exec /x"}}}]}}"#,
        ),
        (
            Report::Started {
                key: key(),
                pid: 7,
                starttime: 99,
            },
            r#"{"started":{"key":{"id":"x","attempt":2},"pid":7,"starttime":99}}"#,
        ),
        (
            Report::Begun {
                key: key(),
                wall_ms: 1_700_000_000_123,
                boot_ms: 77,
                modified_ns: 1_700_000_000_123_456_789,
            },
            r#"{"begun":{"key":{"id":"x","attempt":2},"wall_ms":1700000000123,"boot_ms":77,"modified_ns":1700000000123456789}}"#,
        ),
        (
            Report::Returned {
                key: key(),
                why: "its turn did not come".to_owned(),
            },
            r#"{"returned":{"key":{"id":"x","attempt":2},"why":"its turn did not come"}}"#,
        ),
        (
            Report::StartFailed {
                key: key(),
                errno: 2,
                what: "exec /x".to_owned(),
            },
            r#"{"start_failed":{"key":{"id":"x","attempt":2},"errno":2,"what":"exec /x"}}"#,
        ),
        (
            Report::Ended {
                key: key(),
                exit: Exit::Signal(9),
                why: Some(Why::Timeout),
            },
            r#"{"ended":{"key":{"id":"x","attempt":2},"exit":{"signal":9},"why":"timeout"}}"#,
        ),
        (
            Report::Ended {
                key: key(),
                exit: Exit::Unknown,
                why: None,
            },
            r#"{"ended":{"key":{"id":"x","attempt":2},"exit":"unknown","why":null}}"#,
        ),
        (
            Report::Usage {
                key: key(),
                cpu_ms: Some(40),
            },
            r#"{"usage":{"key":{"id":"x","attempt":2},"cpu_ms":40}}"#,
        ),
    ];
    for (report, text) in reports {
        assert_eq!(serde_json::to_string(&report).unwrap(), text);
        assert_eq!(serde_json::from_str::<Report>(text).unwrap(), report);
    }
}

#[test]
fn every_reason_has_its_name() {
    use Why::{Cancelled, Flood, Linger, Stalled, Stop, Timeout};
    let all = [Timeout, Cancelled, Stalled, Linger, Flood, Stop];
    let names = json!(["timeout", "cancelled", "stalled", "linger", "flood", "stop"]);
    assert_eq!(serde_json::to_value(all).unwrap(), names);
}

#[test]
fn odd_hex_is_refused() {
    for text in [r#"{"hex":"6"}"#, r#"{"hex":"zz"}"#, r#"{"hex":"€1"}"#] {
        assert!(serde_json::from_str::<Os>(text).is_err(), "{text}");
    }
}

#[test]
fn the_greetings_of_version_1_stay_as_they_are() {
    let can = || vec![CONFINE.to_owned()];
    let greetings = [
        (Vec::new(), None, r#"{"hello":{"version":1}}"#),
        (can(), None, r#"{"hello":{"version":1,"can":["confine"]}}"#),
        (
            can(),
            Some(7),
            r#"{"hello":{"version":1,"can":["confine"],"prove":7}}"#,
        ),
    ];
    for (can, prove, text) in greetings {
        let report = Report::Hello {
            version: 1,
            can,
            prove,
        };
        assert_eq!(serde_json::to_string(&report).unwrap(), text);
        assert_eq!(serde_json::from_str::<Report>(text).unwrap(), report);
    }
}
