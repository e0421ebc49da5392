#!/usr/bin/env python3
"""A resident specialist: a line of JSON in for each handoff, a line of JSON out.

Only answers go to stdout. Whatever is printed on stderr meanwhile is the attempt's log.
"""

import json
import sys


def load_model():
    """Stands for what takes long, and is why this process stays."""
    return {"bug": ("error", "crash", "fails"), "question": ("how", "why", "?")}


def classify(model, text):
    for label, words in model.items():
        if any(word in text.lower() for word in words):
            return label
    return "other"


model = load_model()
for line in sys.stdin:  # ends when the daemon lets this process go
    handoff = json.loads(line)
    try:
        text = handoff["record"]["input"]["data"]["text"]
        print(f"attempt {handoff['attempt']}: {len(text)} characters", file=sys.stderr, flush=True)
        answer = {"status": "complete", "output": {"label": classify(model, text)}}
    except (KeyError, TypeError) as error:
        why = f"input.data.text must be a string ({error!r})"
        answer = {"status": "failed", "error": {"message": why, "retryable": False}}
    print(json.dumps({"handoff_id": handoff["handoff_id"], **answer}), flush=True)
