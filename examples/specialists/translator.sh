#!/bin/sh
# Out of quota on the first attempt: the handoff, and all others for this specialist, wait that
# long. It is no failure and uses up no retry.
set -eu

if [ "$HANDOFF_ATTEMPT" -eq 1 ]; then
    echo '{"retry_after_seconds": 1, "summary": "out of quota"}'
else
    echo '{"status": "complete", "output": {"text": "bonjour"}}'
fi
