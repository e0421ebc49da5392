//! What the parts cost when it was last looked at, and how that compares.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::{fs, io};

use serde::{Deserialize, Serialize};

pub const FILE: &str = "benches/parts/baseline.json";

#[derive(Debug, Serialize, Deserialize)]
pub struct Baseline {
    /// What it was compiled with. Another compiler makes other instructions.
    toolchain: String,
    valgrind: String,
    /// Which instructions are there to be used.
    machine: String,
    /// Instructions for each part.
    parts: BTreeMap<String, u64>,
}

impl Baseline {
    pub fn taken_now(valgrind: String, parts: Vec<(String, u64)>) -> Self {
        let rustc = Command::new("rustc").arg("--version").output();
        let toolchain = rustc.map_or_else(
            |_| "unknown".to_owned(),
            |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        );
        Self {
            toolchain,
            valgrind,
            machine: std::env::consts::ARCH.to_owned(),
            parts: parts.into_iter().collect(),
        }
    }

    pub fn read() -> io::Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }

    pub fn write(&self) -> io::Result<()> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
        fs::write(path, serde_json::to_string_pretty(self)? + "\n")
    }

    pub fn warn_if_other(&self, now: &Self) {
        for (what, before, now) in [
            ("toolchain", &self.toolchain, &now.toolchain),
            ("valgrind", &self.valgrind, &now.valgrind),
            ("machine", &self.machine, &now.machine),
        ] {
            if before != now {
                eprintln!(
                    "warning: the baseline is of another {what} ({before}, this is {now}), so \
                     differences may not be the code's"
                );
            }
        }
    }

    /// One sentence for each part that costs more than it may, and each that has no baseline.
    pub fn worse_than(&self, before: &Self, tolerance: f64) -> Vec<String> {
        let worse = self.parts.iter().filter_map(|(name, now)| {
            let Some(before) = before.parts.get(name) else {
                return Some(format!("{name}: has no baseline"));
            };
            let more = change(*now, *before);
            (more > tolerance).then(|| {
                format!(
                    "{name}: {now} instructions, {:.1} % more than {before}",
                    more * 100.0
                )
            })
        });
        worse.collect()
    }

    pub fn print(&self, before: Option<&Self>) {
        println!("\n| part | instructions | baseline | change |");
        println!("| --- | ---: | ---: | ---: |");
        for (name, now) in &self.parts {
            let known = before.and_then(|before| before.parts.get(name));
            let (then, change) = known.map_or_else(Default::default, |then| {
                let percent = change(*now, *then) * 100.0;
                (then.to_string(), format!("{percent:+.1} %"))
            });
            println!("| {name} | {now} | {then} | {change} |");
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of a few millions")]
fn change(now: u64, before: u64) -> f64 {
    now as f64 / before.max(1) as f64 - 1.0
}
