//! What an attempt is held to: umask, limits, another user, a sandbox.
//!
//! The daemon says what, with every name looked up and every path absolute; here it is put into
//! the form in which the system takes it, and applied in the child, between fork and exec. The
//! order matters: limits and the sandbox's folders need the rights that the user takes away,
//! and the sandbox itself comes last.
//!
//! A confined child is always a fork: one that shares the keeper's memory must not become
//! another user, who might then reach into it.
#![expect(
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    reason = "arguments of system calls are registers"
)]

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

use serde::{Deserialize, Serialize};

use super::clone::system;
use super::wire::{Failure, Os};

/// What one attempt is held to.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Confine {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub umask: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
}

/// A limit by its name in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    pub name: String,
    pub soft: u64,
    pub hard: u64,
}

/// Who it runs as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// As the configuration has it, for messages.
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

/// What it may reach of the file system. All else is closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    pub rules: Vec<Rule>,
    /// Run it without where the kernel can't.
    pub best_effort: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    pub path: Os,
    pub write: bool,
    /// As the configuration calls it; without a name it may be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Which step of a child failed. Steps with a number count up from these.
pub(super) mod stage {
    pub const PREPARE: i32 = 1;
    pub const FOLDER: i32 = 2;
    pub const EXEC: i32 = 3;
    pub const USER: i32 = 4;
    pub const NO_SANDBOX: i32 = 5;
    pub const SANDBOX: i32 = 6;
    pub const LIMIT: i32 = 100;
    pub const RULE: i32 = 1000;
}

/// The same, as the system takes it.
#[derive(Debug)]
pub struct Prepared {
    umask: Option<u32>,
    limits: Vec<(libc::c_uint, libc::rlimit)>,
    rules: Vec<(CString, bool)>,
    confine: Confine,
}

/// The resource of a limit.
fn resource(name: &str) -> Option<libc::c_uint> {
    Some(match name {
        "nofile" => libc::RLIMIT_NOFILE,
        "nproc" => libc::RLIMIT_NPROC,
        "as" => libc::RLIMIT_AS,
        "cpu" => libc::RLIMIT_CPU,
        "fsize" => libc::RLIMIT_FSIZE,
        "core" => libc::RLIMIT_CORE,
        _ => return None,
    } as libc::c_uint)
}

impl Prepared {
    pub fn of(confine: Confine) -> Result<Self, Failure> {
        let unusable = |what: String| Failure {
            errno: libc::EINVAL,
            what,
        };
        let mut limits = Vec::new();
        for limit in &confine.limits {
            let resource =
                resource(&limit.name).ok_or_else(|| unusable(format!("rlimits.{}", limit.name)))?;
            let value = libc::rlimit {
                rlim_cur: limit.soft,
                rlim_max: limit.hard,
            };
            limits.push((resource, value));
        }
        let mut rules = Vec::new();
        for rule in confine.sandbox.iter().flat_map(|sandbox| &sandbox.rules) {
            let path = CString::new(rule.path.0.as_bytes())
                .map_err(|_| unusable("a zero byte in a path of sandbox".to_owned()))?;
            rules.push((path, rule.write));
        }
        Ok(Self {
            umask: confine.umask,
            limits,
            rules,
            confine,
        })
    }

    /// What a child was about when it failed at this stage.
    pub fn describe(&self, at: i32) -> String {
        let numbered = |from: i32| usize::try_from(at - from).unwrap_or(usize::MAX);
        match at {
            stage::USER => {
                let name = self.confine.owner.as_ref().map_or("", |it| &it.name);
                format!("user = {name:?}")
            }
            stage::NO_SANDBOX => {
                "sandbox: this kernel has no usable Landlock (Linux 6.2 or later); set \
                 sandbox.best_effort = true to run without a sandbox"
                    .to_owned()
            }
            stage::RULE.. => {
                let mut rules = self.confine.sandbox.iter().flat_map(|it| &it.rules);
                let rule = rules.nth(numbered(stage::RULE));
                rule.map_or_else(
                    || "sandbox".to_owned(),
                    |rule| {
                        let name = rule.name.as_deref().unwrap_or("sandbox");
                        format!("{name}: {}", rule.path.0.to_string_lossy())
                    },
                )
            }
            stage::LIMIT.. => {
                let limit = self.confine.limits.get(numbered(stage::LIMIT));
                limit.map_or_else(
                    || "rlimits".to_owned(),
                    |limit| format!("rlimits.{} = {}", limit.name, limit.soft),
                )
            }
            _ => "sandbox".to_owned(),
        }
    }

