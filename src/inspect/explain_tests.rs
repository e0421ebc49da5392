//! Every state has words.

use super::*;

fn about(standing: Standing, daemon_runs: bool) -> Vec<String> {
    sentences(&Situation {
        id: "x".to_owned(),
        agent: Some("@coder".to_owned()),
        daemon_runs,
        daemon_stops: false,
        problems: Vec::new(),
        standing,
    })
}

/// One of each kind of standing, and of each kind of wait.
fn every_standing() -> Vec<Standing> {
    let mut all = vec![
        Standing::Unread {
            why: "it is empty".to_owned(),
        },
        Standing::Queued(Queue {
            configured: true,
            limit: 4,
            ..Queue::default()
        }),
        Standing::Running(Process {
            attempt: 1,
            ..Process::default()
        }),
        Standing::Interrupted,
        Standing::Foreign {
            state: State::Completed,
            why: "it is a list".to_owned(),
        },
        Standing::Foreign {
            state: State::Waiting,
            why: "it is a list".to_owned(),
        },
        Standing::Completed {
            at: None,
            seconds: None,
            warnings: vec!["the task stays in its phase".to_owned()],
        },
        Standing::Failed {
            code: "TIMEOUT".to_owned(),
            message: "slow".to_owned(),
            actions: Vec::new(),
            retry_available: true,
            packed: false,
        },
    ];
    all.extend(
        ["retry", "time", "dependency", "handoff", "human"].map(|on| {
            Standing::Waiting(Box::new(Wait {
                on: on.to_owned(),
                ids: vec!["p".to_owned()],
                reason: "because".to_owned(),
                ..Wait::default()
            }))
        }),
    );
    all
}

#[test]
fn no_state_is_left_without_a_sentence() {
    for standing in every_standing() {
        let ended = standing.is_final();
        let told = about(standing.clone(), true);
        assert!(told[0].contains('x'), "{standing:?}");
        assert!(
            ended || told.len() >= 2,
            "{standing:?} names no waker: {told:?}"
        );
        let idle = about(standing.clone(), false);
        assert_eq!(
            idle.iter().any(|s| s.contains("No daemon runs")),
            !ended,
            "{standing:?}"
        );
    }
}

#[test]
fn the_limit_that_holds_it_is_named() {
    let full = Queue {
        ahead: 3,
        next: Some("a".to_owned()),
        specialist_running: 2,
        specialist_limit: Some(2),
        limit: 4,
        configured: true,
        ..Queue::default()
    };
    let told = about(Standing::Queued(full.clone()), true).join(" ");
    assert!(told.contains("behind 3 others"), "{told}");
    assert!(told.contains("its max_concurrent"), "{told}");
    let all = Queue {
        specialist_limit: None,
        all_running: 4,
        ..full
    };
    assert!(
        about(Standing::Queued(all), true)
            .join(" ")
            .contains("All 4 slots")
    );
}

#[test]
fn what_lifts_a_hold_is_the_retry_of_who_asked_for_it() {
    let held = |shared| Queue {
        held: Some(Hold {
            until: "noon".to_owned(),
            id: "k1".to_owned(),
            shared,
        }),
        limit: 4,
        configured: true,
        ..Queue::default()
    };
    let told = about(Standing::Queued(held(None)), true).join(" ");
    assert!(told.contains("until noon, while it worked on k1"), "{told}");
    assert!(told.contains("handoffd retry k1"), "{told}");
    let other = Some(("@other".to_owned(), "team".to_owned()));
    let told = about(Standing::Queued(held(other)), true).join(" ");
    let shares = "@other, which shares the account team, asked to pause until noon";
    assert!(told.contains(shares), "{told}");
}

#[test]
fn a_stranger_in_a_final_folder_is_left_to_people() {
    let of = |state| {
        let why = "it is a list".to_owned();
        about(Standing::Foreign { state, why }, true).join(" ")
    };
    let told = of(State::Failed);
    assert!(told.contains("mv handoffs/failed/x.json"), "{told}");
    assert!(!told.contains("pending"), "{told}");
    assert!(of(State::Waiting).contains("next rescan"));
}

#[test]
fn a_running_one_names_its_process_and_its_deadline() {
    let process = Process {
        attempt: 2,
        most: Some(4),
        pid: Some(77),
        resident: false,
        deadline_in: Some(Duration::from_millis(90_400)),
        ending: None,
    };
    let stays = Process {
        pid: None,
        resident: true,
        ..process.clone()
    };
    let told = about(Standing::Running(stays), true).join(" ");
    assert!(told.contains("in a resident process"), "{told}");
    let told = about(Standing::Running(process), true).join(" ");
    assert!(told.contains("attempt 2 of at most 4"), "{told}");
    assert!(told.contains("process 77"), "{told}");
    assert!(told.contains("times out in 1m 30s"), "{told}");
}
