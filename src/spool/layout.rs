//! Where everything stands below a root.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::durable;
use crate::protocol::lifecycle::State;
use crate::protocol::name::below;
use crate::spool::look::names::Names;
use crate::store::archive::Archive;

/// A file system in memory that every Linux has.
pub const MEMORY: &str = "/dev/shm";

/// How a daemon's file in [`MEMORY`] begins; its process id and start time follow.
pub const DAEMON_IN_MEMORY: &str = "handoffd-";

/// The folders are put together once: their paths are needed some thirty times for each handoff.
#[derive(Debug, Clone)]
pub struct Layout(Arc<Folders>);

#[derive(Debug)]
struct Folders {
    root: PathBuf,
    handoffs: PathBuf,
    /// In the order of [`State::ALL`].
    states: [PathBuf; State::ALL.len()],
    own: PathBuf,
    tmp: PathBuf,
    run: Arc<Names>,
    logs: Arc<Names>,
    /// Of the folders where an id is looked for that hardly change.
    waiting: Names,
    failed: Names,
    archive: Archive,
}

/// Folders of the daemon's own, below `.handoffd/`.
const OWN: [&str; 12] = [
    "tmp",
    "run",
    "logs",
    "originals",
    "rejecting",
    "aside",
    "spares",
    "leftovers",
    "homes",
    "leaving",
    "results",
    "context",
];

impl Layout {
    pub fn new(root: &Path) -> Self {
        let (handoffs, own) = (root.join("handoffs"), root.join(".handoffd"));
        Self(Arc::new(Folders {
            states: State::ALL.map(|state| handoffs.join(state.folder())),
            tmp: own.join("tmp"),
            run: Arc::new(Names::new(own.join("run"))),
            logs: Arc::new(Names::new(own.join("logs"))),
            waiting: Names::new(handoffs.join(State::Waiting.folder())),
            failed: Names::new(handoffs.join(State::Failed.folder())),
            archive: Archive::new(&root.join("archive")),
            root: root.to_owned(),
            handoffs,
            own,
        }))
    }

    pub fn root(&self) -> &Path {
        &self.0.root
    }

    pub fn handoffs(&self) -> &Path {
        &self.0.handoffs
    }

    pub fn state(&self, state: State) -> &Path {
        &self.0.states[state as usize]
    }

    pub fn record(&self, state: State, id: &str) -> PathBuf {
        below(self.state(state), &[id, ".json"])
    }

    pub fn pending(&self) -> &Path {
        self.state(State::Pending)
    }

    pub fn control(&self) -> PathBuf {
        self.0.handoffs.join("control")
    }

    pub fn refused_control(&self) -> PathBuf {
        self.control().join("rejected")
    }

    pub fn own(&self) -> &Path {
        &self.0.own
    }

    pub fn tmp(&self) -> &Path {
        &self.0.tmp
    }

    pub fn run(&self) -> &Path {
        self.0.run.folder()
    }

    pub fn logs(&self) -> &Path {
        self.0.logs.folder()
    }

    /// What is in `run/` and `logs/`.
    pub fn left_behind(&self) -> (&Arc<Names>, &Arc<Names>) {
        (&self.0.run, &self.0.logs)
    }

    pub fn originals(&self) -> PathBuf {
        self.0.own.join("originals")
    }

    pub fn rejecting(&self) -> PathBuf {
        self.0.own.join("rejecting")
    }

    pub fn aside(&self) -> PathBuf {
        self.0.own.join("aside")
    }

    pub fn spares(&self) -> PathBuf {
        self.0.own.join("spares")
    }

    pub fn leftovers(&self) -> PathBuf {
        self.0.own.join("leftovers")
    }

    /// Folders of attempts that can't use the daemon's.
    pub fn homes(&self) -> PathBuf {
        self.0.own.join("homes")
    }

    /// Results of attempts that are too large for their records.
    pub fn results(&self) -> PathBuf {
        self.0.own.join("results")
    }

