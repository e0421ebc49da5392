//! Other queues that are installed here, at the same work: two at once, jobs of `/bin/true`.
//!
//! Each is given its jobs behind two that hold both its slots until a file appears; from then on
//! the time is taken until its last job has ended. Pick-up is timed one job after the other, from
//! the moment at which it is submitted.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::backlog;
use crate::bare::{monotonic_ns, spawn_loop};
use crate::chart::{Axis, Chart, Kind};
use crate::options::Options;
use crate::pickup::{Servant, Stamps, drop_one};
use crate::queues::{self, Queue};
use crate::results::{Figure, Section, median, per_second, quantile, show};
use crate::rig::{Rig, Setup, program, roots, wait_until};
use crate::sample::ids;

pub fn run(options: &Options, section: &mut Section) -> io::Result<()> {
    let rounds = options.rounds.min(3);
    let here: Vec<&'static Queue> = queues::ALL.iter().filter(|queue| queue.is_here()).collect();
    for queue in queues::ALL {
        if !here.iter().any(|it| it.name == queue.name) {
            let Queue { name, package, .. } = queue;
            section.note(format!(
                "{name} is not installed here ({package}); left out."
            ));
        }
    }
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    let mut rates: Vec<Vec<f64>> = here.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        bare.push(per_second(options.count, spawn_loop(options.count, 2)));
        ours.push(backlog::measure(options.count)?.rate);
        for (queue, rates) in here.iter().zip(&mut rates) {
            let jobs = queue.jobs.min(options.count);
            match drain(queue, jobs) {
                Ok(seconds) => rates.push(per_second(jobs, seconds)),
                Err(why) => section.note(format!("{} could not be drained: {why}.", queue.name)),
            }
        }
    }
    let (bare, ours) = (median(&mut bare), median(&mut ours));
    section
        .figures
        .push(Figure::new("peer.bare.rate", "bare", bare, "/s"));
    section
        .figures
        .push(Figure::new("peer.ours.rate", "handoffd", ours, "/s"));
    let mut drained = vec![
        ("bare spawn loop".to_owned(), bare),
        ("handoffd, durable".to_owned(), ours),
    ];
    for (queue, rates) in here.iter().zip(&mut rates).filter(|it| !it.1.is_empty()) {
        let rate = median(rates);
        drained.push((queue.name.to_owned(), rate));
        let key = format!("peer.{}.rate", queue.name);
        section.add(Figure::new(key, queue.name, rate, "/s"));
    }
    let title = "Jobs of /bin/true per second, 2 at once";
    section
        .charts
        .push(bars("peers-drain", title, "/s", drained));
    let outcome = pickups(options, section, &here);
    section.rows = rows(section, &here);
    outcome
}

