#!/usr/bin/env python3
"""Hands work to an agent and prints the outcome: submit.py @shout hello [ROOT]

Nothing but files is involved, so the same can be done in any language.
"""

import json
import pathlib
import sys
import time
import uuid

agent, text = sys.argv[1:3]
handoffs = pathlib.Path(sys.argv[3] if len(sys.argv) > 3 else ".") / "handoffs"
name = f"example-{uuid.uuid4()}.json"
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
