//! What a flood costs: commands that are refused, and links of a chain in their natural order. Each
//! ought to cost the same, however many come, and a request behind them ought to start at once.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::backlog::sync;
use crate::options::Options;
use crate::results::{Aim, Figure, Section, grouped, median, number};
use crate::rig::{Rig, Setup, cpu_ns, wait_until};
use crate::sample::{AGENT, ids, request};

const FEW: usize = 1_000;
const LIMIT: Duration = Duration::from_secs(900);

struct Flood {
    name: &'static str,
    /// What one of them is called.
    one: &'static str,
    /// Where they are dropped.
    folder: &'static str,
    content: fn(&[String], usize) -> String,
    /// How many are still to be dealt with, of so many.
    left: fn(&Rig, usize) -> usize,
}

const FLOODS: [Flood; 2] = [
    Flood {
        name: "commands",
        one: "refused command",
        folder: "control",
        content: |ids, n| format!("{{\"action\": \"cancel\", \"handoff_id\": \"{}\"}}", ids[n]),
        // What was refused lies in a folder there.
        left: |rig, _| rig.count("control").saturating_sub(1),
    },
    Flood {
        name: "links",
        one: "link of a chain",
        folder: "pending",
        content: |ids, n| {
            // The first one waits for a handoff that never comes.
            let before = n.checked_sub(1).map_or("nobody", |n| &ids[n]);
            let depends = format!("{{\n  \"depends_on\": [\"{before}\"],\n");
            request(&ids[n], AGENT).replacen("{\n", &depends, 1)
        },
        left: |rig, all| all.saturating_sub(rig.count("waiting")),
    },
];

struct Measured {
    /// Microseconds of processor time for each.
    each: f64,
    /// Seconds from the drop of a request behind them until it has ended.
    probe: f64,
}

pub fn run(options: &Options, section: &mut Section) -> io::Result<()> {
    for flood in &FLOODS {
        // Beside the large one small ones, because the machine changes meanwhile.
        let before = measure(flood, FEW)?;
        let large = measure(flood, options.up_to)?;
        let after = measure(flood, FEW)?;
        let few = median(&mut [before.each, after.each]);
        let key = |what: &str| format!("floods.{}.{what}", flood.name);
        let (all, few_of) = (
            grouped(number(options.up_to)),
            format!("of {}", grouped(number(FEW))),
        );
        let each = format!("processor time for each {}, of {all}", flood.one);
        let each = Figure::new(key("each"), each, large.each, "µs");
        section.add(each.beside(few_of, few).aim(Aim::AtMost(1.5)));
        let probe = format!(
            "a request behind {all} ({}), until it has ended",
            flood.name
        );
        let probe = Figure::new(key("probe"), probe, large.probe, "s");
        section.add(probe.aim(Aim::ValueAtMost(2.0)));
    }
    Ok(())
}

fn measure(flood: &Flood, count: usize) -> io::Result<Measured> {
    eprintln!("  … {} {}", grouped(number(count)), flood.name);
    let name = format!("floods-{}-{count}", flood.name);
    let mut rig = Rig::new(&name, &["/bin/true"], Setup::default())?;
    rig.start()?;
    rig.wait_ready();
    let names = ids(flood.name, count);
    let staging = rig.root.join("staging");
    for (n, id) in names.iter().enumerate() {
        fs::write(staging.join(id), (flood.content)(&names, n))?;
    }
    let probe = "probe".to_owned();
    rig.stage(std::slice::from_ref(&probe))?;
    sync(&rig);
    let target = rig.folder(flood.folder);
    let before = cpu_ns(rig.pid());
    for id in &names {
        drop_into(&staging.join(id), &target.join(format!("{id}.json")))?;
    }
    let begin = Instant::now();
    rig.drop_staged(&probe)?;
    let ended = rig.folder("completed").join("probe.json");
    let mut took = 0.0;
    wait_until(LIMIT, "the request behind the flood", || {
        took = begin.elapsed().as_secs_f64();
        ended.exists()
    });
    wait_until(LIMIT, "the end of the flood", || {
        let left = (flood.left)(&rig, count) as u64;
        std::thread::sleep(Duration::from_micros((left * 20).min(200_000)));
        left == 0
    });
    let spent = cpu_ns(rig.pid()).saturating_sub(before);
    #[expect(clippy::cast_precision_loss, reason = "it is shown with few digits")]
    let each = spent as f64 / 1000.0 / count as f64;
    Ok(Measured { each, probe: took })
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is a producer, not the daemon"
)]
fn drop_into(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}
