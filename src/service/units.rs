//! Units for one binary and one root, made from the ones that are shipped.
//!
//! The shipped files are the only text there is: a unit that is printed is that text with the few
//! lines changed that name a place or a person. What is explained and tested there holds here.
//!
//! Paths come from outside and are written in two languages. systemd reads quotes, backslashes,
//! `%` and, in commands, `$`; XML reads `&` and angle brackets. What neither can carry (a line
//! break, a byte that is not text) is refused rather than guessed at.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::profile::Profile;

const SYSTEM: &str = include_str!("../../systemd/handoffd.service");
const USER: &str = include_str!("../../systemd/user/handoffd.service");
const LAUNCHD: &str = include_str!("../../launchd/com.handoffd.plist");

/// What `user` of a specialist takes: becoming that user, and looking after what it leaves.
const CAPABILITIES: &str = "CAP_CHOWN CAP_DAC_OVERRIDE CAP_KILL CAP_SETGID CAP_SETUID";

/// Where people's files are, and what `ProtectHome` hides.
const HOMES: [&str; 3] = ["/home", "/root", "/run/user"];

/// What a unit is for. Paths are absolute.
#[derive(Debug, Clone)]
pub struct Plan {
    pub program: PathBuf,
    pub root: PathBuf,
    /// Another configuration than the root's own.
    pub config: Option<PathBuf>,
    /// Whom the daemon runs as; none for a person's own service manager.
    pub owner: Option<String>,
    /// Specialists run as other users: the daemon is root, and may change its user.
    pub switches_users: bool,
    /// How long a stop may take before the manager loses patience.
    pub stop: Duration,
    /// What the specialists are.
    pub profile: Option<Profile>,
    /// Where they write besides the root: repositories, and the home with an agent's login.
    pub writable: Vec<PathBuf>,
    /// Where they are found, if not where the manager looks by itself.
    pub path: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum UnitError {
    #[error("can't write {path:?} into a unit: {why}")]
    Path { path: PathBuf, why: &'static str },
}

impl Plan {
    /// A unit for systemd: for the system if there is an owner, else for a person.
    pub fn systemd(&self) -> Result<String, UnitError> {
        let (program, root) = (text(&self.program)?, text(&self.root)?);
        let mut command = format!("{} run --root {}", quoted(program), argument(root));
        if let Some(config) = &self.config {
            command.push_str(" --config ");
            command.push_str(&argument(text(config)?));
        }
        let stop = self.stop.as_secs();
        let shipped = if self.owner.is_some() { SYSTEM } else { USER };
        let mut writable = quoted(root);
        for path in &self.writable {
            writable.push(' ');
            writable.push_str(&quoted(text(path)?));
        }
        let mut unit = format!("# For {root}, created by: handoffd service systemd\n");
        // The head of the shipped file is about its own place.
        for line in shipped.lines().skip_while(|line| !line.starts_with('[')) {
            let key = line.split_once('=').map_or("", |(key, _)| key);
            let changed = match key {
                "Description" => format!("{line}\nRequiresMountsFor={}", quoted(root)),
                "ExecStart" => format!("ExecStart={command}"),
                "WorkingDirectory" => format!("WorkingDirectory={}", root.replace('%', "%%")),
                "TimeoutStopSec" => format!("TimeoutStopSec={stop}"),
                "User" if self.switches_users => "User=root".to_owned(),
                "User" => format!("User={}", self.owner.as_deref().unwrap_or_default()),
                "CapabilityBoundingSet" if self.switches_users => format!("{line}{CAPABILITIES}"),
                // The last of them, which takes calls away.
                "SystemCallFilter" if self.switches_users && line.contains("=~") => {
                    format!("{line}\nSystemCallFilter=@chown @setuid")
                }
                "ReadWritePaths" => format!("{line} {writable}"),
                "ProtectHome" if self.needs_homes() => "ProtectHome=read-only".to_owned(),
                // The owner's own group, and a folder that is there already.
                "Group" | "StateDirectory" | "StateDirectoryMode" => continue,
                _ => line.to_owned(),
            };
            // Before the last section, so that settings of the profile are the last of their name.
            if line == "[Install]" {
                unit.push_str(&self.profiled());
            }
            unit.push_str(&changed);
            unit.push('\n');
        }
        Ok(unit)
    }

    /// What the profile adds. A person's own unit closes nothing that a profile would open.
    fn profiled(&self) -> String {
        let mut text = match self.profile.filter(|_| self.owner.is_some()) {
            Some(profile) => format!("{}\n", profile.settings()),
            None => String::new(),
        };
        if let Some(path) = &self.path {
            let path = quoted(&format!("PATH={path}"));
            text = text + "[Service]\nEnvironment=" + &path + "\n\n";
        }
        text
    }

    /// A property list for launchd: a daemon if there is an owner, else a person's agent.
    pub fn launchd(&self) -> Result<String, UnitError> {
        let (program, root) = (text(&self.program)?, text(&self.root)?);
        let mut words = vec![program, "run", "--root", root];
        if let Some(config) = &self.config {
            words.extend(["--config", text(config)?]);
        }
        let words: Vec<String> = words
            .iter()
            .map(|word| format!("\t\t<string>{}</string>", xml(word)))
            .collect();
        let words = words.join("\n");
        let log = format!("{root}/handoffd.log");
        let mut plist = String::new();
        let mut lines = LAUNCHD.lines();
        while let Some(line) = lines.next() {
            let key = line.trim().strip_prefix("<key>");
            let key = key.and_then(|key| key.strip_suffix("</key>"));
            let value = match (key, &self.owner) {
                (Some("ProgramArguments"), _) => {
                    let _old = lines.by_ref().find(|line| line.trim() == "</array>");
                    format!("\t<array>\n{words}\n\t</array>")
                }
                (Some("UserName"), None) => {
                    lines.next();
                    continue;
                }
                (Some("UserName"), Some(owner)) => replaced(&mut lines, "string", owner),
                (Some("WorkingDirectory"), _) => replaced(&mut lines, "string", root),
                (Some("StandardErrorPath"), _) => replaced(&mut lines, "string", &log),
                (Some("ExitTimeOut"), _) => {
                    replaced(&mut lines, "integer", &self.stop.as_secs().to_string())
                }
                _ => {
                    plist.push_str(line);
                    plist.push('\n');
                    continue;
                }
            };
            plist.push_str(line);
            plist.push('\n');
            plist.push_str(&value);
            plist.push('\n');
        }
        Ok(plist)
    }

    /// Whether something of it is in a home, and must at least be seen.
    fn needs_homes(&self) -> bool {
        [Some(&self.program), Some(&self.root), self.config.as_ref()]
            .into_iter()
            .flatten()
            .chain(&self.writable)
            .any(|path| HOMES.iter().any(|home| path.starts_with(home)))
    }
}

/// The next line of a property list, which is a value, as another value.
fn replaced<'a>(lines: &mut impl Iterator<Item = &'a str>, kind: &str, value: &str) -> String {
    lines.next();
    format!("\t<{kind}>{}</{kind}>", xml(value))
}

/// A path as text that one line can hold.
fn text(path: &Path) -> Result<&str, UnitError> {
    let no = |why| UnitError::Path {
        path: path.to_owned(),
        why,
    };
    let text = path.to_str().ok_or_else(|| no("it is not UTF-8"))?;
    if text.chars().any(char::is_control) {
        return Err(no("it contains a control character"));
    }
    // Not every line of a unit can be quoted: a space at its end is dropped, and a backslash there
    // takes the next line in.
    if text.ends_with(|last: char| last.is_whitespace() || last == '\\') {
        return Err(no("it ends in a space or a backslash"));
    }
    Ok(text)
}

/// A word in double quotes, for settings that are lists of words.
fn quoted(word: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in word.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '%' => quoted.push_str("%%"),
            _ => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// A word of a command after the first, in which systemd also looks for variables.
fn argument(word: &str) -> String {
    quoted(&word.replace('$', "$$"))
}

fn xml(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(root: &str, owner: Option<&str>) -> Plan {
        Plan {
            program: PathBuf::from("/opt/a b/handoffd"),
            root: PathBuf::from(root),
            config: None,
            owner: owner.map(str::to_owned),
            switches_users: false,
            stop: Duration::from_secs(99),
            profile: None,
            writable: Vec::new(),
            path: None,
        }
    }

    #[test]
    fn a_profile_for_agents_opens_what_they_need() {
        let mut plan = plan("/srv/q", Some("me"));
        plan.profile = Some(Profile::Agents);
        plan.writable = vec![PathBuf::from("/srv/src/a shop"), PathBuf::from("/home/me")];
        plan.path = Some("/opt/100%/bin:/bin".to_owned());
        let unit = plan.systemd().unwrap();
        let last = |key: &str| {
            let mut values = unit.lines().filter_map(|line| line.strip_prefix(key));
            values.next_back().map(str::to_owned)
        };
        for (key, value) in [
            ("MemoryDenyWriteExecute=", "no"),
            (
                "RestrictAddressFamilies=",
                "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
            ),
            (
                "ReadWritePaths=",
                "/tmp /var/tmp \"/srv/q\" \"/srv/src/a shop\" \"/home/me\"",
            ),
            ("ProtectHome=", "read-only"),
            ("Environment=", "\"PATH=/opt/100%%/bin:/bin\""),
        ] {
            assert_eq!(last(key).as_deref(), Some(value), "{key} in\n{unit}");
        }
        assert_eq!(unit.matches("[Install]").count(), 1);
        plan.owner = None;
        let unit = plan.systemd().unwrap();
        assert!(!unit.contains("MemoryDenyWriteExecute"), "{unit}");
        assert!(unit.contains("PATH=/opt/100%%/bin"), "{unit}");
    }

    #[test]
    fn a_path_means_itself_in_each_line() {
        let unit = plan("/srv/50% \"of\" $HOME\\x", Some("me")).systemd();
        let unit = unit.unwrap();
        for line in [
            "ExecStart=\"/opt/a b/handoffd\" run --root \"/srv/50%% \\\"of\\\" $$HOME\\\\x\"",
            "WorkingDirectory=/srv/50%% \"of\" $HOME\\x",
            "RequiresMountsFor=\"/srv/50%% \\\"of\\\" $HOME\\\\x\"",
            "ReadWritePaths=/tmp /var/tmp \"/srv/50%% \\\"of\\\" $HOME\\\\x\"",
            "User=me",
            "TimeoutStopSec=99",
            "ProtectHome=yes",
            "KillMode=process",
        ] {
            assert!(unit.lines().any(|it| it == line), "{line}\nin\n{unit}");
        }
        for gone in ["\nGroup=", "StateDirectory", "/var/lib/handoffd"] {
            assert!(!unit.contains(gone), "{gone} in\n{unit}");
        }
    }

    #[test]
    fn a_daemon_that_uses_other_users_is_root_and_may() {
        let mut plan = plan("/srv/q", Some("root"));
        plan.switches_users = true;
        let unit = plan.systemd().unwrap();
        for line in [
            "User=root",
            "CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_KILL CAP_SETGID CAP_SETUID",
            "SystemCallFilter=~@privileged @resources\nSystemCallFilter=@chown @setuid",
        ] {
            assert!(unit.contains(&format!("\n{line}\n")), "{line} in\n{unit}");
        }
    }

    #[test]
    fn a_root_at_home_can_be_seen() {
        let unit = plan("/home/me/q", Some("me")).systemd().unwrap();
        assert!(unit.contains("\nProtectHome=read-only\n"), "{unit}");
    }

    #[test]
    fn a_persons_unit_names_nobody() {
        let unit = plan("/home/me/q", None).systemd().unwrap();
        assert!(!unit.contains("User="), "{unit}");
        assert!(unit.contains("--root \"/home/me/q\"\n"), "{unit}");
        assert!(!unit.contains("%h"), "{unit}");
    }

    #[test]
    fn a_property_list_is_escaped_and_whole() {
        let mut plan = plan("/q/<a> & b", Some("me"));
        plan.config = Some(PathBuf::from("/etc/h.toml"));
        let plist = plan.launchd().unwrap();
        for piece in [
            "<string>/opt/a b/handoffd</string>\n\t\t<string>run</string>",
            "<string>/q/&lt;a&gt; &amp; b</string>\n\t\t<string>--config</string>",
            "<key>UserName</key>\n\t<string>me</string>",
            "<integer>99</integer>",
            "<string>/q/&lt;a&gt; &amp; b/handoffd.log</string>",
            "</dict>\n</plist>\n",
        ] {
            assert!(plist.contains(piece), "{piece}\nin\n{plist}");
        }
        plan.owner = None;
        let plist = plan.launchd().unwrap();
        assert!(!plist.contains("UserName"), "{plist}");
        assert!(!plist.contains("/usr/local"), "{plist}");
    }

    #[test]
    fn what_a_unit_can_not_say_is_refused() {
        for root in ["/a\nUser=root", "/a\\", "/a ", "/a\u{7f}b"] {
            assert!(plan(root, None).systemd().is_err(), "{root:?}");
            assert!(plan(root, None).launchd().is_err(), "{root:?}");
        }
    }
}
