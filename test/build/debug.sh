# SPDX-License-Identifier: MIT
# debug.sh - unit, model and fault tests with asserts, verify walks and lock ranks.
. "$SOURCE/test/build/flavour.sh"
build_flavour debug debug
test_flavour debug '^(unit|model|fault)$'
