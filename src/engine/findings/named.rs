//! What the configuration names: programs, agents and schemas that must be there once a handoff
//! needs them. A daemon starts without them, so nobody else says so before that.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use super::Finding;
use crate::config::{Config, MissingSchema, Specialist};
use crate::protocol::agent::AgentName;
use crate::runner::launch;
use crate::spool::layout::Layout;
use crate::store::schemas::{Checked, Schemas};

/// Looks for all of it. What the daemon only warns about goes to `notes`.
pub(super) fn check(
    layout: &Layout,
    config: &Config,
    findings: &mut Vec<Finding>,
    notes: &mut Vec<String>,
) {
    let root = layout.root();
    for (agent, specialist) in &config.specialists {
        let name = agent.to_string();
        findings.extend(program(
            root,
            &specialist.command,
            &format!("the command of {name}"),
            "command",
        ));
        if let Some(verify) = &specialist.verify {
            let whose = format!("the verify command of {name}");
            findings.extend(program(root, verify, &whose, "verify"));
        }
        findings.extend(working_dir(root, &name, specialist));
        notes.extend(keys(&name, specialist));
    }
    let notify = &config.notify;
    for (key, command) in [
        ("failed", &notify.failed),
        ("waiting_human", &notify.waiting_human),
        ("completed", &notify.completed),
    ] {
        if let Some(command) = command {
            let key = format!("notify.{key}");
            findings.extend(program(
                root,
                command,
                &format!("the command of {key}"),
                &key,
            ));
        }
    }
    for gate in &config.gates {
        let whose = format!("the command of the gate {}", gate.name);
        findings.extend(program(root, &gate.command, &whose, "its command"));
    }
    agents(config, findings);
    schemas(layout, config, findings, notes);
}

pub(super) fn program(root: &Path, command: &[String], whose: &str, key: &str) -> Option<Finding> {
    let argv = launch::command_line(command, root);
    let program = Path::new(argv.first()?);
    let found = if command.first().is_some_and(|word| word.contains('/')) {
        is_executable(program)
    } else {
        std::env::var_os("PATH").is_some_and(|path| {
            std::env::split_paths(&path).any(|dir| is_executable(&dir.join(program)))
        })
    };
    (!found).then(|| Finding {
        what: format!("can't run {whose}: {}", program.display()),
        do_this: format!(
            "correct {key} in handoffd.toml, install the program, or run chmod +x on it"
        ),
    })
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Variables whose values look like keys: they stand in a file that more people read.
fn keys<'a>(agent: &'a str, specialist: &'a Specialist) -> impl Iterator<Item = String> + 'a {
    let variables = specialist.env.iter();
    let keys = variables.filter(|(name, value)| looks_like_key(name, value));
    keys.map(move |(name, _)| {
        format!(
            "env.{name} of {agent} looks like a secret: set it in the daemon's environment instead, and list it in pass_env = [\"{name}\"]"
        )
    })
}

fn looks_like_key(name: &str, value: &str) -> bool {
    const NAMES: [&str; 9] = [
        "KEY",
        "TOKEN",
        "SECRET",
        "PASSWORD",
        "PASSWD",
        "PASSPHRASE",
        "CREDENTIAL",
        "CREDENTIALS",
        "PAT",
    ];
    const VALUES: [&str; 12] = [
        "sk-",
        "sk_live_",
        "rk_live_",
        "ghp_",
        "gho_",
        "ghs_",
        "github_pat_",
        "glpat-",
        "xoxb-",
        "xoxp-",
        "AKIA",
        "-----BEGIN",
    ];
    let upper = name.to_ascii_uppercase();
    let last = upper.rsplit(['_', '-', '.']).next().unwrap_or_default();
    // A path or a short word says where a key is, or what it is called.
    let is_value = value.len() >= 8 && !value.starts_with(['/', '~', '.']);
    (NAMES.contains(&last) && is_value) || VALUES.iter().any(|start| value.starts_with(start))
}

fn working_dir(root: &Path, agent: &str, specialist: &Specialist) -> Option<Finding> {
    let folder = launch::working_dir(specialist, root);
    (!folder.is_dir()).then(|| Finding {
        what: format!(
            "the working_dir of {agent} is not a folder: {}",
            folder.display()
        ),
        do_this: "create it, or correct working_dir in handoffd.toml".to_owned(),
    })
}

/// Whoever a workflow or a route leads to must be somebody.
fn agents(config: &Config, findings: &mut Vec<Finding>) {
    let mut missing = |agent: &AgentName, whose: String| {
        if agent.is_human() || config.specialist(agent).is_some() {
            return;
        }
        findings.push(Finding {
            what: format!("{whose} names {agent}, which is not a configured specialist"),
            do_this: format!(
                "add [specialists.\"{agent}\"] with a command to handoffd.toml, or name a configured specialist or human"
            ),
        });
    };
    for (name, steps) in &config.workflows {
        for step in steps {
            missing(
                &step.agent,
                format!("the step {} of the workflow {name}", step.phase),
            );
        }
    }
    for (reason, agent) in &config.routes_blocked {
        missing(agent, format!("routes.blocked.{reason}"));
    }
}

/// Every schema is read and compiled, as it is before a handoff.
fn schemas(layout: &Layout, config: &Config, findings: &mut Vec<Finding>, notes: &mut Vec<String>) {
    let schemas = Schemas::new(&layout.schemas());
    let may_be_missing = config.intake.missing_schema == MissingSchema::Warn;
    for (agent, specialist) in &config.specialists {
        for (key, schema) in [
            ("input_schema", &specialist.input_schema),
            ("output_schema", &specialist.output_schema),
        ] {
            let Some(schema) = schema else { continue };
            let (why, do_this) = match schemas.check(schema, &Value::Null) {
                Checked::Valid | Checked::Invalid(_) => continue,
                Checked::Missing(why) if may_be_missing => {
                    notes.push(format!(
                        "the {key} of {agent} is unusable: {why}; the daemon skips the check"
                    ));
                    continue;
                }
                Checked::Missing(why) => (
                    why,
                    format!("put it into schemas/, or correct {key} in handoffd.toml"),
                ),
                Checked::Broken(why) => (
                    why,
                    format!("fix the schema, or correct {key} in handoffd.toml"),
                ),
            };
            findings.push(Finding {
                what: format!("the {key} of {agent} is unusable: {why}"),
                do_this,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::looks_like_key;

    #[test]
    fn keys_are_told_by_name_or_value() {
        for (name, value, is) in [
            ("OPENAI_API_KEY", "0123456789abcdef", true),
            ("github_token", "0123456789", true),
            ("DB_PASSWORD", "correct horse", true),
            ("ANYTHING", "sk-proj-1", true),
            ("SIGN", "-----BEGIN PRIVATE KEY-----", true),
            ("NODE_ENV", "production", false),
            ("KEYBOARD", "english-us", false),
            ("SSH_KEY", "/home/me/.ssh/id_ed25519", false),
            ("SORT_KEY", "name", false),
        ] {
            assert_eq!(looks_like_key(name, value), is, "{name}={value}");
        }
    }
}
