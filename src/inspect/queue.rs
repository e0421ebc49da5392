//! What holds handoffs that are ready: slots, rates, holds.
//!
//! The loop knows this by heart, and tells nobody; so it is worked out again from what lies in the
//! folders, which also works while no daemon runs. Nothing here moves a record: a handoff that is
//! held stays in `pending/`.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use crate::clock::{Now, Wall, boot_id};
use crate::config::{Config, Rate, Specialist};
use crate::inspect::list::{Filter, rows};
use crate::inspect::newest;
use crate::inspect::summary::{Place, Row};
use crate::policy::schedule::head_start_ms;
use crate::protocol::agent::AgentName;
use crate::protocol::lifecycle::State;
use crate::spool::layout::Layout;
use crate::store::audit;

/// How many lines of the audit log are read for the starts within a rate's window.
const RATE_LINES: usize = 200_000;
/// How many pending requests are read to say what holds them.
const PENDING_READ: usize = 20_000;

/// A limit that is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// The configuration's name for it.
    pub name: &'static str,
    pub value: u64,
}

impl Limit {
    pub fn to_json(&self) -> Value {
        json!({ "name": self.name, "value": self.value })
    }
}

/// What holds one that is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The word that `status` counts it under.
    pub word: &'static str,
    pub until: Option<Wall>,
    pub limit: Option<Limit>,
}

/// A specialist asked for a pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    pub until: Wall,
    /// The handoff that it asked in.
    pub id: String,
    /// The specialist that asked, and the account that it shares with this one.
    pub shared: Option<(AgentName, String)>,
}

/// What is known of one specialist's queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lane {
    pub running: usize,
    pub limit: Option<usize>,
    pub hold: Option<Hold>,
    pub rate: Option<Rate>,
    /// Where the rate is used up: when the next start may be.
    pub rate_until: Option<Wall>,
}

/// Everything that may hold what is ready.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    pub running: usize,
    pub limit: usize,
    pub lanes: BTreeMap<AgentName, Lane>,
    /// A hold of one specialist holds all that share its account.
    accounts: BTreeMap<String, Hold>,
}

impl Limits {
    pub fn gather(layout: &Layout, config: &Config, now: Now) -> io::Result<Self> {
        let mut lanes: BTreeMap<AgentName, Lane> = BTreeMap::new();
        let mut running = 0;
        let going = of_state(State::InProgress);
        for (_, row) in rows(layout, newest::all(layout, &going)?, &going) {
            running += 1;
            if let Some(agent) = agent_of(&row) {
                lanes.entry(agent).or_default().running += 1;
            }
        }
        let mut accounts: BTreeMap<String, Hold> = BTreeMap::new();
        for (agent, hold) in holds(layout, now)? {
            if let Some(account) = account(config, &agent)
                && accounts
                    .get(&account)
                    .is_none_or(|it| it.until < hold.until)
            {
                let shared = Some((agent.clone(), account.clone()));
                let of_account = Hold {
                    shared,
                    ..hold.clone()
                };
                accounts.insert(account, of_account);
            }
            let lane = lanes.entry(agent).or_default();
            if lane.hold.as_ref().is_none_or(|it| it.until < hold.until) {
                lane.hold = Some(hold);
            }
        }
        for (agent, until) in rates(layout, config, now)? {
            lanes.entry(agent).or_default().rate_until = Some(until);
        }
        for (agent, lane) in &mut lanes {
            configure(config, agent, lane, &accounts);
        }
        Ok(Self {
            running,
            limit: config.daemon.max_concurrent,
            lanes,
            accounts,
        })
    }

    pub fn lane(&self, config: &Config, agent: &AgentName) -> Lane {
        self.lanes.get(agent).cloned().unwrap_or_else(|| {
            let mut lane = Lane::default();
            configure(config, agent, &mut lane, &self.accounts);
            lane
        })
    }

