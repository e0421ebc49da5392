//! What an attempt is held to, worked out from its specialist's configuration.
//!
//! One that runs as another user, or in a sandbox, can't use the daemon's folders. So it gets
//! one of its own, its home below `.handoffd/homes/`: a copy of the record, the places for its
//! result, its heartbeat and its artifact, and a folder for temporary files. What it leaves
//! there is fetched by the daemon. Nobody else's files are near, and nothing of the root has to
//! be opened for it.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, fchown};
use std::path::{Path, PathBuf};

use crate::config::{Config, Rlimits, Specialist};
use crate::durable;
use crate::engine::attempt::handoff_of;
use crate::engine::users::{Account, account};
use crate::engine::world::World;
use crate::keeper::confine::{Confine, Limit, Owner, Rule, Sandbox};
use crate::keeper::wire::Key;
use crate::runner::launch::working_dir;
use crate::runner::slots::Slot;
use crate::runner::vitals::STDERR_FLOOD_FACTOR;
use crate::spool::look::open_quietly;
use crate::store::artifacts::RelPath;

/// What every program may read: itself, its libraries, its settings, and what the system says
/// of the machine.
const READABLE: [&str; 13] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/nix/store",
    "/gnu/store",
    "/proc",
    "/sys/devices/system/cpu",
    "/run/systemd/resolve",
];

/// Devices that hold nothing.
const WRITABLE: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// How long past its limit a process has to end by itself: SIGXCPU first, SIGKILL then.
const CPU_GRACE_S: u64 = 5;

