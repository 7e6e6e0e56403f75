#!/bin/sh
# SPDX-License-Identifier: MIT
#
# c_files.sh - the C and C++ files that are formatted and checked, one a line.
#
# Tables (*.def) are aligned by hand and left out.
cd "$(dirname "$0")/.." || exit 1
for folder in include src cli test bench tools; do
    if [ -d "$folder" ]; then
        find "$PWD/$folder" -name '*.c' -o -name '*.h' -o -name '*.cc'
    fi
done | sort
