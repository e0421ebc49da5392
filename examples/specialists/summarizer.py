#!/usr/bin/env python3
"""Returns a document as `artifact`; the daemon checks it and writes it to its destination.

The first attempt forgets a field, to show what happens then: the artifact does not match its
schema, the handoff is tried again, and the next attempt is told what was wrong. An agent would
put that into its prompt.
"""

import json
import os
import sys

record = json.load(sys.stdin)
page = record["input"]["data"]
summary = {"title": page["title"], "words": len(page["body"].split())}

if "'language'" in os.environ.get("HANDOFF_LAST_ERROR", ""):
    # The same, for programs: the fields that were wrong in the attempt before this one.
    before = record["handoffd"]["attempts"][-2]["error"]
    print("told:", json.dumps(before["fields"]), file=sys.stderr)
    summary["language"] = page.get("language", "en")

json.dump({"status": "complete", "summary": "one page", "artifact": summary}, sys.stdout)
