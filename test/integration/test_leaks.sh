#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Leak checks when a program exits: what HEAPCHECK and leak_check say, in whose words, and with which status the
# program ends. test/unit/test_opt_foreign.c has the variables, test_heap_checker.cc the class.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

command -v "${CC:-cc}" >/dev/null || skip "there is no C compiler"
prove_preload
program=$scratch/leaky
"${CC:-cc}" -O1 -g -fno-builtin -fno-omit-frame-pointer -rdynamic -pthread -I "$here/include" \
    -o "$program" \
    "$here/test/integration/program_leaks.c" || fail "program_leaks.c does not compile"
dumps=$scratch/dumps
mkdir "$dumps"

# run STATUS [NAME=VALUE...] WORD...: the program with these words, which is to end with this status.
run() {
    expected=$1
    shift
    variables=()
    while [ "${1#*=}" != "$1" ]; do
        variables+=("$1")
        shift
    done
    what="${variables[*]} $*"
    status=0
    under_tally HEAP_CHECK_DUMP_DIRECTORY="$dumps" "${variables[@]}" "$program" "$@" \
        >"$scratch/output" 2>"$scratch/errors" || status=$?
    if [ $status -ne "$expected" ]; then
        cat "$scratch/errors"
        fail "$what: ended with status $status, not $expected"
    fi
}

says() {
    grep -qE -- "$1" "$scratch/errors" || {
        cat "$scratch/errors"
        fail "$what: nothing was said like '$1'"
    }
}

silent() {
    [ ! -s "$scratch/errors" ] || {
        cat "$scratch/errors"
        fail "$what: something was said"
    }
}

# HEAPCHECK: the mode matrix.
for mode in minimal normal strict as-is; do
    run 1 HEAPCHECK=$mode three
    says 'Leak check _main_ detected leaks of 3000 bytes in 3 objects$'
    says '^The 3 largest leaks:$'
    says '^Leak of 1000 bytes in 1 objects allocated from:$'
    says $'^\t@ [0-9a-f]+ lose_first'
    says $'^\t@ [0-9a-f]+ lose_third'
    says 'Exiting .* because of .* leaks$'
    run 0 HEAPCHECK=$mode none
    says 'No leaks found for check "_main_"'
done
run 1 HEAPCHECK=draconian three
says 'Leak check _main_ detected leaks of [0-9]+ bytes in [0-9]+ objects$'
# Nothing is a root there, and what the library itself has the loader keep is no leak of the program's.
echo 'int main(void) { return 0; }' >"$scratch/empty.c"
"${CC:-cc}" -o "$scratch/empty" "$scratch/empty.c" || fail "an empty program does not compile"
leaky=$program
program=$scratch/empty
run 0 HEAPCHECK=draconian nothing
says 'No leaks found for check "_main_": 0 reachable objects of 0 bytes'
program=$leaky
run 0 HEAPCHECK=local three
silent
run 0 HEAPCHECK= three
says 'HEAPCHECK is empty'
run 134 HEAPCHECK=harsh none
says 'Unsupported heap_check flag: harsh'
run 0 HEAPCHECK=normal PERFTOOLS_VERBOSE=-1 none
silent
echo "modes of HEAPCHECK"

run 1 HEAPCHECK=normal HEAP_CHECK_MAX_LEAKS=2 many 5
says '^The 2 largest leaks:$'
says '^Skipping leaks numbered 2\.\.4$'
says '^Leak of 5000 bytes'
run 134 HEAPCHECK=normal HEAP_CHECK_IDENTIFY_LEAKS=1 three
says '^leaked 1000 byte object 0x[0-9a-f]+$'
run 1 HEAPCHECK=normal HEAP_CHECK_TEST_POINTER_ALIGNMENT=1 three
says 'pointers at odd places'
run 1 HEAPCHECK=normal HEAPPROFILE="$scratch/prof" three
[ -s "$scratch/prof.0001.heap" ] || fail "no profile beside HEAPCHECK"
dump=$(ls "$dumps"/leaky.*._main_-end.heap | head -n 1)
head -n 1 "$dump" | grep -qE '^heap profile: +3: +3000 \[ +3: +3000\] @ heapprofile$' ||
    fail "the first line of $dump is $(head -n 1 "$dump")"
[ "$(stat -c %a "$dump")" = 600 ] || fail "$dump has mode $(stat -c %a "$dump")"
echo "variables of HEAPCHECK"

run 0 HEAPCHECK=normal fork
says 'No leaks found'
echo "a forked child is not checked"

