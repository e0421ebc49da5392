//! A strict reader of the `OpenMetrics` text format, for what the daemon may send: gauges, counters,
//! histograms and infos. Whatever the format forbids is an error here, also where scrapers shrug.

use std::collections::{BTreeMap, BTreeSet};

type Labels = BTreeMap<String, String>;

#[derive(Debug, Default)]
pub struct Exposition {
    pub families: BTreeMap<String, Family>,
}

#[derive(Debug, Default)]
pub struct Family {
    kind: String,
    unit: Option<String>,
    help: Option<String>,
    samples: Vec<(String, Labels, f64)>,
}

impl Exposition {
    /// All samples of this name, in order.
    pub fn samples(&self, name: &str) -> Vec<(Labels, f64)> {
        let all = self.families.values().flat_map(|family| &family.samples);
        all.filter(|(it, ..)| it == name)
            .map(|(_, labels, value)| (labels.clone(), *value))
            .collect()
    }

    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let wanted: Labels = labels.iter().map(owned).collect();
        let found = self.samples(name).into_iter().find(|(it, _)| *it == wanted);
        found.map(|(_, value)| value)
    }
}

/// Reads a whole page.
pub fn read(text: &str) -> Result<Exposition, String> {
    let body = text
        .strip_suffix("# EOF\n")
        .ok_or("the page must end in `# EOF` and a newline")?;
    let mut page = Exposition::default();
    let mut current = String::new();
    for line in body.split_terminator('\n') {
        let wrong = |what: &str| format!("{what}: {line:?}");
        if line.is_empty() || line.trim() != line || line.contains('\r') {
            return Err(wrong("blank, or with blanks at its ends"));
        }
        if let Some(rest) = line.strip_prefix("# ") {
            metadata(&mut page, &mut current, rest).map_err(|what| wrong(&what))?;
        } else if line.starts_with('#') {
            return Err(wrong("no comment is allowed"));
        } else {
            let family = page.families.get_mut(&current);
            let family = family.ok_or_else(|| wrong("a sample before any family"))?;
            sample(&current, family, line).map_err(|what| wrong(&what))?;
        }
    }
    for (name, family) in &page.families {
        whole(name, family).map_err(|what| format!("{name}: {what}"))?;
    }
    Ok(page)
}

fn metadata(page: &mut Exposition, current: &mut String, rest: &str) -> Result<(), String> {
    let mut words = rest.splitn(3, ' ');
    let (Some(word), Some(name), Some(value)) = (words.next(), words.next(), words.next()) else {
        return Err("three words are needed".to_owned());
    };
    if !is_name(name) {
        return Err("not a name".to_owned());
    }
    if name != current {
        if page.families.contains_key(name) {
            return Err("a family is split in two".to_owned());
        }
        name.clone_into(current);
    }
    let family = page.families.entry(name.to_owned()).or_default();
    if !family.samples.is_empty() {
        return Err("metadata after samples".to_owned());
    }
    match word {
        "TYPE" if family.kind.is_empty() => {
            if !["gauge", "counter", "histogram", "info"].contains(&value) {
                return Err("an unknown type".to_owned());
            }
            value.clone_into(&mut family.kind);
        }
        "UNIT" if family.unit.is_none() => {
            if !name.ends_with(&format!("_{value}")) {
                return Err("the name does not end in its unit".to_owned());
            }
            family.unit = Some(value.to_owned());
        }
        "HELP" if family.help.is_none() => family.help = Some(value.to_owned()),
        _ => return Err("twice, or unknown".to_owned()),
    }
    Ok(())
}

fn sample(name: &str, family: &mut Family, line: &str) -> Result<(), String> {
    let end = line.find(['{', ' ']).ok_or("no value")?;
    let own = &line[..end];
    let (labels, rest) = match line[end..].strip_prefix('{') {
        None => (Labels::new(), &line[end..]),
        Some(rest) => labels(rest)?,
    };
    let value = rest.strip_prefix(' ').ok_or("no blank before the value")?;
    let suffix = own.strip_prefix(name).ok_or("of another family")?;
    let value = number(value)?;
    let allowed: &[&str] = match family.kind.as_str() {
        "gauge" => &[""],
        "counter" => &["_total"],
        "info" => &["_info"],
        "histogram" => &["_bucket", "_count", "_sum"],
        _ => return Err("a sample before its type".to_owned()),
    };
    if !allowed.contains(&suffix) {
        return Err(format!("a {} has no {suffix:?}", family.kind));
    }
    if family.kind == "info" && (value - 1.0).abs() > f64::EPSILON {
        return Err("an info is 1".to_owned());
    }
    if family.kind != "gauge" && value < 0.0 {
        return Err("below nothing".to_owned());
    }
    if (suffix == "_bucket") != labels.contains_key("le") {
        return Err("le is for buckets".to_owned());
    }
    let same = |(it, known, _): &(String, Labels, f64)| it == own && *known == labels;
    if family.samples.iter().any(same) {
        return Err("twice".to_owned());
    }
    family.samples.push((own.to_owned(), labels, value));
    Ok(())
}

