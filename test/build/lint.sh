# SPDX-License-Identifier: MIT
# lint.sh - the rules that tools/lint.py checks: layers, names, licence lines.
set -eu
cd "$SOURCE"
exec python3 tools/lint.py