# leak_check.
run 23 TALLY_CONF=leak_max_pause_ms:60000,leak_check:exit three
says 'leak check at exit: 3000 bytes in 3 objects lost, and 0 in 0 that only they lead to'
says '^  definite: 1000 bytes in 1 object, allocated by$'
says '^    lose_second \(leaky\+0x[0-9a-f]+\)$'
run 23 TALLY_CONF=leak_max_pause_ms:60000,leak_check:strict chain
says '100 bytes in 1 object lost, and 500 in 2 that only they lead to'
says '^  definite: 100 bytes in 1 object and 500 in 2 below, allocated by$'
run 0 TALLY_CONF=leak_max_pause_ms:60000,leak_check:exit none
silent
run 0 TALLY_CONF=leak_max_pause_ms:60000,leak_check:exit,leak_exit_code:0 three
says '3000 bytes in 3 objects lost'
run 9 TALLY_CONF=leak_max_pause_ms:60000,leak_check:exit,leak_exit_code:9,leak_text:none three
silent
run 23 TALLY_CONF=leak_max_pause_ms:60000,leak_check:exit,leak_text:lsan three
says '^==[0-9]+==ERROR: LeakSanitizer: detected memory leaks'
says '^Direct leak of 1000 byte\(s\) in 1 object\(s\) allocated from:$'
says '^    #0 0x[0-9a-f]+ in lose_'
says '^SUMMARY: LeakSanitizer: 3000 byte\(s\) leaked in 3 allocation\(s\)\.$'
run 23 TALLY_CONF=leak_max_pause_ms:60000,leak_check:exit,prof:true,lg_prof_sample:40 three
says 'a place that was not sampled; each has up to 1024 bytes'
run 23 TALLY_CONF=leak_max_pause_ms:60000,leak_check:exit output
[ "$(cat "$scratch/output")" = something ] || fail "what the program printed is lost"
echo "leak_check"

# Rules.
echo 'leak:lose_first' >"$scratch/rules"
run 23 TALLY_CONF=leak_max_pause_ms:60000,leak_check:exit,leak_suppressions:"$scratch/rules" three
says '2000 bytes in 2 objects lost'
says 'suppressed: 1000 bytes in 1 object'
echo 'leak:leaky' >"$scratch/rules"
run 0 TALLY_CONF=leak_max_pause_ms:60000,leak_check:exit,leak_suppressions:"$scratch/rules" three
silent
run 0 TALLY_CONF=leak_max_pause_ms:60000,leak_check:exit LSAN_OPTIONS=suppressions="$scratch/rules" chain
silent
run 23 TALLY_CONF=leak_max_pause_ms:60000,leak_check:exit,leak_suppressions:"$scratch/absent" three
says 'leak_suppressions: cannot read'
run 23 TALLY_CONF=leak_max_pause_ms:60000,leak_check:exit LEAKY_RULES=leak:lose_first three
says '2000 bytes in 2 objects lost'
run 0 LSAN_OPTIONS=suppressions="$scratch/absent" none
silent
mkfifo "$scratch/fifo"
run 23 TALLY_CONF=leak_max_pause_ms:60000,leak_check:exit,leak_suppressions:"$scratch/fifo" three
says '3000 bytes in 3 objects lost'
echo "rules"

run 23 TALLY_CONF=leak_max_pause_ms:60000,leak_check:exit redirect "$scratch/own"
says '3000 bytes in 3 objects lost'
[ ! -s "$scratch/own" ] || fail "a report in the program's own file"
run 0 mark
daemon=$(under_tally TALLY_CONF=leak_check:exit,leak_max_pause_ms:60000 "$program" daemon 2>&1)
readlink "/proc/$daemon/exe" >/dev/null || fail "a daemon keeps standard error open: $daemon"
kill "$daemon"
echo "standard error of the start; marks"

# Both profilers and the checker at once.
run 1 HEAPCHECK=normal HEAPPROFILE="$scratch/all" CPUPROFILE="$scratch/cpu" CPUPROFILE_FREQUENCY=1000 \
    TALLY_CONF=leak_max_pause_ms:60000 busy
says 'Leak check _main_ detected leaks of 3000 bytes in 3 objects$'
[ -s "$scratch/all.0001.heap" ] || fail "no heap profile beside the other two"
[ "$(od -A n -t u8 -j 40 -N 8 "$scratch/cpu" | tr -d ' ')" -gt 0 ] || fail "no CPU profile beside the other two"
echo "both profilers and the checker at once"

run 23 lsan
[ "$(grep -c 'LeakSanitizer: detected' "$scratch/errors")" = 2 ] || fail "lsan: not two reports"
run 6 LSAN_OPTIONS=exitcode=0 lsan
run 6 TALLY_CONF=leak_max_pause_ms:60000,leak_check:exit LSAN_OPTIONS=exitcode=0 lsan
grep -q 'leak check at exit' "$scratch/errors" && fail "lsan: the check at exit was to be over"
echo "LeakSanitizer's names"