    /// What holds a ready handoff of this lane, the longest wait first.
    pub fn holding(&self, lane: Option<&Lane>) -> Option<Held> {
        let number = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let slots = |value| Held {
            word: "slots",
            until: None,
            limit: Some(Limit {
                name: "max_concurrent",
                value: number(value),
            }),
        };
        let of_lane = lane.and_then(|lane| {
            if let Some(hold) = &lane.hold {
                return Some(Held {
                    word: "hold",
                    until: Some(hold.until),
                    limit: None,
                });
            }
            if let Some(until) = lane.rate_until {
                return Some(Held {
                    word: "rate",
                    until: Some(until),
                    limit: lane.rate.map(|rate| Limit {
                        name: "rate",
                        value: rate.starts.into(),
                    }),
                });
            }
            let limit = lane.limit.filter(|limit| lane.running >= *limit)?;
            Some(slots(limit))
        });
        of_lane.or_else(|| (self.running >= self.limit).then(|| slots(self.limit)))
    }

    /// Whether anything is held at all; if not, nobody has to be asked whose it is.
    fn hold_nothing(&self) -> bool {
        let none = |lane: &Lane| self.holding(Some(lane)).is_none();
        self.accounts.is_empty() && self.holding(None).is_none() && self.lanes.values().all(none)
    }
}

fn configure(
    config: &Config,
    agent: &AgentName,
    lane: &mut Lane,
    accounts: &BTreeMap<String, Hold>,
) {
    let specialist = config.specialist(agent);
    lane.limit = specialist.and_then(Specialist::at_once);
    lane.rate = specialist.and_then(|specialist| specialist.rate);
    let account = account(config, agent);
    let of_account = account.and_then(|account| accounts.get(&account));
    if let Some(hold) = of_account
        && lane.hold.as_ref().is_none_or(|own| own.until < hold.until)
    {
        lane.hold = Some(hold.clone());
    }
}

fn account(config: &Config, agent: &AgentName) -> Option<String> {
    config.specialist(agent)?.account.clone()
}

pub fn agent_of(row: &Row) -> Option<AgentName> {
    AgentName::parse(row.agent.as_deref()?).ok()
}

fn of_state(state: State) -> Filter {
    Filter {
        states: vec![state],
        ..Filter::default()
    }
}

/// Counts, under the limits' words, what is ready and held.
pub fn count(layout: &Layout, config: &Config, now: Now) -> io::Result<BTreeMap<String, usize>> {
    let mut counts = BTreeMap::new();
    let pending = of_state(State::Pending);
    let mut places = newest::all(layout, &pending)?.take(PENDING_READ).peekable();
    if places.peek().is_none() {
        return Ok(counts);
    }
    let limits = Limits::gather(layout, config, now)?;
    if limits.hold_nothing() {
        return Ok(counts);
    }
    for (_, row) in rows(layout, places, &pending) {
        let agent = agent_of(&row);
        let lane = agent.map(|agent| limits.lane(config, &agent));
        if let Some(held) = limits.holding(lane.as_ref()) {
            *counts.entry(held.word.to_owned()).or_insert(0) += 1;
        }
    }
    Ok(counts)
}

/// Those that go before this one for the same specialist, the first one first.
pub fn ahead_of(layout: &Layout, row: &Row) -> io::Result<Vec<String>> {
    let agent = agent_of(row);
    let key = |row: &Row| row.updated_at.0.saturating_sub(head_start_ms(row.priority));
    let pending = of_state(State::Pending);
    let mut ahead: Vec<(i64, String)> = rows(layout, newest::all(layout, &pending)?, &pending)
        .map(|(_, other)| other)
        .filter(|other| agent_of(other) == agent && other.id != row.id && key(other) <= key(row))
        .map(|other| (key(&other), other.id))
        .collect();
    ahead.sort();
    Ok(ahead.into_iter().map(|(_, id)| id).collect())
}

/// Whose specialist asked for a pause that is not over, and in which handoff.
fn holds(layout: &Layout, now: Now) -> io::Result<Vec<(AgentName, Hold)>> {
    let waiting = Filter {
        waiting: Some("time".to_owned()),
        ..of_state(State::Waiting)
    };
    let held = |(place, row): (Place, Row)| {
        let (_, record) = place.read()?;
        let meta = record?.meta;
        let timer = meta.timer.filter(|_| meta.holds_agent)?;
        let until = timer.until;
        (timer.remaining_ms(now, boot_id()) > 0).then_some(())?;
        Some((
            agent_of(&row)?,
            Hold {
                until,
                id: place.id,
                shared: None,
            },
        ))
    };
    let found = rows(layout, newest::all(layout, &waiting)?, &waiting);
    Ok(found.filter_map(held).collect())
}

