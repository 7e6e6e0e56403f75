#!/bin/sh
# SPDX-License-Identifier: MIT
#
# malloc_stats_print of a real program, judged by a real parser: JSON with every letter, the lines of
# the text that programs look for, and the statistics that an option prints at exit.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

need python3
prove_preload
"${CC:-cc}" -O1 -fno-builtin -o "$scratch/program" "$here/test/integration/program_stats.c" -ldl ||
    fail "program_stats.c does not compile"

# judge WHAT FILE ARGUMENT...: the faults that stats_json.py finds in a file.
judge() {
    what=$1 file=$2
    shift 2
    python3 -B "$here/test/integration/stats_json.py" "$@" <"$file" >"$scratch/faults" 2>&1 ||
        fail "$what: $(cat "$scratch/faults")"
}

# statistics LETTERS: of the program, on standard output, into a file.
statistics() {
    under_tally MALLOC_CONF=narenas:2 "$scratch/program" "$1" >"$scratch/printed" \
        2>"$scratch/errors" || fail "letters $1: status $?: $(cat "$scratch/errors")"
    quiet "$scratch/errors"
}

for letters in J Jg Jm Jd Ja Jb Jl Jx Je Jh J?z gmdablxehJ Jmda; do
    statistics "$letters"
    judge "JSON without $letters" "$scratch/printed" json "$letters"
done
statistics ''
judge text "$scratch/printed" text

# At exit, with the letters of the option.  A hostile string comes as it is and stays a string.
hostile='a"b\c'
under_tally "MALLOC_CONF=narenas:2,stats_print:true,stats_print_opts:J,prof_prefix:$hostile" \
    "$scratch/program" Jgmda >/dev/null 2>"$scratch/errors" || fail "stats_print: status $?"
judge "stats_print at exit" "$scratch/errors" json J "$hostile"
