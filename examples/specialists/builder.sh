#!/bin/sh
# Writes its artifact itself, to the path that HANDOFF_ARTIFACT names. The folder is there.
# Nothing needs to be printed: the daemon looks at the file, and registers it.
set -eu

printf '#!/bin/sh\necho built by %s\n' "$HANDOFF_ID" >"$HANDOFF_ARTIFACT"
