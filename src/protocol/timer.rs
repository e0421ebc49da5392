//! Waits that survive restarts and clock jumps.
//!
//! A wait is stored with both clocks. While the machine stays up, the boot clock decides, so
//! that a jump of the wall clock changes nothing. After a reboot the boot clock means nothing;
//! the wall clock decides then, but never for longer than the whole wait.

use serde::{Deserialize, Serialize};

use crate::clock::{Now, Wall};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    /// The boot that `at_boot_ms` belongs to.
    pub boot: String,
    pub at_boot_ms: u64,
    pub length_ms: u64,
    pub until: Wall,
}

impl Timer {
    pub fn new(now: Now, boot: &str, length_ms: u64) -> Self {
        // Both clocks are cut to whole milliseconds, each at its own: without one more, what waited
        // by the one could be seen to begin too early by the other.
        let spare = u64::from(length_ms > 0);
        Self {
            boot: boot.to_owned(),
            at_boot_ms: now.boot_ms.saturating_add(length_ms).saturating_add(spare),
            length_ms,
            until: now
                .wall
                .plus_ms(i64::try_from(length_ms).unwrap_or(i64::MAX)),
        }
    }

    /// How long it still runs, in milliseconds; 0 when it is due.
    pub fn remaining_ms(&self, now: Now, boot: &str) -> u64 {
        if self.boot == boot {
            self.at_boot_ms.saturating_sub(now.boot_ms)
        } else {
            let left = self.until.0.saturating_sub(now.wall.0);
            u64::try_from(left).unwrap_or(0).min(self.length_ms)
        }
    }

    /// The moment on the boot clock of `now` at which it is due.
    pub fn due_boot_ms(&self, now: Now, boot: &str) -> u64 {
        now.boot_ms.saturating_add(self.remaining_ms(now, boot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn at(wall: i64, boot_ms: u64) -> Now {
        Now {
            wall: Wall(wall),
            boot_ms,
        }
    }

    #[test]
    fn clock_jumps_change_nothing_within_a_boot() {
        let timer = Timer::new(at(10 * HOUR, 1_000), "a", 30_000);
        for jump in [-24 * HOUR, -HOUR, 0, HOUR, 24 * HOUR] {
            let now = at(10 * HOUR + jump, 11_000);
            assert_eq!(timer.remaining_ms(now, "a"), 20_001, "jump {jump}");
        }
        assert_eq!(timer.remaining_ms(at(0, 31_001), "a"), 0);
        let now = at(0, 1_000);
        assert_eq!(Timer::new(now, "a", 0).remaining_ms(now, "a"), 0);
    }

    #[test]
    fn after_a_reboot_the_wall_clock_decides_within_the_whole_length() {
        let timer = Timer::new(at(10 * HOUR, 900_000), "a", 30_000);
        for (wall, left) in [
            (10 * HOUR + 10_000, 20_000),
            (10 * HOUR + 40_000, 0),
            (0, 30_000),
            (100 * HOUR, 0),
        ] {
            assert_eq!(timer.remaining_ms(at(wall, 5), "b"), left, "wall {wall}");
        }
    }
}