    /// The two places where a result of this handoff may stand: one may be written while the
    /// record still refers to the other.
    pub fn results_of(&self, id: &str) -> [PathBuf; 2] {
        ["1", "2"].map(|n| self.results().join(format!("{id}.{n}.json")))
    }

    /// What was taken out of the record of this handoff, so that an agent can be handed the rest.
    pub fn compacted_of(&self, id: &str) -> PathBuf {
        below(&self.0.own.join("context"), &[id, ".json"])
    }

    /// Records on their way out for good.
    pub fn leaving(&self) -> PathBuf {
        self.0.own.join("leaving")
    }

    pub fn audit(&self) -> PathBuf {
        self.0.root.join("audit")
    }

    pub fn context(&self) -> PathBuf {
        self.0.root.join("context")
    }

    /// The git worktrees that specialists work in.
    pub fn worktrees(&self) -> PathBuf {
        self.0.root.join("worktrees")
    }

    /// What adapters of coding agents keep of their sessions.
    pub fn sessions(&self) -> PathBuf {
        self.context().join("sessions")
    }

    /// Where ended handoffs are packed.
    pub fn archive(&self) -> PathBuf {
        self.0.root.join("archive")
    }

    pub fn artifacts(&self) -> PathBuf {
        self.0.root.join("artifacts")
    }

    /// Where the schemas stand that requests name.
    pub fn schemas(&self) -> PathBuf {
        self.0.root.join("schemas")
    }

    /// The secret of this root.
    pub fn key(&self) -> PathBuf {
        self.0.own.join("key")
    }

    pub fn daemon_file(&self) -> PathBuf {
        self.0.own.join("daemon.json")
    }

    /// Where a daemon keeps the text of [`daemon_file`](Self::daemon_file) in memory. The name is that of
    /// its process, so that a command finds it on a disk that took no file.
    pub fn daemon_in_memory(pid: u32, start_time: u64) -> PathBuf {
        Path::new(MEMORY).join(format!("{DAEMON_IN_MEMORY}{pid}-{start_time}"))
    }

    /// The room that is held back for outcomes on a full disk.
    pub fn reserve(&self) -> PathBuf {
        self.0.own.join("reserve")
    }

    /// Makes what is missing, for its user and group only. What is there stays as it is.
    pub fn ensure(&self) -> io::Result<()> {
        let others = [self.audit(), self.context(), self.artifacts()];
        for folder in self.moved_between().chain(others) {
            make_folder(&folder)?;
        }
        // Those who may write to control/ may put anything in its place: that is told when it is
        // needed, and keeps nothing else from being made.
        let _ = make_folder(&self.refused_control());
        Ok(())
    }

    /// All folders that files are moved between.
    pub fn moved_between(&self) -> impl Iterator<Item = PathBuf> {
        let states = State::ALL.map(|state| self.state(state).to_owned());
        let own = OWN.iter().map(|name| self.0.own.join(name));
        states.into_iter().chain([self.control()]).chain(own)
    }

    /// Whether a folder is a link to somewhere outside of the root, or to nowhere.
    pub fn leads_out(&self, folder: &Path) -> bool {
        let is_inside = || {
            let root = fs::canonicalize(self.root())?;
            io::Result::Ok(fs::canonicalize(folder)?.starts_with(root))
        };
        fs::symlink_metadata(folder).is_ok_and(|found| found.is_symlink())
            && !is_inside().unwrap_or(false)
    }

    /// All folders that a record moves between must be one file system, or a move is no rename.
    pub fn check_one_file_system(&self) -> io::Result<()> {
        // What is not there yet will be made in its place, on the same one.
        let Ok(home) = fs::metadata(self.handoffs()).map(|home| home.dev()) else {
            return Ok(());
        };
        for folder in self.moved_between() {
            if fs::metadata(&folder).is_ok_and(|folder| folder.dev() != home) {
                return Err(io::Error::new(
                    io::ErrorKind::CrossesDevices,
                    format!(
                        "{} and {} are on different file systems; handoffs/ and .handoffd/ must \
                         be on the same one",
                        folder.display(),
                        self.0.handoffs.display()
                    ),
                ));
            }
        }
        Ok(())
    }

