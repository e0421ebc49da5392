//! What is heard of the crew: answers, heartbeats, broken rules, ends.
//!
//! A process is gone when the keeper says that its tree is and all that it wrote has been read;
//! only then is the handoff judged that it died in, so an answer that came just before still
//! counts. An answer to another handoff than the one it has is never anybody's.

use crate::engine::attempt::{Running, resident_key};
use crate::engine::crew::Member;
use crate::engine::hire::bury;
use crate::engine::outcome::{Death, End};
use crate::engine::{Alarm, Busy, Engine, Stopping};
use crate::keeper::wire::{Held, Key, State as KeeperState, Why};
use crate::policy::judge::{EndedFor, Exit};
use crate::runner::resident::wires::{Answer, Said};

/// How long a process that can't be spoken with any more has to end by itself.
pub const HUNG_MS: u64 = 1000;

impl Engine {
    /// The handoff was given to its process; what came of that may be known already.
    pub(super) fn on_given(&mut self, mut running: Running) {
        let Some(post) = &mut running.post else {
            return;
        };
        let (number, keeper, id) = (post.number, post.keeper, running.key.id.clone());
        let Some(member) = self.crew.members.get_mut(&number) else {
            return self.conclude(running, End::NotBegun);
        };
        member.wire.clone_from(&post.wire);
        member.keeper = post.keeper;
        if member.wire.is_none() {
            // Nothing was started, so there is nothing to hear.
            member.closed = Some(Vec::new());
        }
        running.ending = member.ending;
        let answer = match member.ending {
            None => member.answer.take(),
            Some(_) => None,
        };
        self.running.insert(id.clone(), running);
        // It was on its way when the daemon was told to stop without waiting.
        if matches!(self.stopping, Some(Stopping::Detach | Stopping::Ending)) {
            self.end(&id, Why::Stop, None);
        }
        if let Some(answer) = answer {
            self.on_answer(number, answer);
        }
        if keeper < self.keeper.0 {
            let (count, entries) = self.keeper.clone();
            self.reconcile(number, count, &entries);
        }
        self.close_if_ended(number);
    }

    pub(super) fn on_said(&mut self, number: u32, said: Said) {
        let now = self.now_ms();
        let Some(member) = self.crew.members.get_mut(&number) else {
            return;
        };
        match said {
            Said::Closed { stderr } => {
                member.closed = Some(stderr);
                self.perhaps_gone(number);
            }
            Said::Hung(what) => {
                member.hung = member.hung.or(Some((what, now)));
                self.alarm(now + HUNG_MS, Alarm::Crew(number));
            }
            // Whatever one says that is on its way out is nobody's business any more.
            _ if member.fault.is_some() || member.let_go.is_some() => {}
            Said::Heartbeat { id } => {
                // One may still be on its way when the answer is there.
                let post = self.running.get_mut(&id).and_then(|it| it.post.as_mut());
                if let Some(post) = post.filter(|post| post.number == number) {
                    post.beats += 1;
                    self.on_begun_well(number);
                }
            }
            Said::Answer(answer) => self.on_answer(number, answer),
            Said::Wrong(what) => self.on_fault(number, what),
        }
    }

    fn on_answer(&mut self, number: u32, answer: Answer) {
        let Some(member) = self.crew.members.get_mut(&number) else {
            return;
        };
        let Some(id) = member.current.clone() else {
            let what = format!("answered {:?}, which was not its handoff", answer.id);
            return self.on_fault(number, what);
        };
        if answer.id != id {
            let what = format!("answered {:?} instead of {id}", answer.id);
            return self.on_fault(number, what);
        }
        let Some(running) = self.running.get(&id).filter(|it| it.ending.is_none()) else {
            if member.answer.replace(answer).is_some() {
                self.on_fault(number, format!("answered {id} twice"));
            }
            return;
        };
        let attempt = u64::from(running.key.attempt);
        if let Some(other) = answer.attempt.filter(|it| *it != attempt) {
            let what = format!("answered attempt {other} of {id} instead of {attempt}");
            return self.on_fault(number, what);
        }
        member.current = None;
        member.answered = member.answered.saturating_add(1);
        let agent = member.agent.clone();
        self.on_works(&agent);
        if let Some(mut running) = self.running.remove(&id) {
            running.post = None;
            self.conclude(running, End::Answered(Box::new(answer)));
        }
        self.rest(number);
    }

