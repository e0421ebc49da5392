#!/bin/sh
# Drops a request of any dialect and prints the outcome: submit.sh request.json [ROOT]
set -eu

handoffs=${2:-.}/handoffs
id=shell-$(date +%s)-$$

# Written under a name that the daemon leaves alone, then shown to it whole.
cp "$1" "$handoffs/pending/.$id.tmp"
mv "$handoffs/pending/.$id.tmp" "$handoffs/pending/$id.${1##*.}"

# The folder that the record stands in is its state, and its name always ends in .json.
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
