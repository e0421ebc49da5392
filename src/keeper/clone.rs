//! The moment between a process and its command.
//!
//! A fork copies the keeper's page tables, and then every page that either side touches; that
//! was a third of all the keeper's work. So a child shares the keeper's memory until it becomes
//! its command, as with vfork, but nobody waits for it: a folder or a program on a disk that
//! hangs must not hold up the keeper. What makes this safe:
//!
//! - it runs on a stack of its own, and what it reads is not changed or freed while it lives
//!   ([`Cradle`], and the command it was made from);
//! - it only makes system calls, by the instruction itself: the C library's would write to the
//!   `errno` that it shares with the keeper;
//! - descriptors, signal actions and the working folder are its own (no `CLONE_FILES`,
//!   `CLONE_SIGHAND`, `CLONE_FS`), and all signals are blocked until it has reset them.
//!
//! On other processors than these two the child is a fork, and so is one that is confined. Where
//! a clone into a cgroup is refused, as under a filter that forbids new namespaces, the child is
//! a fork that goes into its cgroup itself, before anything else.
#![expect(
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    reason = "arguments of system calls are registers"
)]

use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;

use super::confine::{Prepared, stage};
use super::spawn;

/// What a limit is about: the type of `RLIMIT_NOFILE` differs from C library to C library.
#[cfg(target_env = "gnu")]
pub type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
pub type Resource = libc::c_int;

/// What a child does until it is its command. The pointers are the command's.
#[derive(Debug)]
pub struct Plan {
    /// The files to try, in this order, up to a null.
    pub candidates: *const *const libc::c_char,
    pub argv: *const *const libc::c_char,
    pub envp: *const *const libc::c_char,
    pub cwd: *const libc::c_char,
    /// The limits that an attempt gets, which are not the keeper's own.
    pub limits: [(Resource, Option<libc::rlimit>); 2],
    /// All above 2, so that none overwrites another before its turn.
    pub stdio: [RawFd; 3],
    /// Signals that the keeper ignores, one bit each: all that a command would inherit of its
    /// signal actions.
    pub ignored: u64,
    /// Where a child that shares no memory with the keeper tells of a failure.
    pub errors: Option<RawFd>,
    /// Where one does that shares it: the stage above the error number; zero for none.
    pub failed: AtomicU64,
    /// What else it is held to; null for nothing.
    pub confine: *const Prepared,
}

/// How a child tells why it could not become its command. To be asked when it has ended.
#[derive(Debug)]
pub enum Word {
    /// By a pipe that closes on exec, and never blocks.
    Pipe(OwnedFd),
    /// In memory that it shares with us.
    Cradle(Cradle),
}

impl Word {
    /// The stage at which it failed, and the error number.
    pub fn failure(self) -> Option<(i32, i32)> {
        match self {
            Self::Pipe(pipe) => {
                let mut pipe = File::from(pipe);
                let mut number = || {
                    let mut bytes = [0; 4];
                    pipe.read_exact(&mut bytes).ok()?;
                    Some(i32::from_ne_bytes(bytes))
                };
                Some((number()?, number()?))
            }
            Self::Cradle(cradle) => match cradle.plan.failed.load(Ordering::Acquire) {
                0 => None,
                word => Some(((word >> 32) as i32, word as i32)),
            },
        }
    }
}

/// A pipe for a child's word.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(
        PipeFlags::CLOEXEC | PipeFlags::NONBLOCK,
    )?)
}

/// What a child stands on. It must live for as long as the child may not be its command yet.
#[derive(Debug)]
pub struct Cradle {
    stack: Box<[MaybeUninit<u128>]>,
    plan: Box<Plan>,
}

/// In units of 16 bytes, which is how a stack is aligned.
const STACK: usize = 2048;

