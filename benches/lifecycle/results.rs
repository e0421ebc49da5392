//! What was measured: figures with what stands beside them, kept as JSON so that the document can
//! be made again, and one part of it measured anew.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::chart::Chart;

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Results {
    pub sections: Vec<Section>,
}

/// The figures of one subject, in the order in which they were taken.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Section {
    pub name: String,
    /// When and on what; sections may have been measured in different runs.
    pub taken: String,
    pub seconds: f64,
    pub figures: Vec<Figure>,
    pub charts: Vec<Chart>,
    /// Rows of cells, the head first, where figures by themselves would not read well.
    #[serde(default)]
    pub rows: Vec<Vec<String>>,
    /// What was left out or went wrong, in sentences.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Figure {
    /// By which other sections find it.
    pub key: String,
    pub what: String,
    pub value: f64,
    pub unit: String,
    pub beside: Option<Beside>,
    pub aim: Option<Aim>,
}

/// The limit or the other program that a figure is held against.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Beside {
    pub what: String,
    pub value: f64,
    pub unit: String,
}

/// What the figure, or its ratio where it has something beside it, ought to be.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum Aim {
    AtLeast(f64),
    AtMost(f64),
    /// The figure itself, though something stands beside it.
    ValueAtMost(f64),
}

impl Figure {
    pub fn new(key: impl Into<String>, what: impl Into<String>, value: f64, unit: &str) -> Self {
        Self {
            key: key.into(),
            what: what.into(),
            value,
            unit: unit.to_owned(),
            beside: None,
            aim: None,
        }
    }

    /// Held against something of the same unit.
    pub fn beside(self, what: impl Into<String>, value: f64) -> Self {
        let beside = Beside {
            what: what.into(),
            value,
            unit: self.unit.clone(),
        };
        Self {
            beside: Some(beside),
            ..self
        }
    }

    pub fn aim(self, aim: Aim) -> Self {
        Self {
            aim: Some(aim),
            ..self
        }
    }

    pub fn ratio(&self) -> Option<f64> {
        let beside = self.beside.as_ref()?;
        (beside.unit == self.unit && beside.value != 0.0).then(|| self.value / beside.value)
    }

    /// Measured, value, beside it, ratio, aim.
    pub fn cells(&self) -> [String; 5] {
        let beside = self.beside.as_ref().map_or_else(String::new, |beside| {
            format!("{} {}", show(beside.value, &beside.unit), beside.what)
        });
        let ratio = self
            .ratio()
            .map_or_else(String::new, |it| format!("{it:.2}"));
        let judged = self.ratio().unwrap_or(self.value);
        let (wanted, is_met) = match self.aim {
            None => (String::new(), None),
            Some(Aim::AtLeast(least)) => (format!("≥ {least}"), Some(judged >= least)),
            Some(Aim::AtMost(most)) => (format!("≤ {most}"), Some(judged <= most)),
            Some(Aim::ValueAtMost(most)) => (
                format!("≤ {}", show(most, &self.unit)),
                Some(self.value <= most),
            ),
        };
        let aim = match is_met {
            None => wanted,
            Some(true) => format!("{wanted}: met"),
            Some(false) => format!("{wanted}: missed"),
        };
        let value = show(self.value, &self.unit);
        [self.what.clone(), value, beside, ratio, aim]
    }
}

/// A number with as many digits as mean something.
pub fn show(value: f64, unit: &str) -> String {
    let size = value.abs();
    let number = if size >= 100.0 || value == 0.0 {
        grouped(value)
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    };
    match unit {
        "" | "/s" => format!("{number}{unit}"),
        _ => format!("{number} {unit}"),
    }
}

/// A whole number, its thousands set apart.
pub fn grouped(value: f64) -> String {
    let plain = format!("{value:.0}");
    let digits = plain.len();
    plain
        .char_indices()
        .flat_map(|(at, digit)| {
            let comma = at > 0 && (digits - at).is_multiple_of(3) && !plain[..at].ends_with('-');
            comma.then_some(',').into_iter().chain(Some(digit))
        })
        .collect()
}

impl Section {
    pub fn add(&mut self, figure: Figure) {
        let cells = figure.cells();
        let said: Vec<&str> = cells.iter().map(String::as_str).collect();
        eprintln!("  {}", said.join(" | "));
        self.figures.push(figure);
    }

    pub fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        eprintln!("  {note}");
        self.notes.push(note);
    }

    pub fn table(&self) -> String {
        if !self.rows.is_empty() {
            return table(&self.rows);
        }
        if self.figures.is_empty() {
            return String::new();
        }
        let who = if self.name == "limits" {
            "this machine"
        } else {
            "handoffd"
        };
        let head = ["measured", who, "beside it", "ratio", "aim"].map(str::to_owned);
        let rows: Vec<[String; 5]> = self.figures.iter().map(Figure::cells).collect();
        // A column that nobody fills says nothing.
        let is_used = |at: usize| at < 2 || rows.iter().any(|row| !row[at].is_empty());
        let used: Vec<usize> = (0..5).filter(|at| is_used(*at)).collect();
        let all = std::iter::once(&head).chain(&rows);
        let picked = |row: &[String; 5]| used.iter().map(|at| row[*at].clone()).collect();
        table(&all.map(picked).collect::<Vec<_>>())
    }
}

/// As Markdown; the first column is text, the others are figures.
fn table(rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        text += &line(row);
        if at == 0 {
            let rule = (0..row.len()).map(|at| if at == 0 { "---" } else { "---:" });
            text += &line(&rule.map(str::to_owned).collect::<Vec<_>>());
        }
    }
    text
}

impl Results {
    fn file() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench/results.json")
    }

    /// What earlier runs left; what can't be read counts as nothing.
    pub fn load() -> Self {
        let bytes = fs::read(Self::file()).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    pub fn save(&self) -> io::Result<()> {
        let file = Self::file();
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(file, serde_json::to_string_pretty(self)? + "\n")
    }

    pub fn put(&mut self, section: Section) {
        match self.sections.iter_mut().find(|it| it.name == section.name) {
            Some(old) => *old = section,
            None => self.sections.push(section),
        }
    }

    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    pub fn value(&self, key: &str) -> Option<f64> {
        let mut figures = self.sections.iter().flat_map(|section| &section.figures);
        figures.find(|it| it.key == key).map(|it| it.value)
    }
}

/// The value that `share` of all are below; sorts them.
pub fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a place in a short list"
    )]
    let at = (values.len().saturating_sub(1) as f64 * share).round() as usize;
    values.get(at).copied().unwrap_or(f64::NAN)
}

pub fn median(values: &mut [f64]) -> f64 {
    quantile(values, 0.5)
}

/// So many in so many seconds.
#[expect(clippy::cast_precision_loss, reason = "counts of a few millions")]
pub fn per_second(count: usize, seconds: f64) -> f64 {
    count as f64 / seconds
}

#[expect(clippy::cast_precision_loss, reason = "counts of a few millions")]
pub fn number(count: usize) -> f64 {
    count as f64
}
