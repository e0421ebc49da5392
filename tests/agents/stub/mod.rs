//! The models' end of the line: an HTTP server on loopback that speaks the four protocols that the
//! agents under test use, and answers as the test says.
//!
//! An answer is one turn of a model: words, the use of a tool, the report, or a refusal. How it looks
//! on the wire is in [`wire`].

mod wire;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

/// What a model says next.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Words, and nothing more to do.
    Say(String),
    /// It wants to use a tool.
    Tool(&'static str, Value),
    /// The report, in the way that the agent asked for it.
    Report(Value),
    /// An HTTP status with headers and a body in place of an answer.
    Refuse(u16, Vec<(String, String)>, Value),
    /// The connection is closed in the middle of the answer.
    CutOff,
    /// No answer at all while the test runs.
    Hang,
}

/// Whose protocol a request speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// Messages: claude.
    Messages,
    /// Responses: codex.
    Responses,
    /// Generate content: gemini.
    Gemini,
    /// Chat completions: opencode.
    Chat,
}

/// One request for a turn.
#[derive(Debug, Clone)]
pub struct Asked {
    /// How many came before it.
    pub number: usize,
    pub api: Api,
    pub path: String,
    pub body: Value,
}

impl Asked {
    /// The conversation so far, oldest first.
    fn turns(&self) -> &[Value] {
        let key = match self.api {
            Api::Messages | Api::Chat => "messages",
            Api::Responses => "input",
            Api::Gemini => "contents",
        };
        self.body[key].as_array().map_or(&[], Vec::as_slice)
    }

    /// All of the conversation as text, as it is in the request.
    pub fn conversation(&self) -> String {
        let turns: Vec<String> = self.turns().iter().map(Value::to_string).collect();
        turns.join("\n")
    }

    /// The last turn that is the person's or a tool's.
    pub fn last(&self) -> String {
        let turn = self.turns().iter().rev().find(|turn| {
            let role = turn["role"].as_str().unwrap_or_default();
            !["assistant", "model", "system", "developer"].contains(&role)
        });
        turn.map(Value::to_string).unwrap_or_default()
    }

    /// Agents also ask for titles and the like; those requests have no tools.
    fn is_aside(&self) -> bool {
        self.body["tools"].as_array().is_none_or(Vec::is_empty)
    }
}

pub fn say(text: &str) -> Answer {
    Answer::Say(text.to_owned())
}

/// A report with this status and summary, every other field null.
pub fn report(status: &str, summary: &str) -> Answer {
    report_with(&json!({"status": status, "summary": summary}))
}

/// A report with these fields, every other one null.
pub fn report_with(fields: &Value) -> Answer {
    let mut report = json!({
        "status": null, "summary": null, "decisions": null, "files_modified": null,
        "verification": null, "open_questions": null, "question": null, "blocked_reason": null,
        "attempted": null, "context": null,
    });
    for (key, value) in fields.as_object().unwrap() {
        report[key] = value.clone();
    }
    Answer::Report(report)
}

/// A refusal with an error in the form of the Messages API, which others read as well.
pub fn refuse(status: u16, kind: &str, message: &str) -> Answer {
    let body = json!({"type": "error", "error": {"type": kind, "code": kind, "message": message}});
    Answer::Refuse(status, Vec::new(), body)
}

type Script = dyn Fn(&Asked) -> Answer + Send + Sync;

struct Shared {
    asked: Mutex<Vec<Asked>>,
    script: Box<Script>,
    ended: AtomicBool,
}

pub struct Stub {
    port: u16,
    shared: Arc<Shared>,
}

impl Stub {
    /// A model that answers as this function says.
    pub fn start(script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            asked: Mutex::new(Vec::new()),
            script: Box::new(script),
            ended: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                if serving.ended.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&serving);
                thread::spawn(move || serve(&connection, &shared));
            }
        });
        Self { port, shared }
    }

    /// One that gives these answers in turn, and the last one for ever.
    pub fn says(answers: Vec<Answer>) -> Self {
        Self::start(move |asked| answers[asked.number.min(answers.len() - 1)].clone())
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// All requests for a turn so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // The listener waits for one more connection.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        if thread::panicking() {
            for asked in self.asked() {
                let last: String = asked.last().chars().take(600).collect();
                eprintln!("--- model {} {}: {last}", asked.number, asked.path);
            }
        }
    }
}

