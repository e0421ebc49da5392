#!/usr/bin/env python3
"""Returns Markdown that ends in a json block, as language models like to write.

The block is the result; the text before it is kept as an artifact. What is to be reviewed comes
from a package (handoff.context.summary), a report (handoff.context) or a request.
"""

import json
import sys

record = json.load(sys.stdin)
context = (record.get("handoff") or record).get("context")
about = context.get("summary") if isinstance(context, dict) else context

result = {
    "status": "complete",
    "phase": "review",
    "summary": "no objections",
    "output": {"objections": 0},
    "handoff": {"next_phase": "complete"},
}
print(f"# Review\n\nReviewed: {about}\n\nNo objections.\n")
print(f"```json\n{json.dumps(result, indent=2)}\n```")
