//! The one place that reads the clock.

use std::time::SystemTime;

#[expect(
    clippy::disallowed_methods,
    reason = "what an agent says of its quota is in wall-clock time"
)]
pub fn now() -> SystemTime {
    SystemTime::now()
}
