#!/bin/sh
# Writes the design down and names it, so that the next agent gets it. Who that is, the workflow
# says.
set -eu
mkdir -p artifacts/design
cat >"artifacts/design/$HANDOFF_ID.md" <<END
# Log in by mail

A link with a token, valid once and for ten minutes. The token's hash is stored, not the token.
END
cat <<END
{
  "status": "complete",
  "phase": "architecture",
  "summary": "Designed the login: a link with a token that is valid once, for ten minutes",
  "decisions": [
    { "decision": "store the token's hash", "rationale": "a leaked table lets nobody in" }
  ],
  "artifacts": ["artifacts/design/$HANDOFF_ID.md"],
  "handoff": {
    "next_phase": "implementation",
    "context": "Two endpoints: one that sends the link, one that takes it. See the design.",
    "open_questions": ["May the token stand in the link's query?"]
  }
}
END
