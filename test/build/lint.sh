# SPDX-License-Identifier: MIT
# lint.sh - the tree keeps the rules of tools/lint.py, and each of these rules can fail.
set -eu
cd "$SOURCE"
python3 tools/lint.py
exec python3 test/build/lint_breaks.py
