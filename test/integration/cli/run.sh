#!/bin/bash
# SPDX-License-Identifier: MIT
#
# tally run: exit statuses, what it says where there is no summary, which files are left, and that the
# program sees its own arguments, input and signals. What varies from run to run is masked.

# shellcheck source=test/lib/golden.sh
. "$(dirname -- "$0")/../../lib/golden.sh"
need python3

compiler=${CC:-cc}
source=$here/test/integration/program_recorded.c
$compiler -g -O1 -fno-omit-frame-pointer -fno-builtin -pthread -o app "$source" || fail "cannot compile"
cat >small.c <<'END'
int main(void) { return 0; }
END
$compiler -static -o fixed small.c || fail "cannot link statically"
printf 'text' >text
printf '#!/bin/sh\nexec ./app exit\n' >script
# A snapshot is a frame of type 2; what is killed before its first one has no summary.
cat >has_snapshot <<'END'
#!/bin/sh
LC_ALL=C grep -aPq 'TFRM\x02\x00' "$@" 2>/dev/null
END
printf '#!/bin/sh\nuntil ./has_snapshot "killed.$$.tally.part"; do sleep 0.05; done\nkill -9 $$\n' >killed
chmod +x script killed has_snapshot

# Ids, figures, and the chart.
mask 's/pid [0-9]*)/pid N)/; s/\.[0-9][0-9]*\(\.[0-9]\)*\.tally/.PID\1.tally/g'
mask 's/ran [0-9.]* m*s/ran T/; s/(\([0-9.]*\) [KM]*i*B)/(SIZE)/'
mask "s#$work#WORK#g; s#$build#BUILD#g"

# card COMMAND...: the lines of the card by their first words, so that figures may vary, and whether anything
# was sampled.
card() {
    show sh -c "$* 2>&1 >/dev/null | sed -n 's/^\(tally: .*\)/\1/p; s/^\(  [a-z]\{1,\}\( [a-z]\{1,\}\)*\)\(  .*\)*$/\1/p'"
}

left() {
    ls ./*.tally* 2>/dev/null | sed -f "$masks" | sort
    rm -f ./*.tally*
}

say The program ends as it would.
show tally run --report=none sh -c 'echo out; echo err >&2; exit 7'
rm -f ./*.tally*
show tally run --report=none -- sh -c 'kill -TERM $$'
rm -f ./*.tally*
show sh -c 'echo in | tally run -q --report=none cat'
rm -f ./*.tally*
show tally run ./nothing
show tally run ./text
show tally run
show tally run --rate=much ./app
show tally run --dump-at=noon ./app
show sh -c 'tally run --rate="$(printf "\033[2J")" ./app'
show sh -c 'tally run --dump-at="$(printf "\033[2J")" ./app'
show tally run -o x.pb ./app
show tally run -o /no/such/place/x.tally ./app
show TALLY_LIBRARY=/nothing tally run ./app
left

say A summary.
card tally run --rate=exact ./app
left
card tally run -o own.tally ./app
left
: >own.tally
show tally run -o own.tally ./app
left

say Files of other runs are neither shown nor touched.
show tally run -q --report=none -o x.2.tally ./app
printf 'TALLY' >x.3.tally.part
show sh -c 'tally run -o x.tally ./app 2>&1 >/dev/null | sed -n "s/^ *profile *\([^ ]*\).*/\1/p"'
left
show tally run -q --report=none -o y.2.tally ./app
: >y.tally.part
show sh -c 'tally run -o y.tally ./app 2>&1 >/dev/null | sed -n "s/^ *profile *\([^ ]*\).*/\1/p"'
left

say Colours are for terminals, and for whoever asks.
show sh -c 'tally run ./app 2>&1 >/dev/null | grep -c "\[0*m"'
show sh -c 'tally run --color=always ./app 2>&1 >/dev/null | grep "\[0*m" >/dev/null && echo coloured'
rm -f ./*.tally*

say A program that becomes another one has the summary of the last.
card tally run ./script
left

say Ends that the library is not told of.
card tally run ./app _exit
left
card tally run ./app abort
left
card "tally run --timeout=3s ./app idle"
left
show tally run --report=none --timeout=200ms ./app idle
rm -f ./*.tally*

say Whoever started us may not want to know how children end, and the program inherits that.
show env --ignore-signal=CHLD tally run -q --report=none sh -c 'exit 7'
show env --ignore-signal=CHLD tally run -q --report=none grep -c 'SigIgn:.*[13579bdf]....$' /proc/self/status
rm -f ./*.tally*

say A summary that nobody waits for any longer.
python3 "$here/test/integration/cli/end_summary.py" "$build/tally" ./app || fail "the summary could not be ended"
rm -f ./*.tally*

say A signal to the whole group comes once.
python3 "$here/test/integration/cli/signals_once.py" "$build/tally" || fail "signals do not come once"
rm -f ./*.tally*

say Killed from outside.
show sh -c 'tally run --report=none ./app idle >/dev/null &
    until ./has_snapshot app.*.tally.part; do sleep 0.05; done; kill -TERM $!; wait $!'
rm -f ./*.tally*
card tally run ./killed
left

say Children.
show tally run -q --report=none -o a.tally sh -c './app exit; :'
left
show tally run -q --report=none -o a.tally --children=all sh -c './app exit; :'
left
show tally run -q --report=none -o a.tally --children='a??' sh -c './app exit; true | cat'
left

say What the program has left running can be waited for.
show sh -c 'tally run -q --report=none -o a.tally --wait sh -c "(sleep 0.3; echo late) & exit 3"; echo status $?'
left

say A name with marks that a shell would take for a pattern.
mkdir 'a[b]*'
show sh -c 'tally run -o "a[b]*/[x]*.tally" --children=all ./app fork_exec 2>&1 >/dev/null | grep -o "[0-9]* more:.*"'
show sh -c 'ls a*/ | sed "s/[0-9][0-9]*/PID/"'
rm -r 'a[b]*'

say Programs that the library cannot be in.
show tally run ./fixed
left

say The environment.
show TALLY_CONF=narenas:1 LD_PRELOAD=libm.so.6 tally run --preload-only --rate=1M --every=2s --every-bytes=1G --depth=20 \
    --dump-at=rss=90% --dump-at=heap=1G --dump-at=+1M --dump-at=signal=10 --children=x --control=off ./app
show tally run --rate=1000 --preload-only -o x.tally ./app
