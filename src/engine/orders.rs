//! Orders from outside: commands, signals, reloads, the periodic rescan.

use std::ffi::OsString;
use std::sync::Arc;

use crate::config::{Config, OnStop};
use crate::engine::arrivals::list_one;
use crate::engine::boards;
use crate::engine::commands::{self, CommandFile, Dismissal, WholeCommand};
use crate::engine::event::{Event, Folder};
use crate::engine::hire;
use crate::engine::{Alarm, Busy, Engine, Stopping, attempt, confine, folders, obey};
use crate::keeper::wire::Why;
use crate::protocol::control::Action;
use crate::protocol::document::Syntax;
use crate::protocol::lifecycle::State;
use crate::protocol::name::Ext;
use crate::spool::look::{Identity, Writer};
use crate::watch::Hint;

impl Engine {
    pub(super) fn read_command(&mut self, name: OsString) {
        if self.reading_commands.insert(name.clone()) {
            self.actors.run(move |world| {
                let file = Box::new(commands::read(world, &name));
                world.tell(Event::Command { name, file });
            });
        }
    }

    pub(super) fn on_command(&mut self, name: OsString, file: CommandFile) {
        self.reading_commands.remove(&name);
        match file {
            CommandFile::Nothing => {
                self.unsettled.remove(&settle_key(&name));
                self.deferred_commands.remove(&name);
            }
            CommandFile::Changing => self.read_command_later(name),
            CommandFile::Broken {
                identity,
                reason,
                writer,
                may_mend,
            } => {
                if may_mend && !self.command_settled(&name, identity, writer) {
                    return self.read_command_later(name);
                }
                self.unsettled.remove(&settle_key(&name));
                self.refuse(name, identity, reason);
            }
            CommandFile::Whole(whole) => {
                if whole.syntax != Syntax::Json
                    && !self.command_settled(&name, whole.identity, whole.writer)
                {
                    return self.read_command_later(name);
                }
                self.unsettled.remove(&settle_key(&name));
                self.obey(name, whole);
            }
        }
    }

    fn refuse(&mut self, name: OsString, identity: Identity, reason: String) {
        // It may be read again before it is out of the way; once is enough.
        if self.refusing.insert(name.clone()) {
            self.deferred_commands.insert(name.clone());
            self.actors
                .run(move |world| commands::refuse(world, &name, identity, &reason));
        }
    }

    pub(super) fn on_command_done(&mut self, name: &OsString) {
        self.refusing.remove(name);
        self.deferred_commands.remove(name);
    }

    fn command_settled(&mut self, name: &OsString, identity: Identity, writer: Writer) -> bool {
        let now = self.now_ms();
        let settle = attempt::ms(self.world.config().daemon.settle);
        let key = settle_key(name);
        match self.unsettled.get(&key) {
            Some(known) if known.identity == identity => {
                writer != Writer::Open && now.saturating_sub(known.since_ms) >= settle
            }
            _ => {
                self.unsettled.insert(
                    key,
                    super::Unsettled {
                        identity,
                        since_ms: now,
                        open: writer == Writer::Open,
                    },
                );
                false
            }
        }
    }

    fn read_command_later(&mut self, name: OsString) {
        let settle = attempt::ms(self.world.config().daemon.settle).max(10);
        let at = self.now_ms() + settle;
        self.alarm(at, Alarm::ReadCommand(name));
    }

    fn obey(&mut self, name: OsString, whole: WholeCommand) {
        let id = whole.command.handoff_id.as_str().to_owned();
        if let Some(running) = self.running.get_mut(&id) {
            if running.record.meta.applied.contains(&whole.key) {
                // Carried out before a crash, and not yet deleted.
                self.deferred_commands.insert(name.clone());
                let done = Dismissal::new(&self.world, &name, whole.identity);
                return self.actors.run(move |_| done.carried_out());
            }
            let revision = running.record.meta.revision;
            if let Some(wanted) = whole.command.revision.filter(|it| *it != revision) {
                let reason = obey::wrong_revision(wanted, revision);
                return self.refuse(name, whole.identity, reason);
            }
            return match whole.command.action {
                Action::Cancel => {
                    let known = self.dismissals.entry(id.clone()).or_default();
                    // Its file stays until the attempt has ended, and may be read more than once.
                    if known.iter().any(|it| it.is_for_file(&name, whole.identity)) {
                        return;
                    }
                    running.cancelled = Some(obey::cancel_words(&whole.command));
                    known.push(Dismissal::new(&self.world, &name, whole.identity));
                    self.deferred_commands.insert(name);
                    let command = whole.command;
                    self.actors
                        .run(move |world| commands::note(world, &command));
                    self.end(&id, Why::Cancelled, None);
                }
                action => {
                    let reason = obey::pointless(action, State::InProgress, &id);
                    self.refuse(name, whole.identity, reason);
                }
            };
        }
        let looks = Ext::ALL.map(|ext| OsString::from(format!("{id}.{ext}")));
        if let Some(look) = looks.into_iter().find(|it| self.looking.contains_key(it)) {
            self.looks_awaited.insert(look);
            self.deferred_commands.insert(name);
            return;
        }
        if self.busy.contains_key(&id) {
            // Where it will stand is not known yet; it is asked again when the job is done.
            self.deferred_commands.insert(name);
            return;
        }
        let parked = self.lot.remove(&id);
        if let (Some(parked), Action::Retry) = (&parked, whole.command.action)
            && parked.holds_agent
        {
            // A person knows better than the specialist when it may go on.
            self.schedule.lift_hold(&parked.agent);
        }
        self.pending.remove(id.as_str());
        self.kept.take(&id);
        let doing = if parked.is_some() {
            Busy::Waking
        } else {
            Busy::Moving
        };
        self.busy.insert(id, doing);
        self.deferred_commands.insert(name.clone());
        self.actors
            .run(move |world| obey::carry_out(world, &name, whole));
    }

