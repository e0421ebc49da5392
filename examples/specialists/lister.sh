#!/bin/sh
# Plain text is a result too: it becomes output.text.
set -eu

echo "The schemas of this root:"
cd "$HANDOFF_ROOT/schemas"
ls
