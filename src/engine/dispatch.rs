//! Dispatch: at the end of each turn of the loop, what may start is started.

use crate::config::Config;
use crate::engine::{Engine, attempt};
use crate::policy::schedule::{AgentLimits, Pick, RateLimit};
use crate::protocol::agent::AgentName;

impl Engine {
    /// Starts what may start.
    pub(super) fn dispatch(&mut self) {
        self.dispatch_at = None;
        if self.stopping.is_some() || self.trouble.is_some() || self.shared {
            return;
        }
        let now = self.now_ms();
        if now < self.paused_until_ms {
            self.dispatch_at = Some(self.paused_until_ms);
            return;
        }
        // Outcomes that wait for the disk must not pile up without bound. Those that a former
        // daemon left are bounded by themselves, and hold up nobody.
        let bound = 64
            + 4 * self.world.config().daemon.max_concurrent
            + self.to_judge.len()
            + self.judging.len();
        // Several are prepared together, when half of those before have had their turn.
        let slots = self.schedule.max_concurrent();
        let refills = self.schedule.running() <= slots + self.ahead.most(slots) / 2;
        while self.busy.of_attempts() < bound {
            let (pending, lot, busy) = (&self.pending, &self.lot, &self.busy);
            let wanted = |id: &str| {
                !busy.contains(id)
                    && (pending.contains(id) || lot.get(id).is_some_and(|parked| parked.ready))
            };
            // While the keeper does not know of one that is to start at once, the slots are not
            // what it counts.
            let ahead = if self.at_once.is_empty() && refills {
                self.ahead.most(slots)
            } else {
                0
            };
            let may_go_ahead =
                |agent: &AgentName, id: &str| self.ahead.may(agent) && pending.contains(id);
            match self.schedule.pick(now, ahead, may_go_ahead, wanted) {
                Pick::Start {
                    id,
                    agent,
                    arrival_ms,
                } => {
                    self.note_pickup(arrival_ms);
                    self.launch(&id, agent);
                }
                Pick::At(at) => {
                    self.dispatch_at = Some(at);
                    return;
                }
                Pick::Idle => return,
            }
        }
    }

    pub(super) fn limits_of(config: &Config, agent: &AgentName) -> AgentLimits {
        config
            .specialist(agent)
            .map_or_else(AgentLimits::default, |specialist| AgentLimits {
                max_concurrent: specialist.at_once(),
                rate: specialist.rate.as_ref().map(|rate| RateLimit {
                    starts: rate.starts,
                    per_ms: attempt::ms(rate.per),
                }),
                account: specialist.account.clone(),
            })
    }
}
