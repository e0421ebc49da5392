//! Finding a handoff for somebody, and what to say where the system says no: what stands in the way,
//! whose it is, and what to do.
//!
//! Folders are made for their user and group only, so whoever else comes is stopped somewhere. They
//! should hear of that, and not that nothing is there.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::Errno;

use crate::cli::{Failed, person};
use crate::inspect::owners::{self, Unwritable};
use crate::inspect::prefix;
use crate::inspect::summary::Place;
use crate::protocol::lifecycle::State;
use crate::protocol::shown;
use crate::spool::layout::Layout;

/// How many ids are named that begin alike.
const NAMED: usize = 5;

/// An error if this may not be done with a path that is there.
pub fn allowed(path: &Path, wanted: Access, what: &str) -> io::Result<()> {
    match access(path, wanted) {
        Err(Errno::ACCESS) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} may not be {what}", path.display()),
        )),
        _ => Ok(()),
    }
}

/// An error if ids can't be looked for in all the places where they may stand.
pub fn may_look(layout: &Layout) -> io::Result<()> {
    let states = State::ALL.map(|state| layout.state(state).to_owned());
    states
        .iter()
        .chain([&layout.archive()])
        .try_for_each(|folder| allowed(folder, Access::EXEC_OK, "entered"))
}

/// The handoff of this id, wherever it stands. A beginning does where only one id has it.
pub fn known(layout: &Layout, id: &str) -> Result<Place, Failed> {
    // One that moves between two folders may be missed in both: a second look tells.
    for _ in 0..2 {
        if let Some(place) = Place::find(layout, id) {
            return Ok(place);
        }
        let mut found = prefix::ids(layout, id, NAMED + 1)?;
        if found.len() > 1 {
            return Err(ambiguous(id, &found));
        }
        let whole = found.pop().and_then(|whole| Place::find(layout, &whole));
        if let Some(place) = whole {
            return Ok(place);
        }
    }
    Err(unknown_id(layout, id))
}

/// The whole ids of these handoffs, in the same order.
pub fn whole_ids(layout: &Layout, ids: &[String]) -> Result<Vec<String>, Failed> {
    ids.iter()
        .map(|id| known(layout, id).map(|place| place.id))
        .collect()
}

fn ambiguous(begin: &str, found: &[String]) -> Failed {
    let shown: Vec<&str> = found.iter().take(NAMED).map(String::as_str).collect();
    let more = if found.len() > NAMED { ", …" } else { "" };
    let text = format!(
        "several ids begin with {begin}: {}{more}; type more of the id",
        shown.join(", ")
    );
    Failed::thing("AMBIGUOUS_ID", anyhow::anyhow!(text))
}

/// The same for somebody who wants to read it.
pub fn find(layout: &Layout, id: &str) -> Result<Place, Failed> {
    let place = known(layout, id)?;
    allowed(&place.path, Access::READ_OK, "read")?;
    Ok(place)
}

/// No such handoff, with what may help. Where nobody could see it, that is not said.
pub fn unknown_id(layout: &Layout, id: &str) -> Failed {
    if let Err(denied) = may_look(layout) {
        return denied.into();
    }
    let root = layout.root().display();
    let text = format!("no handoff has the id {id} in {root}; to see all: handoffd list");
    Failed::thing("UNKNOWN_ID", anyhow::anyhow!(text))
}

/// The folder of the root that may not be used, the one that the error names before all others.
fn in_the_way(layout: &Layout, said: &str) -> Option<io::Error> {
    let above = [layout.root(), layout.handoffs()];
    if let Some(closed) = above
        .into_iter()
        .find_map(|folder| allowed(folder, Access::EXEC_OK, "entered").err())
    {
        return Some(closed);
    }
    let states = State::ALL.map(|state| layout.state(state).to_owned());
    let own = [layout.own(), layout.run(), layout.logs()].map(Path::to_owned);
    let others = [
        layout.audit(),
        layout.archive(),
        layout.artifacts(),
        layout.context(),
        layout.control(),
    ];
    let (named, rest): (Vec<PathBuf>, Vec<PathBuf>) = states
        .into_iter()
        .chain(own)
        .chain(others)
        .partition(|folder| said.contains(&layout.relative(folder)));
    let wanted = Access::READ_OK | Access::EXEC_OK;
    named
        .iter()
        .chain(&rest)
        .find_map(|folder| allowed(folder, wanted, "read").err())
}

/// The paths below the root that an error names.
fn named_in(said: &str, layout: &Layout) -> Vec<PathBuf> {
    let words = said.split_whitespace();
    let words = words.map(|word| Path::new(word.trim_end_matches([':', ';', ','])));
    words
        .filter(|path| path.starts_with(layout.root()) && *path != layout.root())
        .map(Path::to_path_buf)
        .collect()
}

impl Failed {
    /// Adds what to do where permission was missing below this root, and where that was if the
    /// error does not say.
    pub(super) fn with_advice(mut self, layout: &Layout) -> Self {
        let is_denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        let mut causes = self.error.chain().filter_map(|it| it.downcast_ref());
        let mut text = format!("{:#}", self.error);
        // A start keeps only the words of what the system said.
        if !causes.any(is_denied) && !text.contains("Permission denied") {
            return self;
        }
        if named_in(&text, layout).is_empty() {
            let Some(found) = in_the_way(layout, &text) else {
                return self;
            };
            text = format!("{found}: {text}");
        }
        let Ok(root) = layout.root().metadata() else {
            return self;
        };
        let name = |uid: u32| person::name_of(uid).unwrap_or_else(|| format!("uid {uid}"));
        let me = rustix::process::geteuid().as_raw();
        let (owner, me_named) = (name(root.uid()), name(me));
        let of_others = owners::unwritable(layout);
        let named = |it: &&Unwritable| text.contains(&*it.path.to_string_lossy());
        let advice = if let Some(found) = of_others.iter().rfind(named) {
            // Only root gives a file away.
            format!(
                "it belongs to {}; to fix that, as root: {}",
                name(found.uid),
                found.do_this
            )
        } else if let Some(found) = named_in(&text, layout)
            .iter()
            .find_map(|path| owners::in_the_way(layout, path))
        {
            format!(
                "{} belongs to {}; to fix that, as root: {}",
                found.path.display(),
                name(found.uid),
                found.do_this
            )
        } else if me == root.uid() {
            match named_in(&text, layout).first() {
                Some(path) => format!("change its mode: chmod u+rwX {}", shown::path(path)),
                None => "change its mode with chmod".to_owned(),
            }
        } else {
            format!(
                "run this as {owner}, who owns the root, or ask {owner} to give {me_named} access"
            )
        };
        self.error = anyhow::anyhow!("{text}; {advice}");
        if self.code == "ERROR" {
            self.code = "DENIED";
        }
        self
    }
}
