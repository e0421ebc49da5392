//! Recovery: what a start does with what the last one left.
//!
//! What to do is [`crate::spool::recover`]'s table; this reads the folders, asks the keeper,
//! and carries the table out, with the same jobs that run at any other time. A file that turns
//! up in `in-progress/` or `waiting/` later goes the same way.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::durable;
use crate::engine::attempt::{Running, verify_key};
use crate::engine::children::has_unmade;
use crate::engine::effects::settle;
use crate::engine::event::Event;
use crate::engine::former::{is_resident_record, lost};
use crate::engine::moves::{fail_parked, load, write};
use crate::engine::outcome::End;
use crate::engine::parked::Parked;
use crate::engine::past::{Claim, Past};
use crate::engine::readmit::{File, readmit, reject, reject_name};
use crate::engine::story::transition;
use crate::engine::takeup::{judge_later, remember_cancels, running, take_up_verify, tell_start};
use crate::engine::world::World;
use crate::keeper::wire::{self, Held, Key, Why};
use crate::policy::next::{refusal, wait};
use crate::protocol::attempt::AttemptOutcome;
use crate::protocol::document;
use crate::protocol::error::ErrorCode;
use crate::protocol::id::HandoffId;
use crate::protocol::lifecycle::State;
use crate::protocol::name::Ext;
use crate::protocol::record::Record;
use crate::runner::collect;
use crate::spool::change::Change;
use crate::spool::claim::Origin;
use crate::spool::foreign::is_forged;
use crate::spool::look::{Identity, Looked, look};
use crate::spool::recover::{Action, Attempt, Stands, decide};

/// What one file turned out to be.
#[derive(Debug)]
pub enum Found {
    Running(Box<Running>),
    Parked(Parked),
    /// Being judged, moved on or written anew: an event follows.
    UnderWay,
    /// Nothing there any more.
    Nothing,
    /// It can't be dealt with now; it stays where it is.
    Left(String),
}

/// Deals with the record of `id` in `folder`.
pub fn recover_one(world: &World, folder: State, id: &str, past: &mut Past) -> Found {
    match try_recover(world, folder, id, past) {
        Ok(found) => found,
        Err(error) => Found::Left(format!(
            "can't recover {}/{id}.json: {error}",
            folder.folder()
        )),
    }
}

fn try_recover(world: &World, folder: State, id: &str, past: &mut Past) -> io::Result<Found> {
    if settle_twins(world, folder, id)? {
        return Ok(Found::Nothing);
    }
    let path = world.layout.record(folder, id);
    let (bytes, identity) = match read(world, &path, id)? {
        Ok(read) => read,
        Err(found) => return Ok(found),
    };
    let claim = past.claims.remove(id);
    let raw = claim
        .as_ref()
        .is_some_and(|claim| claim.origin == Origin::Pending && claim.inode == identity.inode);
    let stands = if raw {
        Stands::Raw
    } else {
        Stands::of(Record::document(&bytes), past.known.contains(id))
    };
    if let Stands::Ours(record) = &stands {
        let lines = past.recent.get(id).map_or(&[][..], Vec::as_slice);
        let told = world.committer.told();
        told.remember(lines, id, record.meta.revision);
    }
    let (fact, held) = attempt_of(world, &stands, id, past);
    let has_leftover = claim
        .as_ref()
        .is_some_and(|claim| Identity::at(&claim.path).is_ok_and(|at| at.inode == claim.inode));
    let action = match decide(folder, &stands, fact, has_leftover) {
        Action::MoveOn(_) | Action::NotBegun if !past.at_start => Action::Readmit,
        action => action,
    };
    match action {
        Action::Restore => {
            if let Some(claim) = claim {
                durable::exchange(&claim.path, &path)?;
                if claim.origin == Origin::Waiting && folder == State::InProgress {
                    durable::move_no_replace(&path, &world.layout.record(State::Waiting, id))?;
                    let _ = fs::remove_file(&claim.path);
                    return try_recover(world, State::Waiting, id, past);
                }
                // The bytes from before stand here again, under their own inode.
                past.claims.insert(id.to_owned(), claim);
                return try_recover(world, folder, id, past);
            }
        }
        Action::Readmit => {
            // Until the new record stands, this is what tells the producer's bytes from ours.
            let leftover = match claim {
                Some(claim) if raw => Some(claim.path),
                Some(claim) => {
                    let_go(world, id, &claim);
                    None
                }
                None => None,
            };
            let found = File {
                folder,
                id,
                path,
                identity,
            };
            return Ok(readmit(world, found, &bytes, &stands, leftover));
        }
        Action::Reject => {
            reject(world, path, identity, id, "the record is damaged");
            return Ok(Found::UnderWay);
        }
        Action::LeaveAlone(format) => {
            return Ok(Found::Left(format!(
                "{}/{id}.json has format {format}, which a newer version wrote; the daemon \
                 ignores it",
                folder.folder()
            )));
        }
        action => {
            if let Some(claim) = claim {
                settle_claim(world, folder, id, claim, &stands, &action, past);
            }
            if let Stands::Ours(record) = stands {
                return Ok(carry_on(
                    world,
                    folder,
                    id,
                    *record,
                    &action,
                    held,
                    past,
                    Some(identity),
                ));
            }
        }
    }
    Ok(Found::Nothing)
}