impl Plan {
    /// Becomes the command. Only returns to exit.
    ///
    /// # Safety
    ///
    /// To be called in a process that was made for it, on pointers that stay valid.
    pub unsafe fn carry_out(&self) -> ! {
        // SAFETY: system calls on descriptors and strings that outlive them, in a process that
        // either becomes another program or exits.
        unsafe {
            system(libc::SYS_setsid, [0; 4]);
            // Zeroes are the default action, however the structure is laid out.
            let (default, none) = ([0_u64; 8], 0_u64);
            for signal in (1..=64).filter(|signal| self.ignored >> (signal - 1) & 1 == 1) {
                let action = [signal, default.as_ptr() as usize, 0, 8];
                system(libc::SYS_rt_sigaction, action);
            }
            // What was sent in between has waited, and counts now.
            let mask = [libc::SIG_SETMASK as usize, &raw const none as usize, 0, 8];
            system(libc::SYS_rt_sigprocmask, mask);
            for (resource, limit) in &self.limits {
                if let Some(limit) = limit {
                    let limit = std::ptr::from_ref(limit) as usize;
                    let own = [0, *resource as usize, limit, 0];
                    system(libc::SYS_prlimit64, own);
                }
            }
            for (target, source) in (0..).zip(self.stdio) {
                let done = system(libc::SYS_dup3, [source as usize, target, 0, 0]);
                if done < 0 {
                    self.fail(stage::PREPARE, done);
                }
            }
            // Ours all close on exec by themselves; this is for what we might have inherited.
            let flags = libc::CLOSE_RANGE_CLOEXEC as usize;
            system(
                libc::SYS_close_range,
                [3, libc::c_uint::MAX as usize, flags, 0],
            );
            if let Some(confine) = self.confine.as_ref()
                && let Err((stage, error)) = confine.apply()
            {
                self.fail(stage, error);
            }
            let done = system(libc::SYS_chdir, [self.cwd as usize, 0, 0, 0]);
            if done < 0 {
                self.fail(stage::FOLDER, done);
            }
            let mut worst = -(libc::ENOENT as isize);
            let mut next = self.candidates;
            while !(*next).is_null() {
                let exec = [*next as usize, self.argv as usize, self.envp as usize, 0];
                let failed = system(libc::SYS_execve, exec);
                if failed == -(libc::EACCES as isize) {
                    worst = failed;
                } else if failed != -(libc::ENOENT as isize) && failed != -(libc::ENOTDIR as isize)
                {
                    self.fail(stage::EXEC, failed);
                }
                next = next.add(1);
            }
            self.fail(stage::EXEC, worst)
        }
    }

    /// Tells where it failed, and why, and ends the child.
    ///
    /// # Safety
    ///
    /// Only for a child that has not become its command: it ends the process at once.
    unsafe fn fail(&self, stage: i32, error: isize) -> ! {
        let text = [stage, -(error as i32)];
        let word = u64::from(stage as u32) << 32 | u64::from((-error) as u32);
        self.failed.store(word, Ordering::Release);
        // SAFETY: the buffer is ours, and a child that never became its command has nothing to
        // do but to end without running what its parent would run at exit.
        unsafe {
            if let Some(errors) = self.errors {
                let words = [errors as usize, text.as_ptr() as usize, 8, 0];
                system(libc::SYS_write, words);
            }
            loop {
                system(libc::SYS_exit_group, [127, 0, 0, 0]);
            }
        }
    }
}

/// `struct clone_args` of the kernel, as far as `cgroup`.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Starts a child that is in `cgroup` from its first moment.
pub fn into_cgroup(cgroup: BorrowedFd<'_>, plan: Plan) -> io::Result<(i32, Word)> {
    let args = CloneArgs {
        flags: CLONE_INTO_CGROUP,
        exit_signal: u64::from(libc::SIGCHLD.cast_unsigned()),
        cgroup: u64::from(cgroup.as_raw_fd().cast_unsigned()),
        ..CloneArgs::default()
    };
    if SHARES && plan.confine.is_null() {
        sharing(cgroup, args, plan)
    } else {
        copied(cgroup, &args, plan)
    }
}

