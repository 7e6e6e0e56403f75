#!/bin/sh
# SPDX-License-Identifier: MIT
#
# man.sh - writes a man page for the command and for each of its commands.
#
#     tools/man.sh TALLY FOLDER
set -eu

tally=$1
folder=$2
mkdir -p "$folder"
"$tally" help --man >"$folder/tally.1"
for command in $("$tally" help --names); do
    "$tally" help --man "$command" >"$folder/tally-$command.1"
done
