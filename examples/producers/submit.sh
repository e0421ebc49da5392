#!/bin/sh
# Hands work to an agent and prints the outcome: submit.sh @shout hello [ROOT]
set -eu

handoffs=${3:-.}/handoffs
id=shell-$(date +%s)-$$

# In JSON a quote, a backslash and the end of a line are written with a backslash.
text=$(printf '%s' "$2" | tr '\t' ' ' | sed 's/["\\]/\\&/g' |
    awk '{ printf "%s%s", (NR > 1 ? "\\n" : ""), $0 }')

# Written under a name that the daemon leaves alone, then shown to it whole.
printf '{"target": {"agent_id": "%s"}, "input": {"data": {"text": "%s"}}}\n' "$1" "$text" \
    >"$handoffs/pending/.$id.tmp"
mv "$handoffs/pending/.$id.tmp" "$handoffs/pending/$id.json"

# The folder that the record stands in is its state.
while :; do
    for state in completed failed; do
        if [ -e "$handoffs/$state/$id.json" ]; then
            cat "$handoffs/$state/$id.json"
            [ "$state" = completed ]
            exit
        fi
    done
    sleep 1
done
