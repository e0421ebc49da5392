//! What a backlog costs: memory for all that wait, and the rate at which they are worked off.
//!
//! One specialist sleeps in the only slot, so that everything else stays pending until intake
//! is over. Then two more slots are opened, and the first completions are counted.

use std::io;
use std::time::{Duration, Instant};

use crate::rig::{Rig, Setup, cpu_ns, ids, request, wait_until};
use crate::table::{Table, median};
use crate::throughput::wait_completed;

const CLOSED: Setup<'_> = Setup {
    max_concurrent: 1,
    durability: "full",
    resident: false,
};
const OPEN: Setup<'_> = Setup {
    max_concurrent: 3,
    ..CLOSED
};

struct Measured {
    rss: f64,
    peak: f64,
    rate: f64,
}

pub fn run(table: &mut Table, memory: bool) -> io::Result<()> {
    let few = |round: usize| measure(1_000, 1_000, &format!("few{round}"));
    let mut small = vec![few(0)?.rate, few(1)?.rate];
    let sizes: &[usize] = if memory {
        &[10_000, 100_000]
    } else {
        &[100_000]
    };
    let mut large = 0.0;
    for &waiting in sizes {
        let measured = measure(waiting, 2_000, "many")?;
        table.row(
            &format!("memory, {waiting} waiting"),
            format!("{:.1} MB", measured.rss),
            format!("{:.1} MB at its peak", measured.peak),
            None,
        );
        large = measured.rate;
    }
    small.push(few(2)?.rate);
    let small = median(&mut small);
    table.row(
        "handoffs/s with 100000 waiting, first 2000",
        format!("{large:.0}"),
        format!("{small:.0} with 1000 waiting"),
        Some(large / small),
    );
    Ok(())
}

fn measure(waiting: usize, completions: usize, name: &str) -> io::Result<Measured> {
    eprintln!("backlog: {waiting} waiting");
    let mut rig = Rig::new(&format!("backlog-{name}"), &["/bin/true"], CLOSED)?;
    rig.start()?;
    rig.wait_ready();
    std::fs::write(
        rig.folder("pending").join("sleeper.json"),
        request("sleeper", "@sleeper"),
    )?;
    wait_until(Duration::from_secs(10), "the sleeper", || {
        rig.folder("in-progress").join("sleeper.json").exists()
    });
    let ids = ids("backlog", waiting);
    rig.stage(&ids)?;
    for id in &ids {
        rig.drop_staged(id)?;
    }
    wait_quiet(rig.pid());
    // What was staged must not be written out while the rate is measured.
    let _ = rustix::fs::syncfs(std::fs::File::open(&rig.root)?);
    let (rss, peak) = (rig.memory("VmRSS"), rig.memory("VmHWM"));
    rig.configure(OPEN)?;
    let begin = Instant::now();
    rig.reload();
    wait_completed(&rig, completions);
    let done = rig.count("completed");
    #[expect(clippy::cast_precision_loss, reason = "a small count")]
    let rate = done as f64 / begin.elapsed().as_secs_f64();
    Ok(Measured { rss, peak, rate })
}

/// Intake is over when the daemon has nothing to do any more.
fn wait_quiet(pid: u32) {
    let mut last = cpu_ns(pid);
    wait_until(Duration::from_secs(300), "the daemon to be quiet", || {
        std::thread::sleep(Duration::from_millis(500));
        let now = cpu_ns(pid);
        let idle = now - last < 5_000_000;
        last = now;
        idle
    });
}
