//! Orders from outside: commands, and the periodic rescan.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use crate::engine::boards;
use crate::engine::commands::{self, CommandFile, Dismissal, WholeCommand};
use crate::engine::event::{Event, Folder};
use crate::engine::hire;
use crate::engine::listing::list_one;
use crate::engine::moves::remember;
use crate::engine::{Alarm, Busy, Engine, attempt, finals, folders, obey};
use crate::keeper::wire::Why;
use crate::protocol::control::Action;
use crate::protocol::document::Syntax;
use crate::protocol::lifecycle::State;
use crate::protocol::name::Ext;
use crate::spool::look::{Identity, Writer};
use crate::watch::Hint;

/// How long a command that can't be set aside is left alone.
const STUCK_AGAIN_MS: u64 = 1000;

/// Commands that could not be set aside.
#[derive(Debug, Default)]
pub struct Stuck {
    names: BTreeSet<OsString>,
    /// The alarm to try them again is set.
    due: bool,
}

impl Engine {
    pub(super) fn read_command(&mut self, name: OsString) {
        self.orders.add(name);
    }

    /// Has commands read, a few at a time.
    pub(super) fn feed_commands(&mut self) {
        while let Some(name) = self.orders.take() {
            self.actors.run(move |world| {
                let file = Box::new(commands::read(world, &name));
                world.tell(Event::Command { name, file });
            });
        }
    }

    /// Nothing is being done to this handoff any more: commands about it are read again.
    pub(super) fn wake_commands(&mut self, id: &str) {
        let dismissals = self.dismissals.get(id);
        let awaits_its_end = |name: &OsStr| {
            let mut known = dismissals.into_iter().flatten();
            known.any(|known| known.is_for(name))
        };
        self.orders.wake(id, awaits_its_end);
    }

    pub(super) fn on_command(&mut self, name: OsString, file: CommandFile) {
        self.orders.was_read(&name);
        match file {
            CommandFile::Nothing => {
                self.unsettled.remove(&settle_key(&name));
                self.orders.done(&name);
                self.forget_stuck(&name);
            }
            CommandFile::Folder => self.on_folder_in_control(&name, true),
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

    pub(super) fn refuse(&mut self, name: OsString, identity: Identity, reason: String) {
        // It may be read again before it is out of the way; once is enough.
        if self.refusing.insert(name.clone()) {
            self.orders.begin(name.clone(), None);
            self.actors
                .run(move |world| commands::refuse(world, &name, identity, &reason));
        }
    }

    pub(super) fn on_command_done(&mut self, name: &OsString) {
        self.refusing.remove(name);
        self.orders.done(name);
        self.forget_stuck(name);
    }

    fn forget_stuck(&mut self, name: &OsString) {
        if self.stuck.names.remove(name) && self.stuck.names.is_empty() {
            self.problem("commands", None);
        }
    }

    /// It is not forgotten: nobody would look at an unchanged folder again.
    pub(super) fn on_command_stuck(&mut self, name: OsString, why: &str) {
        self.refusing.remove(&name);
        self.orders.done(&name);
        self.stuck.names.insert(name);
        let first = self.stuck.names.first().map(|name| attempt::shown(name));
        let text = first.map(|first| {
            format!(
                "can't move the refused command handoffs/control/{first} away: {why} (trying \
                 again every second)"
            )
        });
        self.problem("commands", text);
        self.try_stuck_later();
    }

    fn try_stuck_later(&mut self) {
        if !std::mem::replace(&mut self.stuck.due, true) {
            let at = self.now_ms() + STUCK_AGAIN_MS;
            self.alarm(at, Alarm::StuckCommands);
        }
    }

    pub(super) fn reread_stuck(&mut self) {
        self.stuck.due = false;
        if self.shared {
            return self.try_stuck_later();
        }
        for name in self.stuck.names.clone() {
            self.read_command(name);
        }
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
                let done = Dismissal::new(&self.world, &name, whole.identity);
                self.orders.hold(name, &id);
                if running.cancelled.is_none() {
                    return self.actors.run(move |_| done.carried_out());
                }
                // A cancel's file stays until the attempt has ended, and may be read more than once.
                let is_ending = running.ending.is_some();
                self.dismiss_later(id.clone(), done);
                if !is_ending {
                    self.end(&id, Why::Cancelled, None);
                }
                return;
            }
            let revision = running.record.meta.revision;
            if let Some(wanted) = whole.command.revision.filter(|it| *it != revision) {
                let reason = obey::wrong_revision(wanted, revision);
                return self.refuse(name, whole.identity, reason);
            }
            return match whole.command.action {
                Action::Cancel => {
                    running.cancelled = Some(obey::cancel_words(&whole.command));
                    remember(&mut running.record, whole.key);
                    let done = Dismissal::new(&self.world, &name, whole.identity);
                    self.dismiss_later(id.clone(), done);
                    self.orders.hold(name, &id);
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
        if looks.iter().any(|it| self.looking.contains_key(it)) {
            return self.orders.hold(name, &id);
        }
        if self.cancel_large(&name, &whole) {
            return;
        }
        if self.busy.contains(&id) {
            // Where it will stand is not known yet; it is asked again when the job is done.
            return self.orders.hold(name, &id);
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
        self.orders.begin(name.clone(), Some(&id));
        self.busy.insert(id, doing);
        let workers = match whole.command.action {
            Action::Approve => self.for_gates(),
            _ => &self.actors,
        };
        workers.run(move |world| obey::carry_out(world, &name, whole));
    }

    /// Deletes a command when the attempt has ended that it ends.
    pub(super) fn dismiss_later(&mut self, id: String, done: Dismissal) {
        let known = self.dismissals.entry(id).or_default();
        if !known.iter().any(|it| it.is_same(&done)) {
            known.push(done);
        }
    }

    pub(super) fn rescan(&mut self) {
        let every = attempt::ms(self.world.config().daemon.rescan);
        let at = self.now_ms() + every;
        self.alarm(at, Alarm::Rescan);
        self.leaving.forget();
        self.look_at_unsafe();
        let watcher = Arc::clone(&self.watcher);
        let residents: Vec<u32> = self.crew.members.keys().copied().collect();
        let due = Folder::ALL.map(|folder| self.listing.insert(folder).then_some(folder));
        let due = due.into_iter().flatten();
        let scanner = Arc::clone(&self.scanner);
        let (finals, foreign) = (Arc::clone(&self.finals), self.foreign.clone());
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
            finals::look(world, &finals, &foreign);
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
}

/// Commands and submissions share one table of unsettled names; this keeps them apart.
fn settle_key(name: &OsString) -> OsString {
    let mut key = OsString::from("control/");
    key.push(name);
    key
}
