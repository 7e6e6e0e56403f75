# SPDX-License-Identifier: MIT
# aarch64.sh - everything compiles for aarch64, without a warning.  Nothing is run.
. "$SOURCE/test/build/flavour.sh"
need aarch64-linux-gnu-gcc
CC=aarch64-linux-gnu-gcc CXX=aarch64-linux-gnu-g++ build_flavour aarch64 release \
    -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64
aarch64-linux-gnu-readelf -h "$SOURCE/build-aarch64/libtally.so" | grep -q AArch64
