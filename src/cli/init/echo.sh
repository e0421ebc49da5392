#!/bin/sh
# An example specialist. The handoff comes on stdin as one JSON document, the result goes to stdout as
# JSON. Exit 0 is success; anything written to stderr ends up in the attempt's log.
#
# It echoes: output.received is the handoff as this attempt got it, with its input.data.
echo "attempt $HANDOFF_ATTEMPT of $HANDOFF_ID" >&2
printf '{"status": "complete", "summary": "echoed %s", "output": {"received": ' "$HANDOFF_ID"
cat
printf '}}\n'