/// What stands at a path, or what became of it where it can't be a record.
fn read(world: &World, path: &Path, id: &str) -> io::Result<Result<(Vec<u8>, Identity), Found>> {
    let is_id = HandoffId::parse_made(id).is_ok();
    match look(path, u64::MAX - 1) {
        Looked::Bytes {
            bytes, identity, ..
        } if is_id => return Ok(Ok((bytes, identity))),
        Looked::NotAFile { identity, .. } if is_id => {
            reject(world, path.to_owned(), identity, id, "not a file");
        }
        Looked::Bytes { identity, .. } | Looked::NotAFile { identity, .. } => {
            reject_name(world, path.to_owned(), identity, id);
        }
        Looked::Gone => return Ok(Err(Found::Nothing)),
        Looked::Folder => {
            let path = world.layout.relative(path);
            let why = format!("ignored the folder {path}; move it away");
            return Ok(Err(Found::Left(why)));
        }
        Looked::Unreadable { error, .. } => return Err(error),
        Looked::Changing | Looked::TooLarge { .. } => {
            return Err(io::Error::other("it is still being written"));
        }
    }
    Ok(Err(Found::UnderWay))
}

/// An id in two folders: the higher revision wins, the other is set aside. `true` if the one
/// in `folder` lost.
fn settle_twins(world: &World, folder: State, id: &str) -> io::Result<bool> {
    let here = world.layout.record(folder, id);
    for other in world.layout.states_of(id) {
        // Each pair is settled once, seen from the earlier folder; final ones from the others.
        if other == folder || (folder == State::Waiting && other == State::InProgress) {
            continue;
        }
        let there = world.layout.record(other, id);
        let same_file = match (fs::symlink_metadata(&here), fs::symlink_metadata(&there)) {
            (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
            _ => false,
        };
        if same_file {
            // A move without rename's help, cut in half: the target has it.
            fs::remove_file(&here)?;
            return Ok(true);
        }
        // Whose file this is, the audit log knows: a foreign one is left alone, and never believed.
        if other.is_final() && is_forged(&world.layout, other, id) {
            let why = format!("{id} is in {}/", folder.folder());
            let file = (other, format!("{id}.json").into());
            world.tell(Event::Foreign(vec![(file, Some(why))]));
            continue;
        }
        let revision = |state| load(world, state, id).map(|record| record.meta.revision);
        let (ours, theirs) = (revision(folder), revision(other));
        let loser = if ours > theirs { &there } else { &here };
        let lost = if loser == &here { folder } else { other };
        let name = format!("{id}.{}.{}.json", lost.folder(), Identity::at(loser)?.inode);
        tracing::warn!(
            handoff_id = id,
            "found in two folders; set the older one aside as {name}"
        );
        durable::move_no_replace(loser, &world.layout.aside().join(name))?;
        if loser == &here {
            return Ok(true);
        }
    }
    Ok(false)
}

fn attempt_of(
    world: &World,
    stands: &Stands,
    id: &str,
    past: &mut Past,
) -> (Attempt, Option<Held>) {
    let Stands::Ours(record) = stands else {
        return (Attempt::None, None);
    };
    let Some(attempt) = record.running_attempt() else {
        return (Attempt::None, None);
    };
    match past.attempts.remove(&Key::new(id, attempt.number)) {
        Some(held) => match held.state {
            wire::State::Running | wire::State::Ending => (Attempt::Running, Some(held)),
            wire::State::Ended(_) | wire::State::Failed(_) => (Attempt::Ended, Some(held)),
        },
        None if is_resident_record(world, record, id) => (Attempt::Lost, None),
        None if record.meta.boot.as_deref() == Some(world.boot) => (Attempt::NeverStarted, None),
        None => (Attempt::Lost, None),
    }
}

#[expect(clippy::too_many_arguments, reason = "all that is known of one file")]
fn carry_on(
    world: &World,
    folder: State,
    id: &str,
    mut record: Record,
    action: &Action,
    held: Option<Held>,
    past: &mut Past,
    identity: Option<Identity>,
) -> Found {
    match action {
        Action::MoveOn(to) => {
            move_on(world, folder, id, &record, *to, past);
            Found::UnderWay
        }
        // What a decided wait sets in motion may not have been made.
        Action::Park if past.at_start && has_unmade(world, &record, id) => {
            move_on(world, folder, id, &record, folder, past);
            Found::UnderWay
        }
        Action::Park => {
            if let Some(parked) = Parked::of(&record, world.now(), world.boot) {
                world.expected.await_from(&record, id);
                Found::Parked(parked)
            } else {
                let told = refusal(
                    ErrorCode::SchemaValidationFailed,
                    "the record in waiting/ has no target or no reason to wait".to_owned(),
                    vec!["Restore target and move the file to handoffs/pending/".to_owned()],
                );
                fail_parked(world, id, record, &told, || {});
                Found::UnderWay
            }
        }
        Action::NotBegun if folder == State::Waiting => {
            close_unbegun(&mut record, world);
            let reason = "it had not started when the daemon ended; it runs when a slot is free";
            wait(
                &mut record,
                "retry",
                Some(0),
                reason,
                world.now(),
                world.boot,
            );
            write(world, id, &record, folder, "interrupted", || {});
            Found::UnderWay
        }
        Action::Adopt | Action::Judge | Action::NotBegun | Action::Interrupted => {
            let Some(mut running) = running(world, id, record, held.as_ref(), identity) else {
                return Found::Nothing;
            };
            tell_start(world, id, &running, past);
            let checker = past.attempts.remove(&verify_key(&running.key));
            let mut ends = held.iter().chain(&checker).map(|held| held.why);
            if ends.any(|why| why == Some(Why::Cancelled)) {
                remember_cancels(world, &mut running, past);
            }
            let end = match (action, held.map(|held| (held.state, held.why))) {
                (Action::Adopt, _) => return Found::Running(Box::new(running)),
                (_, Some((wire::State::Ended(exit), why))) => End::of(exit, why),
                (_, Some((wire::State::Failed(failure), _))) => End::NotStarted {
                    errno: failure.errno,
                    what: failure.what,
                },
                (Action::NotBegun, _) => End::NotBegun,
                _ => lost(world, &running),
            };
            if let Some(checker) = checker {
                return take_up_verify(world, running, end, checker);
            }
            judge_later(world, running, end);
            Found::UnderWay
        }
        _ => Found::Nothing,
    }
}

fn close_unbegun(record: &mut Record, world: &World) {
    if let Some(attempt) = record.meta.attempts.last_mut()
        && attempt.outcome.is_none()
    {
        attempt.outcome = Some(AttemptOutcome::Interrupted);
        attempt.ended_at = Some(world.now().wall);
        attempt.milliseconds = Some(0);
    }
}

/// Makes the move that the record says, and the audit line if it is missing.
fn move_on(world: &World, from: State, id: &str, record: &Record, to: State, past: &Past) {
    let now = world.now();
    let known = past.told.contains(&(id.to_owned(), record.meta.revision));
    let lines = if known {
        Vec::new()
    } else {
        let line = transition(record, id, event_for(record, to), from, to, now.wall);
        vec![line.with("recovered", true)]
    };
    let parked = Parked::of(record, now, world.boot).filter(|_| to == State::Waiting);
    let judged = record
        .meta
        .attempts
        .last()
        .filter(|it| it.outcome.is_some());
    let paths = judged.map(|attempt| world.paths(id, attempt.number));
    let (events, owned) = (world.events.clone(), id.to_owned());
    let rubbish = Arc::clone(&world.rubbish);
    settle(world, id, record, from, lines, move || {
        // Whoever judged it may have been cut off before.
        if let Some(paths) = paths {
            collect::clean(&paths, &rubbish);
        }
        let id = owned;
        let _ = events.send(Event::Moved { id, to, parked });
    });
}

fn event_for(record: &Record, to: State) -> &'static str {
    match to {
        State::Completed => "completed",
        State::Failed => "failed",
        _ if record.meta.retries > 0 => "retry_scheduled",
        _ => "waiting",
    }
}

