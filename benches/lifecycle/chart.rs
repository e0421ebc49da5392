//! Small charts as SVG: lines over a scale, or bars by name. Readable in light and dark.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::results::{number, show};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Chart {
    /// Of its file, without extension.
    pub name: String,
    pub title: String,
    pub across: Axis,
    pub up: Axis,
    pub kind: Kind,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Axis {
    pub label: String,
    /// Each step is a multiple of the one before.
    pub is_log: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Kind {
    Lines(Vec<Line>),
    /// Name and length of each.
    Bars(Vec<(String, f64)>),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

impl Axis {
    pub fn linear(label: &str) -> Self {
        Self {
            label: label.to_owned(),
            is_log: false,
        }
    }

    pub fn log(label: &str) -> Self {
        Self {
            is_log: true,
            ..Self::linear(label)
        }
    }
}

impl Line {
    pub fn new(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.to_owned(),
            points,
        }
    }
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
/// Around the plot: left, right, top, bottom.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 52.0;
const COLOURS: usize = 4;

/// The page's own colours can't be known from within an image, so it has a ground of its own.
const STYLE: &str = "\
<style>
  .ground { fill: #ffffff } .axis, .grid { stroke: #d0d7de; fill: none } text { fill: #24292f }
  .l { fill: none; stroke-width: 2 }
  .l.c0 { stroke: #0969da } .f.c0 { fill: #0969da } .l.c1 { stroke: #bc4c00 } .f.c1 { fill: #bc4c00 }
  .l.c2 { stroke: #1a7f37 } .f.c2 { fill: #1a7f37 } .l.c3 { stroke: #6e7781 } .f.c3 { fill: #6e7781 }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117 } .axis, .grid { stroke: #30363d } text { fill: #e6edf3 }
    .l.c0 { stroke: #58a6ff } .f.c0 { fill: #58a6ff } .l.c1 { stroke: #f0883e } .f.c1 { fill: #f0883e }
    .l.c2 { stroke: #3fb950 } .f.c2 { fill: #3fb950 } .l.c3 { stroke: #8b949e } .f.c3 { fill: #8b949e }
  }
</style>
";

impl Chart {
    pub fn svg(&self) -> String {
        let height = match &self.kind {
            Kind::Lines(_) => HEIGHT,
            Kind::Bars(bars) => TOP + 20.0 + 30.0 * number(bars.len()),
        };
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
             font-family=\"system-ui, sans-serif\" font-size=\"12\">\n<title>{}</title>\n{STYLE}\
             <rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n",
            escape(&self.title)
        );
        text(
            &mut svg,
            16.0,
            24.0,
            "start",
            &self.title,
            " font-size=\"15\"",
        );
        match &self.kind {
            Kind::Lines(lines) => self.lines(&mut svg, lines),
            Kind::Bars(bars) => self.bars(&mut svg, bars),
        }
        svg + "</svg>\n"
    }

    fn lines(&self, svg: &mut String, lines: &[Line]) {
        let of = |pick: fn(&(f64, f64)) -> f64| {
            let points = lines.iter().flat_map(|line| &line.points);
            points.map(pick).collect::<Vec<f64>>()
        };
        let across = Scale::over(&of(|point| point.0), self.across.is_log, false);
        let up = Scale::over(&of(|point| point.1), self.up.is_log, true);
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let x = |value: f64| LEFT + across.place(value) * (right - LEFT);
        let y = |value: f64| bottom - up.place(value) * (bottom - TOP);
        for step in up.steps() {
            let at = y(step);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT:.0} {at:.1}H{right:.0}\"/>"
            );
            text(svg, LEFT - 8.0, at + 4.0, "end", &short(step), "");
        }
        // Few places are named themselves; many are read off a scale.
        let mut places = of(|point| point.0);
        places.sort_by(f64::total_cmp);
        places.dedup();
        if places.len() > 8 {
            places = across.steps();
        }
        for step in places {
            text(svg, x(step), bottom + 18.0, "middle", &short(step), "");
        }
        let _ = writeln!(
            svg,
            "<path class=\"axis\" d=\"M{LEFT:.0} {TOP:.0}V{bottom:.0}H{right:.0}\"/>"
        );
        let middle = f64::midpoint(LEFT, right);
        text(svg, middle, HEIGHT - 14.0, "middle", &self.across.label, "");
        text(
            svg,
            16.0,
            TOP - 12.0,
            "start",
            &self.up.label,
            " opacity=\"0.75\"",
        );
        for (at, line) in lines.iter().enumerate() {
            let colour = at % COLOURS;
            let mut path = String::new();
            for (n, point) in line.points.iter().enumerate() {
                let letter = if n == 0 { 'M' } else { 'L' };
                let _ = write!(path, "{letter}{:.1} {:.1}", x(point.0), y(point.1));
            }
            let _ = writeln!(svg, "<path class=\"l c{colour}\" d=\"{path}\"/>");
            if line.points.len() < 20 {
                for point in &line.points {
                    let (x, y) = (x(point.0), y(point.1));
                    let _ = writeln!(
                        svg,
                        "<circle class=\"f c{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>"
                    );
                }
            }
            let legend = TOP + 8.0 + 20.0 * number(at);
            let left = right + 16.0;
            let _ = writeln!(
                svg,
                "<rect class=\"f c{colour}\" x=\"{left}\" y=\"{:.1}\" width=\"14\" height=\"4\"/>",
                legend - 6.0
            );
            text(svg, left + 20.0, legend, "start", &line.name, "");
        }
    }

    fn bars(&self, svg: &mut String, bars: &[(String, f64)]) {
        let values: Vec<f64> = bars.iter().map(|bar| bar.1).collect();
        let scale = Scale::over(&values, self.across.is_log, true);
        let (left, right) = (210.0, WIDTH - 90.0);
        for (at, (name, value)) in bars.iter().enumerate() {
            let top = TOP + 6.0 + 30.0 * number(at);
            let width = (scale.place(*value) * (right - left)).max(1.0);
            let colour = if name.starts_with("handoffd") { 0 } else { 3 };
            let _ = writeln!(
                svg,
                "<rect class=\"f c{colour}\" x=\"{left}\" y=\"{top:.0}\" width=\"{width:.1}\" \
                 height=\"20\"/>"
            );
            text(svg, left - 8.0, top + 14.0, "end", name, "");
            let said = show(*value, &self.across.label);
            text(svg, left + width + 6.0, top + 14.0, "start", &said, "");
        }
    }
}

struct Scale {
    low: f64,
    high: f64,
    is_log: bool,
}

impl Scale {
    fn over(values: &[f64], is_log: bool, from_zero: bool) -> Self {
        let usable = |value: &&f64| value.is_finite() && (!is_log || **value > 0.0);
        let usable = || values.iter().filter(usable);
        let low = usable().copied().fold(f64::INFINITY, f64::min);
        let high = usable().copied().fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = if low <= high {
            (low, high)
        } else {
            (1.0, 10.0)
        };
        if is_log {
            let (low, high) = (low.log10(), high.log10());
            let low = if from_zero { low.floor() } else { low };
            let high = if from_zero { high.ceil() } else { high };
            let high = if high > low { high } else { low + 1.0 };
            return Self { low, high, is_log };
        }
        let low = if from_zero { low.min(0.0) } else { low };
        let high = if from_zero { high * 1.05 } else { high };
        let high = if high > low { high } else { low + 1.0 };
        Self { low, high, is_log }
    }

    /// From 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let value = if self.is_log {
            value.max(f64::MIN_POSITIVE).log10()
        } else {
            value
        };
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Round values, a handful of them.
    fn steps(&self) -> Vec<f64> {
        if self.is_log {
            let mut steps = Vec::new();
            let between: &[f64] = if self.high - self.low < 3.0 {
                &[1.0, 2.0, 5.0]
            } else {
                &[1.0]
            };
            let mut power = self.low.floor();
            while power <= self.high {
                let round = between.iter().map(|factor| factor * 10_f64.powf(power));
                let is_in = |step: &f64| {
                    let at = step.log10();
                    at >= self.low - 1e-9 && at <= self.high + 1e-9
                };
                steps.extend(round.filter(is_in));
                power += 1.0;
            }
            return steps;
        }
        let rough = (self.high - self.low) / 6.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|factor| factor * power)
            .into_iter()
            .find(|step| *step >= rough)
            .unwrap_or(rough);
        let mut at = (self.low / step).ceil() * step;
        let mut steps = Vec::new();
        while at <= self.high + step * 1e-6 {
            steps.push(at);
            at += step;
        }
        steps
    }
}

fn short(value: f64) -> String {
    let size = value.abs();
    if size >= 1e6 {
        format!("{}M", trimmed(value / 1e6))
    } else if size >= 1e4 {
        format!("{}k", trimmed(value / 1e3))
    } else {
        trimmed(value)
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, said: &str, more: &str) {
    let said = escape(said);
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{more}>{said}</text>"
    );
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
