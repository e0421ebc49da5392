//! Arrivals: from a hint that a name may be there to an entry in the queue.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::engine::divert::{self, Destination, destination};
use crate::engine::event::{Diverted, Folder, Listing};
use crate::engine::intake::{Broken, Seen, Submission};
use crate::engine::listing::list_one;
use crate::engine::parked::{On, Parked, Sight};
use crate::engine::world::World;
use crate::engine::{Alarm, Busy, Engine, UNCLOSED_SETTLE_MS, Unsettled, attempt, folders};
use crate::policy::intake::{Plan, dependency_cycle};
use crate::policy::retry::list_again_after;
use crate::protocol::document::Syntax;
use crate::protocol::lifecycle::State;
use crate::protocol::name::{Name, classify};
use crate::spool::look::{Identity, Writer};
use crate::watch::{FolderKey, Hint, How};

pub const PENDING: FolderKey = FolderKey(0);
pub const CONTROL: FolderKey = FolderKey(1);

impl Engine {
    pub(super) fn on_hint(&mut self, hint: Hint) {
        match hint {
            Hint::Seen {
                folder: PENDING,
                name,
                how,
            } => {
                match how {
                    How::Gone => return self.on_gone(&name),
                    How::Renamed => {
                        self.unclosed.remove(&name);
                        self.renamed.insert(name.clone());
                    }
                    How::Closed => drop(self.unclosed.remove(&name)),
                    How::Created => drop(self.unclosed.insert(name.clone())),
                    How::Changed => {}
                }
                self.queue_look(name);
            }
            Hint::Seen { name, how, .. } => {
                if how == How::Gone {
                    self.on_folder_in_control(&name, false);
                } else if !self.shared {
                    self.read_command(name);
                }
            }
            Hint::Rescan { folder } => match folder {
                Some(PENDING) => self.list(Folder::Pending, true),
                Some(_) => self.list(Folder::Control, true),
                // Whatever was missed has changed the folder it is in.
                None => Folder::ALL
                    .into_iter()
                    .for_each(|folder| self.list(folder, false)),
            },
            Hint::Replaced(_) => self.mend_folders(),
        }
    }

    /// A folder that somebody deleted is made again.
    fn mend_folders(&self) {
        self.actors.run(folders::mend_folders);
    }

    fn on_gone(&mut self, name: &OsStr) {
        self.renamed.remove(name);
        self.unclosed.remove(name);
        self.unsettled.remove(name);
        if !self.problems.is_empty() {
            self.problem(&ignored_key(name), None);
        }
        if let Name::Submission { id, ext } = classify(name.as_bytes())
            && self.pending.get(id.as_str()) == Some(ext)
        {
            self.pending.remove(id.as_str());
            self.kept.take(id.as_str());
        }
    }

    /// Lists a folder on a worker, if it changed since it was last listed or `anyway`.
    pub(super) fn list(&mut self, folder: Folder, anyway: bool) {
        if self.listing.insert(folder) {
            let scanner = self.scanner.clone();
            self.readers
                .run(move |world| list_one(world, &scanner, folder, anyway));
        }
    }

    /// While everybody may write to a folder, or one leads out of the root, nothing is taken from any
    /// and nothing starts. Once that is mended, all is looked at that came meanwhile.
    pub(super) fn on_shared(&mut self, found: Option<(String, String)>) {
        let was = std::mem::replace(&mut self.shared, found.is_some());
        let text = found.map(|(what, advice)| {
            format!(
                "{what}; the daemon takes nothing from the folders until that is fixed: \
            {advice}"
            )
        });
        self.problem("shared", text);
        if was && !self.shared {
            for folder in Folder::ALL {
                self.relist.insert(folder);
            }
        }
    }

    pub(super) fn on_listing_done(&mut self, folder: Folder, listed: Listing) {
        self.listing.remove(&folder);
        if folder == Folder::Waiting {
            self.seek_unseen(listed == Listing::Whole && !self.shared);
        }
        self.tell_strangers(folder, listed == Listing::Whole && !self.shared);
        let failed = match listed {
            Listing::Failed(why) => Some(why),
            Listing::Whole | Listing::Unchanged => None,
        };
        if self.relist.remove(&folder) {
            self.list(folder, true);
        }
        if failed.is_some() {
            let failures = self.unlisted.entry(folder).or_default();
            *failures += 1;
            let wait = list_again_after(*failures, self.world.config().daemon.rescan);
            if let Some(wait) = wait {
                let at = self.now_ms() + attempt::ms(wait);
                self.alarm(at, Alarm::List(folder));
            }
        } else if self.unlisted.remove(&folder).is_none() {
            return;
        }
        self.problem(&format!("unlisted {folder:?}"), failed);
    }

    pub(super) fn on_listed(&mut self, folder: Folder, names: Vec<OsString>) {
        if self.shared {
            return;
        }
        for name in names {
            self.see(folder, &name);
            match folder {
                Folder::Pending => {
                    if !self.is_known(&name) {
                        self.queue_look(name);
                    }
                }
                Folder::Control => self.read_command(name),
                Folder::InProgress => self.check_stray(State::InProgress, &name),
                Folder::Waiting => {
                    self.see_waiting(&name);
                    self.check_stray(State::Waiting, &name);
                }
            }
        }
    }

