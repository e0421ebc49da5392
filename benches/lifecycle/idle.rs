//! What an idle daemon and its keeper cost, and how large they are.

use std::fs;
use std::io;
use std::time::Duration;

use crate::options::Options;
use crate::results::{Aim, Figure, Section, grouped, number};
use crate::rig::{INTERRUPTED, Rig, Setup, cpu_ns, sleeps};
use crate::sample::ids;
use crate::throughput::round;

pub fn run(options: &Options, section: &mut Section) -> io::Result<()> {
    let seconds = options.idle_seconds;
    let mut rig = Rig::new("idle", &["/bin/true"], Setup::default())?;
    hold_once(&rig, options.up_to)?;
    rig.start()?;
    rig.wait_ready();
    // One that has worked has all its threads and pools.
    round(&rig, "before", 50)?;
    std::thread::sleep(Duration::from_secs(2));
    let keeper = rig.keeper().ok_or(io::ErrorKind::NotFound)?;
    let pids = [
        ("daemon", "the daemon", rig.pid()),
        ("keeper", "its keeper", keeper),
    ];
    // The first rescan lists what the work has changed. Nothing changes after that.
    for (minute, when, aim) in [
        ("first.", "the first", None),
        ("", "the next", Some(Aim::ValueAtMost(1.0))),
    ] {
        let before = pids.map(|(.., pid)| (cpu_ns(pid), sleeps(pid)));
        stay_idle(seconds);
        for ((key, who, pid), (cpu_before, sleeps_before)) in pids.into_iter().zip(before) {
            #[expect(clippy::cast_precision_loss, reason = "a few million nanoseconds")]
            let (ms, woken) = (
                (cpu_ns(pid) - cpu_before) as f64 / 1e6,
                (sleeps(pid) - sleeps_before) as f64,
            );
            let what = format!("processor time of {who} in {when} {seconds} s");
            let mut figure = Figure::new(format!("idle.{minute}{key}.cpu"), what, ms, "ms");
            if let Some(aim) = aim {
                figure = figure.aim(aim);
            }
            section.add(figure);
            let what = format!("{who} woke up in {when} {seconds} s");
            let key = format!("idle.{minute}{key}.woken");
            section.add(Figure::new(key, what, woken, "times"));
        }
    }
    section.note(format!(
        "The folders of that root once held {} files each, and are as large as then.",
        grouped(number(options.up_to))
    ));
    let memory = rig.memory("VmRSS");
    section.add(Figure::new(
        "idle.memory",
        "memory of an idle daemon",
        memory,
        "MB",
    ));
    Ok(())
}

fn stay_idle(seconds: u64) {
    for _ in 0..seconds {
        assert!(
            !INTERRUPTED.load(std::sync::atomic::Ordering::Relaxed),
            "interrupted"
        );
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// On ext4 a folder stays as large as it once was.
fn hold_once(rig: &Rig, files: usize) -> io::Result<()> {
    eprintln!("  … {} files come and go", grouped(number(files)));
    for state in ["pending", "completed"] {
        let folder = rig.folder(state);
        fs::create_dir_all(&folder)?;
        let names = ids("once", files);
        for id in &names {
            fs::write(folder.join(id), "")?;
        }
        for id in &names {
            fs::remove_file(folder.join(id))?;
        }
    }
    Ok(())
}
