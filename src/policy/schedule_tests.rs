//! The queue's promises, with the clock in hand.

use super::*;

fn agent(name: &str) -> AgentName {
    AgentName::parse(name).unwrap()
}

fn no_limits() -> AgentLimits {
    AgentLimits::default()
}

fn started(schedule: &mut Schedule, now: u64) -> String {
    match schedule.pick(now, 0, |_, _| false, |_| true) {
        Pick::Start { id, .. } => id.into(),
        other => format!("{other:?}"),
    }
}

#[test]
fn priorities_first_then_arrival() {
    let mut schedule = Schedule::new(10);
    for (id, priority, arrival) in [
        ("low", Priority::Low, 0),
        ("n1", Priority::Normal, 1),
        ("n2", Priority::Normal, 2),
        ("high", Priority::High, 3),
        ("critical", Priority::Critical, 4),
    ] {
        schedule.push(id, &agent("a"), priority, arrival, no_limits);
    }
    let order: Vec<String> = (0..5).map(|_| started(&mut schedule, 0)).collect();
    assert_eq!(order, ["critical", "high", "n1", "n2", "low"]);
}

#[test]
fn a_low_one_is_not_starved() {
    let mut schedule = Schedule::new(10);
    schedule.push("low", &agent("a"), Priority::Low, 0, no_limits);
    schedule.push(
        "late",
        &agent("a"),
        Priority::Normal,
        3 * 3_600_000,
        no_limits,
    );
    assert_eq!(started(&mut schedule, 0), "low");
}

#[test]
fn limits_are_global_and_by_specialist() {
    let mut schedule = Schedule::new(2);
    let one = || AgentLimits {
        account: None,
        max_concurrent: Some(1),
        rate: None,
    };
    schedule.push("a1", &agent("a"), Priority::Critical, 0, one);
    schedule.push("a2", &agent("a"), Priority::Critical, 0, one);
    schedule.push("b1", &agent("b"), Priority::Low, 0, no_limits);
    schedule.push("b2", &agent("b"), Priority::Low, 0, no_limits);
    assert_eq!(started(&mut schedule, 0), "a1");
    assert_eq!(started(&mut schedule, 0), "b1", "a is at its limit");
    assert_eq!(started(&mut schedule, 0), "Idle", "all slots are taken");
    schedule.release("b1");
    assert_eq!(started(&mut schedule, 0), "b2");
    schedule.release("a1");
    assert_eq!(started(&mut schedule, 0), "a2");
}

#[test]
fn a_rate_is_a_sliding_window() {
    let mut schedule = Schedule::new(10);
    let two_a_minute = || AgentLimits {
        account: None,
        max_concurrent: None,
        rate: Some(RateLimit {
            starts: 2,
            per_ms: 60_000,
        }),
    };
    for n in 0..4 {
        schedule.push(
            &format!("{n}"),
            &agent("a"),
            Priority::Normal,
            n,
            two_a_minute,
        );
    }
    assert_eq!(started(&mut schedule, 1_000), "0");
    assert_eq!(started(&mut schedule, 11_000), "1");
    assert_eq!(started(&mut schedule, 12_000), "At(61000)");
    assert_eq!(started(&mut schedule, 61_000), "2");
    assert_eq!(started(&mut schedule, 61_000), "At(71000)");
}

#[test]
fn a_hold_stops_one_specialist_only() {
    let mut schedule = Schedule::new(10);
    schedule.push("a1", &agent("a"), Priority::Critical, 0, no_limits);
    schedule.push("b1", &agent("b"), Priority::Low, 0, no_limits);
    schedule.hold(&agent("a"), 5_000, no_limits);
    assert_eq!(started(&mut schedule, 0), "b1");
    assert_eq!(started(&mut schedule, 0), "At(5000)");
    assert_eq!(started(&mut schedule, 5_000), "a1");
}

#[test]
fn a_hold_of_an_account_stops_all_that_share_it() {
    let team = || AgentLimits {
        account: Some("team".to_owned()),
        ..AgentLimits::default()
    };
    let mut schedule = Schedule::new(10);
    schedule.push("a1", &agent("a"), Priority::Normal, 0, team);
    schedule.push("b1", &agent("b"), Priority::Normal, 1, team);
    schedule.push("c1", &agent("c"), Priority::Low, 2, no_limits);
    schedule.hold_account(&agent("a"), 5_000, team);
    schedule.hold_account(&agent("b"), 3_000, team);
    assert_eq!(started(&mut schedule, 0), "c1");
    assert_eq!(started(&mut schedule, 4_000), "At(5000)");
    // One that comes only now is held too.
    schedule.push("d1", &agent("d"), Priority::Critical, 3, team);
    assert_eq!(started(&mut schedule, 4_000), "At(5000)");
    // A person who lets the specialist go on lets the account go on.
    schedule.lift_hold(&agent("a"));
    assert_eq!(started(&mut schedule, 4_000), "d1");
    assert_eq!(started(&mut schedule, 4_000), "a1");
    assert_eq!(started(&mut schedule, 4_000), "b1");
}

