# SPDX-License-Identifier: MIT
# tidy.sh - what .clang-tidy makes an error: a body without braces.
. "$SOURCE/test/build/flavour.sh"
need clang-tidy
cd "$SOURCE"
sources=$(find src cli -name '*.c')
# The analyzer's warnings are for whoever runs clang-tidy by hand: they are no errors and take minutes.
quietly clang-tidy --quiet --checks='-clang-analyzer-*' $sources -- -std=gnu11 -Iinclude -Iinclude/compat -Isrc -Icli \
    -DDEBUG_BUILD=1 -DTALLY_CHECK=1 -DTALLY_OVERRIDE=1 -DTALLY_VERSION_TEXT='""' -DTALLY_TRIPLET='""'
