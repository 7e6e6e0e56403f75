#!/bin/sh
# SPDX-License-Identifier: MIT
#
# One small program for jemalloc, compiled in every way people do it, each time served by tally:
# against jemalloc's own header and library and then run under preload; against our header and
# linked with our library, shared or static. test/build/prefix.sh does it with a library whose names
# have a prefix. The compat header is also compiled as C++ of several ages, before and after libc's
# headers, whose declarations it must not contradict.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

compiler=${CC:-cc}
source=$here/test/integration/program_jemalloc_start.c
compat=$here/include/compat
bad=0
command -v "$compiler" >/dev/null || skip "there is no C compiler"
prove_preload

complain() {
    echo "FAILED: $*"
    bad=1
}

# compile NAME COMPILER-WORDS...: the program is $scratch/program.
compile() {
    name=$1
    shift
    "$compiler" -O1 -g -fno-builtin -Wall -Wextra -Werror "$@" -o "$scratch/program" \
        2>"$scratch/errors" || {
        cat "$scratch/errors"
        complain "$name: it does not compile"
        return 1
    }
}

# served NAME FILE COMMAND...: it works, and mallctl and malloc are those of the file.
served() {
    name=$1
    file=$2
    shift 2
    if ! "$@" >"$scratch/output" 2>"$scratch/errors"; then
        complain "$name: $(cat "$scratch/errors")"
    elif ! grep -q '^works$' "$scratch/output"; then
        complain "$name: it printed: $(cat "$scratch/output")"
    elif [ "$(grep -c ": .*$file" "$scratch/output")" -ne 2 ]; then
        complain "$name: not served by $file: $(cat "$scratch/output")"
    else
        echo "$name: works"
    fi
}

# Against jemalloc's header and library, as its users build; then under preload. With jemalloc itself
# the program works too, so what it expects is right. The names with the prefix lead to those
# without, by macros of that header.
if [ -f /usr/include/jemalloc/jemalloc.h ]; then
    for names in -DJEMALLOC_NO_DEMANGLE -DPLAIN_NAMES; do
        compile "jemalloc's header, $names" $names "$source" -ljemalloc || continue
        readelf -d "$scratch/program" | grep -q 'NEEDED.*libjemalloc' ||
            complain "jemalloc's header, $names: it is not linked with libjemalloc"
        served "jemalloc's header, $names, with jemalloc" libjemalloc.so under_libc "$scratch/program"
        served "jemalloc's header, $names, under preload" libtally.so under_tally "$scratch/program"
    done
else
    echo "without jemalloc's header (libjemalloc-dev is not installed) only ours is tried"
fi

for names in -DJE_NAMES -DPLAIN_NAMES -DJEMALLOC_NO_DEMANGLE '-DJEMALLOC_MANGLE -DPLAIN_NAMES'; do
    compile "our header, $names, shared" $names -I"$compat" "$source" -L"$build" -ltally \
        -Wl,-rpath,"$build" &&
        served "our header, $names, shared" libtally.so under_libc "$scratch/program"
    compile "our header, $names, archive" $names -I"$compat" "$source" "$build/libtally.a" \
        -pthread -rdynamic &&
        served "our header, $names, archive" program under_libc "$scratch/program"
done

# The header in C++ and in strict C, before and after libc's.
cat >"$scratch/after.cc" <<'END'
#include <cstdlib>
#include <malloc.h>
#include <jemalloc/jemalloc.h>
static_assert(noexcept(malloc(1)) && noexcept(malloc_usable_size(0)), "");
int main() { dallocx(je_mallocx(100, MALLOCX_ALIGN(64)), 0); return je_malloc_message != nullptr; }
END
cat >"$scratch/before.cc" <<'END'
#include <jemalloc/jemalloc.h>
#include <cstdlib>
#include <malloc.h>
int main() { je_free(malloc(100)); return malloc_conf != 0; }
END
cat >"$scratch/strict.c" <<'END'
#include <jemalloc/jemalloc.h>
#include <stdlib.h>
int main(void) { return mallocx(MALLOCX_ARENA(4094) ? 1 : 2, MALLOCX_TCACHE_NONE) == NULL; }
END
if command -v g++ >/dev/null; then
    for standard in 11 14 17 20; do
        g++ -std=c++$standard -Wall -Wextra -Werror -I"$compat" -fsyntax-only "$scratch/after.cc" ||
            complain "the header after libc's in C++$standard"
    done
    for standard in 98 11 17; do
        g++ -std=c++$standard -Wall -Wextra -Werror -I"$compat" -fsyntax-only "$scratch/before.cc" ||
            complain "the header before libc's in C++$standard"
    done
fi
for standard in c99 c11 gnu17; do
    "$compiler" -std=$standard -pedantic -Wall -Wextra -Werror -I"$compat" -fsyntax-only \
        "$scratch/strict.c" || complain "the header in $standard"
done
[ $bad -eq 0 ] || exit 1
echo "the header compiles everywhere"
