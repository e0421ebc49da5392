//! From the rename into `pending/` of an idle daemon to the specialist's first instruction.

use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::bare::monotonic_ns;
use crate::rig::{Rig, Setup, ids, wait_until};
use crate::table::{Table, quantile};

const DROPS: usize = 200;

pub fn run(table: &mut Table) -> io::Result<()> {
    eprintln!("pick-up: {DROPS} drops");
    let own = std::env::current_exe()?;
    let own = own.to_str().ok_or(io::ErrorKind::InvalidInput)?;
    let setup = Setup {
        max_concurrent: 2,
        durability: "full",
        resident: false,
    };
    // An address holds 108 bytes, which the root's own path may exceed.
    let at = std::env::temp_dir().join(format!("handoffd-bench-{}.sock", std::process::id()));
    let socket = UnixDatagram::bind(&at)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let path = at.to_str().ok_or(io::ErrorKind::InvalidInput)?;
    let mut rig = Rig::new("pickup", &[own, "--stamp", path], setup)?;
    rig.start()?;
    rig.wait_ready();
    let folder = rig.root.join("bare");
    std::fs::create_dir(&folder)?;
    let mut bare = Command::new(own)
        .arg("--bare-pickup")
        .arg(&folder)
        .arg(path)
        .stdout(Stdio::piped())
        .spawn()?;
    if let Some(stdout) = bare.stdout.take() {
        BufReader::new(stdout).read_line(&mut String::new())?;
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for (n, id) in ids("pickup", DROPS).iter().enumerate() {
        rig.stage(std::slice::from_ref(id))?;
        let begin = monotonic_ns();
        rig.drop_staged(id)?;
        ours.push(microseconds(&socket, begin)?);
        wait_until(Duration::from_secs(10), "a completion", || {
            rig.count("completed") > n
        });
        rig.stage(std::slice::from_ref(id))?;
        let begin = monotonic_ns();
        drop_at(&rig.root.join("staging").join(id), &folder.join(id))?;
        theirs.push(microseconds(&socket, begin)?);
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = bare.kill();
    let _ = bare.wait();
    let _ = std::fs::remove_file(&at);
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let (ours, theirs) = (quantile(&mut ours, share), quantile(&mut theirs, share));
        table.row(
            &format!("pick-up on an idle daemon, {name}"),
            format!("{:.2} ms", ours / 1000.0),
            format!("{:.2} ms, bare inotify + spawn", theirs / 1000.0),
            Some(ours / theirs),
        );
    }
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is a producer, not the daemon"
)]
fn drop_at(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)
}

#[expect(clippy::cast_precision_loss, reason = "a few million nanoseconds")]
fn microseconds(socket: &UnixDatagram, begin: u64) -> io::Result<f64> {
    let mut stamp = [0; 8];
    socket.recv(&mut stamp)?;
    Ok(u64::from_le_bytes(stamp).saturating_sub(begin) as f64 / 1000.0)
}
