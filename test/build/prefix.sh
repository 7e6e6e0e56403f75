# SPDX-License-Identifier: MIT
#
# prefix.sh - libraries whose names have a prefix, and no others: je_, and one of our own.
#
# The exported names are those of test/golden/exports.txt that begin with je_, with the prefix in
# place of that, and tally's own. libc's malloc stays what it was, in the same program.
. "$SOURCE/test/build/flavour.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

for prefix in je_ my_; do
    build=$SOURCE/build-prefix-$prefix
    cd "$SOURCE"
    quietly cmake --preset release -B "$build" -DTALLY_WERROR=ON -DTALLY_BUILD_TESTS=OFF \
        -DTALLY_PREFIX=$prefix
    quietly cmake --build "$build" -j 2 --target libtally.so tally_static
    sed -n -e "s/^je_/$prefix/p" -e '/^tally_/p' test/golden/exports.txt | LC_ALL=C sort \
        >"$scratch/expected"
    nm -D --defined-only "$build/libtally.so" | awk '$2 != "A" { print $3 }' | sed 's/@.*//' |
        LC_ALL=C sort -u | diff "$scratch/expected" - || {
        echo "FAILED: these are not the names of a library with the prefix $prefix"
        exit 1
    }
    for link in "-L$build -ltally -Wl,-rpath,$build" "$build/libtally.a -pthread -rdynamic"; do
        ${CC:-cc} -O1 -fno-builtin -DTALLY_PREFIX=$prefix -DJEMALLOC_NO_DEMANGLE -Iinclude/compat \
            test/integration/program_jemalloc_start.c $link -o "$scratch/program"
        "$scratch/program" >"$scratch/output"
        cat "$scratch/output"
        grep -q '^works$' "$scratch/output"
        grep -qE '^mallctl: .*(libtally\.so|program)' "$scratch/output"
        grep -q '^malloc of libc: .*libc\.so' "$scratch/output"
    done
done

# A prefix that no name can begin with is refused.
for prefix in 9_ 'a b' tally_; do
    if cmake --preset release -B "$scratch/refused" -DTALLY_PREFIX="$prefix" >"$scratch/output" 2>&1
    then
        echo "FAILED: the prefix '$prefix' is accepted"
        exit 1
    fi
    grep -q 'TALLY_PREFIX must be' "$scratch/output"
done
echo "libraries with a prefix work beside libc's malloc"