    /// Holds this process to it; on failure the stage and the system's error, negative.
    ///
    /// # Safety
    ///
    /// To be called in a process that was forked for it and has one thread.
    pub unsafe fn apply(&self) -> Result<(), (i32, isize)> {
        let failed = |stage: i32, done: isize| match done {
            0.. => Ok(done),
            _ => Err((stage, done)),
        };
        // SAFETY: system calls on values that outlive them.
        unsafe {
            if let Some(umask) = self.umask {
                system(libc::SYS_umask, [umask as usize, 0, 0, 0]);
            }
            for (at, (resource, limit)) in (0..).zip(&self.limits) {
                let limit = std::ptr::from_ref(limit) as usize;
                let own = [0, *resource as usize, limit, 0];
                failed(stage::LIMIT + at, system(libc::SYS_prlimit64, own))?;
            }
            let sandbox = match &self.confine.sandbox {
                Some(sandbox) => self.rule_set(sandbox.best_effort)?,
                None => None,
            };
            if let Some(owner) = &self.confine.owner {
                let groups = [owner.groups.len(), owner.groups.as_ptr() as usize, 0, 0];
                let same = |id: u32| [id as usize, id as usize, id as usize, 0];
                failed(stage::USER, system(libc::SYS_setgroups, groups))?;
                failed(stage::USER, system(libc::SYS_setresgid, same(owner.gid)))?;
                failed(stage::USER, system(libc::SYS_setresuid, same(owner.uid)))?;
            }
            if self.confine.sandbox.is_some() {
                // By the C library: it has five arguments. This process is a fork, so errno is
                // its own.
                let done = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                let error = done as isize * libc::EINVAL as isize;
                failed(stage::SANDBOX, error)?;
            }
            if let Some(rule_set) = sandbox {
                let call = [rule_set, 0, 0, 0];
                failed(
                    stage::SANDBOX,
                    system(libc::SYS_landlock_restrict_self, call),
                )?;
            }
        }
        Ok(())
    }

    /// Makes the kernel's rules; none where it can't and need not.
    ///
    /// # Safety
    ///
    /// Runs in a child between its start and its command: it allocates nothing and takes no lock, and
    /// the paths of the rules end in a zero byte.
    unsafe fn rule_set(&self, best_effort: bool) -> Result<Option<usize>, (i32, isize)> {
        // SAFETY: asks for the version of the interface; no memory is involved.
        let abi = unsafe {
            system(
                libc::SYS_landlock_create_ruleset,
                [0, 0, landlock::VERSION, 0],
            )
        };
        if abi < landlock::LEAST_ABI && !best_effort {
            let error = if abi < 0 {
                abi
            } else {
                -(libc::ENOSYS as isize)
            };
            return Err((stage::NO_SANDBOX, error));
        }
        if abi < 1 {
            return Ok(None);
        }
        let handled = landlock::handled(abi);
        let scoped = if abi >= 6 { landlock::SCOPES } else { 0 };
        let rule_set = [handled, 0_u64, scoped];
        let call = [rule_set.as_ptr() as usize, size_of_val(&rule_set), 0, 0];
        // SAFETY: the structure is ours, and what a kernel does not know of it is zero.
        let rule_set = unsafe { system(libc::SYS_landlock_create_ruleset, call) };
        if rule_set < 0 {
            return Err((stage::NO_SANDBOX, rule_set));
        }
        let rule_set = rule_set as usize;
        for (at, (path, write)) in (0..).zip(&self.rules) {
            let open = [
                libc::AT_FDCWD as usize,
                path.as_ptr() as usize,
                (libc::O_PATH | libc::O_CLOEXEC) as usize,
                0,
            ];
            // SAFETY: the path is ours and ends with a zero.
            let fd = unsafe { system(libc::SYS_openat, open) };
            let mut rules = self.confine.sandbox.iter().flat_map(|it| &it.rules);
            let usual = rules.nth(at as usize).is_some_and(|it| it.name.is_none());
            if fd < 0 && usual {
                continue;
            }
            let done = match fd {
                // SAFETY: both descriptors were opened here and are open.
                0.. => unsafe { landlock::allow(rule_set, fd as i32, *write, handled) },
                _ => fd,
            };
            if done < 0 {
                return Err((stage::RULE + at, done));
            }
            // SAFETY: nobody else has this descriptor.
            unsafe { system(libc::SYS_close, [fd as usize, 0, 0, 0]) };
        }
        // What it was given, also under the names by which a shell opens it once more. A pipe
        // needs no rule and gets none.
        for (fd, write) in [(0, false), (1, true), (2, true)] {
            // SAFETY: the rules were made here; one of a descriptor that is not open is refused.
            unsafe { landlock::allow(rule_set, fd, write, handled) };
        }
        Ok(Some(rule_set))
    }
}

