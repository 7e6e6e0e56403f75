# SPDX-License-Identifier: MIT
# format.sh - every C file is as clang-format would write it.
. "$SOURCE/test/build/flavour.sh"
need clang-format
clang-format --version | grep -q 'version 14\.' ||
    skip "the reference is clang-format 14, and this is $(clang-format --version)"
cd "$SOURCE"
clang-format --dry-run -Werror $(tools/c_files.sh)
