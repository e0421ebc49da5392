#!/bin/sh
# Done, but a human should look at it first: the handoff waits in waiting/.
cat <<'RESULT'
{
  "status": "needs_review",
  "phase": "editing",
  "summary": "the text is ready; one name could not be checked",
  "output": {"unchecked": ["Ada Lovelace"]}
}
RESULT
