# SPDX-License-Identifier: MIT
#
# exported.sh - sourced by the tests of `tally export`: profiles whose numbers are known, in any format.
#
#   $profiles/before.pb.gz after.pb.gz     of profiles.sh
#   $profiles/hostile.pb.gz                functions with names that mean harm
#   $profiles/busy.pb.gz                   a CPU profile of 23 samples, 10 ms each
#   truth TYPE                             a total of the hostile profile
#   exported FROM TO [OPTION ...]          $profiles/FROM.pb.gz as $exported/TO, the ending says how
#   tally WORD ...                         the command

# shellcheck source=test/interop/profiles.sh
. "$(dirname -- "$0")/profiles.sh"

exported=$scratch/exported
mkdir "$exported"
[ -x "$build/test/test_export" ] || fail "$build/test/test_export does not exist: build it"
[ -x "$build/tally" ] || fail "$build/tally does not exist: build it"
under_libc PROFILES="$profiles" "$build/test/test_export" files_for_exports >"$scratch/log" ||
    fail "test_export makes no files: $(cat "$scratch/log")"

tally() {
    under_libc "$build/tally" "$@"
}

truth() {
    awk -v type="$1" '$1 == type { print $2 }' "$profiles/hostile.truth"
}

exported() {
    from=$1
    to=$2
    shift 2
    tally export -o "$exported/$to" "$@" "$profiles/$from.pb.gz" >"$scratch/said" 2>&1 ||
        fail "tally export -o $to $* $from.pb.gz: status $?: $(cat "$scratch/said")"
    [ -s "$exported/$to" ] || fail "tally export -o $to: the file is empty"
}

# same WHAT FOUND EXPECTED
same() {
    [ "$2" = "$3" ] || fail "$1 is '$2' and not '$3'"
}
