#!/usr/bin/env python3
"""Upper-cases input.data.text, and writes its result to the file that HANDOFF_RESULT names.

A result in that file wins over stdout, so everything may be printed freely.
"""

import json
import os
import sys

record = json.load(sys.stdin)
data = (record.get("input") or {}).get("data")
text = data.get("text") if isinstance(data, dict) else None

if not isinstance(text, str):
    # The end of stderr is shown with the failure. 65 says that the input is to blame, so
    # the daemon does not try again what can't succeed.
    print("input.data.text must be a string", file=sys.stderr)
    sys.exit(65)

result = {
    "status": "complete",
    "summary": f"shouted {len(text)} characters",
    "output": {"text": text.upper()},
}
with open(os.environ["HANDOFF_RESULT"], "w", encoding="utf-8") as file:
    json.dump(result, file)
