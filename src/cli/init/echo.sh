#!/bin/sh
# An example specialist: the request comes on stdin, the result goes to stdout as JSON.
# Exit 0 is success; anything written to stderr ends up in the attempt's log.
bytes=$(wc -c | tr -d ' ')
printf '{"status": "complete", "summary": "%s came with %s bytes", "output": {"attempt": %s}}\n' \
    "$HANDOFF_ID" "$bytes" "$HANDOFF_ATTEMPT"
