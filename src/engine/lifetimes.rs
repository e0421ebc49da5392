//! Lifetimes: from the launch of an attempt to its end.

use std::ffi::{OsStr, OsString};

use crate::clock::{Now, Wall};
use crate::engine::attempt::{self, NotLaunched, Running, Source};
use crate::engine::event::Sampled;
use crate::engine::launch::launch;
use crate::engine::outcome::End;
use crate::engine::sampling::{SampleRequest, restore_record, sample_all};
use crate::engine::{Alarm, Busy, Engine, VITALS_EVERY_MS};
use crate::keeper::wire::{Key, Report, Why};
use crate::protocol::agent::AgentName;
use crate::runner::vitals::Finding;
use crate::spool::look::Identity;

impl Engine {
    /// Has an attempt claimed and started. Its slot is taken already.
    pub(super) fn launch(&mut self, id: &str, agent: AgentName) {
        let slots = self.schedule.max_concurrent();
        let ahead =
            self.ahead.most(slots) > 0 && self.ahead.may(&agent) && self.pending.contains(id);
        let source = if let Some(ext) = self.pending.remove(id) {
            let name = OsString::from(format!("{id}.{ext}"));
            self.unclosed.remove(&name);
            // What is said of a file ends when the file is heard to be gone.
            if self.problems.is_empty() && !self.watcher.is_polling() {
                self.leaving.note(name);
            }
            Source::Pending {
                ext,
                read: self.kept.take(id),
            }
        } else {
            self.lot.remove(id);
            Source::Waiting
        };
        let post = self.post_for(id, &agent);
        let id = id.to_owned();
        if ahead {
            self.busy.insert(id.clone(), Busy::Ahead);
        } else {
            self.busy.insert(id.clone(), Busy::Launching);
            self.at_once.insert(id.clone());
        }
        let launches = if ahead {
            &mut self.preparations
        } else {
            &mut self.launches
        };
        launches.push(Box::new(move |world| {
            launch(world, &id, &agent, source, post, ahead);
        }));
    }

    pub(super) fn on_launched(&mut self, running: Running) {
        let id = running.key.id.clone();
        self.busy.remove(&id);
        self.wake_commands(&id);
        self.at_once.remove(&id);
        self.problem("claim", None);
        tracing::info!(
            handoff_id = id,
            attempt = running.key.attempt,
            agent = %running.agent,
            "started"
        );
        if running.advises() {
            self.advise(&id);
        }
        if let Some(end) = self.early_ends.remove(&running.key) {
            return self.conclude(running, end);
        }
        match running.post {
            Some(_) => self.on_given(running),
            None => self.take_over(running),
        }
        self.watch_vitals();
    }

    pub(super) fn on_not_launched(&mut self, id: &str, from: &Source, why: &NotLaunched) {
        self.schedule.release(id);
        self.at_once.remove(id);
        if let Source::Pending { ext, .. } = from {
            self.leaving.stays(OsStr::new(&format!("{id}.{ext}")));
        }
        self.vacate(id);
        // A refused one stays busy until its new place is written, which may be told already.
        if !matches!(why, NotLaunched::Refused) {
            self.busy.remove(id);
        }
        match why {
            NotLaunched::Refused => {}
            NotLaunched::LookAgain => self.look_again(id, from),
            NotLaunched::NotAhead(agent) => {
                self.ahead.refused(agent.clone());
                self.look_again(id, from);
            }
            NotLaunched::Fixed(why) => {
                if let Source::Pending { ext, .. } = from {
                    self.leave_file(&format!("{id}.{ext}").into(), why);
                }
            }
            NotLaunched::Unsafe(agent, wrong) => {
                self.on_unsafe(agent, Some((**wrong).clone()));
                self.look_again(id, from);
            }
            NotLaunched::Io(error) => {
                self.pause(error);
                self.look_again(id, from);
            }
        }
        self.wake_commands(id);
    }

    fn look_again(&mut self, id: &str, from: &Source) {
        match from {
            Source::Pending { ext, .. } => self.queue_look(format!("{id}.{ext}").into()),
            Source::Waiting => self.recheck(id.to_owned(), true),
        }
    }

    pub(super) fn on_report(&mut self, report: Report) {
        match report {
            Report::Ended { key, exit, why } => self.on_end(key, End::of(exit, why)),
            Report::StartFailed { key, errno, what } => {
                self.on_end(key, End::NotStarted { errno, what });
            }
            Report::Begun {
                key,
                wall_ms,
                boot_ms,
                modified_ns,
            } => {
                let wall = Wall(wall_ms);
                self.on_begun(&key, Now { wall, boot_ms }, modified_ns);
            }
            Report::Returned { key, why } => self.on_returned(&key, &why),
            Report::Usage { key, cpu_ms } => {
                let running = if attempt::is_resident(&key) {
                    self.handoff_at(&key)
                } else {
                    self.running.get_mut(attempt::handoff_of(&key))
                };
                if let Some(running) = running {
                    running.cpu_ms = cpu_ms.or(running.cpu_ms);
                }
            }
            Report::Hello { .. } | Report::Inventory { .. } | Report::Started { .. } => {}
        }
    }

