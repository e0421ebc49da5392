//! What the service manager is told: ready, reading the configuration again, stopping, alive.
//!
//! The protocol is systemd's: one datagram for each word, to the socket in `NOTIFY_SOCKET`. Where
//! that is not set nobody listens, and every method does nothing. A word that can't be delivered is
//! not an error of the daemon's: at worst the manager takes it for hung and starts it again, which
//! loses nothing.
//!
//! Neither the keeper nor the attempts get `NOTIFY_SOCKET`: both are started with a closed list of
//! variables. Nobody but the daemon can say that the daemon is well.

use std::time::Duration;

use sd_notify::NotifyState;

use crate::engine::observer::Observer;

/// Speaks to the service manager, if there is one.
#[derive(Debug, Clone, Copy)]
pub struct Notifier {
    heard: bool,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// Looks for a manager in this process's environment.
    pub fn from_env() -> Self {
        let heard = std::env::var_os("NOTIFY_SOCKET").is_some_and(|socket| !socket.is_empty());
        let limit = sd_notify::watchdog_enabled().filter(|_| heard);
        Self {
            heard,
            watchdog: limit.and_then(half),
        }
    }

    pub fn ready(&self, status: &str) {
        self.say(&[NotifyState::Ready, NotifyState::Status(&one_line(status))]);
    }

    /// Without the time a manager that waits for the end of a reload would take it for an old one.
    pub fn reloading(&self) {
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            self.say(&[NotifyState::Reloading, now]);
        }
    }

    pub fn stopping(&self) {
        self.say(&[NotifyState::Stopping]);
    }

    pub fn status(&self, text: &str) {
        self.say(&[NotifyState::Status(&one_line(text))]);
    }

    /// How often to say [`Notifier::alive`]: half of what the manager allows this very process.
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog
    }

    pub fn alive(&self) {
        self.say(&[NotifyState::Watchdog]);
    }

    fn say(&self, words: &[NotifyState<'_>]) {
        if !self.heard {
            return;
        }
        if let Err(error) = sd_notify::notify(words) {
            tracing::debug!("can't notify the service manager: {error}");
        }
    }
}

impl Observer for Notifier {
    fn ready(&self, status: &str) {
        self.ready(status);
    }

    fn reloading(&self) {
        self.reloading();
    }

    fn reloaded(&self, status: &str) {
        self.ready(status);
    }

    fn stopping(&self) {
        self.stopping();
    }

    fn status(&self, text: &str) {
        self.status(text);
    }

    fn watchdog(&self) -> Option<Duration> {
        self.watchdog_interval()
    }

    fn alive(&self) {
        self.alive();
    }
}

/// Zero means that nothing is wanted.
fn half(limit: Duration) -> Option<Duration> {
    Some(limit / 2).filter(|half| !half.is_zero())
}

/// A line break would begin another word, and the rest of the text would be taken for it.
fn one_line(text: &str) -> String {
    text.split(char::is_control).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_can_not_say_another_word() {
        assert_eq!(one_line("broken:\nREADY=1\r\n"), "broken: READY=1  ");
        assert_eq!(one_line("3 running"), "3 running");
    }

    #[test]
    fn alive_is_said_twice_as_often_as_asked() {
        let seconds = Duration::from_secs;
        assert_eq!(half(seconds(30)), Some(seconds(15)));
        assert_eq!(half(seconds(0)), None);
    }

    #[test]
    fn nobody_listens_nothing_happens() {
        let quiet = Notifier {
            heard: false,
            watchdog: None,
        };
        quiet.ready("fine");
        quiet.alive();
        assert_eq!(Observer::watchdog(&quiet), None);
    }
}
