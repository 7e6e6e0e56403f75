#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A slice of `make soak`: some seconds instead of hours, so that the tool works when it is needed and
# a leak that shows at once is seen at once. STRESS=1 takes half an hour.

set -u

here=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
hours=0.004
[ -z "${STRESS:-}" ] || hours=0.5
python=/usr/bin/python3
[ -x "$python" ] || python=$(command -v python3) || {
    echo "skipped: there is no python3"
    exit 77
}
exec "$python" "$here/tools/soak.py" --build "${BUILD:-$here/build}" --hours $hours
