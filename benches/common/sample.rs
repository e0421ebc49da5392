//! The handoffs that are measured: of about 1.5 KB, as an agent would write them.

/// The agent that the requests are for.
pub const AGENT: &str = "@bench";

const FINDING: &str = "The endpoint answers 500 where the token has expired; the log names a \
                       missing column, and the migration that adds it has not run on this host. ";

/// Ids of up to 40 bytes.
pub fn ids(prefix: &str, count: usize) -> Vec<String> {
    (0..count)
        .map(|n| {
            format!(
                "{prefix}-{n:07}-{:016x}",
                (n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
            )
        })
        .collect()
}

/// A request in JSON.
pub fn request(id: &str, agent: &str) -> String {
    let files: Vec<String> = files().map(|file| format!("\"{file}\"")).collect();
    format!(
        "{{\n  \"handoff_id\": \"{id}\",\n  \"source\": {{ \"agent_id\": \"@planner\" }},\n  \
         \"target\": {{ \"agent_id\": \"{agent}\" }},\n  \"priority\": \"normal\",\n  \
         \"context\": {{ \"summary\": \"{}\", \"files\": [{}] }},\n  \
         \"input\": {{ \"task\": \"Find the cause and propose a fix\", \"limit\": 3 }}\n}}\n",
        FINDING.repeat(4),
        files.join(", ")
    )
}

fn files() -> impl Iterator<Item = String> {
    (0..12).map(|n| format!("services/api/src/handlers/module_{n:02}.rs"))
}

/// The same request in YAML.
#[allow(dead_code, reason = "one of the two benchmarks reads YAML")]
pub fn request_in_yaml(id: &str, agent: &str) -> String {
    let files: Vec<String> = files().map(|file| format!("    - {file}\n")).collect();
    let files = files.concat();
    format!(
        "handoff_id: {id}\nsource:\n  agent_id: \"@planner\"\ntarget:\n  agent_id: \"{agent}\"\n\
         priority: normal\ncontext:\n  summary: \"{}\"\n  files:\n{files}\
         input:\n  task: Find the cause and propose a fix\n  limit: 3\n",
        FINDING.repeat(4),
    )
}
