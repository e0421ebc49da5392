#!/usr/bin/env python3
"""Puts a command-line agent into the loop: any that reads a prompt from stdin and prints its
answer.

Set one command and it is a specialist:

    [specialists."@developer"]
    command = ["python3", "specialists/agent-adapter.py"]
    env = { AGENT_COMMAND = "some-agent --print", AGENT_ROLE = "You write small, tested Rust." }
    pass_env = ["SOME_AGENT_API_KEY"]
    timeout = "30m"

AGENT_COMMAND is split into words as a shell would, but no shell runs it, and nothing of the
record becomes part of it: the record reaches the agent only as its prompt, on stdin.

The record on this script's stdin becomes the prompt: the work, its context, what helpers gave
back, what a human answered, and why the last attempt failed. The agent's answer becomes the
result, on this script's stdout: the last fenced json block that is an object, else the answer's
first paragraph as the summary and all of it as output.text. If the agent fails, so does the
attempt, with the agent's exit code, and the daemon tries again as it is told to.
"""

import json
import os
import re
import shlex
import subprocess
import sys

BLOCK = re.compile(r"^[ \t]*```+[ \t]*json[ \t]*\n(.*?)^[ \t]*```+[ \t]*$", re.M | re.S | re.I)
LONGEST_SUMMARY = 500

REPLY = """\
When you are done, end your answer with one fenced json block, and nothing after it:

```json
{"status": "complete", "phase": "PHASE", "summary": "what you did, in one or two sentences",
 "files_modified": [], "decisions": [{"decision": "...", "rationale": "..."}],
 "handoff": {"next_phase": "...", "context": "what the next agent must know"}}
```

If you can't go on, use "status": "blocked" with "blocked_reason" (security_concern,
architecture_decision, missing_requirements, test_failures, out_of_scope or unknown),
"attempted": [what you tried], and in "handoff" only "context" (what blocks you), with
"next_agent": null. If a human should look first, use "status": "needs_review". For sub-tasks
use "status": "delegate" with "handoff": {"children": [{"agent": "@name", "input": {}}]}."""


def shown(value):
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def prompt(record, env):
    """The record, as something that an agent can read from top to bottom."""
    package = record.get("handoff") if isinstance(record.get("handoff"), dict) else {}
    target = record.get("target") if isinstance(record.get("target"), dict) else {}
    own = record.get("handoffd") if isinstance(record.get("handoffd"), dict) else {}
    work = record.get("input") if isinstance(record.get("input"), dict) else {}
    data = work.get("data")
    origin = answer = None
    if isinstance(data, dict) and own.get("parent"):
        # A follow-up has the chain's first request and a human's answer beside its own work.
        origin, answer = data.get("origin"), data.get("answer")
        data = {key: value for key, value in data.items() if key not in ("origin", "answer")}
    parts = [
        ("Who you are", env.get("AGENT_ROLE")),
        ("Phase", target.get("phase") or record.get("phase")),
        ("What was asked first", origin),
        ("The work", data),
        ("What is expected", package.get("expectations") or record.get("expected_output")),
        ("Context", package.get("context") or record.get("context")),
        ("Where this stands in its workflow", record.get("workflow_state")),
        ("What the helpers that you asked gave back", own.get("returns")),
        ("What a human answered", record.get("answer") or answer),
        ("Why your last attempt failed; mend that", env.get("HANDOFF_LAST_ERROR")),
        ("How to answer", REPLY),
    ]
    return "\n\n".join(f"# {title}\n\n{shown(value)}" for title, value in parts if value) + "\n"


def result(answer):
    """The last json block that is an object, else a summary and the text."""
    for block in reversed(BLOCK.findall(answer)):
        try:
            found = json.loads(block)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    text = answer.strip()
    summary = " ".join(text.split("\n\n")[0].split())
    if len(summary) > LONGEST_SUMMARY:
        summary = summary[: LONGEST_SUMMARY - 1] + "…"
    return {"status": "complete", "summary": summary, "output": {"text": text}}


def main():
    command = shlex.split(os.environ.get("AGENT_COMMAND", ""))
    if not command:
        print("AGENT_COMMAND is not set: which agent is to be run?", file=sys.stderr)
        return 78
    record = json.load(sys.stdin)
    try:
        agent = subprocess.run(
            command,
            input=prompt(record, os.environ).encode(),
            stdout=subprocess.PIPE,
            check=False,
        )
    except OSError as error:
        print(f"{command[0]}: {error}", file=sys.stderr)
        return 78
    answer = agent.stdout.decode(errors="replace")
    if agent.returncode != 0:
        print(answer, file=sys.stderr)
        return agent.returncode if agent.returncode > 0 else 1
    print(json.dumps(result(answer), indent=2, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
