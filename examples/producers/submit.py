#!/usr/bin/env python3
"""Hands work to an agent and prints the outcome: submit.py @shout hello [ROOT]"""

import json
import pathlib
import sys
import time
import uuid

agent, text, *root = sys.argv[1:]
handoffs = pathlib.Path(*root) / "handoffs"
name = f"python-{uuid.uuid4()}.json"
request = {"target": {"agent_id": agent}, "input": {"data": {"text": text}}}

# Written under a name that the daemon leaves alone, then shown to it whole.
temporary = handoffs / "pending" / f".{name}.tmp"
temporary.write_text(json.dumps(request))
temporary.rename(handoffs / "pending" / name)

while True:  # the folder that the record stands in is its state
    for state in ("completed", "failed"):
        if (handoffs / state / name).exists():
            print((handoffs / state / name).read_text())
            sys.exit(state == "failed")
    time.sleep(0.2)