/// Claims whose file never left `pending/`, or has gone on already: only their leftovers stay.
pub fn sweep_claims(world: &World, past: &mut Past) {
    for (id, claim) in past.claims.drain().chain(past.former.drain(..)) {
        let_go(world, &id, &claim);
    }
}

/// The record stands, but perhaps not yet on disk: only then does what it was made from go.
fn settle_claim(
    world: &World,
    folder: State,
    id: &str,
    claim: Claim,
    stands: &Stands,
    action: &Action,
    past: &Past,
) {
    let untold = match stands {
        Stands::Ours(record) if *action == Action::Park && claim.origin == Origin::Pending => {
            past.untold_wait(id, record, world.now().wall)
        }
        _ => None,
    };
    let change = Change::Settle {
        id: id.to_owned(),
        at: folder,
        to: folder,
        keep: original_of(world, id, &claim),
        leftover: claim.path,
        awaited: false,
    };
    let lines = untold.into_iter().collect();
    world.committer.submit(change, lines, |_| {});
}

/// Where a claim's leftover is to be kept, if it is a producer's YAML or Markdown.
fn original_of(world: &World, id: &str, claim: &Claim) -> Option<PathBuf> {
    let producers = claim.origin == Origin::Pending
        && Identity::at(&claim.path).is_ok_and(|at| at.inode == claim.inode);
    let text = producers.then(|| fs::read(&claim.path).ok()).flatten()?;
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace())?;
    let ext = match first {
        b'{' => return None,
        _ if document::parse(&text, Ext::Yaml).is_ok() => "yaml",
        _ => "md",
    };
    Some(world.layout.originals().join(format!("{id}.{ext}")))
}

/// Deletes what a claim left in the temporary folder, but keeps a producer's YAML or Markdown.
fn let_go(world: &World, id: &str, claim: &Claim) {
    let done = match original_of(world, id, claim) {
        Some(keep) => durable::replace(&claim.path, &keep),
        None => fs::remove_file(&claim.path),
    };
    if let Err(error) = done {
        tracing::warn!("{}: {error}", claim.path.display());
    }
}