    /// The state folders that hold this id's record, `pending/` left out: what stands there is
    /// a submission.
    pub fn states_of(&self, id: &str) -> Vec<State> {
        State::ALL
            .into_iter()
            .filter(|state| *state != State::Pending && self.stands_in(*state, id))
            .collect()
    }

    fn stands_in(&self, state: State, id: &str) -> bool {
        !self.surely_lacks(state, &[&format!("{id}.json")])
            && fs::symlink_metadata(self.record(state, id)).is_ok()
    }

    /// Whether there is no need to look there for any of these names.
    fn surely_lacks(&self, state: State, names: &[&str]) -> bool {
        match state {
            State::Waiting => self.0.waiting.lack(names),
            State::Failed => self.0.failed.lack(names),
            _ => false,
        }
    }

    /// The state in which this id was packed, if it was.
    pub fn archived(&self, id: &str) -> Option<State> {
        self.0.archive.state_of(id)
    }

    /// Whether the id may not be given to anything new.
    pub fn is_taken(&self, id: &str) -> bool {
        [State::InProgress, State::Waiting, State::Completed]
            .into_iter()
            .any(|state| self.stands_in(state, id))
            || self.has_failed(id)
            || self.archived(id).is_some()
    }

    /// Whether it failed, or bytes of this name were refused.
    fn has_failed(&self, id: &str) -> bool {
        let names = [format!("{id}.json"), format!("{id}.rejected")];
        let is_there =
            |name: &String| fs::symlink_metadata(self.state(State::Failed).join(name)).is_ok();
        !self.surely_lacks(State::Failed, &[&names[0], &names[1]]) && names.iter().any(is_there)
    }

    /// The submission of this id in `pending/`, whatever its extension.
    pub fn submission(&self, id: &str) -> Option<PathBuf> {
        ["json", "yaml", "yml", "md"]
            .iter()
            .map(|ext| below(self.pending(), &[id, ".", ext]))
            .find(|path| fs::symlink_metadata(path).is_ok())
    }

    /// Whether its bytes are on their way from `pending/` to `failed/`.
    pub fn is_being_refused(&self, id: &str) -> bool {
        fs::symlink_metadata(self.rejecting().join(format!("{id}.rejected"))).is_ok()
    }

    /// A path as records show it: relative to the root.
    pub fn relative(&self, path: &Path) -> String {
        path.strip_prefix(self.root())
            .unwrap_or(path)
            .display()
            .to_string()
    }

    pub fn open_dir(path: &Path) -> io::Result<File> {
        File::open(path)
    }
}

/// Makes a folder, with those above it, that others can't look into. The umask may take more. One
/// that can't be looked at is not one that is missing.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    let made = match fs::metadata(folder) {
        Ok(found) if found.is_dir() => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        _ => return durable::owner::make_folders(folder),
    };
    made.map_err(|error| durable::at(folder, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_made_whole_and_an_id_is_found_where_it_stands() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        layout.ensure().unwrap();
        layout.ensure().unwrap();
        layout.check_one_file_system().unwrap();
        for folder in [layout.handoffs(), layout.pending(), layout.run()] {
            let mode = fs::metadata(folder).unwrap().mode();
            assert_eq!(mode & 0o027, 0, "{}: {mode:o}", folder.display());
        }
        for state in State::ALL {
            assert!(layout.state(state).ends_with(state.folder()), "{state}");
        }
        assert!(!layout.is_taken("x"));
        fs::write(layout.record(State::Waiting, "x"), "{}").unwrap();
        assert_eq!(layout.states_of("x"), [State::Waiting]);
        fs::write(layout.state(State::Failed).join("y.rejected"), "").unwrap();
        assert!(layout.is_taken("y"));
        fs::write(layout.pending().join("z.yml"), "").unwrap();
        assert!(layout.submission("z").is_some());
        assert!(!layout.is_taken("z"));
    }
}