    /// A process that breaks the rules is ended: what it says can't be trusted any more.
    pub(super) fn on_fault(&mut self, number: u32, what: String) {
        let member = self.crew.members.get_mut(&number);
        // One that is being ended says goodbye as it likes.
        if let Some(member) = member.filter(|member| member.ending.is_none()) {
            tracing::warn!(agent = %member.agent, "the resident process {what}; ending it");
            member.fault = Some(what);
            self.dismiss(number, Why::Stop);
        }
    }

    /// The handoff that a process has now.
    pub(super) fn handoff_at(&mut self, key: &Key) -> Option<&mut Running> {
        let member = self.crew.members.get(&key.attempt)?;
        self.running.get_mut(member.current.as_ref()?)
    }

    /// The keeper says that nothing of a process is alive.
    pub(super) fn on_resident_end(&mut self, key: &Key, end: End) {
        if self.on_former_gone(key) {
            return;
        }
        let number = key.attempt;
        if let Some(member) = self.crew.members.get_mut(&number) {
            member.ended.get_or_insert(end);
            self.close_if_ended(number);
        }
    }

    /// Has what it wrote read to the end, once there can be no more.
    fn close_if_ended(&mut self, number: u32) {
        let Some(member) = self.crew.members.get(&number) else {
            return;
        };
        match (&member.ended, &member.closed) {
            (Some(_), None) if member.wire.is_some() => self.world.wires.drain(number),
            _ => self.perhaps_gone(number),
        }
    }

    pub(super) fn perhaps_gone(&mut self, number: u32) {
        let Some(member) = self.crew.members.get(&number) else {
            return;
        };
        let launching = member
            .current
            .as_ref()
            .is_some_and(|id| self.busy.get(id) == Some(Busy::Launching));
        if member.ended.is_none() || member.closed.is_none() || launching {
            return;
        }
        let Some(mut member) = self.crew.members.remove(&number) else {
            return;
        };
        self.schedule.release(&resident_key(number).to_string());
        self.actors.run(move |world| bury(world, number));
        self.on_death(&member);
        let running = member
            .current
            .take()
            .and_then(|id| self.running.remove(&id));
        if let Some(mut running) = running {
            running.post = None;
            let end = last_word(member, running.cancelled.is_some());
            self.conclude(running, end);
        }
    }

    /// What the present keeper knows of a process that was given to an earlier one.
    pub(super) fn reconcile(&mut self, number: u32, count: u64, entries: &[Held]) {
        let Some(member) = self.crew.members.get_mut(&number) else {
            return;
        };
        // One that is being started is looked at when that is told.
        if member.keeper == 0 || member.keeper >= count {
            return;
        }
        let key = resident_key(number);
        let held = entries.iter().find(|held| held.key == key);
        let end = match held.map(|held| (&held.state, held.why)) {
            Some((KeeperState::Ended(exit), why)) => End::of(*exit, why),
            Some((KeeperState::Failed(failure), _)) => End::NotStarted {
                errno: failure.errno,
                what: failure.what.clone(),
            },
            None => End::NotBegun,
            Some((KeeperState::Running | KeeperState::Ending, _)) => {
                member.keeper = count;
                // The old keeper may have died with the order unread.
                if let Some((why, grace_ms)) = member.ending {
                    self.order_end(number, why, grace_ms);
                }
                return;
            }
        };
        self.on_resident_end(&key, end);
    }
}

/// How the handoff ended whose process is gone.
fn last_word(member: Member, cancelled: bool) -> End {
    let (exit, why) = match member.ended {
        Some(End::Exited { exit, why }) => (exit, why),
        Some(other) => return other,
        None => (Exit::Unknown, None),
    };
    if let (Some(answer), None, None) = (member.answer, why, &member.fault) {
        return End::Answered(Box::new(answer));
    }
    let cancelled = cancelled.then_some(EndedFor::Cancel);
    End::Died(Box::new(Death {
        exit,
        why: cancelled.or(why),
        fault: member.fault.filter(|_| cancelled.is_none()),
        stderr: member.closed.unwrap_or_default(),
    }))
}