/// An attempt's own folder.
#[derive(Debug)]
pub struct Home {
    pub record: PathBuf,
    pub artifact: Option<PathBuf>,
    /// Variables that are its user's and not the daemon's.
    variables: Vec<(&'static str, OsString)>,
}

impl Home {
    /// A variable that it has instead of the daemon's.
    pub fn variable(&self, name: &str) -> Option<OsString> {
        let known = self.variables.iter().find(|(known, _)| *known == name);
        known.map(|(_, value)| value.clone())
    }
}

/// What an attempt is held to, and its own folder, where it has one.
pub type Held = (Option<Box<Confine>>, Option<Home>);

/// Works it out for one attempt, and makes its folder.
pub fn hold(
    world: &World,
    specialist: &Specialist,
    key: &Key,
    argv: &[OsString],
    (stdin, artifact): (&Path, Option<&str>),
    slot: Option<&Slot>,
) -> io::Result<Held> {
    let limits = limits(&specialist.rlimits);
    let mut confine = Confine {
        umask: specialist.umask,
        limits,
        owner: None,
        sandbox: None,
    };
    if !specialist.has_home() {
        let needed = confine != Confine::default();
        return Ok((needed.then(|| Box::new(confine)), None));
    }
    let account = match &specialist.user {
        Some(name) => Some(account(name).map_err(|why| io::Error::other(format!("user: {why}")))?),
        None => None,
    };
    let folder = world.home(&key.id, key.attempt);
    let home = make(world, &folder, account.as_ref(), stdin, (artifact, key))
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", folder.display())))?;
    if let (Some(account), Some(slot)) = (&account, slot) {
        for file in [&slot.stdout, &slot.stderr] {
            fchown(file, Some(account.uid), Some(account.gid))?;
        }
    }
    confine.owner = account.and_then(|account| {
        let name = specialist.user.as_ref()?.to_string();
        (!account.is_own).then_some(Owner {
            name,
            uid: account.uid,
            gid: account.gid,
            groups: account.groups,
        })
    });
    confine.sandbox = specialist.sandbox.as_ref().map(|sandbox| Sandbox {
        rules: rules(world, specialist, &folder, argv),
        best_effort: sandbox.best_effort,
    });
    Ok((Some(Box::new(confine)), Some(home)))
}

fn make(
    world: &World,
    folder: &Path,
    account: Option<&Account>,
    stdin: &Path,
    (artifact, key): (Option<&str>, &Key),
) -> io::Result<Home> {
    let id = handoff_of(key);
    world.has_homes();
    let homes = world.layout.homes();
    if account.is_some_and(|account| !account.is_own) {
        // Its user has to get through to its own folder, and sees nothing else on the way.
        for above in [world.layout.own(), &homes] {
            let mode = fs::metadata(above)?.permissions().mode();
            if mode & 0o011 != 0o011 {
                fs::set_permissions(above, Permissions::from_mode(mode | 0o011))?;
            }
        }
    }
    let (uid, gid) = (account.map(|it| it.uid), account.map(|it| it.gid));
    let new_folder = |path: &Path| {
        fs::DirBuilder::new().mode(0o700).create(path)?;
        chown(path, uid, gid)
    };
    fs::DirBuilder::new().mode(0o700).create(folder)?;
    let (outcome, temporary) = (folder.join("artifact"), folder.join("tmp"));
    new_folder(&outcome)?;
    new_folder(&temporary)?;
    let record = folder.join("record.json");
    let file = durable::create(&record, b"")?;
    io::copy(&mut open_quietly(stdin)?, &mut &file)?;
    fchown(&file, uid, gid)?;
    let compacted = world.layout.compacted_of(id);
    if compacted.is_file() {
        let file = durable::create(&folder.join("context.json"), b"")?;
        io::copy(&mut open_quietly(&compacted)?, &mut &file)?;
        fchown(&file, uid, gid)?;
    }
    let artifact = match artifact.map(RelPath::parse) {
        Some(Ok(path)) => {
            let copy = artifact_place(folder, &path);
            // For what verifies it: the work is in its place by then.
            if id != key.id {
                let file = durable::create(&copy, b"")?;
                let most = world.config().daemon.max_artifact_size;
                if world.artifacts.copy_to(&path, &file, most)? {
                    fchown(file, uid, gid)?;
                } else {
                    fs::remove_file(&copy)?;
                }
            }
            Some(copy)
        }
        _ => None,
    };
    // Last, because from now on it is theirs.
    chown(folder, uid, gid)?;
    let mut variables = vec![("TMPDIR", temporary.into_os_string())];
    if let Some(account) = account {
        variables.push(("HOME", account.home.clone()));
        variables.push(("USER", account.name.clone().into()));
        variables.push(("SHELL", account.shell.clone()));
    }
    Ok(Home {
        record,
        artifact,
        variables,
    })
}

/// The largest file that an attempt may write: more than any artifact or output that counts, with
/// room for what it writes besides. It is what stops a flood while no daemon looks. A specialist's own
/// `rlimits.fsize` is applied with its other limits.
pub fn largest_file(config: &Config, specialist: &Specialist) -> Option<u64> {
    const ROOM: u64 = 4;
    if specialist.rlimits.fsize.is_some() {
        return None;
    }
    let daemon = &config.daemon;
    let log = daemon.max_output_size.saturating_mul(STDERR_FLOOD_FACTOR);
    Some(log.max(daemon.max_artifact_size).saturating_mul(ROOM))
}

fn limits(limits: &Rlimits) -> Vec<Limit> {
    let cpu = limits.cpu.map(|cpu| cpu.as_secs());
    [
        ("nofile", limits.nofile),
        ("nproc", limits.nproc),
        ("as", limits.address_space),
        ("cpu", cpu),
        ("fsize", limits.fsize),
        ("core", limits.core),
    ]
    .into_iter()
    .filter_map(|(name, value)| {
        let soft = value?;
        Some(Limit {
            name: name.to_owned(),
            soft,
            hard: soft + if name == "cpu" { CPU_GRACE_S } else { 0 },
        })
    })
    .collect()
}

fn rules(world: &World, specialist: &Specialist, home: &Path, argv: &[OsString]) -> Vec<Rule> {
    let root = world.layout.root();
    let rule = |path: &Path, write: bool, name: Option<&str>| Rule {
        path: path.into(),
        write,
        name: name.map(ToOwned::to_owned),
    };
    let mut rules = Vec::new();
    rules.extend(READABLE.map(|path| rule(Path::new(path), false, None)));
    rules.extend(WRITABLE.map(|path| rule(Path::new(path), true, None)));
    rules.push(rule(&world.layout.context(), false, None));
    rules.push(rule(home, true, Some("its own folder")));
    // The program, and what else its command names: a script, a settings file.
    let folder = working_dir(specialist, root);
    let path = std::env::var_os("PATH").unwrap_or_default();
    for (at, word) in argv.iter().enumerate() {
        let looked_up = at == 0 && !word.as_encoded_bytes().contains(&b'/');
        let found = if looked_up {
            std::env::split_paths(&path)
                .map(|folder| folder.join(word))
                .find(|file| file.is_file())
        } else {
            Some(folder.join(word)).filter(|file| file.is_file())
        };
        rules.extend(found.map(|file| rule(&file, false, None)));
    }
    if let Some(sandbox) = &specialist.sandbox {
        let named = |path: &PathBuf, write, name| rule(&root.join(path), write, Some(name));
        rules.extend(sandbox.read.iter().map(|p| named(p, false, "sandbox.read")));
        rules.extend(
            sandbox
                .write
                .iter()
                .map(|p| named(p, true, "sandbox.write")),
        );
    }
    rules
}

/// Why specialists can't be started as they are configured, each with what to do.
pub fn check(config: &Config) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (agent, specialist) in &config.specialists {
        if let Some(name) = &specialist.user
            && let Err(why) = account(name)
        {
            found.push((
                format!("[specialists.\"{agent}\"] user = \"{name}\": {why}"),
                "correct or remove user in handoffd.toml, or run the daemon as root".to_owned(),
            ));
        }
        let must = specialist
            .sandbox
            .as_ref()
            .is_some_and(|it| !it.best_effort);
        if must && let Err(why) = crate::keeper::confine::can_sandbox() {
            found.push((
                format!(
                    "[specialists.\"{agent}\"] sandbox: this kernel does not support it \
                ({why})"
                ),
                "use Linux 6.2 or later with Landlock, or set sandbox.best_effort = true to run \
                 without a sandbox"
                    .to_owned(),
            ));
        }
    }
    found
}

/// Where a confined attempt puts the artifact that goes to `path`.
pub fn artifact_place(home: &Path, path: &RelPath) -> PathBuf {
    home.join("artifact").join(path.file_name())
}

/// Puts what an attempt left in its own folder to where its artifact goes. False if there is
/// nothing; an error in words if it is no plain file.
pub fn fetch_artifact(
    world: &World,
    (id, attempt): (&str, u32),
    path: &RelPath,
    replace: bool,
) -> Result<bool, crate::store::artifacts::WriteError> {
    let Some(home) = world.paths(id, attempt).home else {
        return Ok(false);
    };
    // The home is the daemon's place; what is in it is not.
    let Ok(folder) = open_folder(&home.join("artifact")) else {
        return Ok(false);
    };
    world.artifacts.adopt(path, &folder, replace)
}

fn open_folder(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}
