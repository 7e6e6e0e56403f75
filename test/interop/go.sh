# SPDX-License-Identifier: MIT
#
# go.sh - sourced after under_tally.sh by tests that show profiles to pprof, the one in Go.
#
#   has_go_pprof                 true when it is installed
#   need_go_pprof                ends the test as skipped unless it is
#   pprof ARGUMENT ...           what it prints goes to $scratch/printed, numbers with B behind them, be they
#                                bytes or objects
#   shows TEXT                   ends the test unless what was printed has it

has_go_pprof() {
    command -v go >/dev/null && under_libc go tool pprof -help 2>&1 | grep -q sample_index
}

need_go_pprof() {
    need go
    has_go_pprof || skip "this go has no pprof"
}

pprof() {
    under_libc GOPATH="$scratch/go" go tool pprof -unit=B "$@" >"$scratch/printed" \
        2>"$scratch/errors" || fail "pprof $*: status $?: $(cat "$scratch/errors")"
}

shows() {
    grep -qF -- "$1" "$scratch/printed" || fail "'$1' is missing in: $(cat "$scratch/printed")"
}