/// One for each queue, with handoffd's figures over theirs.
fn rows(section: &Section, here: &[&'static Queue]) -> Vec<Vec<String>> {
    let find = |key: String| {
        let mut figures = section.figures.iter();
        figures.find(|it| it.key == key).map(|it| it.value)
    };
    let head = [
        "queue",
        "drains, 2 at once",
        "of bare",
        "handoffd is quicker",
        "picks up, p50",
        "p99",
        "handoffd is quicker",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let names = here.iter().map(|queue| queue.name);
    for name in ["bare", "ours", "submit"].into_iter().chain(names) {
        let said = match name {
            "bare" => "a bare spawn loop",
            "ours" => "handoffd, durable, by rename",
            "submit" => "handoffd submit",
            other => other,
        };
        let is_peer = said == name;
        let of = |who: &str, what: &str| find(format!("peer.{who}.{what}"));
        let cell = |value: Option<f64>, unit: &str| {
            value.map_or_else(|| "–".to_owned(), |value| show(value, unit))
        };
        let ratio = |over: Option<f64>, under: Option<f64>, sign: &str| {
            let ratio = over.zip(under).map(|(over, under)| over / under);
            ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}{sign}"))
        };
        let (rate, p50) = (of(name, "rate"), of(name, "pickup.p50"));
        let quicker = |over, under| {
            if is_peer {
                ratio(over, under, "×")
            } else {
                "–".to_owned()
            }
        };
        rows.push(vec![
            said.to_owned(),
            cell(rate, "/s"),
            ratio(rate, of("bare", "rate"), ""),
            quicker(of("ours", "rate"), rate),
            cell(p50, "ms"),
            cell(of(name, "pickup.p99"), "ms"),
            quicker(p50, of("ours", "pickup.p50")),
        ]);
    }
    rows
}

fn pickups(options: &Options, section: &mut Section, here: &[&'static Queue]) -> io::Result<()> {
    let drops = options.drops.min(100);
    let stamps = Stamps::new()?;
    let mut rig = Rig::new("peers", &stamps.command(), Setup::default())?;
    rig.start()?;
    rig.wait_ready();
    let (mut renamed, mut submitted) = (Vec::new(), Vec::new());
    for id in &ids("peers", drops) {
        renamed.push(drop_one(&rig, &stamps, id)?);
        pause();
        let begin = monotonic_ns();
        submit(&rig)?;
        submitted.push(stamps.since(begin)?);
        rig.wait_drained();
        pause();
    }
    drop(rig);
    let mut picked = Vec::new();
    let mut add = |section: &mut Section, key: &str, name: &str, taken: &mut [f64]| {
        for (word, share) in [("p50", 0.5), ("p99", 0.99)] {
            let (key, what) = (
                format!("peer.{key}.pickup.{word}"),
                format!("{name}, {word}"),
            );
            section.add(Figure::new(key, what, quantile(taken, share), "ms"));
        }
        picked.push((name.to_owned(), quantile(taken, 0.5)));
    };
    add(section, "ours", "handoffd, by rename", &mut renamed);
    add(section, "submit", "handoffd submit", &mut submitted);
    for queue in here {
        match pick_up(queue, &stamps, drops.min(queue.jobs)) {
            Ok(mut taken) => add(section, queue.name, queue.name, &mut taken),
            Err(why) => section.note(format!("{} did not pick up: {why}.", queue.name)),
        }
    }
    let title = "Pick-up by an idle queue, p50 (a scale of powers)";
    let mut chart = bars("peers-pickup", title, "ms", picked);
    chart.across.is_log = true;
    section.charts.push(chart);
    Ok(())
}

fn bars(name: &str, title: &str, unit: &str, bars: Vec<(String, f64)>) -> Chart {
    Chart {
        name: name.to_owned(),
        title: title.to_owned(),
        across: Axis::linear(unit),
        up: Axis::linear(""),
        kind: Kind::Bars(bars),
    }
}

fn submit(rig: &Rig) -> io::Result<()> {
    let words = ["submit", "--to", crate::sample::AGENT, "--root"];
    call(Command::new(program()).args(words).arg(&rig.root))
}

/// A folder for one queue, its servants, and how it is spoken to.
pub struct Place {
    pub folder: PathBuf,
    pub servants: Vec<Servant>,
    queue: &'static Queue,
}

impl Place {
    fn new(queue: &'static Queue) -> io::Result<Self> {
        let folder = roots().join(format!("{}-{}", queue.name, std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        fs::write(
            folder.join("gate.sh"),
            "touch \"$1.$2\"\nuntil [ -e \"$1\" ]; do sleep 0.01; done\n",
        )?;
        let mut place = Self {
            folder,
            servants: Vec::new(),
            queue,
        };
        (queue.start)(&mut place)?;
        Ok(place)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// One that fits into an address.
    pub fn socket(&self) -> PathBuf {
        let name = format!("handoffd-bench-{}-{}", self.queue.name, std::process::id());
        std::env::temp_dir().join(name)
    }

    /// Adds a line to what a servant reads.
    pub fn tell(&mut self, words: &[&str]) -> io::Result<()> {
        let line = words.join("\t") + "\n";
        let stdin = self.servants.first_mut().and_then(|it| it.0.stdin.as_mut());
        stdin
            .ok_or(io::ErrorKind::BrokenPipe)?
            .write_all(line.as_bytes())
    }

    /// How many jobs a servant has counted.
    pub fn counted(&self) -> usize {
        fs::metadata(self.path("done")).map_or(0, |it| usize::try_from(it.len()).unwrap_or(0))
    }
}

/// Runs a client to its end; what it complains of is the error.
pub fn call(command: &mut Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(said.trim().to_owned()))
}

impl Drop for Place {
    fn drop(&mut self) {
        // Whatever waits for the gate ends, too.
        let _ = fs::write(self.path("gate"), "");
        (self.queue.stop)(self);
        self.servants.clear();
        let _ = fs::remove_dir_all(&self.folder);
        let _ = fs::remove_file(self.socket());
    }
}

fn text(path: &Path) -> io::Result<String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Seconds for so many jobs that were there already.
fn drain(queue: &'static Queue, jobs: usize) -> io::Result<f64> {
    eprintln!("  … {}: {jobs} jobs", queue.name);
    let mut place = Place::new(queue)?;
    let (script, gate) = (text(&place.path("gate.sh"))?, text(&place.path("gate"))?);
    for lane in ["0", "1"] {
        (queue.add)(&mut place, &["sh", &script, &gate, lane])?;
    }
    for _ in 0..jobs {
        (queue.add)(&mut place, &["/bin/true"])?;
    }
    wait_until(Duration::from_secs(60), "both slots to be taken", || {
        ["gate.0", "gate.1"]
            .iter()
            .all(|it| place.path(it).exists())
    });
    let begin = Instant::now();
    fs::write(&gate, "")?;
    (queue.wait)(&mut place, jobs + 2)?;
    Ok(begin.elapsed().as_secs_f64())
}

/// Milliseconds for each of so many pick-ups.
fn pick_up(queue: &'static Queue, stamps: &Stamps, drops: usize) -> io::Result<Vec<f64>> {
    eprintln!("  … {}: {drops} pick-ups", queue.name);
    let mut place = Place::new(queue)?;
    let mut taken = Vec::new();
    for _ in 0..drops {
        let begin = monotonic_ns();
        (queue.add)(&mut place, &stamps.command())?;
        taken.push(stamps.since(begin)?);
        pause();
    }
    Ok(taken)
}

/// Until the queue is idle again, and not in step with whatever looks at intervals.
fn pause() {
    std::thread::sleep(Duration::from_micros(
        10_000 + monotonic_ns() / 1_000 % 30_000,
    ));
}