struct Request {
    method: String,
    path: String,
    body: Vec<u8>,
}

fn read(connection: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(connection);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let mut body = Vec::new();
    if let Some(length) = headers.get("content-length") {
        body.resize(length.parse().ok()?, 0);
        reader.read_exact(&mut body).ok()?;
    } else if headers
        .get("transfer-encoding")
        .is_some_and(|it| it == "chunked")
    {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).ok()?;
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }
    Some(Request { method, path, body })
}

fn serve(connection: &TcpStream, shared: &Shared) {
    let Some(request) = read(connection) else {
        return;
    };
    let Some(api) = api_of(&request) else {
        send(
            connection,
            200,
            &[],
            "application/json",
            b"{\"data\":[],\"models\":[]}",
        );
        return;
    };
    let Ok(body) = serde_json::from_slice(&request.body) else {
        send(connection, 400, &[], "text/plain", b"the body is not JSON");
        return;
    };
    let mut asked = Asked {
        number: 0,
        api,
        path: request.path,
        body,
    };
    if asked.is_aside() {
        reply(connection, &asked, &say("aside"));
        return;
    }
    {
        let mut all = shared.asked.lock().unwrap();
        asked.number = all.len();
        all.push(asked.clone());
    }
    // The script may take its time, as a model does.
    let answer = (shared.script)(&asked);
    reply(connection, &asked, &answer);
}

fn api_of(request: &Request) -> Option<Api> {
    let path = request.path.split('?').next().unwrap_or_default();
    if request.method != "POST" {
        return None;
    }
    match path {
        _ if path.ends_with("/messages") => Some(Api::Messages),
        _ if path.ends_with("/responses") => Some(Api::Responses),
        _ if path.ends_with("/chat/completions") => Some(Api::Chat),
        _ if path.contains("enerateContent") => Some(Api::Gemini),
        _ => None,
    }
}

fn reply(connection: &TcpStream, asked: &Asked, answer: &Answer) {
    match answer {
        Answer::Refuse(status, headers, body) => {
            let body = body.to_string();
            send(
                connection,
                *status,
                headers,
                "application/json",
                body.as_bytes(),
            );
        }
        Answer::Hang => wait_for_its_end(connection),
        Answer::CutOff => {
            let whole = wire::stream(asked, &say("a few words, and then"));
            let half = &whole.as_bytes()[..whole.len() / 2];
            let mut connection = connection;
            // More is promised than comes.
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 100000\r\n\r\n";
            drop(connection.write_all(head.as_bytes()));
            drop(connection.write_all(half));
        }
        answer if wire::is_stream(asked) => {
            let events = wire::stream(asked, answer);
            send(connection, 200, &[], "text/event-stream", events.as_bytes());
        }
        answer => {
            let whole = wire::whole(asked, answer).to_string();
            send(connection, 200, &[], "application/json", whole.as_bytes());
        }
    }
}

/// An agent that is ended closes its connection; until then it waits, as for a model that thinks.
fn wait_for_its_end(mut connection: &TcpStream) {
    let mut byte = [0; 1];
    drop(connection.read(&mut byte));
}

fn send(
    mut connection: &TcpStream,
    status: u16,
    headers: &[(String, String)],
    kind: &str,
    body: &[u8],
) {
    let mut head = format!(
        "HTTP/1.1 {status} .\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n",
        body.len()
    );
    for (name, value) in headers {
        for part in [name, ": ", value, "\r\n"] {
            head.push_str(part);
        }
    }
    head.push_str("\r\n");
    // An agent that was ended meanwhile does not read it.
    drop(connection.write_all(head.as_bytes()));
    drop(connection.write_all(body));
}
