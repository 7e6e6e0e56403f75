# SPDX-License-Identifier: MIT
# headers.sh - each header compiles alone, so it includes what it uses.
set -eu
cd "$SOURCE"
failed=0
for header in $(find include src cli -name '*.h' | sort); do
    echo "#include \"$header\"" |
        ${CC:-cc} -std=gnu11 -Wall -Wextra -fsyntax-only -Iinclude -Iinclude/compat -Isrc -Icli -I. \
            -DDEBUG_BUILD=1 -DTALLY_CHECK=1 -DTALLY_OVERRIDE=1 -x c - || {
        echo "$header:1: does not compile alone"
        failed=1
    }
done
exit $failed