#[test]
fn a_specialist_without_an_account_is_held_alone() {
    let mut schedule = Schedule::new(10);
    schedule.push("a1", &agent("a"), Priority::Normal, 0, no_limits);
    schedule.push("b1", &agent("b"), Priority::Normal, 1, no_limits);
    schedule.hold_account(&agent("a"), 5_000, no_limits);
    assert_eq!(started(&mut schedule, 0), "b1");
    assert_eq!(started(&mut schedule, 0), "At(5000)");
}

#[test]
fn a_hold_is_lifted_only_for_its_own_reason() {
    let mut schedule = Schedule::new(10);
    schedule.push("a1", &agent("a"), Priority::Normal, 0, no_limits);
    schedule.hold(&agent("a"), 5_000, no_limits);
    schedule.hold(&agent("a"), 3_000, no_limits);
    schedule.lift_hold_until(&agent("a"), 3_000);
    assert_eq!(
        started(&mut schedule, 0),
        "At(5000)",
        "the longer one stays"
    );
    schedule.lift_hold_until(&agent("a"), 5_000);
    assert_eq!(started(&mut schedule, 0), "a1");
}

#[test]
fn a_blocked_specialist_starts_nothing_until_all_are_out_of_the_way() {
    let mut schedule = Schedule::new(10);
    schedule.block(&agent("a"), no_limits);
    schedule.block(&agent("a"), no_limits);
    schedule.push("a1", &agent("a"), Priority::Critical, 0, no_limits);
    schedule.push("b1", &agent("b"), Priority::Low, 0, no_limits);
    assert_eq!(started(&mut schedule, 0), "b1");
    schedule.unblock(&agent("a"));
    assert_eq!(started(&mut schedule, 0), "Idle");
    schedule.unblock(&agent("a"));
    assert_eq!(started(&mut schedule, 0), "a1");
}

#[test]
fn what_is_no_longer_wanted_is_dropped() {
    let mut schedule = Schedule::new(10);
    schedule.push("gone", &agent("a"), Priority::Normal, 0, no_limits);
    schedule.push("here", &agent("a"), Priority::Normal, 1, no_limits);
    let pick = schedule.pick(0, 0, |_, _| false, |id| id != "gone");
    assert!(matches!(pick, Pick::Start { id, .. } if &*id == "here"));
    assert_eq!(schedule.queued(), 0);
}

#[test]
fn adopted_attempts_hold_their_slots() {
    let mut schedule = Schedule::new(1);
    schedule.occupy("old", &agent("a"), no_limits);
    schedule.push("new", &agent("a"), Priority::Normal, 0, no_limits);
    assert_eq!(started(&mut schedule, 0), "Idle");
    schedule.release("old");
    schedule.release("old");
    assert_eq!(started(&mut schedule, 0), "new");
    assert_eq!(schedule.running(), 1);
}

#[test]
fn before_a_slot_is_free_only_the_next_one_is_taken_and_only_if_it_may() {
    let mut schedule = Schedule::new(1);
    for (id, name, arrival) in [
        ("a1", "a", 0),
        ("a2", "a", 1),
        ("b1", "b", 2),
        ("a3", "a", 3),
    ] {
        schedule.push(id, &agent(name), Priority::Normal, arrival, no_limits);
    }
    let a_may = |agent: &AgentName, _: &str| agent.bare() == "a";
    let pick = |schedule: &mut Schedule, ahead| match schedule.pick(0, ahead, a_may, |_| true) {
        Pick::Start { id, .. } => id.into_string(),
        other => format!("{other:?}"),
    };
    assert_eq!(pick(&mut schedule, 2), "a1");
    assert_eq!(pick(&mut schedule, 0), "Idle", "none may go ahead");
    assert_eq!(pick(&mut schedule, 2), "a2");
    assert_eq!(pick(&mut schedule, 1), "Idle", "one has gone ahead");
    assert_eq!(pick(&mut schedule, 2), "Idle", "b is next, and may not");
    schedule.release("a1");
    schedule.release("a2");
    assert_eq!(pick(&mut schedule, 2), "b1", "there is a slot");
    assert_eq!(pick(&mut schedule, 2), "a3");
}
