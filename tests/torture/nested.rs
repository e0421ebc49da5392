//! Killed, and killed again while it recovers from that.

use crate::kill_points::{can_trace, changes_something, each, kill_at, points_of};
use crate::report::{Row, times};
use crate::scenarios::{self, Leaving, Scenario, Strict};

const SCENARIOS: [Scenario; 4] = [
    Scenario::Success,
    Scenario::Retry,
    Scenario::Timeout,
    Scenario::BlockedAndReturn,
];

/// One pair of kills, and the points that they fall on.
struct Pair {
    scenario: Scenario,
    first: usize,
    second: usize,
    after: bool,
}

#[test]
fn a_daemon_that_is_killed_while_it_recovers_loses_and_doubles_nothing() {
    let mut row = Row::new("kill -9 during the recovery from kill -9");
    if !can_trace(&mut row) {
        return row.finish();
    }
    let mut leaving = Leaving::default();
    let pairs = times("nested", 16, 2000);
    let each_scenario = pairs.div_ceil(SCENARIOS.len());
    let mut work = Vec::new();
    for scenario in SCENARIOS {
        let points = points_of(scenario, changes_something, &mut leaving);
        for n in 0..each_scenario {
            // Two sequences that never fall into step, so that pairs cover the square evenly.
            let share = |factor: usize| n * factor % points + 1;
            work.push(Pair {
                scenario,
                first: share(67),
                second: share(101),
                after: n % 2 == 0,
            });
        }
    }
    each(&mut row, &work, one_pair);
    row.finish();
}

/// None if the first daemon ended before it was killed, or the second had less to do than that.
fn one_pair(pair: &Pair, leaving: &mut Leaving) -> Option<Vec<String>> {
    let scenario = pair.scenario;
    let root = scenario.root();
    let first = scenarios::traced(&root, kill_at(pair.first, pair.after)).struck?;
    let ended = scenarios::traced(&root, kill_at(pair.second, !pair.after));
    let (second, at) = (ended.struck, pair.second);
    let mut found: Vec<String> = scenarios::undisturbed(&root).into_iter().collect();
    found.extend(scenarios::breaches(&root, scenario, Strict::Exactly));
    let place = match &second {
        Some(second) => format!(
            "{scenario:?}, killed at call {} ({first}), then at {at} ({second})",
            pair.first
        ),
        None => format!("{scenario:?}, killed at call {} ({first})", pair.first),
    };
    if !found.is_empty() {
        scenarios::keep(&root, &place);
    }
    leaving.add(root);
    if second.is_none() && found.is_empty() {
        return None;
    }
    Some(
        found
            .into_iter()
            .map(|what| format!("{place}: {what}"))
            .collect(),
    )
}
