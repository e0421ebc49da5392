//! What each part of a handoff's way costs, in instructions, which don't depend on what else the
//! machine does.
//!
//! ```text
//! cargo bench --bench parts                 counts them, beside the baseline
//! cargo bench --bench parts -- --check      and fails where one costs over 5 % more
//! cargo bench --bench parts -- --baseline   writes baseline.json anew
//! ```
//!
//! Each part runs in a process of its own under callgrind, twice: prepared and done once, and then
//! so many times more. The difference, divided, is what it costs; loading, preparing and whatever
//! is made at its first use cancel out. What the kernel does is not counted.

mod baseline;
mod callgrind;
mod parts;
#[path = "../common/sample.rs"]
mod sample;

use std::io;
use std::process::ExitCode;

use baseline::Baseline;
use parts::Part;

/// How much more a part may cost than it did.
const TOLERANCE: f64 = 0.05;

fn main() -> io::Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name, times, folder] = &args[..]
        && flag == "--run"
    {
        return run(name, times.parse().map_err(io::Error::other)?, folder);
    }
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let Some(valgrind) = callgrind::version() else {
        eprintln!("skipped: there is no valgrind here, and without it nothing is counted");
        return Ok(ExitCode::SUCCESS);
    };
    let counted = callgrind::count_all()?;
    let taken = Baseline::taken_now(valgrind, counted);
    if has("--baseline") {
        taken.write()?;
        taken.print(None);
        println!("\nwritten to {}", baseline::FILE);
        return Ok(ExitCode::SUCCESS);
    }
    let before = Baseline::read()?;
    taken.print(Some(&before));
    before.warn_if_other(&taken);
    let worse = taken.worse_than(&before, TOLERANCE);
    if has("--check") && !worse.is_empty() {
        for line in &worse {
            eprintln!("{line}");
        }
        eprintln!("if that is meant, `just bench-baseline` writes the baseline anew");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// In the process that is counted.
fn run(name: &str, times: u64, folder: &str) -> io::Result<ExitCode> {
    let part = parts::ALL.iter().find(|part| part.name == name);
    let Part { prepare, .. } = part.ok_or(io::ErrorKind::NotFound)?;
    let mut turn = prepare(folder.as_ref());
    for _ in 0..=times {
        turn();
    }
    Ok(ExitCode::SUCCESS)
}
