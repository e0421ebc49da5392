#!/bin/sh
# Fails on the first attempt, succeeds on the next. Any exit code but 0 is a failure; most,
# this one among them, are tried again.
set -eu

if [ "$HANDOFF_ATTEMPT" -eq 1 ]; then
    echo "the first attempt always fails" >&2
    exit 1
fi

# HANDOFF_LAST_ERROR tells why the attempt before failed. It is free text, which would have
# to be escaped for JSON, so it goes to the log.
echo "before: ${HANDOFF_LAST_ERROR:-nothing}" >&2
printf '{"status": "complete", "summary": "done on attempt %s", "output": {"attempt": %s}}\n' \
    "$HANDOFF_ATTEMPT" "$HANDOFF_ATTEMPT"