/// Starts a child that shares our memory until it is its command.
fn sharing(cgroup: BorrowedFd<'_>, mut args: CloneArgs, plan: Plan) -> io::Result<(i32, Word)> {
    let cradle = Cradle {
        stack: Box::new_uninit_slice(STACK),
        plan: Box::new(plan),
    };
    args.flags |= u64::from(libc::CLONE_VM.cast_unsigned());
    args.stack = cradle.stack.as_ptr() as u64;
    args.stack_size = size_of_val(&*cradle.stack) as u64;
    // SAFETY: the stack and the plan are kept by the caller until the child has ended.
    match check(unsafe { start(&args, &cradle.plan) }) {
        Ok(Some(pid)) => Ok((pid, Word::Cradle(cradle))),
        Ok(None) => by_joining(cgroup, *cradle.plan),
        Err(error) => Err(error),
    }
}

/// Starts a child that has a copy of our memory.
fn copied(cgroup: BorrowedFd<'_>, args: &CloneArgs, mut plan: Plan) -> io::Result<(i32, Word)> {
    let (read, write) = pipe()?;
    plan.errors = Some(write.as_raw_fd());
    let call = [
        std::ptr::from_ref(args) as usize,
        size_of::<CloneArgs>(),
        0,
        0,
    ];
    // SAFETY: without CLONE_VM and a stack this is a fork, in a process with one thread.
    let pid = match unsafe { system(libc::SYS_clone3, call) } {
        // SAFETY: this is the child, with a copy of everything.
        0 => unsafe { plan.carry_out() },
        pid => pid,
    };
    match check(pid)? {
        Some(pid) => Ok((pid, Word::Pipe(read))),
        None => by_joining(cgroup, plan),
    }
}

/// The child's pid, or none where such a clone is refused on principle.
fn check(pid: isize) -> io::Result<Option<i32>> {
    match i32::try_from(pid) {
        Ok(pid) if pid > 0 => Ok(Some(pid)),
        Ok(REFUSED_NOT_KNOWN | REFUSED) => Ok(None),
        _ => Err(io::Error::from_raw_os_error(-(pid as i32))),
    }
}

const REFUSED_NOT_KNOWN: i32 = -libc::ENOSYS;
const REFUSED: i32 = -libc::EPERM;

/// Starts a child that goes into `cgroup` itself, and waits for its word that it is there.
///
/// Then it looks whether the keeper still lives, and ends if not: a keeper that starts later and
/// finds nothing in the cgroup knows that this attempt will not begin any more.
fn by_joining(cgroup: BorrowedFd<'_>, mut plan: Plan) -> io::Result<(i32, Word)> {
    let (errors, told) = pipe()?;
    plan.errors = Some(told.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let members = rustix::fs::openat(cgroup, "cgroup.procs", flags, Mode::empty())?;
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let keeper = rustix::process::getpid();
    let pid = spawn::fork()?;
    if pid == 0 {
        let joined = rustix::io::write(&members, b"0").map(drop);
        let errno = match joined {
            Ok(()) if rustix::process::getppid() == Some(keeper) => 0,
            Ok(()) => libc::ESRCH,
            Err(errno) => errno.raw_os_error(),
        };
        let _ = rustix::io::write(&write, &errno.to_ne_bytes());
        // SAFETY: this is the child, with a copy of everything; it becomes its command or ends
        // without what its parent does at exit.
        unsafe {
            if errno == 0 {
                plan.carry_out();
            }
            libc::_exit(127)
        }
    }
    drop(write);
    let mut word = [0; 4];
    // No word: somebody killed it, and the next may fare better.
    let told = File::from(read).read_exact(&mut word);
    match told.map_or(libc::EAGAIN, |()| i32::from_ne_bytes(word)) {
        0 => Ok((pid, Word::Pipe(errors))),
        errno => {
            // SAFETY: no memory of ours is involved.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            Err(io::Error::from_raw_os_error(errno))
        }
    }
}

/// Where a child begins.
///
/// # Safety
///
/// `plan` is valid until the child has become its command or has ended.
unsafe extern "C" fn begin(plan: *const Plan) -> ! {
    // SAFETY: the plan is kept until the child has ended.
    unsafe { (*plan).carry_out() }
}

const SHARES: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Makes a system call, and nothing else. Gives back an error as a negative number.
///
/// # Safety
///
/// The arguments are what that call takes; what they point to is valid for as long as it needs.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn system(number: libc::c_long, args: [usize; 4]) -> isize {
    let result;
    // SAFETY: the kernel changes these registers only; the rest is the caller's promise.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2], in("r10") args[3],
            out("rcx") _, out("r11") _,
            options(nostack),
        );
    }
    result
}

