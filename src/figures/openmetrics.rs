//! The `OpenMetrics` text format, version 1.0: the writing half.
//!
//! Written by hand rather than with a metrics crate: those keep shared objects that are updated
//! where things happen, while here a page is made from a snapshot when somebody asks for it. What
//! is left to do is this file, and a test holds its pages against a strict reader.

use std::fmt::Write as _;

use crate::figures::histogram::Histogram;

/// What a server says it sends.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Gauge,
    Counter,
    Histogram,
    Info,
}

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

/// A metric family: one name with all its samples.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    pub name: &'static str,
    pub kind: Kind,
    /// The name ends in it.
    pub unit: Option<&'static str>,
    pub help: &'static str,
}

pub type Labels<'a> = &'a [(&'a str, &'a str)];

#[derive(Debug, Default)]
pub struct Page {
    text: String,
}

impl Page {
    /// Opens a family. Its samples must follow before the next one.
    pub fn family(&mut self, family: &Family) {
        let Family {
            name, kind, unit, ..
        } = family;
        let _ = writeln!(self.text, "# TYPE {name} {}", kind.word());
        if let Some(unit) = unit {
            let _ = writeln!(self.text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.text, "# HELP {name} {}", escaped(family.help));
    }

    /// One value of the family, whose name gets the suffix that its kind asks for.
    pub fn value(&mut self, family: &Family, labels: Labels<'_>, value: impl Into<Number>) {
        let suffix = match family.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        self.sample(family.name, suffix, labels, None, value.into());
    }

    pub fn histogram(&mut self, family: &Family, labels: Labels<'_>, histogram: &Histogram) {
        let name = family.name;
        for (bound, count) in histogram.buckets() {
            let bound = Number::Float(bound);
            self.sample(name, "_bucket", labels, Some(bound), Number::Whole(count));
        }
        let (count, sum) = (histogram.count(), histogram.sum());
        self.sample(name, "_count", labels, None, Number::Whole(count));
        self.sample(name, "_sum", labels, None, Number::Float(sum));
    }

    fn sample(
        &mut self,
        name: &str,
        suffix: &str,
        labels: Labels<'_>,
        le: Option<Number>,
        value: Number,
    ) {
        let _ = write!(self.text, "{name}{suffix}");
        let mut open = '{';
        for (key, label) in labels {
            let _ = write!(self.text, "{open}{key}=\"{}\"", escaped(label));
            open = ',';
        }
        if let Some(le) = le {
            let _ = write!(self.text, "{open}le=\"{}\"", le.shown());
            open = ',';
        }
        let close = if open == ',' { "}" } else { "" };
        let _ = writeln!(self.text, "{close} {}", value.shown());
    }

    pub fn finish(mut self) -> String {
        self.text.push_str("# EOF\n");
        self.text
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    Whole(u64),
    Float(f64),
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl Number {
    fn shown(self) -> String {
        match self {
            Self::Whole(number) => number.to_string(),
            Self::Float(number) if number == f64::INFINITY => "+Inf".to_owned(),
            Self::Float(number) => format!("{number:?}"),
        }
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\");
    text.replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_what_the_format_asks_for() {
        const SECONDS: Family = Family {
            name: "x_seconds",
            kind: Kind::Histogram,
            unit: Some("seconds"),
            help: "How \"long\"",
        };
        const ENDED: Family = Family {
            name: "ended",
            kind: Kind::Counter,
            unit: None,
            help: "All",
        };
        let mut page = Page::default();
        let mut times = Histogram::new(&[0.5, 1.0]);
        times.note(0.25);
        page.family(&SECONDS);
        page.histogram(&SECONDS, &[], &times);
        page.family(&ENDED);
        page.value(&ENDED, &[("agent", "a\\b\"c\nd")], 3);
        let expected = "# TYPE x_seconds histogram\n# UNIT x_seconds seconds\n\
            # HELP x_seconds How \\\"long\\\"\nx_seconds_bucket{le=\"0.5\"} 1\n\
            x_seconds_bucket{le=\"1.0\"} 1\nx_seconds_bucket{le=\"+Inf\"} 1\n\
            x_seconds_count 1\nx_seconds_sum 0.25\n# TYPE ended counter\n# HELP ended All\n\
            ended_total{agent=\"a\\\\b\\\"c\\nd\"} 3\n# EOF\n";
        assert_eq!(page.finish(), expected);
    }
}
