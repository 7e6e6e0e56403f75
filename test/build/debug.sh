# SPDX-License-Identifier: MIT
# debug.sh - unit, stress and fault tests with asserts, verify walks and lock ranks, all of the library.
. "$SOURCE/test/build/flavour.sh"
targets="tests_unit tests_stress tests_fault"
build_flavour debug debug $WITHOUT_COMMAND
test_flavour debug '^(unit|inside|verified|fault)$'
