# SPDX-License-Identifier: MIT
# clang.sh - everything compiles with clang, without a warning, and its unit tests pass.
. "$SOURCE/test/build/flavour.sh"
need clang
CC=clang CXX=clang++ build_flavour clang release
test_flavour clang '^unit$'
