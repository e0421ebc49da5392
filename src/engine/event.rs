//! Everything that can happen to the engine: one closed list.

use std::ffi::OsString;
use std::sync::mpsc::Sender;
use std::time::Duration;

use crate::config::Config;
use crate::engine::attempt::{NotLaunched, Running, Source};
use crate::engine::commands::CommandFile;
use crate::engine::effects::Decided;
use crate::engine::findings::Findings;
use crate::engine::intake::Seen;
use crate::engine::outcome::End;
use crate::engine::parked::Parked;
use crate::engine::recovery::Found;
use crate::figures::families::Figures;
use crate::keeper::wire::{Held, Key, Report};
use crate::policy::intake::Needs;
use crate::policy::rights::Wrong;
use crate::protocol::agent::AgentName;
use crate::protocol::lifecycle::State;
use crate::runner::resident::wires::Said;
use crate::runner::vitals::Sample;
use crate::spool::look::Identity;
use crate::watch::Hint;

/// The folders that the engine lists and watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Folder {
    Pending,
    InProgress,
    Waiting,
    Control,
}

impl Folder {
    pub const ALL: [Self; 4] = [
        Self::Control,
        Self::InProgress,
        Self::Waiting,
        Self::Pending,
    ];
}

#[derive(Debug)]
pub enum Event {
    Hint(Hint),
    /// Names found in a folder; several of these may come for one listing.
    Listed {
        folder: Folder,
        names: Vec<OsString>,
    },
    /// A listing is over.
    ListingDone {
        folder: Folder,
        listed: Listing,
    },
    /// Whether everybody may write to a folder, or one leads out of the root, with what to do about
    /// it.
    Shared(Option<(String, String)>),
    /// Whether others may rewrite what a specialist runs.
    Unsafe {
        agent: AgentName,
        found: Option<Wrong>,
    },
    Seen {
        name: OsString,
        seen: Box<Seen>,
    },
    /// A submission left `pending/` for `waiting/` or `failed/`, or could not. There is no id
    /// where it was a duplicate: the id is another one's.
    Diverted {
        name: OsString,
        id: Option<String>,
        outcome: Diverted,
    },
    Launched(Box<Running>),
    NotLaunched {
        id: String,
        from: Source,
        why: NotLaunched,
    },
    Keeper(Report),
    KeeperLost,
    /// Another keeper was started; these are the attempts it knows.
    KeeperBack {
        count: u64,
        entries: Vec<Held>,
    },
    /// A resident process was heard.
    Said {
        number: u32,
        said: Said,
    },
    Sampled(Vec<Sampled>),
    /// A record that somebody had touched while its attempt runs stands again.
    RecordRestored {
        id: String,
        identity: Option<Identity>,
    },
    /// A short attempt brought files, which may be large: it is not judged with the short ones.
    BroughtFiles {
        running: Box<Running>,
        end: End,
    },
    /// The artifacts of an attempt are large: its outcome is judged on a thread of its own.
    Large {
        running: Box<Running>,
        end: End,
    },
    /// An attempt that ended while no daemon ran is to be judged.
    Judge {
        running: Box<Running>,
        end: End,
    },
    /// The work of an attempt is done, and a command that verifies it runs.
    Verifying(Box<Running>),
    /// What an attempt left could not be put in its place.
    Undelivered {
        running: Box<Running>,
        end: End,
        error: String,
    },
    /// An outcome is decided and on disk; what follows from it is to be applied.
    Decided(Box<Decided>),
    /// What follows from it could not be applied: to be tried again.
    Unapplied {
        decided: Box<Decided>,
        error: String,
    },
    /// An attempt's outcome is on disk.
    Concluded(Concluded),
    Command {
        name: OsString,
        file: Box<CommandFile>,
    },
    /// A command was carried out or refused, and its file is gone.
    CommandDone {
        name: OsString,
    },
    /// A command is refused and can't be set aside, for this reason: it is still there.
    CommandStuck {
        name: OsString,
        why: String,
    },
    /// A record changed by a command or a wait that ended, without an attempt.
    Moved {
        id: String,
        to: State,
        parked: Option<Parked>,
    },
    /// A record that waits for children was parked before one of them got another id.
    Reparked {
        id: String,
        parked: Parked,
    },
    /// A record could not be read or changed; it is looked at again later.
    Unmoved {
        id: String,
    },
    DependencyStates {
        id: String,
        needs: Needs,
    },
    /// Ids were looked for that were not where they were thought to be. What is on its way was
    /// told; these are not, and stand in another folder or in none.
    Sought {
        gone: Vec<(String, Option<State>)>,
    },
    /// A file that is no request was set aside, under this id if it was still there.
    Rejected {
        name: OsString,
        id: Option<String>,
    },
    /// A file that is no request can't be set aside, for this reason.
    Immovable {
        name: OsString,
        why: &'static str,
    },
    /// A file in `in-progress/` or `waiting/` that nobody had known of was dealt with.
    StrayDone {
        folder: State,
        id: String,
        found: Box<Found>,
    },
    /// Files in `completed/` and `failed/` that were looked at, and why they are somebody else's.
    Foreign(Vec<((State, OsString), Option<String>)>),
    /// The configuration was read again.
    Reloaded(Result<(Box<Config>, Findings), String>),
    /// A pass of retention is over; the next one is due after this time.
    Swept {
        next: Option<Duration>,
    },
    /// Somebody wants to know how things stand.
    Figures(Sender<Box<Figures>>),
    Trouble(Option<String>),
    /// The audit log is not as the daemon left it.
    AuditAltered(String),
    /// An anchor of the audit log was sent, or why it could not be.
    Anchored(Option<String>),
    /// What an attempt left can't be deleted.
    Undeletable(String),
    /// The boards were written, or why they could not be.
    Boards(Option<String>),
    /// A job panicked; what it was about may stay as it is until the next start.
    Panicked,
    /// Another daemon holds this root now.
    RootLost,
}

/// How a listing went.
#[derive(Debug, PartialEq, Eq)]
pub enum Listing {
    /// All names were told.
    Whole,
    /// The folder is as it was at the last one.
    Unchanged,
    /// Why it could not be listed, or not to its end.
    Failed(String),
}

#[derive(Debug)]
pub enum Diverted {
    Parked(Parked),
    /// It stands in `failed/` or `completed/`, maybe under another id than it wanted.
    Ended {
        id: String,
        to: State,
    },
    /// Look at the name again.
    Again,
    /// Its file can't be moved, for this reason; nothing else is in trouble.
    Fixed(&'static str),
    Io(String),
}

#[derive(Debug)]
pub struct Sampled {
    pub id: String,
    pub attempt: u32,
    pub sample: Sample,
    /// Asked only where a result stands still.
    pub whole_result: bool,
    /// The record in `in-progress/` is not the one that was written there.
    pub record_touched: bool,
    /// The final folders that have a file with the name of its record.
    pub in_final: Vec<State>,
}

#[derive(Debug)]
pub struct Concluded {
    pub key: Key,
    pub to: State,
    /// What was wrong with the attempt, in a line.
    pub trouble: Option<String>,
    /// The system could not start it, and may later.
    pub unstarted: bool,
    pub parked: Option<Parked>,
}
