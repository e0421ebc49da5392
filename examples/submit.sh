#!/bin/sh
# Drops a request and prints the outcome: submit.sh examples/request.json [ROOT]
set -eu

handoffs=${2:-.}/handoffs
id=example-$(date +%s)-$$

# Written under a name that the daemon leaves alone, then shown to it whole.
cp "$1" "$handoffs/pending/.$id.tmp"
mv "$handoffs/pending/.$id.tmp" "$handoffs/pending/$id.${1##*.}"

# The folder that the record stands in is its state, and its name always ends in .json.
while :; do
    if [ -e "$handoffs/completed/$id.json" ]; then
        cat "$handoffs/completed/$id.json"
        exit 0
    elif [ -e "$handoffs/failed/$id.json" ]; then
        cat "$handoffs/failed/$id.json"
        exit 1
    fi
    sleep 1
done
