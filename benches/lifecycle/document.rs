//! The document: what people wrote in the template, with the figures put in.

use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

use handoffd::clock::Clock;

use crate::options::Options;
use crate::results::{Results, Section, grouped, number};

const TEMPLATE: &str = include_str!("performance.md");
const CHARTS: &str = "performance";

/// Writes `performance.md` into the folder, and the charts beside it.
pub fn write(folder: &Path, results: &Results) -> io::Result<()> {
    let charts = folder.join(CHARTS);
    fs::create_dir_all(&charts)?;
    let former = fs::read_to_string(folder.join("performance.md")).unwrap_or_default();
    let mut page = String::new();
    let mut rest = TEMPLATE;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").ok_or_else(|| {
            io::Error::other("the template has an opening {{ without its closing }}")
        })?;
        // The text that is put in ends its own line.
        rest = after.strip_prefix('\n').unwrap_or(after);
        page += before;
        page += &match (name, results.section(name)) {
            ("parts", _) => parts(),
            (_, Some(section)) => shown(section),
            (_, None) => measured_before(&former, before, rest)
                .unwrap_or("Not measured.\n")
                .to_owned(),
        };
    }
    page += rest;
    fs::write(folder.join("performance.md"), page)?;
    for chart in results.sections.iter().flat_map(|it| &it.charts) {
        fs::write(charts.join(format!("{}.svg", chart.name)), chart.svg())?;
    }
    eprintln!("written: {}", folder.join("performance.md").display());
    Ok(())
}

/// What the page has between two texts of the template: who measures one part, on a machine that has
/// measured nothing else yet, keeps the rest.
fn measured_before<'a>(page: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let after = after.split("{{").next().unwrap_or_default();
    let (_, rest) = page.split_once(before)?;
    rest.find(after).map(|end| &rest[..end])
}

fn shown(section: &Section) -> String {
    let mut text = section.table();
    for chart in &section.charts {
        let _ = write!(text, "\n![{}]({CHARTS}/{}.svg)\n", chart.title, chart.name);
    }
    for note in &section.notes {
        let _ = write!(text, "\n{note}\n");
    }
    let _ = write!(text, "\n<sub>{}</sub>\n", section.taken);
    text
}

/// When, on what and how much, in a line.
pub fn taken(options: &Options) -> String {
    let day = Clock::System.now().wall.day();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("processor", |(_, name)| name.trim());
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    format!(
        "{day}, {cores} cores ({model}), Linux {}, load {load} at the beginning; rounds: {} of {}.",
        release.trim().split('-').next().unwrap_or_default(),
        options.rounds,
        grouped(number(options.count)),
    )
}

/// The other benchmark's figures, as they were last accepted.
fn parts() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/parts/baseline.json");
    let read = fs::read(path).ok();
    let baseline: Option<serde_json::Value> =
        read.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let Some(baseline) = baseline else {
        return "Not measured.\n".to_owned();
    };
    let mut text = "| part | instructions |\n| --- | ---: |\n".to_owned();
    for (name, count) in baseline["parts"].as_object().into_iter().flatten() {
        let count = grouped(count.as_f64().unwrap_or_default());
        let _ = writeln!(text, "| {name} | {count} |");
    }
    let said = |key: &str| baseline[key].as_str().unwrap_or_default().to_owned();
    let _ = write!(
        text,
        "\n<sub>{}, {}</sub>\n",
        said("toolchain"),
        said("valgrind")
    );
    text
}