    pub(super) fn on_seen(&mut self, name: OsString, seen: Seen) {
        let id = match classify(name.as_bytes()) {
            Name::Submission { id, .. } if !self.orders.is_empty() => Some(id),
            _ => None,
        };
        self.take_in(name, seen);
        if let Some(id) = id {
            self.wake_commands(id.as_str());
        }
    }

    fn take_in(&mut self, name: OsString, seen: Seen) {
        if self.looking.remove(&name) == Some(true) {
            // It changed while it was read: what was read is already old.
            return self.queue_look(name);
        }
        match seen {
            Seen::Nothing => self.on_gone(&name),
            Seen::Folder => {
                let text = format!(
                    "ignored the folder handoffs/pending/{}: drop files only",
                    attempt::shown(&name)
                );
                self.problem(&ignored_key(&name), Some(text));
            }
            Seen::Changing => {
                let at = self.now_ms() + 20;
                self.unsettle(&name, None, at);
            }
            Seen::Broken(broken) => self.on_broken(name, *broken),
            Seen::Submission(submission) => self.on_submission(name, submission),
        }
    }

    fn on_broken(&mut self, name: OsString, broken: Broken) {
        if broken.may_mend && !self.has_settled(&name, broken.identity, broken.writer) {
            return;
        }
        self.forget_name(&name);
        // It is on its way already, and is looked at once more after.
        if !self.rejecting.insert(name.clone()) {
            return;
        }
        tracing::warn!(
            file = attempt::shown(&name),
            "refused: {}",
            broken.told.message
        );
        self.actors
            .run_behind(move |world| divert::reject(world, &name, broken));
    }

    pub(super) fn on_rejected(&mut self, name: &OsStr, id: Option<&str>) {
        self.rejecting.remove(name);
        if let Some(id) = id {
            self.make_known(id, State::Failed, None);
        }
        // If it changed at the last moment it is still there, and is looked at anew.
        self.queue_look(name.to_owned());
    }

    fn forget_name(&mut self, name: &OsStr) {
        self.unsettled.remove(name);
        self.renamed.remove(name);
    }

    /// Whether the file has been still for long enough, with nobody writing. If not, it is
    /// looked at again.
    fn has_settled(&mut self, name: &OsString, identity: Identity, writer: Writer) -> bool {
        let now = self.now_ms();
        let mut settle = attempt::ms(self.world.config().daemon.settle);
        if writer == Writer::Unknown && self.unclosed.contains(name) {
            settle = settle.max(UNCLOSED_SETTLE_MS);
        }
        let since = match self.unsettled.get(name) {
            Some(known) if known.identity == identity => known.since_ms,
            _ => now,
        };
        let still_for = now.saturating_sub(since);
        if writer != Writer::Open && self.unsettled.contains_key(name) && still_for >= settle {
            return true;
        }
        // A close brings it here at once; this is for when none comes.
        let again = match writer {
            Writer::Open => settle.max(100),
            _ => settle.saturating_sub(still_for).max(1),
        };
        self.unsettle(name, Some((identity, since)), now + again);
        if let Some(unsettled) = self.unsettled.get_mut(name) {
            unsettled.open = writer == Writer::Open;
        }
        false
    }

    fn unsettle(&mut self, name: &OsString, known: Option<(Identity, u64)>, again_at: u64) {
        let (identity, since_ms) = known.unwrap_or((
            Identity {
                device: 0,
                inode: 0,
                size: 0,
                modified_ns: 0,
            },
            self.now_ms(),
        ));
        self.unsettled.insert(
            name.clone(),
            Unsettled {
                identity,
                since_ms,
                open: false,
            },
        );
        self.alarm(again_at, Alarm::Look(name.clone()));
    }

    fn on_submission(&mut self, name: OsString, submission: Box<Submission>) {
        // A prefix of YAML or Markdown often parses too; JSON is whole or broken.
        if submission.syntax != Syntax::Json
            && !self.renamed.contains(&name)
            && !self.has_settled(&name, submission.identity, submission.writer)
        {
            return;
        }
        self.forget_name(&name);
        let id = submission.id.clone();
        if self.busy.contains(&id) {
            // Its own claim may be under way; what is left of it then is another file.
            let at = self.now_ms() + 10;
            return self.unsettle(&name, None, at);
        }
        let other_name = self.pending.get(&id).filter(|ext| *ext != submission.ext);
        let other_name = other_name.is_some_and(|ext| {
            // Seldom, and worth a look: an id is known here by its hash.
            let path = self.world.layout.pending().join(format!("{id}.{ext}"));
            path.symlink_metadata().is_ok()
        });
        let stranger = self.is_stranger(&submission);
        if stranger || submission.taken || self.running.contains_key(&id) || other_name {
            return self.divert(name, submission, Destination::Duplicate);
        }
        // A record that was moved back by hand no longer waits.
        self.lot.remove(&id);
        let config = self.world.config();
        let request = match &submission.request {
            Ok(request) => request,
            Err(errors) => {
                let refused = divert::refused(errors);
                return self.divert(name, submission, refused);
            }
        };
        let planned = submission.plan(request, &config, self.world.now());
        if let Plan::WaitForDependencies { ids, .. } = &planned
            && let Some(circle) = self.lot.circle(&id, ids)
        {
            return self.break_circle(name, submission, &circle);
        }
        match destination(planned, request, &config) {
            Some(destination) => self.divert(name, submission, destination),
            None => self.enqueue(submission),
        }
    }

