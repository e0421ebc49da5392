#!/bin/sh
# The price of an order in cents: price.sh PIECES CENTS_PER_PIECE
echo $(($1 * $2))
