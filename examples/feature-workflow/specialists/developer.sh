#!/bin/sh
# Blocked at first: the design leaves a question that is not the developer's to answer. Who was
# asked for help gives it back in handoffd.returns of the record, and then the work is done.
set -eu
record=$(cat)
case $record in
*'"returns"'*) ;;
*)
    cat <<'END'
{
  "status": "blocked",
  "phase": "implementation",
  "summary": "A token in the link's query ends up in logs and in the Referer header",
  "blocked_reason": "security_concern",
  "attempted": ["Read the design", "Looked for an earlier decision on tokens in links"],
  "handoff": {
    "next_agent": null,
    "context": "May the token stand in the query, or where else?",
    "blockers": [
      { "type": "security", "description": "the query of a link is logged by servers on its way" }
    ]
  }
}
END
    exit 0
    ;;
esac
mkdir -p artifacts/source
cat >"artifacts/source/$HANDOFF_ID.txt" <<END
POST /login        sends https://example.org/enter#token=...
POST /login/enter  takes the token, once
END
cat <<END
{
  "status": "complete",
  "phase": "implementation",
  "summary": "Both endpoints are there; the token stands in the fragment, as security advised",
  "files_modified": ["artifacts/source/$HANDOFF_ID.txt"],
  "artifacts": ["artifacts/source/$HANDOFF_ID.txt"],
  "verification": { "build_success": true },
  "handoff": {
    "next_phase": "testing",
    "context": "Test that a token works once, and not after ten minutes."
  }
}
END