    fn enqueue(&mut self, submission: Box<Submission>) {
        let Ok(request) = &submission.request else {
            return;
        };
        let config = self.world.config();
        let id = submission.id.clone();
        let agent = request.agent.clone();
        self.schedule
            .push(&id, &agent, request.priority, submission.arrived_ms, || {
                Self::limits_of(&config, &agent)
            });
        self.pending.insert(&id, submission.ext);
        self.kept.offer(id, submission, self.pending.len());
    }

    /// Sends a submission elsewhere than into the queue.
    fn divert(&mut self, name: OsString, submission: Box<Submission>, destination: Destination) {
        let id = submission.id.clone();
        match &destination {
            // Said once it is done: the file may be taken away meanwhile.
            Destination::Fail(_) | Destination::Duplicate => {}
            Destination::Complete => tracing::info!(handoff_id = id, "a report that ends its work"),
            Destination::Help => tracing::info!(handoff_id = id, "a report that is blocked"),
            Destination::Ask(_) => tracing::info!(handoff_id = id, "waits for a human"),
            Destination::Wait { on, ids, .. } => {
                // Who waits for whom must be known before the next one is looked at.
                if let (&"dependency", Ok(request)) = (on, &submission.request) {
                    self.lot.insert(
                        &id,
                        Parked {
                            on: On::Dependency,
                            agent: request.agent.clone(),
                            priority: request.priority,
                            due_ms: None,
                            dependencies: ids.clone(),
                            artifacts: request.requires_artifacts.clone(),
                            not_before: request.not_before,
                            holds_agent: false,
                            ready: false,
                            warn_ms: None,
                            ended: 0,
                            misses: 0,
                            sight: Sight::default(),
                        },
                    );
                }
            }
        }
        let asks_gates = matches!(destination, Destination::Complete);
        if matches!(destination, Destination::Duplicate) {
            self.departures += 1;
        } else {
            self.pending.remove(id.as_str());
            self.kept.take(&id);
            self.busy.insert(id, Busy::Diverting);
        }
        let job = move |world: &World| divert::divert(world, &name, *submission, destination, None);
        if asks_gates {
            self.for_gates().run(job);
        } else {
            self.actors.run_behind(job);
        }
    }

    fn break_circle(&mut self, name: OsString, submission: Box<Submission>, circle: &[String]) {
        let told = dependency_cycle(circle);
        for id in circle.iter().filter(|id| **id != submission.id) {
            self.fail_waiting(id, told.clone());
        }
        self.divert(name, submission, Destination::Fail(told));
    }

    pub(super) fn on_diverted(&mut self, name: OsString, id: Option<String>, outcome: Diverted) {
        if let Some(id) = &id {
            self.busy.remove(id);
            self.wake_commands(id);
            self.lot.remove(id);
        } else {
            self.departures -= 1;
        }
        match (outcome, id) {
            (Diverted::Parked(parked), Some(id)) => {
                self.make_known(&id, State::Waiting, Some(&parked));
                self.park(&id, parked);
            }
            (Diverted::Ended { id: stands, to }, wanted) => {
                self.make_known(&stands, to, None);
                if let Some(id) = wanted {
                    self.on_ended(&id);
                }
            }
            (Diverted::Parked(_), None) => {}
            (Diverted::Again, _) => self.queue_look(name),
            (Diverted::Fixed(why), _) => self.leave_file(&name, why),
            (Diverted::Io(error), _) => {
                self.pause(&error);
                let at = self.now_ms() + 1000;
                self.unsettle(&name, None, at);
            }
        }
    }

    pub(super) fn on_immovable(&mut self, name: &OsString, why: &'static str) {
        self.rejecting.remove(name);
        self.leave_file(name, why);
    }

    /// Leaves a file that can't be moved where it is, for now. Nobody else waits for it.
    pub(super) fn leave_file(&mut self, name: &OsString, why: &'static str) {
        let shown = attempt::shown(name);
        let text = format!("can't move handoffs/pending/{shown}: {why}");
        self.problem(&ignored_key(name), Some(text));
        let at = self.now_ms() + 1000;
        self.unsettle(name, None, at);
    }

    /// Something could not be written: leave the disk alone for a moment.
    pub(super) fn pause(&mut self, error: &str) {
        self.paused_until_ms = self.now_ms() + 1000;
        self.mend_folders();
        self.problem(
            "claim",
            Some(format!("can't claim a handoff ({error}); trying again")),
        );
    }
}

fn ignored_key(name: &OsStr) -> String {
    format!("ignored {}", attempt::shown(name))
}
