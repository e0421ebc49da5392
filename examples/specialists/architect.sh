#!/bin/sh
# Blocked: says why, what was tried, and what is needed. It is not tried again.
cat <<'RESULT'
{
  "status": "blocked",
  "phase": "architecture",
  "summary": "sessions or tokens: both would do, and the request does not say",
  "blocked_reason": "architecture_decision",
  "attempted": ["looked for a decision in context/tech-stack.json"],
  "handoff": {
    "next_agent": null,
    "blockers": [{"description": "how users stay signed in", "needs": "a decision"}]
  }
}
RESULT
