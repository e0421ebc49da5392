//! What an idle daemon and its keeper cost.

use std::io;
use std::time::Duration;

use crate::rig::{Rig, Setup, cpu_ns};
use crate::table::Table;

pub fn run(table: &mut Table, seconds: u64) -> io::Result<()> {
    eprintln!("idle: {seconds} s");
    let setup = Setup {
        max_concurrent: 2,
        durability: "full",
        resident: false,
    };
    let mut rig = Rig::new("idle", &["/bin/true"], setup)?;
    rig.start()?;
    rig.wait_ready();
    std::thread::sleep(Duration::from_secs(1));
    let keeper = rig.keeper().ok_or(io::ErrorKind::NotFound)?;
    let used = || [rig.pid(), keeper].map(cpu_ns);
    let before = used();
    std::thread::sleep(Duration::from_secs(seconds));
    let after = used();
    #[expect(clippy::cast_precision_loss, reason = "a few million nanoseconds")]
    let ms = |at: usize| (after[at] - before[at]) as f64 / 1e6;
    table.row(
        &format!("processor time, idle for {seconds} s"),
        format!("{:.2} ms", ms(0)),
        format!("{:.2} ms, its keeper", ms(1)),
        None,
    );
    Ok(())
}
