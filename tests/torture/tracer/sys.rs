//! The few calls that a tracer is made of, on x86-64 Linux.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// What a thread of the tracee has stopped for.
#[derive(Debug, Clone, Copy)]
pub enum Stop {
    /// About to make a call.
    Entry {
        number: u64,
        args: [u64; 6],
    },
    /// Back from one.
    Exit,
    Other,
}

/// News of a child or a traced thread of this thread.
#[derive(Debug, Clone, Copy)]
pub enum News {
    Call(i32),
    /// It stopped for this signal, which is to be passed on where it is not zero.
    Signal(i32, i32),
    /// Gone, with this raw status.
    Gone(i32, i32),
}

fn ptrace(request: libc::c_uint, tid: i32, address: usize, data: usize) -> io::Result<i64> {
    // SAFETY: addresses that are written through are those of this file's own variables.
    match unsafe { libc::ptrace(request, tid, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}

/// To be called by a child before it becomes its command: its parent's thread traces it.
pub fn let_be_traced() -> io::Result<()> {
    ptrace(libc::PTRACE_TRACEME, 0, 0, 0).map(drop)
}

/// Threads are followed. Processes are not: whoever the tracee starts is left alone.
pub fn follow_threads(pid: i32) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
    let options = usize::try_from(options).map_err(io::Error::other)?;
    ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options).map(drop)
}

/// Lets a thread go on to its next call. One that was killed meanwhile can't, which is fine.
pub fn go_on(tid: i32, signal: i32) {
    let signal = usize::try_from(signal).unwrap_or(0);
    let _ = ptrace(libc::PTRACE_SYSCALL, tid, 0, signal);
}

/// Waits for the next news of what this very thread has started or traces.
pub fn wait() -> io::Result<News> {
    let mut status = 0;
    let tid = loop {
        // SAFETY: the status is ours.
        let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        if tid > 0 {
            break tid;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    };
    if !libc::WIFSTOPPED(status) {
        return Ok(News::Gone(tid, status));
    }
    let signal = libc::WSTOPSIG(status);
    Ok(if signal == libc::SIGTRAP | 0x80 {
        News::Call(tid)
    } else if status >> 16 != 0 || signal == libc::SIGSTOP {
        // An event of the tracing itself, or the first breath of a new thread.
        News::Signal(tid, 0)
    } else {
        News::Signal(tid, signal)
    })
}

pub fn stop(tid: i32) -> Stop {
    // SAFETY: plain numbers; the system fills in as many as it is told there is room for.
    unsafe {
        let mut info: libc::ptrace_syscall_info = std::mem::zeroed();
        let size = size_of::<libc::ptrace_syscall_info>();
        let address = (&raw mut info).addr();
        if ptrace(libc::PTRACE_GET_SYSCALL_INFO, tid, size, address).is_err() {
            return Stop::Other;
        }
        match info.op {
            libc::PTRACE_SYSCALL_INFO_ENTRY => Stop::Entry {
                number: info.u.entry.nr,
                args: info.u.entry.args,
            },
            libc::PTRACE_SYSCALL_INFO_EXIT => Stop::Exit,
            _ => Stop::Other,
        }
    }
}

/// Changes the registers of a stopped thread.
pub fn change(tid: i32, change: impl FnOnce(&mut libc::user_regs_struct)) -> io::Result<()> {
    // SAFETY: plain numbers.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    let address = (&raw mut registers).addr();
    ptrace(libc::PTRACE_GETREGS, tid, 0, address)?;
    change(&mut registers);
    ptrace(libc::PTRACE_SETREGS, tid, 0, address).map(drop)
}

/// The path behind a descriptor of the tracee.
pub fn descriptor(tid: i32, fd: u64) -> Option<PathBuf> {
    // Only the lower half of the register counts.
    let fd = u32::try_from(fd & 0xffff_ffff).ok()?.cast_signed();
    std::fs::read_link(format!("/proc/{tid}/fd/{fd}")).ok()
}

fn memory(tid: i32, address: u64, most: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; most];
    let ours = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: most,
    };
    let theirs = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(usize::try_from(address).ok()?),
        iov_len: most,
    };
    // SAFETY: our side is a buffer of that length; theirs is checked by the system.
    let read = unsafe { libc::process_vm_readv(tid, &raw const ours, 1, &raw const theirs, 1, 0) };
    bytes.truncate(usize::try_from(read).ok()?);
    Some(bytes)
}

/// A number in the tracee's memory.
pub fn word(tid: i32, address: u64) -> Option<u64> {
    let bytes = memory(tid, address, 8)?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

/// A name in the tracee's memory.
pub fn text(tid: i32, mut address: u64) -> Option<PathBuf> {
    const PAGE: u64 = 4096;
    let mut text = Vec::new();
    loop {
        // Not beyond a page: the next one may not be there.
        let most = usize::try_from(PAGE - address % PAGE).ok()?;
        let part = memory(tid, address, most).filter(|part| !part.is_empty())?;
        if let Some(end) = part.iter().position(|byte| *byte == 0) {
            text.extend_from_slice(&part[..end]);
            return Some(OsString::from_vec(text).into());
        }
        address += part.len() as u64;
        text.extend(part);
    }
}
