//! Which figures there are, and the page that shows them.

use std::collections::BTreeMap;

use crate::clock::Wall;
use crate::figures::counts::Counts;
use crate::figures::histogram::Histogram;
use crate::figures::openmetrics::{Family, Kind, Page};

const fn gauge(name: &'static str, unit: Option<&'static str>, help: &'static str) -> Family {
    let kind = Kind::Gauge;
    Family {
        name,
        kind,
        unit,
        help,
    }
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    let (kind, unit) = (Kind::Counter, None);
    Family {
        name,
        kind,
        unit,
        help,
    }
}

const fn histogram(name: &'static str, unit: Option<&'static str>, help: &'static str) -> Family {
    let kind = Kind::Histogram;
    Family {
        name,
        kind,
        unit,
        help,
    }
}

const SECONDS: Option<&str> = Some("seconds");

#[rustfmt::skip]
mod is {
    use super::{Family, Kind, SECONDS, counter, gauge, histogram};
    pub const BUILD: Family = Family {
        name: "handoffd_build", kind: Kind::Info, unit: None, help: "The running daemon",
    };
    pub const START: Family = gauge("handoffd_start_time_seconds", SECONDS, "When the daemon started, in Unix time");
    pub const PROBLEMS: Family = gauge("handoffd_problems", None, "How many problems the daemon reports");
    pub const HANDOFFS: Family = gauge("handoffd_handoffs", None, "Handoffs by state folder");
    pub const WAITING: Family = gauge("handoffd_waiting", None, "Waiting handoffs, by reason");
    pub const QUEUED: Family = gauge("handoffd_queued", None, "Handoffs that could run and lack \
    a slot, by agent");
    pub const RUNNING: Family = gauge("handoffd_running", None, "Running attempts, by agent");
    pub const OLDEST: Family = gauge("handoffd_queue_age_seconds", SECONDS, "How long the oldest handoff in the queue has waited; 0 if the queue is empty");
    pub const SLOTS: Family = gauge("handoffd_slots", None, "How many attempts may run at once");
    pub const SLOTS_USED: Family = gauge("handoffd_slots_used", None, "How many slots are taken");
    pub const STARTED: Family = counter("handoffd_attempts_started", "Started attempts, by agent");
    pub const RETRIES: Family = counter("handoffd_retries", "Failures that the daemon retries, \
    by agent");
    pub const ENDED: Family = counter("handoffd_ended", "Ended handoffs, by agent, state and \
    error code");
    pub const DURATION: Family = histogram("handoffd_attempt_duration_seconds", SECONDS, "From the start of an attempt to its outcome, by agent");
    pub const PICKUP: Family = histogram("handoffd_pickup_seconds", SECONDS, "From when a \
    handoff could run to when the daemon picked it");
    pub const BATCH: Family = histogram("handoffd_commit_batch_changes", Some("changes"), "How many changes shared one round of syncs");
    pub const PRUNED: Family = counter("handoffd_pruned", "Files and records that retention \
    deleted, by kind");
}

/// All families, in the order of the page.
pub const FAMILIES: [Family; 17] = [
    is::BUILD,
    is::START,
    is::PROBLEMS,
    is::HANDOFFS,
    is::WAITING,
    is::QUEUED,
    is::RUNNING,
    is::OLDEST,
    is::SLOTS,
    is::SLOTS_USED,
    is::STARTED,
    is::RETRIES,
    is::ENDED,
    is::DURATION,
    is::PICKUP,
    is::BATCH,
    is::PRUNED,
];

/// How everything stands at one moment. What is empty is not known.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// The version of the daemon that runs, and since when.
    pub daemon: Option<(String, Wall)>,
    pub problems: u64,
    pub handoffs: BTreeMap<&'static str, u64>,
    pub waiting: BTreeMap<String, u64>,
    pub queued: BTreeMap<String, u64>,
    pub running: BTreeMap<String, u64>,
    pub queue_age: f64,
    pub slots: u64,
    pub slots_used: u64,
    pub pickup: Option<Histogram>,
    pub batches: Option<Histogram>,
    pub counts: Counts,
}

impl Figures {
    /// The whole page.
    pub fn text(&self) -> String {
        let mut page = Page::default();
        self.daemon(&mut page);
        self.standing(&mut page);
        self.happened(&mut page);
        page.finish()
    }

    fn daemon(&self, page: &mut Page) {
        page.family(&is::BUILD);
        if let Some((version, _)) = &self.daemon {
            page.value(&is::BUILD, &[("version", version)], 1);
        }
        page.family(&is::START);
        if let Some((_, since)) = &self.daemon {
            page.value(&is::START, &[], seconds(since.0));
        }
        page.family(&is::PROBLEMS);
        page.value(&is::PROBLEMS, &[], self.problems);
    }

    fn standing(&self, page: &mut Page) {
        page.family(&is::HANDOFFS);
        for (state, count) in &self.handoffs {
            page.value(&is::HANDOFFS, &[("state", state)], *count);
        }
        let named = [
            (is::WAITING, "on", &self.waiting),
            (is::QUEUED, "agent", &self.queued),
            (is::RUNNING, "agent", &self.running),
        ];
        for (family, label, counts) in named {
            page.family(&family);
            for (name, count) in counts {
                page.value(&family, &[(label, name)], *count);
            }
        }
        page.family(&is::OLDEST);
        page.value(&is::OLDEST, &[], self.queue_age);
        page.family(&is::SLOTS);
        page.value(&is::SLOTS, &[], self.slots);
        page.family(&is::SLOTS_USED);
        page.value(&is::SLOTS_USED, &[], self.slots_used);
    }

    fn happened(&self, page: &mut Page) {
        let agents = &self.counts.agents;
        page.family(&is::STARTED);
        for (name, agent) in agents {
            page.value(&is::STARTED, &[("agent", name)], agent.started);
        }
        page.family(&is::RETRIES);
        for (name, agent) in agents {
            page.value(&is::RETRIES, &[("agent", name)], agent.retries);
        }
        page.family(&is::ENDED);
        for (name, agent) in agents {
            let done = [("agent", name.as_str()), ("state", "completed")];
            page.value(&is::ENDED, &done, agent.completed);
            for (code, count) in &agent.failed {
                let failed = [
                    ("agent", name.as_str()),
                    ("state", "failed"),
                    ("code", code),
                ];
                page.value(&is::ENDED, &failed, *count);
            }
        }
        page.family(&is::DURATION);
        for (name, agent) in agents {
            page.histogram(&is::DURATION, &[("agent", name)], &agent.durations);
        }
        for (family, histogram) in [(is::PICKUP, &self.pickup), (is::BATCH, &self.batches)] {
            page.family(&family);
            if let Some(histogram) = histogram {
                page.histogram(&family, &[], histogram);
            }
        }
        page.family(&is::PRUNED);
        for (kind, count) in &self.counts.pruned {
            page.value(&is::PRUNED, &[("kind", kind)], *count);
        }
    }
}

/// Milliseconds as seconds.
pub fn seconds(ms: i64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "times are far below 2^52")]
    let ms = ms as f64;
    ms / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_every_family_once_also_when_nothing_is_known() {
        let text = Figures::default().text();
        for family in &FAMILIES {
            let line = format!("# TYPE {} {}\n", family.name, family.kind.word());
            assert_eq!(text.matches(&line).count(), 1, "{}", family.name);
            if let Some(unit) = family.unit {
                assert!(
                    family.name.ends_with(&format!("_{unit}")),
                    "{}",
                    family.name
                );
            }
        }
        assert_eq!(text.matches("# TYPE").count(), FAMILIES.len());
    }
}