fn labels(text: &str) -> Result<(Labels, &str), String> {
    let mut labels = Labels::new();
    let mut rest = text;
    loop {
        let (key, after) = rest.split_once("=\"").ok_or("a label without a value")?;
        if !is_name(key) || key.contains(':') {
            return Err(format!("{key:?} is no label"));
        }
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().ok_or("a label that does not end")? {
                (at, '"') => break at,
                (_, '\\') => match chars.next().ok_or("a label that does not end")?.1 {
                    'n' => value.push('\n'),
                    same @ ('\\' | '"') => value.push(same),
                    other => return Err(format!("\\{other} is no escape")),
                },
                (_, other) => value.push(other),
            }
        };
        if labels.insert(key.to_owned(), value).is_some() {
            return Err(format!("{key} twice"));
        }
        rest = &after[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => break,
        }
    }
    let rest = rest.strip_prefix('}').ok_or("labels that do not end")?;
    Ok((labels, rest))
}

fn number(text: &str) -> Result<f64, String> {
    let plain = |c: char| c.is_ascii_digit() || "+-.e".contains(c);
    if text == "+Inf" {
        return Ok(f64::INFINITY);
    }
    if text.is_empty() || !text.chars().all(plain) {
        return Err(format!("{text:?} is no number"));
    }
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

/// What holds of a family as a whole: its words, and that buckets add up.
fn whole(name: &str, family: &Family) -> Result<(), String> {
    if family.kind.is_empty() || family.help.is_none() {
        return Err("without type or help".to_owned());
    }
    if family.kind == "counter" && name.ends_with("_total") {
        return Err("a counter's family has no _total".to_owned());
    }
    let keys = |labels: &Labels| {
        let mut labels = labels.clone();
        labels.remove("le");
        labels
    };
    let of_histogram = family.samples.iter().filter(|_| family.kind == "histogram");
    let groups: BTreeSet<Labels> = of_histogram.map(|(_, labels, _)| keys(labels)).collect();
    for group in groups {
        let of = |suffix: &str| -> Vec<&(String, Labels, f64)> {
            let wanted = format!("{name}{suffix}");
            let all = family.samples.iter();
            all.filter(|(it, labels, _)| *it == wanted && keys(labels) == group)
                .collect()
        };
        let mut last = (f64::NEG_INFINITY, 0.0);
        for (_, labels, count) in of("_bucket") {
            let bound = number(&labels["le"])?;
            if bound.is_finite() && !labels["le"].contains(['.', 'e']) {
                return Err(format!("le={} is not written as a float", labels["le"]));
            }
            if bound <= last.0 || *count < last.1 {
                return Err(format!("bucket {bound} after {last:?}"));
            }
            last = (bound, *count);
        }
        let counts = of("_count");
        let [(.., count)] = counts[..] else {
            return Err("one _count is needed".to_owned());
        };
        let adds_up = last.0 == f64::INFINITY && (last.1 - count).abs() < f64::EPSILON;
        if !adds_up || of("_sum").len() != 1 {
            return Err("buckets, _count and _sum do not fit each other".to_owned());
        }
    }
    Ok(())
}

#[test]
fn what_the_format_forbids_is_refused() {
    let fine = "# TYPE a counter\n# HELP a All\na_total{x=\"1\"} 2\n# EOF\n";
    read(fine).unwrap();
    for (from, to) in [
        ("# EOF\n", ""),
        ("# EOF\n", "# EOF"),
        ("# EOF\n", "# EOF\n\n"),
        ("a_total", "a"),
        ("a_total", "b_total"),
        ("# TYPE a counter\n", ""),
        ("# HELP a All\n", ""),
        ("counter", "count"),
        (" 2\n", " two\n"),
        (" 2\n", "  2\n"),
        (" 2\n", " -2\n"),
        ("\"1\"", "1"),
        ("\"1\"", "\"\\x\""),
        ("\"1\"", "\"1\",x=\"2\""),
        ("# HELP", "#HELP"),
        ("\na_total", "\n\na_total"),
        (" 2\n", " 2\na_total{x=\"1\"} 2\n"),
        ("# HELP a All\n", "# HELP a All\n# UNIT a seconds\n"),
    ] {
        let broken = fine.replacen(from, to, 1);
        assert_ne!(broken, fine);
        assert!(read(&broken).is_err(), "{broken}");
    }
}
