# SPDX-License-Identifier: MIT
# debug.sh - unit, model and fault tests with asserts, verify walks and lock ranks, all of the library.
. "$SOURCE/test/build/flavour.sh"
build_flavour debug debug $WITHOUT_COMMAND
test_flavour debug '^(unit|model|fault)$'
