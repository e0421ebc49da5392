#!/bin/sh
# Failed, and says so itself. `retryable` decides whether it is tried again, whatever the exit
# code; a code that is not the daemon's own is kept as detail_code.
cat <<'RESULT'
{
  "status": "failed",
  "error": {"code": "SITE_CLOSED", "message": "the site takes no more pages", "retryable": false}
}
RESULT
exit 1
