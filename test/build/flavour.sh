# SPDX-License-Identifier: MIT
#
# flavour.sh - sourced by the tests of this folder: build the tree in another way and test it.
#
# Each flavour has a tree of its own beside the main one, so the second run builds little.  Output
# of cmake appears only when something fails; warnings are errors.
set -eu
if command -v ninja >/dev/null; then
    export CMAKE_GENERATOR="${CMAKE_GENERATOR:-Ninja}"
fi

skip() {
    echo "skipped: $*"
    exit 77
}

need() {
    command -v "$1" >/dev/null || skip "no $1 here"
}

# quietly COMMAND...: its output is shown when it fails.
quietly() {
    local log status=0
    log=$(mktemp)
    "$@" >"$log" 2>&1 || status=$?
    if [ $status -ne 0 ]; then
        cat "$log"
    fi
    rm -f "$log"
    return $status
}

# build_flavour NAME PRESET [CMAKE ARGUMENT...]: builds $targets into build-NAME.
targets="all tests"
build_flavour() {
    local name=$1 preset=$2
    shift 2
    cd "$SOURCE"
    quietly cmake --preset "$preset" -B "build-$name" -DTALLY_WERROR=ON -DTALLY_BUILD_TESTS=OFF "$@"
    # shellcheck disable=SC2086
    quietly cmake --build "build-$name" -j 2 --target $targets
}

# For build_flavour where the command would be no other than elsewhere: it is left out.
WITHOUT_COMMAND=-DCMAKE_DISABLE_FIND_PACKAGE_ZLIB=ON

# test_flavour NAME LABELS: runs the tests whose label matches.
test_flavour() {
    cd "$SOURCE"
    ctest --test-dir "build-$1" -L "$2" -j 2 --output-on-failure --no-tests=error
}
