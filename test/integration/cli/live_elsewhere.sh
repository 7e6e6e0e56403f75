#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Processes of other users are out of reach, and those in other mount and process id namespaces are not:
# their socket is found through the root directory that they see.

# shellcheck source=test/lib/golden.sh
. "$(dirname -- "$0")/../../lib/golden.sh"

[ "$(id -u)" -eq 0 ] || skip "only root can be somebody else"
need unshare
need setpriv
unshare --mount --pid --fork true 2>/dev/null || skip "namespaces cannot be made here"

# shellcheck source=test/integration/cli/fake_targets.sh
. "$here/test/integration/cli/fake_targets.sh"
chmod 755 "$scratch" "$scratch/$name" "$work"
cp "$build/tally" "$scratch/tally" && chmod 755 "$scratch/tally"
mkdir "$scratch/run"
mask "s|$scratch|SCRATCH|g"
mask "s/$name/fake/g"
mkfifo "$scratch/ready"
exec 7<>"$scratch/ready"

say Another user.
"$scratch/$name" "$scratch/run" write >&7 2>/dev/null 3>&- &
target=$!
targets=$target
read -r -t "$patience" _ <&7 || fail "the fake target did not start"
mask "s/\\b$target\\b/PID/g"
other="setpriv --reuid=65534 --regid=65534 --clear-groups $scratch/tally"
show $other stats $target
show $other purge $target
show $other stats "$name"
show $other dump -o - "$scratch/run/$target.sock"
show sh -c "$other ps --format=names | grep -c $name"
show sh -c "$other doctor $target | grep -A1 process"

say Another mount and process id namespace, in which the socket lies in a folder that only it sees.
unshare --mount --pid --fork sh -c \
    "mount -t tmpfs none '$scratch/run' && exec '$scratch/$name' '$scratch/run' write" >&7 3>&- &
outer=$!
targets="$targets $outer"
read -r -t "$patience" _ <&7 || fail "the fake target did not start in namespaces"
target=$(cat "/proc/$outer/task/$outer/children")
target=${target%% *}
targets="$targets $target"
mask "s/\\b$target\\b/INNER/g"
show ls "$scratch/run/1.sock"
show sh -c "tally stats $target | grep heap,"
show tally purge $target
show tally dump --no-names -o dump.pb.gz $target
show stat -c '%U %a %s' dump.pb.gz
show sh -c "tally doctor $target | grep directory"
