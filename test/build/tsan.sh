# SPDX-License-Identifier: MIT
# tsan.sh - unit and model tests under the thread sanitizer.
. "$SOURCE/test/build/flavour.sh"
build_flavour tsan tsan
test_flavour tsan '^(unit|model)$'
