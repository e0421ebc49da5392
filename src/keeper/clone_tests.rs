//! Children that become their command, and those that can't.

use super::*;
use crate::keeper::cgroup;
use std::os::fd::AsFd;

#[test]
fn a_child_that_goes_into_its_cgroup_itself_is_there_before_it_is_its_command() {
    let Ok(dir) = cgroup::base(&format!("join-{}", std::process::id())) else {
        eprintln!("nothing was tried: no cgroup can be made here");
        return;
    };
    let null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .unwrap();
    let args = [c"/bin/sleep".as_ptr(), c"600".as_ptr(), std::ptr::null()];
    let (tried, none) = ([args[0], std::ptr::null()], [std::ptr::null()]);
    let plan = Plan {
        candidates: tried.as_ptr(),
        argv: args.as_ptr(),
        envp: none.as_ptr(),
        cwd: c"/".as_ptr(),
        limits: [(libc::RLIMIT_NOFILE, None), (libc::RLIMIT_FSIZE, None)],
        stdio: [null.as_raw_fd(); 3],
        ignored: 0,
        errors: None,
        failed: AtomicU64::new(0),
        confine: std::ptr::null(),
    };
    let folder = File::open(&dir).unwrap();
    let (pid, word) = by_joining(folder.as_fd(), plan).unwrap();
    let members = std::fs::read_to_string(dir.join("cgroup.procs")).unwrap();
    assert_eq!(members.trim(), pid.to_string());
    cgroup::kill(&dir);
    // SAFETY: no memory of ours is involved.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    assert_eq!(word.failure(), None);
    cgroup::remove(&dir).unwrap();
}
