//! A root whose specialists are real coding agents, and a model behind them that says what the test
//! wants.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::common::{Daemon, Root, text};
use crate::shop::git;
use crate::stub::Stub;

/// Where `tests/setup` puts the agents.
fn tools() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| "target".into());
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(target)
        .join("tools/bin")
}

/// Whether an agent is there. In CI it has to be; elsewhere its tests are skipped by name.
pub fn has(agent: &str) -> bool {
    let there = tools().join(agent).exists();
    if !there {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "{agent} is not there: run tests/setup"
        );
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        // Not captured, as what a test prints is.
        let said = format!("skipped: {test} (no {agent}; tests/setup fetches it)\n");
        drop(std::io::stderr().write_all(said.as_bytes()));
    }
    there
}

/// A home, a repository, a root and a model.
pub struct Desk {
    pub root: Root,
    pub stub: Stub,
    home: PathBuf,
}

impl Desk {
    /// A root without specialists yet, and a repository.
    pub fn new(stub: Stub) -> Self {
        let desk = Self::empty(stub);
        let repository = desk.root.path("shop");
        fs::create_dir(&repository).unwrap();
        fs::write(repository.join("README"), "a shop\n").unwrap();
        desk.make_repository();
        desk
    }

    /// A root without anything.
    pub fn empty(stub: Stub) -> Self {
        // Not below the folder for temporary files: codex keeps no helpers there, and lets every
        // command write there.
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let root = Root::within(folder, "");
        let home = root.path("home");
        fs::create_dir_all(&home).unwrap();
        fs::write(
            home.join(".gitconfig"),
            "[user]\nname = Ann\nemail = ann@example.org\n",
        )
        .unwrap();
        Self { root, stub, home }
    }

    /// Makes a repository of the folder `shop`, with all that is in it.
    pub fn make_repository(&self) {
        let repository = self.root.path("shop");
        git(&repository, &["init", "-q", "-b", "main"]);
        git(&repository, &["add", "."]);
        git(&repository, &["commit", "-q", "-m", "first"]);
    }

    /// The model on this machine, and no other network, for every agent.
    fn environment(&self) -> String {
        let address = format!("http://127.0.0.1:{}", self.stub.port());
        let path = format!("{}:{}", tools().display(), std::env::var("PATH").unwrap());
        let home = self.home.display();
        // The repository of these sources is none of the agents' business.
        let ceiling = self.root.dir().parent().unwrap().display();
        format!(
            "PATH = '{path}', HOME = '{home}', TMPDIR = '{home}', TZ = 'UTC', ANTHROPIC_BASE_URL = '{address}', \
             CLAUDE_CODE_MAX_RETRIES = '0', CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC = '1', \
             DISABLE_AUTOUPDATER = '1', GIT_CEILING_DIRECTORIES = '{ceiling}', ANTHROPIC_API_KEY = 'key', STUB_KEY = 'key', \
             GEMINI_API_KEY = 'key', GOOGLE_GEMINI_BASE_URL = '{address}', \
             OPENCODE_DISABLE_AUTOUPDATE = '1', OPENCODE_DISABLE_MODELS_FETCH = '1'"
        )
    }

    /// A specialist with this agent. `keys` are lines of its section; `env` overrides variables.
    pub fn specialist(&self, name: &str, agent: &str, keys: &str, env: &str) -> String {
        let environment = self.variables(env);
        format!("[specialists.'@{name}']\nagent = '{agent}'\nenv = {{ {environment} }}\n{keys}\n")
    }

    /// The environment of an agent, as the inside of a table.
    pub fn variables(&self, env: &str) -> String {
        let mut environment = self.environment();
        for pair in env.split(", ").filter(|pair| !pair.is_empty()) {
            let key = pair.split(" = ").next().unwrap();
            let kept: Vec<&str> = environment
                .split(", ")
                .filter(|known| known.split(" = ").next() != Some(key))
                .collect();
            environment = format!("{}, {pair}", kept.join(", "));
        }
        environment
    }

