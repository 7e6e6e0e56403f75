# SPDX-License-Identifier: MIT
#
# sites.sh - sourced by the tests of readers: profiles of a real program under the preloaded library.
#
# program_sites.c allocates in functions that are known, at lines that are known, and prints what a reader
# must find.  It is compiled in every way that decides how stacks are walked: with frame pointers and
# without, as C and as C++.
#
#   for_each_program FUNCTION              calls it with $program (whose name is $variant) and the
#                                          profiles $profile-before.ENDING and $profile-after.ENDING
#   truth WHEN NAME FIELD                  "objects" or "bytes" of a function, as the program counted them
#   grown NAME FIELD                       the same, the second profile less the first
#   site_names, line_of NAME               the functions, and the line of the call in each
#   header_total FILE objects|bytes        what we wrote at the top of a .heap file

sites_source=$here/test/interop/program_sites.c
compiler=${CC:-cc}

build_sites() {
    mkdir -p "$scratch/sites"
    common="-O2 -g -fno-builtin -pthread"
    # shellcheck disable=SC2086
    "$compiler" $common -fno-omit-frame-pointer -o "$scratch/sites/framed" "$sites_source" &&
        "$compiler" $common -fomit-frame-pointer -o "$scratch/sites/frameless" "$sites_source" ||
        fail "program_sites.c does not compile"
    variants="framed frameless"
    for cxx in "${CXX:-c++}" g++ clang++; do
        if command -v "$cxx" >/dev/null 2>&1; then
            # shellcheck disable=SC2086
            "$cxx" $common -fomit-frame-pointer -x c++ -o "$scratch/sites/plusplus" \
                "$sites_source" || fail "program_sites.c does not compile as C++"
            variants="$variants plusplus"
            return
        fi
    done
    echo "without C++: there is no compiler for it"
}

for_each_program() {
    command -v "$compiler" >/dev/null || skip "there is no C compiler"
    prove_preload
    build_sites
    for variant in $variants; do
        program=$scratch/sites/$variant
        profile=$scratch/sites/profile-$variant
        under_tally MALLOC_CONF=prof:true,lg_prof_sample:0,prof_accum:true "$program" "$profile" \
            heap hprof pb.gz >"$profile.truth" 2>"$profile.errors" ||
            fail "$variant: status $?: $(cat "$profile.errors")"
        quiet "$profile.errors"
        [ "$(truth after site_small objects)" -gt 50 ] || fail "$variant: $(cat "$profile.truth")"
        "$1"
    done
}

truth() {
    awk -v when="$1" -v name="$2" -v field="$3" \
        '$1 == when && $2 == name { print field == "objects" ? $3 : $4 }' "$profile.truth"
}

grown() {
    echo $(($(truth after "$1" "$2") - $(truth before "$1" "$2")))
}

site_names() {
    sed -n 's/^ever \(site_[a-z]*\) .*/\1/p' "$profile.truth"
}

line_of() {
    grep -n "/\* site: ${1#site_} \*/" "$sites_source" | cut -d: -f1
}

header_total() {
    sed -n 2p "$1" | awk -v field="$2" '{ sub(/:/, "", $2); print field == "objects" ? $2 : $3 }'
}

# What both Perl readers must show of the program.  reads_program READER ENDING
reads_program() {
    before=$profile-before.$2
    after=$profile-after.$2
    bytes=$(header_total "$profile-before.heap" bytes)
    grown=$(($(header_total "$profile-after.heap" bytes) - bytes))
    # The heap's own count grew by as much, to the byte.
    [ "$grown" = "$(grown total bytes)" ] ||
        fail "$variant: the profile grew by $grown, the heap by $(grown total bytes)"
    total "$bytes" "$1" --text --show_bytes "$program" "$before"
    for name in $(site_names); do
        site_row "$(truth before "$name" bytes)" "$name"
    done
    cumulative "$(awk '$1 == "before" && $2 ~ /^site/ { n += $4 } END { print n }' \
        "$profile.truth")" work
    total "$(header_total "$profile-before.heap" objects)" "$1" --text --inuse_objects --lines \
        "$program" "$before"
    for name in $(site_names); do
        site_row "$(truth before "$name" objects)" "$name" ":$(line_of "$name")$"
    done
    total "$grown" "$1" --text --show_bytes "--base=$before" "$program" "$after"
    for name in $(site_names); do
        site_row "$(grown "$name" bytes)" "$name"
    done
    under_libc "$1" --text --alloc_objects "$program" "$after" >"$scratch/printed" \
        2>"$scratch/errors" || fail "$1: $(cat "$scratch/errors")"
    for name in $(site_names); do
        site_row "$(truth ever "$name" objects)" "$name"
    done
}

# site_row EXPECTED NAME [ENDING]: the only row of the function with a flat number has this one.  A template
# has more than its name there.
site_row() {
    found=$(awk -v name="$2" -v ending="${3:-}" \
        '$1 != 0 && / / && $0 ~ (" " name "($|[ <(])") { print $1 ($0 ~ ending ? "" : " elsewhere") }' \
        "$scratch/printed")
    [ "$found" = "$1" ] ||
        fail "$variant: $2 has '$found' and not '$1'${3:+ at $3}: $(cat "$scratch/printed")"
}

cumulative() {
    found=$(awk -v name="$2" '$6 == name { print $4 }' "$scratch/printed")
    [ "$found" = "$1" ] ||
        fail "$variant: $2 has '$found' below it and not '$1': $(cat "$scratch/printed")"
}
