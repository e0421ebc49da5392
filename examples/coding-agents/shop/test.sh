#!/bin/sh
# Says which price is wrong, and fails.
price() {
    got=$(sh price.sh "$1" "$2")
    [ "$got" = "$3" ] && return
    echo "price of $1 pieces at $2 cents: expected $3, got $got"
    exit 1
}
price 1 250 250
price 3 250 750
echo "all prices are right"
