# SPDX-License-Identifier: MIT
# tsan.sh - unit and stress tests of the library under the thread sanitizer.  The command has one thread.
. "$SOURCE/test/build/flavour.sh"
targets="tests_unit tests_stress"
build_flavour tsan tsan $WITHOUT_COMMAND
test_flavour tsan '^(unit|inside)$'
