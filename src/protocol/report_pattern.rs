//! `report`: which files may be the report of an attempt.
//!
//! A pattern is relative to the attempt's working folder. It has the placeholders of a destination,
//! which are filled in for each attempt, and `*`, `?`, `[a-z]` and `**`. Like in a shell, `*` and `?`
//! stay within one name and match no leading dot. What is filled in is one name without any of these
//! characters, so a request can't widen a pattern.

use crate::protocol::destination::{Values, fill as fill_in};

/// A placeholder of destinations that no agent can know: any text matches.
const TIMESTAMP: &str = "{timestamp}";

/// A pattern with its placeholders filled in, part by part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportPattern {
    pub parts: Vec<Part>,
}

/// What one name on the way to a file must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// `**`: any number of folders, or none.
    Folders,
    /// Exactly this name.
    Is(String),
    /// A name that matches.
    Like(Wild),
}

/// The pattern of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wild(Vec<Token>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    One(char),
    Any,
    Many,
    /// One of these ranges, or none of them.
    Of(Vec<(char, char)>, bool),
}

/// What is wrong with a pattern in the configuration, if anything.
pub fn check(template: &str) -> Result<(), String> {
    let values = Values {
        handoff_id: "x",
        task_id: Some("x"),
        agent: "x",
        phase: Some("x"),
        artifact_type: Some("x"),
        timestamp: 0,
    };
    let path = fill_in(template, &values)?;
    if path.starts_with('/') {
        return Err("is absolute; it must be relative to the working folder".to_owned());
    }
    if path.split('/').any(|part| part == "..") {
        return Err("leads up with `..`; it must stay inside the working folder".to_owned());
    }
    Ok(())
}

/// The pattern of one attempt. None if the pattern needs something that its request does not have.
pub fn fill(template: &str, values: &Values<'_>) -> Option<ReportPattern> {
    let path = fill_in(&template.replace(TIMESTAMP, "*"), values).ok()?;
    let names = path.split('/').filter(|name| !matches!(*name, "" | "."));
    let mut parts: Vec<Part> = names.map(part).collect();
    if parts.last() == Some(&Part::Folders) {
        parts.push(part("*"));
    }
    Some(ReportPattern { parts })
}

fn part(name: &str) -> Part {
    if name == "**" {
        return Part::Folders;
    }
    let mut tokens = Vec::new();
    let mut rest = name.chars();
    while let Some(c) = rest.next() {
        tokens.push(match c {
            '*' => Token::Many,
            '?' => Token::Any,
            '[' => match set(rest.as_str()) {
                Some((set, after)) => {
                    rest = after.chars();
                    set
                }
                None => Token::One(c),
            },
            c => Token::One(c),
        });
    }
    if tokens.iter().all(|token| matches!(token, Token::One(_))) {
        Part::Is(name.to_owned())
    } else {
        Part::Like(Wild(tokens))
    }
}

/// The set that begins behind a `[`, and what follows it. None if it has no end.
fn set(text: &str) -> Option<(Token, &str)> {
    let is_negated = text.starts_with(['!', '^']);
    let inside = if is_negated { &text[1..] } else { text };
    // A bracket that comes first is one of the set.
    let first = inside.chars().next()?;
    let end = inside[first.len_utf8()..].find(']')? + first.len_utf8();
    let members: Vec<char> = inside[..end].chars().collect();
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < members.len() {
        if at + 2 < members.len() && members[at + 1] == '-' {
            ranges.push((members[at], members[at + 2]));
            at += 3;
        } else {
            ranges.push((members[at], members[at]));
            at += 1;
        }
    }
    Some((Token::Of(ranges, is_negated), &inside[end + 1..]))
}

impl Wild {
    pub fn matches(&self, name: &str) -> bool {
        if name.starts_with('.') && self.0.first() != Some(&Token::One('.')) {
            return false;
        }
        let name: Vec<char> = name.chars().collect();
        let (mut token, mut at) = (0, 0);
        // Where the last `*` stands, and how far its text reaches.
        let mut star: Option<(usize, usize)> = None;
        loop {
            let fits = match (self.0.get(token), name.get(at)) {
                (None, None) => return true,
                (Some(Token::Many), _) => {
                    star = Some((token, at));
                    token += 1;
                    continue;
                }
                (Some(Token::Any), Some(_)) => true,
                (Some(Token::One(one)), Some(c)) => one == c,
                (Some(Token::Of(ranges, is_negated)), Some(c)) => {
                    ranges.iter().any(|(from, to)| (from..=to).contains(&c)) != *is_negated
                }
                (_, None) | (None, Some(_)) => false,
            };
            if fits {
                (token, at) = (token + 1, at + 1);
            } else {
                match star {
                    Some((stands, reached)) if reached < name.len() => {
                        star = Some((stands, reached + 1));
                        (token, at) = (stands + 1, reached + 1);
                    }
                    _ => return false,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: Values<'static> = Values {
        handoff_id: "h-1",
        task_id: Some("a*/../b"),
        agent: "dev",
        phase: None,
        artifact_type: None,
        timestamp: 7,
    };

    #[test]
    fn a_name_matches_as_in_a_shell() {
        for (pattern, yes, no) in [
            (
                "*.md",
                &["a.md", "a.b.md"][..],
                &["md", "a.mdx", ".a.md", ".md"][..],
            ),
            (
                "report-?.md",
                &["report-1.md", "report-é.md"],
                &["report-.md", "report-12.md"],
            ),
            ("*a*b*", &["ab", "xaxbx", "aab"], &["ba", "", "a"]),
            ("[a-c]x[!0-9]", &["axz", "cx-"], &["dxz", "ax1", "ax"]),
            ("[]x]", &["]", "x"], &["y"]),
            (".*.md", &[".a.md"], &["a.md"]),
            ("a[", &["a["], &["a"]),
            ("**x", &["x", "yx"], &["y"]),
            ("*", &["a"], &[".a"]),
        ] {
            let matches = |name: &str| match part(pattern) {
                Part::Like(wild) => wild.matches(name),
                Part::Is(is) => is == name,
                Part::Folders => panic!("{pattern}"),
            };
            for name in yes {
                assert!(matches(name), "{pattern} {name}");
            }
            for name in no {
                assert!(!matches(name), "{pattern} {name}");
            }
        }
    }

    #[test]
    fn placeholders_are_filled_in_and_widen_nothing() {
        let is = |name: &str| Part::Is(name.to_owned());
        let parts = |template: &str| fill(template, &VALUES).map(|pattern| pattern.parts);
        assert_eq!(
            parts("./out//{task_id}/{agent}.md"),
            Some(vec![is("out"), is("a__.._b"), is("dev.md")])
        );
        assert_eq!(parts("{phase}/x.md"), None, "the request has no phase");
        assert_eq!(
            parts("out/**"),
            Some(vec![is("out"), Part::Folders, part("*")])
        );
        assert_eq!(parts("{timestamp}.md"), Some(vec![part("*.md")]));
    }

    #[test]
    fn a_pattern_that_leads_out_or_has_unknown_words_is_refused() {
        for good in ["*.md", ".claude/.output/{task_id}/**/*.md", "a/..b", "./x"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("/out/*.md", "absolute"),
            ("../x", "leads up"),
            ("a/../x", "leads up"),
            ("{nope}.md", "{nope}"),
            ("{task_id", "brace"),
            ("{a,b}.md", "a,b"),
        ] {
            assert!(check(bad).unwrap_err().contains(why), "{bad}");
        }
    }
}
