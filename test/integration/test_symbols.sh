#!/bin/bash
# SPDX-License-Identifier: MIT
#
# test_symbols.sh - the symboliser against addr2line -fi, at every 7th byte of all functions.
#
# Small programs of C and C++, compiled as programs are: position independent or not, static, with DWARF 4
# and 5, compressed, stripped with the debug file elsewhere.  Whatever the form, each address has the same
# frames as addr2line finds in the whole program.  Then what must not be used: a debug file of another
# build, links that lead out of the roots.
set -u
here=$SOURCE/test/integration
symbols=$BUILD/test/program_symbols
for program in addr2line objcopy nm python3; do
    command -v $program >/dev/null || { echo "skipped: no $program"; exit 77; }
done
[ -x "$symbols" ] || { echo "skipped: the command was not built"; exit 77; }
work=$(mktemp -d /tmp/tally-symbols-XXXXXX)
trap 'rm -rf "$work"' EXIT
unset DEBUGINFOD_URLS
failures=0

fail() {
    echo "FAIL $*"
    failures=$((failures + 1))
}

# addresses PROGRAM: every 7th byte of each function that has a size, fewer where there is all of libc.
step=7
only=.
addresses() {
    nm -S --defined-only "$1" | grep -E "$only" | python3 -c '
import sys
step = int(sys.argv[1])
for line in sys.stdin:
    words = line.split()
    if len(words) == 4 and words[2] in "tTwW":
        first, size = int(words[0], 16), int(words[1], 16)
        for at in range(first, first + size, step):
            print(f"{at:x}")' $step | sort -u
}

# compare NAME WHOLE SUBJECT [OPTION...]: ours of the subject, theirs of the whole program.
compare() {
    local name=$1 whole=$2 subject=$3
    shift 3
    addresses "$whole" >"$work/addresses"
    "$symbols" "$subject" "$@" <"$work/addresses" >"$work/ours" 2>"$work/talk" ||
        fail "$name: exit status $?"
    grep -xE '0x[0-9a-f]{16}' "$work/ours" | addr2line -afi -e "$whole" >"$work/theirs"
    if python3 "$here/compare_symbols.py" "$work/ours" "$work/theirs" >"$work/verdict"; then
        echo "ok $name: $(tail -n 1 "$work/verdict")"
    else
        fail "$name"
        cat "$work/verdict" "$work/talk"
    fi
}

# build NAME COMPILER FLAGS... SOURCE
build() {
    local name=$1
    shift
    "$@" -O2 -g -Wl,--build-id -o "$work/$name" >"$work/log" 2>&1 && return 0
    echo "left out: $name cannot be built here: $(head -n 1 "$work/log")"
    return 1
}

c=$here/program_inlined.c
cc=$here/program_inlined.cc
build c_pie_5 "$CC" -gdwarf-5 -fPIE -pie "$c" || { echo "skipped: no compiler"; exit 77; }
compare c_pie_5 "$work/c_pie_5" "$work/c_pie_5"
only=' add\.' compare function_in_function "$work/c_pie_5" "$work/c_pie_5"
build c_fixed_4 "$CC" -gdwarf-4 -fno-pie -no-pie "$c" &&
    compare c_fixed_4 "$work/c_fixed_4" "$work/c_fixed_4"
build c_static_5 "$CC" -gdwarf-5 -static "$c" &&
    step=49 compare c_static_5 "$work/c_static_5" "$work/c_static_5"
build c_sections_5 "$CC" -gdwarf-5 -ffunction-sections -Wl,--gc-sections "$c" &&
    compare c_sections_5 "$work/c_sections_5" "$work/c_sections_5"
build c_packed_5 "$CC" -gdwarf-5 -gz=zlib "$c" &&
    compare c_packed_5 "$work/c_packed_5" "$work/c_packed_5"
if command -v g++ >/dev/null; then
    build cc_pie_5 g++ -std=c++17 -gdwarf-5 -fPIE -pie "$cc" &&
        compare cc_pie_5 "$work/cc_pie_5" "$work/cc_pie_5"
    build cc_fixed_4 g++ -std=c++17 -gdwarf-4 -fno-pie -no-pie "$cc" &&
        compare cc_fixed_4 "$work/cc_fixed_4" "$work/cc_fixed_4"
    build cc_static_4 g++ -std=c++17 -gdwarf-4 -static "$cc" &&
        step=49 compare cc_static_4 "$work/cc_static_4" "$work/cc_static_4"
fi
if command -v clang >/dev/null && [ "$CC" != clang ]; then
    # Of DWARF 5 by clang addr2line 2.40 does not find the inlined calls.
    build clang_4 clang -gdwarf-4 "$c" && compare clang_4 "$work/clang_4" "$work/clang_4"
fi