/// The kernel's words, as far as they are used here.
mod landlock {
    use super::system;

    pub const VERSION: usize = 1;
    /// Below this a file that may not be written could still be emptied.
    pub const LEAST_ABI: isize = 3;
    /// No signals to, and no abstract sockets of, processes outside.
    pub const SCOPES: u64 = 0b11;

    const PATH_BENEATH: usize = 1;
    const READ: u64 = 0b1101;
    /// What applies to files: execute, write, read, truncate, device controls.
    const FILE: u64 = 0b111 | 1 << 14 | 1 << 15;
    const MAKE_DEVICES: u64 = 1 << 6 | 1 << 11;

    /// All rights that this version of the interface knows.
    pub fn handled(abi: isize) -> u64 {
        let known = match abi {
            ..=1 => 13,
            2 => 14,
            3 | 4 => 15,
            _ => 16,
        };
        (1 << known) - 1
    }

    #[repr(C, packed)]
    struct Beneath {
        allowed: u64,
        parent: i32,
    }

    /// Opens a file, or a folder with all below it.
    ///
    /// # Safety
    ///
    /// `rule_set` is a set of rules that this process made. `fd` may be any number.
    pub unsafe fn allow(rule_set: usize, fd: i32, write: bool, handled: u64) -> isize {
        // SAFETY: the structures are ours, and zeroes are a valid one.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            if libc::fstat(fd, &raw mut stat) < 0 {
                return -(libc::EBADF as isize);
            }
            let mut allowed = if write { handled & !MAKE_DEVICES } else { READ };
            if stat.st_mode & libc::S_IFMT != libc::S_IFDIR {
                allowed &= FILE;
            }
            let rule = Beneath {
                allowed: allowed & handled,
                parent: fd,
            };
            let call = [rule_set, PATH_BENEATH, &raw const rule as usize, 0];
            system(libc::SYS_landlock_add_rule, call)
        }
    }
}

/// Whether this kernel can hold a sandbox; if not, why.
pub fn can_sandbox() -> Result<(), String> {
    // SAFETY: asks for the version of the interface; no memory is involved.
    let abi = unsafe {
        system(
            libc::SYS_landlock_create_ruleset,
            [0, 0, landlock::VERSION, 0],
        )
    };
    match abi {
        landlock::LEAST_ABI.. => Ok(()),
        0.. => Err(format!("its Landlock has version {abi}; 3 is needed")),
        _ => Err(std::io::Error::from_raw_os_error(-(abi as i32)).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As it goes over the socket, after the words of `wire.rs`.
    #[test]
    fn the_words_stay_as_they_are() {
        let all = Confine {
            umask: Some(0o27),
            limits: vec![Limit {
                name: "nofile".into(),
                soft: 5,
                hard: 6,
            }],
            owner: Some(Owner {
                name: "nobody".into(),
                uid: 1,
                gid: 2,
                groups: vec![2],
            }),
            sandbox: Some(Sandbox {
                rules: vec![
                    Rule {
                        path: "/usr".into(),
                        write: false,
                        name: None,
                    },
                    Rule {
                        path: "/d".into(),
                        write: true,
                        name: Some("sandbox.write".into()),
                    },
                ],
                best_effort: false,
            }),
        };
        let text = r#"{"umask":23,"limits":[{"name":"nofile","soft":5,"hard":6}],"owner":{"name":"nobody","uid":1,"gid":2,"groups":[2]},"sandbox":{"rules":[{"path":"/usr","write":false},{"path":"/d","write":true,"name":"sandbox.write"}],"best_effort":false}}"#;
        assert_eq!(serde_json::to_string(&all).unwrap(), text);
        assert_eq!(serde_json::from_str::<Confine>(text).unwrap(), all);
        assert_eq!(serde_json::to_string(&Confine::default()).unwrap(), "{}");
        let prepared = Prepared::of(all).unwrap();
        for (at, what) in [
            (stage::USER, "user = \"nobody\""),
            (stage::LIMIT, "rlimits.nofile = 5"),
            (stage::RULE + 1, "sandbox.write: /d"),
        ] {
            assert_eq!(prepared.describe(at), what);
        }
    }

    #[test]
    fn an_unknown_limit_is_refused_and_not_ignored() {
        let limits = vec![Limit {
            name: "luck".into(),
            soft: 1,
            hard: 1,
        }];
        let confine = Confine {
            limits,
            ..Confine::default()
        };
        assert_eq!(Prepared::of(confine).unwrap_err().what, "rlimits.luck");
    }
}
