//! Flags that an adapter gives its agent itself. One in a specialist's settings would break the
//! reading of the stream or the choice of the session.

/// The flags of each adapter in code; agents that are described in files have none.
const RESERVED: [(&str, &[&str]); 2] = [
    (
        "claude",
        &[
            "-p",
            "--print",
            "--output-format",
            "--input-format",
            "--json-schema",
            "--session-id",
            "-r",
            "--resume",
            "-c",
            "--continue",
            "--max-budget-usd",
        ],
    ),
    ("codex", &["--json", "--output-schema", "exec", "resume"]),
];

/// The argument among `args` that the adapter of `agent` sets by itself.
pub fn reserved<'a>(agent: &str, args: &'a [String]) -> Option<&'a str> {
    let (_, flags) = RESERVED.iter().find(|(name, _)| *name == agent)?;
    let mut args = args.iter().map(String::as_str);
    args.find(|word| {
        let flag = word.split_once('=').map_or(*word, |(flag, _)| flag);
        flags.contains(&flag)
    })
}

#[cfg(test)]
mod tests {
    use super::reserved;

    #[test]
    fn a_flag_of_the_adapter_is_found() {
        for (agent, args, expected) in [
            ("claude", &["--model", "opus"][..], None),
            (
                "claude",
                &["--model", "x", "--output-format=text"],
                Some("--output-format=text"),
            ),
            ("claude", &["-p"], Some("-p")),
            ("codex", &["-s", "workspace-write"], None),
            ("codex", &["--json"], Some("--json")),
            ("gemini", &["-p"], None),
        ] {
            let args: Vec<String> = args.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(reserved(agent, &args), expected, "{agent} {args:?}");
        }
    }
}
