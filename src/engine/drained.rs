//! The end of the loop: whether anything is left to wait for.

use crate::engine::parked::{On, Parked};
use crate::engine::waits::MISSES;
use crate::engine::{Engine, Stopping};

impl Engine {
    /// Whether there is nothing left to wait for.
    pub(super) fn check_end(&mut self) {
        let jobs_done = self.busy.is_empty();
        let may_leave = match self.stopping {
            Some(Stopping::Detach) => jobs_done,
            Some(Stopping::Finish | Stopping::Ending) => jobs_done && self.running.is_empty(),
            None => self.drain && jobs_done && self.is_drained(),
        };
        if may_leave {
            self.dismiss_idle();
        }
        self.done = self.done || may_leave && self.crew.members.is_empty();
    }

    fn is_drained(&self) -> bool {
        self.running.is_empty()
            && self.pending.is_empty()
            && self.to_look.is_empty()
            && self.looking.is_empty()
            && self.unsettled.values().all(|unsettled| unsettled.open)
            && self.listing.is_empty()
            && self.unlisted.is_empty()
            && self.orders.is_empty()
            && self.checks == 0
            && self.departures == 0
            && self.rejecting.is_empty()
            && self.trouble.is_none()
            && !self.lot.iter().any(|(_, parked)| {
                parked.ready || matches!(parked.on, On::Retry | On::Time) || seeks_helpers(parked)
            })
    }
}

/// Whether a helper is being looked for that may be gone; then its parent goes on without it.
fn seeks_helpers(parked: &Parked) -> bool {
    parked.on == On::Handoff && (1..MISSES).contains(&parked.misses)
}
