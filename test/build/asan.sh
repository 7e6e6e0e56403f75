# SPDX-License-Identifier: MIT
# asan.sh - unit and stress tests and the fuzz corpora under the address and
# undefined-behaviour sanitizers.
. "$SOURCE/test/build/flavour.sh"
targets="tests_unit tests_stress tests_fuzz"
build_flavour asan asan
test_flavour asan '^(unit|inside|fuzz)$'
