//! Signals: stopping, in its stages, and reading the configuration again.

use std::sync::Arc;

use crate::config::{Config, OnStop};
use crate::engine::event::Event;
use crate::engine::findings::{self, Finding, Findings};
use crate::engine::{Alarm, Engine, Stopping, attempt, confine, rights};
use crate::keeper::wire::Why;

impl Engine {
    pub(super) fn on_signal(&mut self, signal: i32) {
        match signal {
            signal_hook::consts::SIGHUP => {
                self.observer.reloading();
                self.reload();
            }
            _ if self.stopping.is_some() => {
                tracing::warn!("second stop signal: ending all attempts at once");
                self.end_now();
            }
            _ => self.stop(),
        }
    }

    fn stop(&mut self) {
        self.observer.stopping();
        let detach = self.on_stop() == OnStop::Detach;
        let count = self
            .running
            .values()
            .filter(|it| !detach || it.post.is_none())
            .count();
        self.stopping = Some(if detach {
            Stopping::Detach
        } else {
            Stopping::Finish
        });
        self.ask_back();
        let now = self.now_ms();
        let grace = attempt::ms(self.world.config().daemon.shutdown_grace);
        self.dismiss_idle();
        if detach {
            self.end_residents();
            tracing::info!("stopping; {count} attempts continue without the daemon");
        } else {
            tracing::info!("stopping; waiting for {count} attempts (stop again to end them now)");
            self.alarm(now + grace, Alarm::StopWaiting);
            // Without attempts it is gone before anybody could read that, and its file with it.
            if count > 0 {
                self.publish();
            }
        }
        let longest = self
            .running
            .values()
            .map(|r| attempt::ms(r.terms.kill_grace))
            .max();
        self.alarm(now + grace + longest.unwrap_or(0) + 10_000, Alarm::GiveUp);
    }

    /// Ends every attempt; they are interrupted, and run again after the next start.
    pub(super) fn end_all(&mut self, why: &str) {
        if self.stopping == Some(Stopping::Finish) {
            self.stopping = Some(Stopping::Ending);
            tracing::warn!("{why}: ending {} attempts", self.running.len());
            let ids: Vec<String> = self.running.keys().cloned().collect();
            for id in ids {
                self.end(&id, Why::Stop, None);
            }
        }
    }

    /// What a resident process does can't be left to the keeper: it is interrupted.
    fn end_residents(&mut self) {
        let given = self.running.values().filter(|it| it.post.is_some());
        let ids: Vec<String> = given.map(|it| it.key.id.clone()).collect();
        for id in ids {
            self.end(&id, Why::Stop, None);
        }
    }

    fn end_now(&mut self) {
        self.stopping = Some(Stopping::Ending);
        self.ask_back();
        let ids: Vec<String> = self.running.keys().cloned().collect();
        for id in ids {
            self.end(&id, Why::Stop, Some(0));
        }
        let at = self.now_ms() + 5_000;
        self.alarm(at, Alarm::GiveUp);
    }

    /// Whatever still hangs: the next start recovers it.
    pub(super) fn give_up(&mut self) {
        if self.stopping.is_some() {
            tracing::warn!(
                "could not write everything before stopping; the next start finishes it"
            );
            self.done = true;
        }
    }

    fn reload(&mut self) {
        let path = self.config_path.clone();
        self.actors.run(move |world| {
            let own = world.layout.root().join("handoffd.toml");
            // No file means that nothing is configured. Where something is, one that is gone is
            // more likely being edited: without it every request would fail for good.
            let key = world.config().key;
            let nothing = Config {
                key,
                ..Config::default()
            };
            let required = path.is_some() || *world.config() != nothing;
            let file = path.as_deref().unwrap_or(&own);
            let loaded = Config::load(file, required, world.layout.root());
            let loaded = loaded
                .map(|config| Box::new(Config { key, ..config }))
                .map_err(|error| format!("{:#}", anyhow::Error::from(error)))
                .and_then(|config| match confine::check(&config).into_iter().next() {
                    Some((what, advice)) => Err(format!("{what}; {advice}")),
                    None => Ok(config),
                })
                .and_then(|config| {
                    let wrong = rights::all(world.layout.root(), file, &config);
                    match wrong.first() {
                        Some(wrong) => Err(wrong.to_string()),
                        None => Ok(config),
                    }
                })
                .map(|config| {
                    let found = findings::of_config(rights::me(), &world.layout, file, &config);
                    (config, found)
                });
            world.tell(Event::Reloaded(loaded));
        });
    }

    pub(super) fn on_reloaded(&mut self, read: Result<(Box<Config>, Findings), String>) {
        match read {
            Ok((config, found)) => {
                let config: Arc<Config> = Arc::from(config);
                let later = self.started_with.needs_a_start(&config);
                self.schedule
                    .set_limits(config.daemon.max_concurrent, |agent| {
                        Self::limits_of(&config, agent)
                    });
                self.world.set_config(config);
                self.anchoring.look_again();
                self.ahead.begin_anew();
                self.plan_retention();
                self.refit();
                self.problem("config", None);
                match later.as_slice() {
                    [] => tracing::info!("configuration read again"),
                    later => tracing::warn!(
                        "configuration read again; restart the daemon to use the new {}",
                        later.join(" and ")
                    ),
                }
                log(&found);
                self.observer.reloaded(&self.counts().to_string());
            }
            Err(error) => {
                let said = "the new configuration is broken; keeping the old one:";
                // An event is one line, and this text has more: places, lines and carets.
                tracing::warn!("{said}");
                for line in error.lines() {
                    tracing::warn!("  {line}");
                }
                let text = format!("{said} {error}");
                self.observer.reloaded(&text);
                self.known_problem("config", text);
            }
        }
    }
}

/// What `check` would say of the new configuration.
fn log(found: &Findings) {
    for Finding { what, do_this } in &found.wrong {
        tracing::warn!("{what}; {do_this}");
    }
    for note in &found.notes {
        tracing::warn!("{note}");
    }
}