    fn on_end(&mut self, key: Key, end: End) {
        if attempt::is_resident(&key) {
            return self.on_resident_end(&key, end);
        }
        let id = attempt::handoff_of(&key);
        let is_current = self
            .running
            .get(id)
            .is_some_and(|running| running.live_key() == key);
        // A verify command is started while its attempt is being concluded.
        let starting = match self.busy.get(id) {
            Some(Busy::Launching | Busy::Ahead) => true,
            Some(Busy::Concluding) => id != key.id,
            _ => false,
        };
        if is_current {
            if let Some(running) = self.running.remove(id) {
                self.conclude(running, end);
            }
        } else if starting {
            self.early_ends.insert(key, end);
        } else {
            self.on_orphan_gone(&key);
        }
    }

    fn on_orphan_gone(&mut self, key: &Key) {
        if self.busy.get(&key.id) == Some(Busy::Orphan) {
            self.busy.remove(&key.id);
            self.wake_commands(&key.id);
            let key = key.clone();
            self.actors.run(move |world| {
                let keeper = world.keeper();
                let _ = keeper.forget(&key).and_then(|()| keeper.flush());
            });
            self.list(crate::engine::event::Folder::Pending, true);
        }
    }

    /// Sees to it that running attempts are looked at from time to time.
    pub(super) fn watch_vitals(&mut self) {
        if !self.due.vitals && !self.running.is_empty() {
            self.due.vitals = true;
            let at = self.now_ms() + VITALS_EVERY_MS;
            self.alarm(at, Alarm::Vitals);
        }
    }

    pub(super) fn sample(&mut self) {
        self.due.vitals = false;
        self.end_overdue();
        let list: Vec<SampleRequest> = self
            .running
            .values()
            .filter(|running| running.ending.is_none())
            .map(|running| SampleRequest {
                key: running.key.clone(),
                live: running.live_key(),
                slot: running.live_slot(),
                cpu_ms: running.cpu_ms,
                identity: running.identity,
                check_result: running.vitals.is_lingering(),
                post: running.post.clone(),
            })
            .collect();
        let stalls: Vec<Key> = self
            .running
            .values()
            .filter(|running| running.terms.stall_timeout.is_some() && running.ending.is_none())
            .map(Running::live_key)
            .collect();
        if !list.is_empty() {
            self.actors.run(move |world| {
                let keeper = world.keeper();
                for key in &stalls {
                    // Without an answer the last known figure stands.
                    let _ = keeper.usage(key);
                }
                let _ = keeper.flush();
                sample_all(world, list);
            });
        }
        self.watch_vitals();
    }

    /// The keeper knows when a spawned attempt has to end; of what a resident process does it
    /// knows nothing.
    fn end_overdue(&mut self) {
        let now = self.now_ms();
        let overdue: Vec<String> = self
            .running
            .values()
            .filter(|running| running.ending.is_none() && running.is_overdue(now))
            .map(|running| running.key.id.clone())
            .collect();
        for id in overdue {
            self.end(&id, Why::Timeout, None);
        }
    }

    pub(super) fn on_sampled(&mut self, samples: Vec<Sampled>) {
        let now = self.now_ms();
        let max_output = self.world.config().daemon.max_output_size;
        let mut in_final = Vec::new();
        for sampled in samples {
            let Some(running) = self.running.get_mut(&sampled.id) else {
                continue;
            };
            // A record that somebody moved there is put back.
            if !sampled.in_final.is_empty() && !sampled.record_touched {
                let name = OsString::from(format!("{}.json", sampled.id));
                let folders = sampled.in_final.iter();
                in_final.extend(folders.map(|state| (*state, name.clone())));
            }
            if running.key.attempt != sampled.attempt || running.ending.is_some() {
                continue;
            }
            let limits = running.limits(max_output);
            let why = match running.vitals.look(sampled.sample, limits, now) {
                Finding::Fine => None,
                Finding::Flood => Some(Why::Flood),
                Finding::Stalled => Some(Why::Stalled),
                Finding::Lingering => sampled.whole_result.then_some(Why::Linger),
            };
            if let Some(why) = why {
                // A flood fills the disk in its grace.
                let grace_ms = (why == Why::Flood).then_some(0);
                self.end(&sampled.id, why, grace_ms);
            } else if sampled.record_touched && !self.restoring.contains(&sampled.id) {
                self.put_back(&sampled.id);
            }
        }
        self.on_final_files(in_final);
    }

    /// A running attempt's record was edited or moved: it is put back, and that is said.
    fn put_back(&mut self, id: &str) {
        let Some(running) = self.running.get(id) else {
            return;
        };
        tracing::warn!(
            handoff_id = id,
            "somebody edited or moved its record while it runs; restored it"
        );
        self.restoring.insert(id.to_owned());
        let (id, known) = (id.to_owned(), running.identity);
        let record = running.record.clone();
        self.actors
            .run(move |world| restore_record(world, id, &record, known));
    }

    pub(super) fn on_restored(&mut self, id: &str, identity: Option<Identity>) {
        self.restoring.remove(id);
        if let Some(running) = self.running.get_mut(id) {
            running.identity = identity;
        }
    }

    /// Asks the keeper to end an attempt's whole tree.
    pub(super) fn end(&mut self, id: &str, why: Why, grace_ms: Option<u64>) {
        let Some(running) = self.running.get_mut(id) else {
            return;
        };
        let grace_ms = grace_ms.unwrap_or_else(|| attempt::ms(running.terms.kill_grace));
        running.ending = Some((why, grace_ms));
        let key = running.live_key();
        if let Some(post) = &running.post {
            self.crew.mark_ending(post.number, why, grace_ms);
        }
        tracing::info!(handoff_id = id, attempt = key.attempt, "ending it: {why:?}");
        self.actors
            .run(move |world| drop(world.keeper().end(&key, why, grace_ms)));
    }
}
