//! When to let events gather: while a backlog is worked off, or a burst comes in.
//!
//! Every file that the daemon takes away is told of, and a thread would be woken for each. Where there
//! are many, a pause lets the kernel give them out together. Nobody is to wait for that: who drops one
//! file, and the next when he has its outcome, must be heard at once, however fast that goes. So what
//! counts is not how many events there are, but that more leaves than comes, or that much comes at
//! once. In both cases what is dropped now has others before it.

use std::time::{Duration, Instant};

use notify::EventKind;
use notify::event::{AccessKind, AccessMode, ModifyKind, RenameMode};

/// How long is counted before it is decided anew.
const COUNTED: Duration = Duration::from_millis(10);
/// How many more must leave than come in that time.
const LEAVE: u32 = 4;
/// Or how many must come.
const COME: u32 = 10;
/// How long events gather in the kernel before the next are taken.
pub const GATHER: Duration = Duration::from_millis(4);
/// How long those that have gathered are taken before they gather again.
const TAKEN: Duration = Duration::from_micros(200);

#[derive(Debug)]
pub struct Rest {
    since: Instant,
    came: u32,
    left: u32,
    /// How many times in a row there were many.
    row: u32,
    rested: Instant,
}

impl Rest {
    pub fn new(now: Instant) -> Self {
        Self {
            since: now,
            came: 0,
            left: 0,
            row: 0,
            rested: now,
        }
    }

    /// Takes an event in, and says whether to pause for [`GATHER`] before the next.
    pub fn is_due(&mut self, event: EventKind, now: Instant) -> bool {
        match event {
            EventKind::Create(_)
            | EventKind::Modify(ModifyKind::Name(RenameMode::To))
            | EventKind::Access(AccessKind::Close(AccessMode::Write)) => self.came += 1,
            EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From)) => {
                self.left += 1;
            }
            _ => {}
        }
        let counted = now.saturating_duration_since(self.since);
        if counted >= COUNTED {
            let many = self.came >= COME || self.left >= self.came + LEAVE;
            // What came after a silence was counted for longer.
            let many = many && counted < COUNTED * 3;
            self.row = if many { self.row + 1 } else { 0 };
            (self.came, self.left, self.since) = (0, 0, now);
        }
        let is_due = self.row > 1 && now.saturating_duration_since(self.rested) >= TAKEN;
        if is_due {
            self.rested = now + GATHER;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use notify::event::{CreateKind, RemoveKind};

    const DROPPED: EventKind = EventKind::Modify(ModifyKind::Name(RenameMode::To));
    const READ: EventKind = EventKind::Access(AccessKind::Open(AccessMode::Any));
    const TAKEN_AWAY: EventKind = EventKind::Modify(ModifyKind::Name(RenameMode::From));

    /// How often a pause is due if `events` happen every so many microseconds, for a second. What
    /// happens during a pause is heard right after it.
    fn pauses(every: u64, events: &[EventKind]) -> u32 {
        let begin = Instant::now();
        let (mut rest, mut now) = (Rest::new(begin), begin);
        let mut pauses = 0;
        for happened in (0..1_000_000).step_by(usize::try_from(every).unwrap()) {
            now = now.max(begin + Duration::from_micros(happened));
            for event in events {
                if rest.is_due(*event, now) {
                    pauses += 1;
                    now += GATHER;
                }
            }
        }
        pauses
    }

    #[test]
    fn who_drops_one_after_the_other_is_never_held_up() {
        for every in [300, 1_500, 3_000, 5_000, 8_000, 20_000] {
            let one = [DROPPED, READ, READ, TAKEN_AWAY];
            // Above a thousand a second it is a burst.
            let held_up = pauses(every, &one) > 0;
            assert_eq!(held_up, every < 1_000, "every {every} µs");
            let watched = [DROPPED, READ, READ, READ, READ, READ, TAKEN_AWAY];
            assert_eq!(pauses(every.max(1_500), &watched), 0, "every {every} µs");
        }
    }

    #[test]
    fn a_backlog_that_is_worked_off_is_heard_of_together() {
        for every in [300, 700, 1_000, 2_000] {
            for kind in [TAKEN_AWAY, EventKind::Remove(RemoveKind::File)] {
                assert!(pauses(every, &[kind]) > 90, "every {every} µs");
            }
        }
        assert_eq!(pauses(5_000, &[TAKEN_AWAY]), 0, "a slow one");
    }

    #[test]
    fn a_burst_is_heard_of_together_and_forgotten_when_it_is_over() {
        assert!(pauses(100, &[DROPPED]) > 90);
        assert!(pauses(100, &[EventKind::Create(CreateKind::File)]) > 90);
        let begin = Instant::now();
        let mut rest = Rest::new(begin);
        let at = |ms| begin + Duration::from_millis(ms);
        for ms in 0..100 {
            rest.is_due(DROPPED, at(ms));
        }
        assert!(!rest.is_due(DROPPED, at(200)));
    }
}
