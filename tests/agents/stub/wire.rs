//! How a model's turn looks on the wire, in each of the protocols. Every turn costs 100 tokens of input
//! and 20 of output.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Answer, Api, Asked};

const INPUT: u64 = 100;
const OUTPUT: u64 = 20;

/// A turn with the agent's own way to report put in.
enum Turn {
    Words(String),
    Tool(String, Value),
}

fn turn(asked: &Asked, answer: &Answer) -> Turn {
    match answer {
        Answer::Say(words) => Turn::Words(words.clone()),
        Answer::Tool(name, input) => Turn::Tool((*name).to_owned(), input.clone()),
        Answer::Report(report) => match asked.api {
            Api::Messages => Turn::Tool("StructuredOutput".to_owned(), report.clone()),
            Api::Responses => Turn::Words(report.to_string()),
            Api::Gemini | Api::Chat => Turn::Words(format!("Done.\n\n```json\n{report}\n```\n")),
        },
        other => panic!("no turn: {other:?}"),
    }
}

pub fn is_stream(asked: &Asked) -> bool {
    asked.api == Api::Gemini && asked.path.contains("stream")
        || asked.body["stream"] == Value::Bool(true)
}

/// A turn as server-sent events.
pub fn stream(asked: &Asked, answer: &Answer) -> String {
    let turn = turn(asked, answer);
    let events = match asked.api {
        Api::Messages => messages(asked, &turn),
        Api::Responses => responses(asked, &turn),
        Api::Gemini => vec![gemini(&turn)],
        Api::Chat => chat(asked, &turn),
    };
    let mut text = String::new();
    for event in events {
        if let Some(name) = event["type"].as_str() {
            _ = writeln!(text, "event: {name}");
        }
        _ = write!(text, "data: {event}\n\n");
    }
    if asked.api == Api::Chat {
        text.push_str("data: [DONE]\n\n");
    }
    text
}

/// A turn as one document.
pub fn whole(asked: &Asked, answer: &Answer) -> Value {
    let turn = turn(asked, answer);
    match (asked.api, &turn) {
        (Api::Gemini, turn) => gemini(turn),
        (Api::Messages, Turn::Words(words)) => json!({
            "id": id(asked, "msg"), "type": "message", "role": "assistant", "model": asked.body["model"],
            "content": [{"type": "text", "text": words}], "stop_reason": "end_turn",
            "stop_sequence": null, "usage": {"input_tokens": INPUT, "output_tokens": OUTPUT},
        }),
        (Api::Chat, Turn::Words(words)) => json!({
            "id": id(asked, "chat"), "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop",
                "message": {"role": "assistant", "content": words}}],
            "usage": {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": 120},
        }),
        _ => panic!("only asides are asked for without a stream"),
    }
}

/// Agents tell turns and calls of tools apart by their ids.
fn id(asked: &Asked, prefix: &str) -> String {
    format!("{prefix}_{}", asked.number)
}

fn messages(asked: &Asked, turn: &Turn) -> Vec<Value> {
    let (block, delta, stop) = match turn {
        Turn::Words(words) => (
            json!({"type": "text", "text": ""}),
            json!({"type": "text_delta", "text": words}),
            "end_turn",
        ),
        Turn::Tool(name, input) => (
            json!({"type": "tool_use", "id": id(asked, "toolu"), "name": name, "input": {}}),
            json!({"type": "input_json_delta", "partial_json": input.to_string()}),
            "tool_use",
        ),
    };
    vec![
        json!({"type": "message_start", "message": {
            "id": id(asked, "msg"), "type": "message", "role": "assistant", "model": asked.body["model"],
            "content": [], "stop_reason": null, "stop_sequence": null,
            "usage": {"input_tokens": INPUT, "output_tokens": 1},
        }}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null},
            "usage": {"output_tokens": OUTPUT}}),
        json!({"type": "message_stop"}),
    ]
}

fn responses(asked: &Asked, turn: &Turn) -> Vec<Value> {
    let item = match turn {
        Turn::Words(words) => json!({
            "type": "message", "role": "assistant",
            "content": [{"type": "output_text", "text": words}],
        }),
        Turn::Tool(name, input) => json!({
            "type": "function_call", "call_id": id(asked, "call"), "name": name,
            "arguments": input.to_string(),
        }),
    };
    vec![
        json!({"type": "response.created", "response": {"id": id(asked, "resp")}}),
        json!({"type": "response.output_item.done", "item": item}),
        json!({"type": "response.completed", "response": {"id": id(asked, "resp"), "usage": {
            "input_tokens": INPUT, "input_tokens_details": null, "output_tokens": OUTPUT,
            "output_tokens_details": null, "total_tokens": INPUT + OUTPUT,
        }}}),
    ]
}

fn gemini(turn: &Turn) -> Value {
    let part = match turn {
        Turn::Words(words) => json!({"text": words}),
        Turn::Tool(name, input) => json!({"functionCall": {"name": name, "args": input}}),
    };
    json!({
        "candidates": [{"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": [part]}}],
        "usageMetadata": {"promptTokenCount": INPUT, "candidatesTokenCount": OUTPUT,
            "totalTokenCount": INPUT + OUTPUT},
        "modelVersion": "g",
    })
}

fn chat(asked: &Asked, turn: &Turn) -> Vec<Value> {
    let (delta, stop) = match turn {
        Turn::Words(words) => (json!({"role": "assistant", "content": words}), "stop"),
        Turn::Tool(name, input) => {
            let function = json!({"name": name, "arguments": input.to_string()});
            let call = json!({"index": 0, "id": id(asked, "call"), "type": "function", "function": function});
            (
                json!({"role": "assistant", "tool_calls": [call]}),
                "tool_calls",
            )
        }
    };
    let chunk = |choice: Value| {
        json!({"id": id(asked, "chat"), "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [choice]})
    };
    let mut last = chunk(json!({"index": 0, "delta": {}, "finish_reason": stop}));
    last["usage"] = json!({"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT});
    vec![
        chunk(json!({"index": 0, "delta": delta, "finish_reason": null})),
        last,
    ]
}