    /// Commands that came at a bad moment get another.
    pub(super) fn reread_deferred(&mut self) {
        let waiting: Vec<OsString> = self
            .deferred_commands
            .iter()
            .filter(|name| {
                !self
                    .dismissals
                    .values()
                    .flatten()
                    .any(|known| known.is_for(name))
            })
            .cloned()
            .collect();
        for name in waiting {
            self.read_command(name);
        }
    }

    pub(super) fn rescan(&mut self) {
        let every = attempt::ms(self.world.config().daemon.rescan);
        let at = self.now_ms() + every;
        self.alarm(at, Alarm::Rescan);
        self.leaving.forget();
        let watcher = Arc::clone(&self.watcher);
        let residents: Vec<u32> = self.crew.members.keys().copied().collect();
        let due = Folder::ALL.map(|folder| self.listing.insert(folder).then_some(folder));
        let due = due.into_iter().flatten();
        let scanner = Arc::clone(&self.scanner);
        self.readers.run(move |world| {
            folders::mend_folders(world);
            hire::cap_logs(world, &residents);
            if world.board.is_lost() {
                boards::write(world, true);
            }
            for folder in watcher.rearm() {
                world.tell(Event::Hint(Hint::Rescan {
                    folder: Some(folder),
                }));
            }
            // All on one thread: an idle daemon wakes nobody else.
            for folder in due {
                list_one(world, &scanner, folder, false);
            }
        });
        for id in self.lot.waiting_for_others() {
            self.check_dependencies(&id);
        }
    }

    /// The first things to do, once.
    pub(super) fn begin(&mut self) {
        let every = attempt::ms(self.world.config().daemon.rescan);
        let at = self.now_ms() + every;
        self.alarm(at, Alarm::Rescan);
        self.list(Folder::Control, true);
        self.list(Folder::Pending, true);
        for id in self.lot.waiting_for_others() {
            self.check_dependencies(&id);
        }
        self.watch_vitals();
        self.publish();
        self.show_alive();
    }

    pub(super) fn on_signal(&mut self, signal: i32) {
        match signal {
            signal_hook::consts::SIGHUP => {
                self.observer.reloading();
                self.reload();
            }
            _ if self.stopping.is_some() => {
                tracing::warn!("told to stop again: ending all attempts at once");
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
            tracing::info!("stopping; {count} attempts go on without the daemon");
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
                "not everything could be written before the end; the next start goes on"
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
            let required = path.is_some() || *world.config() != Config::default();
            let loaded = Config::load(path.as_deref().unwrap_or(&own), required);
            let loaded = loaded
                .map(Box::new)
                .map_err(|error| format!("{:#}", anyhow::Error::from(error)))
                .and_then(|config| match confine::check(&config).into_iter().next() {
                    Some((what, advice)) => Err(format!("{what}; {advice}")),
                    None => Ok(config),
                });
            world.tell(Event::Reloaded(loaded));
        });
    }

    pub(super) fn on_reloaded(&mut self, config: Result<Box<Config>, String>) {
        match config {
            Ok(config) => {
                let config: Arc<Config> = Arc::from(config);
                let later = self.world.config().needs_a_start(&config);
                self.schedule
                    .set_limits(config.daemon.max_concurrent, |agent| {
                        Self::limits_of(&config, agent)
                    });
                self.world.set_config(config);
                self.ahead.begin_anew();
                self.plan_retention();
                self.refit();
                self.problem("config", None);
                match later.as_slice() {
                    [] => tracing::info!("configuration read again"),
                    later => tracing::warn!(
                        "configuration read again; restart the daemon to have it use the new {}",
                        later.join(" and ")
                    ),
                }
                self.observer.reloaded(&self.counts().to_string());
            }
            Err(error) => {
                let text = format!("the new configuration is broken, the old one stays: {error}");
                self.observer.reloaded(&text);
                self.problem("config", Some(text));
            }
        }
    }
}

/// Commands and submissions share one table of unsettled names; this keeps them apart.
fn settle_key(name: &OsString) -> OsString {
    let mut key = OsString::from("control/");
    key.push(name);
    key
}
