#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The command line: global options, the order of words, TALLY_OPTS, and what is said of words that are
# misspelt, missing or too many.

# shellcheck source=test/lib/golden.sh
. "$(dirname -- "$0")/../../lib/golden.sh"
mask 's/^tally [0-9]*\.[0-9]*\.[0-9]*$/tally VERSION/'

say What is asked for comes on standard output.
show tally --version
show tally -V
show sh -c 'tally help --names | grep -x -e help -e completion'

say Without a command, or with one that there is not.
show tally
show tally helb
show tally xyzzy
show tally -- --help

say Options that there are not, and values that are none.
show tally --colour=never help
show tally --xyzzy help
show tally -x help
show tally help --color=nevr
show tally help --color
show tally help --quiet=1
show tally help --memory-limit=much
show tally help --memory-limit=-1
show tally help --memory-limit=1e3

say Long options may be shortened while that is unique, and stand anywhere.
show sh -c 'tally help --name | grep -x help'
show sh -c 'tally help --na --no-names completion | head -n 1'
show sh -c 'tally help --no-nam completion | head -n 1'
show tally help --m --no-man completion

say Words that are missing or too many.
show tally completion
show tally completion bash zsh
show tally completion tcsh
show tally help helb

say Options of TALLY_OPTS come first, and those of other commands are passed over.
show TALLY_OPTS=--names sh -c 'tally help | grep -x help'
show TALLY_OPTS=--names sh -c 'tally help --no-names completion | head -n 1'
show "TALLY_OPTS=--color=never '--memory-limit' \"1G\" --names" sh -c 'tally doctor --help | head -n 1'
show TALLY_OPTS=--xyzzy tally help
show TALLY_OPTS=word tally help

say Options of a file come next, and it stands before the command.
printf '# how I like it\n--names\n  # and without colours\n--color=never --top\n' >"$work/config"
show sh -c 'tally --config=config help | grep -x help'
show sh -c 'tally --config=config help --no-names completion | head -n 1'
show TALLY_OPTS=--config=config sh -c 'tally help | grep -x help'
show tally help --config=config
show tally --config=missing help
echo "--config=config" >"$work/circle"
show tally --config=circle help
echo "word" >"$work/word"
show tally --config=word help

say Output that cannot be written is no success.
show sh -c 'tally --version >/dev/full'