/// Makes a child that begins at [`begin`] on the stack in `args`.
///
/// # Safety
///
/// The stack is the child's alone, and it and `plan` stay until the child has become its command or has
/// ended.
#[cfg(target_arch = "x86_64")]
unsafe fn start(args: &CloneArgs, plan: &Plan) -> isize {
    let result;
    // SAFETY: the parent goes on as after any system call. The child has nothing on its stack
    // to go back to, and does not come back.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r8",
            "call r9",
            "ud2",
            "2:",
            // By name: any register might be the one that is cleared for the child.
            in("r8") std::ptr::from_ref(plan),
            in("r9") begin as unsafe extern "C" fn(*const Plan) -> !,
            inlateout("rax") libc::SYS_clone3 as isize => result,
            in("rdi") std::ptr::from_ref(args), in("rsi") size_of::<CloneArgs>(),
            out("rcx") _, out("r11") _,
        );
    }
    result
}

/// Makes a system call, and nothing else. Gives back an error as a negative number.
///
/// # Safety
///
/// The arguments are what that call takes; what they point to is valid for as long as it needs.
#[cfg(target_arch = "aarch64")]
pub(super) unsafe fn system(number: libc::c_long, args: [usize; 4]) -> isize {
    let result;
    // SAFETY: the kernel changes this register only; the rest is the caller's promise.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] as isize => result,
            in("x1") args[1], in("x2") args[2], in("x3") args[3],
            options(nostack),
        );
    }
    result
}

/// Makes a child that begins at [`begin`] on the stack in `args`.
///
/// # Safety
///
/// The stack is the child's alone, and it and `plan` stay until the child has become its command or has
/// ended.
#[cfg(target_arch = "aarch64")]
unsafe fn start(args: &CloneArgs, plan: &Plan) -> isize {
    let result;
    // SAFETY: the parent goes on as after any system call. The child has nothing on its stack
    // to go back to, and does not come back.
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x9",
            "blr x10",
            "brk 1",
            "2:",
            // By name: any register might be one that is cleared for the child.
            in("x9") std::ptr::from_ref(plan),
            in("x10") begin as unsafe extern "C" fn(*const Plan) -> !,
            in("x8") libc::SYS_clone3,
            inlateout("x0") std::ptr::from_ref(args) as isize => result,
            in("x1") size_of::<CloneArgs>(),
            out("x30") _,
        );
    }
    result
}

/// Makes a system call, and nothing else. Gives back an error as a negative number.
///
/// # Safety
///
/// The arguments are what that call takes; what they point to is valid for as long as it needs.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) unsafe fn system(number: libc::c_long, args: [usize; 4]) -> isize {
    // SAFETY: the caller's promise.
    let result = unsafe { libc::syscall(number, args[0], args[1], args[2], args[3]) };
    if result < 0 {
        return -(io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO) as isize);
    }
    result as isize
}

/// Makes no child here, and says so.
///
/// # Safety
///
/// None: it is unsafe like its twins.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn start(_args: &CloneArgs, _plan: &Plan) -> isize {
    -(libc::ENOSYS as isize)
}

#[cfg(test)]
#[path = "clone_tests.rs"]
mod tests;