/// Whose rate is used up, and until when: the log tells of every start.
fn rates(layout: &Layout, config: &Config, now: Now) -> io::Result<BTreeMap<AgentName, Wall>> {
    let all = config.specialists.values();
    let Some(longest) = all.filter_map(|it| it.rate).map(|rate| rate.per).max() else {
        return Ok(BTreeMap::new());
    };
    let begin = minus(now.wall, longest);
    let mut starts: BTreeMap<AgentName, Vec<Wall>> = BTreeMap::new();
    let recent = audit::newest_first(&layout.audit())?;
    let recent = recent.map_while(Result::ok).take(RATE_LINES);
    // Lines may be a little out of order; a minute is much more than that.
    for line in recent.take_while(|line| line.at >= begin.plus_ms(-60_000)) {
        let agent = line.detail.get("agent").and_then(Value::as_str);
        let agent = agent.filter(|_| line.event == "started");
        if let Some(agent) = agent.and_then(|agent| AgentName::parse(agent).ok()) {
            starts.entry(agent).or_default().push(line.at);
        }
    }
    let used_up = |(agent, mut starts): (AgentName, Vec<Wall>)| {
        let rate = config.specialist(&agent)?.rate?;
        starts.sort_unstable_by(|one, other| other.cmp(one));
        let until = used_up_until(rate, &starts, now.wall)?;
        Some((agent, until))
    };
    Ok(starts.into_iter().filter_map(used_up).collect())
}

/// When a rate allows the next start, if that is not now. The newest start comes first.
fn used_up_until(rate: Rate, starts: &[Wall], now: Wall) -> Option<Wall> {
    let nth = usize::try_from(rate.starts.max(1)).ok()?.checked_sub(1)?;
    let per = i64::try_from(rate.per.as_millis()).unwrap_or(i64::MAX);
    let until = starts.get(nth)?.plus_ms(per);
    (until > now).then_some(until)
}

fn minus(at: Wall, by: Duration) -> Wall {
    at.plus_ms(-i64::try_from(by.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> AgentName {
        AgentName::parse(name).unwrap()
    }

    fn limits(running: usize, lane: Lane) -> Limits {
        Limits {
            running,
            limit: 4,
            lanes: BTreeMap::from([(name("a"), lane)]),
            accounts: BTreeMap::new(),
        }
    }

    #[test]
    fn the_limit_is_named_by_its_word_with_value_and_time() {
        let rate = Some(Rate {
            starts: 2,
            per: Duration::from_secs(60),
        });
        let full = Lane {
            running: 2,
            limit: Some(2),
            ..Lane::default()
        };
        let paused = Some(Hold {
            until: Wall(9),
            id: "k".to_owned(),
            shared: None,
        });
        let cases = [
            (0, Lane::default(), None),
            (4, Lane::default(), Some(("slots", None, Some(4)))),
            (2, full.clone(), Some(("slots", None, Some(2)))),
            (
                4,
                Lane {
                    rate,
                    rate_until: Some(Wall(7)),
                    ..full.clone()
                },
                Some(("rate", Some(7), Some(2))),
            ),
            (
                4,
                Lane {
                    hold: paused,
                    ..full
                },
                Some(("hold", Some(9), None)),
            ),
            (
                3,
                Lane {
                    rate,
                    ..Lane::default()
                },
                None,
            ),
        ];
        for (running, lane, expected) in cases {
            let limits = limits(running, lane);
            let held = limits.holding(limits.lanes.get(&name("a")));
            let said = held.map(|held| {
                let value = held.limit.map(|limit| limit.value);
                (held.word, held.until.map(|until| until.0), value)
            });
            assert_eq!(said, expected, "{limits:?}");
            assert_eq!(limits.hold_nothing(), expected.is_none());
        }
    }

    #[test]
    fn a_rate_is_used_up_until_its_first_start_leaves_the_window() {
        let rate = |starts| Rate {
            starts,
            per: Duration::from_millis(100),
        };
        for (starts, past, now, until) in [
            (1, &[50][..], 60, Some(150)),
            (1, &[50], 150, None),
            (2, &[50], 60, None),
            (2, &[90, 50, 20], 100, Some(150)),
            (1, &[], 0, None),
        ] {
            let past: Vec<Wall> = past.iter().copied().map(Wall).collect();
            assert_eq!(
                used_up_until(rate(starts), &past, Wall(now)),
                until.map(Wall),
                "{starts} {past:?}"
            );
        }
    }
}
