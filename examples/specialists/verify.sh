#!/bin/sh
# A verify command: gets the same variables as the specialist, and says by its exit code whether
# the work is right. Here the artifact must at least be a script that the shell can read.
set -eu

sh -n "$HANDOFF_ARTIFACT"
echo "the shell can read it"