    /// Writes the configuration: no waits between retries, and these specialists.
    pub fn configure(&self, specialists: &[String]) {
        let text = format!(
            "[daemon]\nsettle = '50ms'\nrescan = '1s'\n\
             [defaults]\nkill_grace = '500ms'\ntimeout = '2m'\n\
             retry = {{ max_retries = 0, delay = '50ms' }}\n\n{}",
            specialists.join("\n")
        );
        fs::write(self.root.path("handoffd.toml"), text).unwrap();
    }

    /// One specialist, `@coder`, in a worktree of the repository, and the daemon.
    pub fn with(agent: &str, keys: &str, stub: Stub) -> (Self, Daemon) {
        Self::with_env(agent, keys, "", stub)
    }

    pub fn with_env(agent: &str, keys: &str, env: &str, stub: Stub) -> (Self, Daemon) {
        let desk = Self::new(stub);
        let workspace = format!("workspace = 'worktree'\nrepository = 'shop'\n{keys}");
        desk.configure(&[desk.specialist("coder", agent, &workspace, env)]);
        let daemon = Daemon::start(&desk.root);
        (desk, daemon)
    }

    /// Drops a task for `@coder`.
    pub fn task(&self, id: &str, task: &str) {
        self.root.drop_request(id, &request(task));
    }

    /// Drops a task and waits until it is completed.
    pub fn complete(&self, id: &str, task: &str) -> Value {
        self.task(id, task);
        self.root.completed(id)
    }

    /// Drops a task and waits until it has failed; also the detail of the error's code.
    pub fn fail(&self, id: &str, task: &str) -> (Value, String) {
        self.task(id, task);
        let (record, _) = self.root.failed(id);
        let detail = text(&record["error"]["detail_code"]);
        (record, detail)
    }

    /// Waits until a person is asked.
    pub fn asks(&self, id: &str) -> Value {
        self.root
            .record_that("waiting", id, |record| record["waiting"]["on"] == "human")
    }

    /// A person answers on the command line.
    pub fn answer(&self, action: &str, id: &str, more: &[&str]) {
        let args: Vec<&str> = [action, id].iter().chain(more).copied().collect();
        let output = self.root.cli(&args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
    }

    /// What `handoffd` prints for these arguments.
    pub fn says(&self, args: &[&str]) -> String {
        String::from_utf8(self.root.cli(args).stdout).unwrap()
    }

    /// The log of an attempt, as a person reads it.
    pub fn log(&self, id: &str) -> String {
        self.says(&["logs", id])
    }

    /// A file on a branch of the repository.
    pub fn on_branch(&self, branch: &str, file: &str) -> String {
        git(
            &self.root.path("shop"),
            &["show", &format!("{branch}:{file}")],
        )
    }

    pub fn worktree(&self, line: &str) -> PathBuf {
        self.root.path("worktrees").join(line)
    }

    /// Writes a file into the agents' home.
    pub fn at_home(&self, name: &str, text: &str) {
        let path = self.home.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// A request for `@coder` with this task.
pub fn request(task: &str) -> Value {
    json!({"target": {"agent_id": "@coder"}, "input": {"data": {"task": task}}})
}

/// What an attempt of a record cost, by its number.
pub fn usage(record: &Value, number: usize) -> &Value {
    &record["handoffd"]["attempts"][number - 1]["usage"]
}

/// How codex finds the stub.
pub fn codex_args(stub: &Stub, more: &str) -> String {
    let port = stub.port();
    let provider = format!(
        "model_providers.stub={{name=\"stub\",base_url=\"http://127.0.0.1:{port}/v1\",wire_api=\"responses\",\
         env_key=\"STUB_KEY\",request_max_retries=0,stream_max_retries=0}}"
    );
    format!("args = ['-c', 'model_provider=stub', '-c', '{provider}', '-m', 'gpt-x'{more}]")
}
