#!/bin/sh
# Helps whoever is blocked by a security concern: what it returns goes back to who asked.
set -eu
cat <<'END'
{
  "status": "complete",
  "phase": "security-review",
  "summary": "Put the token into the link's fragment: browsers send it to no server",
  "decisions": [
    { "decision": "the token stands in the fragment", "rationale": "it is in no log and no Referer" }
  ],
  "handoff": { "next_phase": "complete" }
}
END