# Debug files elsewhere.
whole=$work/c_pie_5
id=$(readelf -n "$whole" | sed -n 's/.*Build ID: //p')
mkdir -p "$work/app" "$work/by_id/.build-id/${id:0:2}" "$work/by_link$work/app" "$work/empty"
objcopy --only-keep-debug "$whole" "$work/app/app.debug"
(cd "$work/app" && objcopy --strip-all --add-gnu-debuglink=app.debug "$whole" app)
compare link_beside "$whole" "$work/app/app" --build-id "$id"
mkdir "$work/app/.debug"
mv "$work/app/app.debug" "$work/app/.debug/"
compare link_in_folder "$whole" "$work/app/app"
mv "$work/app/.debug/app.debug" "$work/by_link$work/app/"
compare link_below_root "$whole" "$work/app/app" --debug-path "$work/by_link"
mv "$work/by_link$work/app/app.debug" "$work/by_id/.build-id/${id:0:2}/${id:2}.debug"
compare build_id_below_root "$whole" "$work/app/app" --debug-path "$work/by_id"
compare module_is_gone "$whole" "$whole" --as /nowhere/app --build-id "$id" --debug-path "$work/by_id"

named() {
    sed -n 's/^addresses .* named \([0-9]*\) lines \([0-9]*\) .*/\1 \2/p' "$work/talk"
}

# A debug file of another build has names that are wrong: it is not used.
build other "$CC" -gdwarf-5 -O1 "$c" && {
    objcopy --only-keep-debug "$work/other" "$work/by_id/.build-id/${id:0:2}/${id:2}.debug"
    addresses "$whole" | "$symbols" "$work/app/app" --debug-path "$work/by_id" >/dev/null 2>"$work/talk"
    [[ $(named) == *" 0" ]] || fail "a debug file of another build gave lines: $(named)"
}

# A module of another build is named and refused.
addresses "$whole" | "$symbols" "$whole" --build-id 0011223344556677 >"$work/ours" 2>"$work/talk"
[ "$(named)" = "0 0" ] || fail "a module of another build gave names"
grep -q "$whole has build-id $id" "$work/talk" || fail "the other build is not named: $(cat "$work/talk")"

# The cache of a program without a build-id ends with the file as it is.
if build anonymous "$CC" -gdwarf-5 "$c" -Wl,--build-id=none; then
    objcopy --remove-section .note.gnu.build-id "$work/anonymous"
    export XDG_CACHE_HOME=$work/cache
    compare cache_made "$work/anonymous" "$work/anonymous" --cache
    compare cache_used "$work/anonymous" "$work/anonymous" --cache
    [ "$(ls "$work/cache/tally/sym" | wc -l)" = 1 ] || fail "there is not one file in the cache"
    touch "$work/anonymous"
    compare cache_renewed "$work/anonymous" "$work/anonymous" --cache
    [ "$(ls "$work/cache/tally/sym" | wc -l)" = 2 ] || fail "a changed file was not noticed"
fi

# dwz moves what several programs share into a third file.
if command -v dwz >/dev/null && build twin "$CC" -gdwarf-4 -DTWIN "$c" &&
    build single "$CC" -gdwarf-4 "$c"; then
    cp "$work/single" "$work/dwz_single"
    cp "$work/twin" "$work/dwz_twin"
    mkdir -p "$work/dwz/.dwz"
    if dwz -m "$work/dwz/.dwz/common.debug" -M "$work/dwz/.dwz/common.debug" \
        "$work/dwz_single" "$work/dwz_twin" 2>"$work/log" && [ -e "$work/dwz/.dwz/common.debug" ]; then
        compare dwz "$work/single" "$work/dwz_single" --debug-path "$work/dwz"
    else
        echo "left out: dwz found nothing to share: $(head -n 1 "$work/log")"
    fi
else
    echo "left out: no dwz"
fi

# Links in a file open nothing outside of the roots.
if command -v strace >/dev/null && strace -o /dev/null true 2>/dev/null; then
    mkdir "$work/secret"
    cp "$whole" "$work/secret/secret.debug"
    ln -s "$work/secret" "$work/empty/out"
    printf '../secret/secret.debug\0\0\0\0\0' >"$work/link"
    for name in "$work/secret/secret.debug" ../secret/secret.debug out/secret.debug; do
        printf '%s\0\1\2\3\4\5\6\7\10' "$name" >"$work/alternative"
        objcopy --strip-all "$whole" "$work/empty/bad"
        objcopy --add-section .gnu_debuglink="$work/link" \
            --add-section .gnu_debugaltlink="$work/alternative" "$work/empty/bad"
        addresses "$whole" | strace -f -o "$work/trace" -e trace=open,openat,openat2 \
            "$symbols" "$work/empty/bad" --debug-path "$work/empty" >/dev/null 2>"$work/talk"
        grep -q secret.debug "$work/trace" || fail "strace saw nothing of $name"
        # Below a root the kernel refuses what leads out of it.
        grep secret.debug "$work/trace" | grep -vE ' = -1 ' && fail "$name was opened"
    done
    echo "ok links lead nowhere"

    # The network is for those who ask for it, and only by https.
    objcopy --strip-all "$whole" "$work/app/bare"
    for option in "" --debuginfod; do
        addresses "$whole" | DEBUGINFOD_URLS="http://127.0.0.1:9/" strace -f -o "$work/trace" \
            -e trace=openat,connect,sendto "$symbols" "$work/app/bare" $option >/dev/null 2>"$work/talk"
        grep -q "$work/app/bare" "$work/trace" || fail "strace saw nothing"
        grep -E 'sin_|AF_INET|debuginfod' "$work/trace" && fail "there was traffic with '$option'"
    done
    grep -q 'https://' "$work/talk" || fail "http is refused without a word"
    echo "ok nothing is fetched"
else
    echo "left out: no strace"
fi

echo "$failures failures"
[ $failures = 0 ]
