#!/bin/bash
# SPDX-License-Identifier: MIT
#
# bare.sh - `make demo` and `make test` on a bare Debian 12, as somebody meets them who has just
# cloned the tree.
#
#     tools/bare.sh [FOLDER]
#
# debootstrap makes a minimal system, in which git and make are all that is added; the committed
# state of this tree is cloned into it, and the two commands of README.md run there.  The end shows
# the tests that failed, those that were skipped with their reasons, and the count; the exit status
# is 0 when both commands succeeded.  FOLDER (by default a new one in /var/tmp) receives the logs, and
# the system, which stays for a look when something failed.
#
# Needs root and 5 GB.  Packages come from where this machine's apt gets its own.  The system has its
# own namespaces of mounts and processes: the kernel unmounts and ends everything in it, however this
# script ends.
set -u
SUITE=bookworm
source=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)

fail() {
    echo "bare: $*" >&2
    exit 1
}

# The archive that has the suite, as the machine's apt knows it; nothing when it knows none.
mirror() {
    apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
        awk -v suite=$SUITE '$1 == suite { print $2; exit }'
}

make_system() {
    command -v debootstrap >/dev/null || DEBIAN_FRONTEND=noninteractive \
        sh -c 'apt-get -qq update && apt-get -qq -y install debootstrap' >"$folder/install.log" 2>&1 ||
        fail "debootstrap cannot be installed: $folder/install.log"
    local from packages=git,make
    from=$(mirror)
    [[ $from != https:* ]] || packages+=,ca-certificates # or apt could not speak to it
    debootstrap --variant=minbase --include=$packages $SUITE "$system" $from \
        >"$folder/debootstrap.log" 2>&1 ||
        fail "debootstrap failed: $folder/debootstrap.log"
    apt-config dump | grep -iE '^Acquire::https?::Proxy' >"$system/etc/apt/apt.conf.d/90proxy"
    git clone -q --no-hardlinks "$source" "$system/tally" || fail "the tree cannot be cloned"
}

# inside COMMAND: with an environment that has nothing of this machine.
inside() {
    chroot "$system" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
        sh -c "cd /tally && $*"
}

# Runs as the first process of its own namespaces, see the end.
run_commands() {
    local word status=0
    # The root is a mount of its own, or no process in it could make a namespace of mounts.
    mount --bind "$system" "$system" && mount -t proc proc "$system/proc" &&
        mount --rbind /sys "$system/sys" && mount --rbind /dev "$system/dev" ||
        fail "what a system needs cannot be mounted"
    for word in demo test; do
        echo "bare: make $word"
        if ! inside make $word >"$folder/$word.log" 2>&1; then
            echo "bare: make $word failed: $folder/$word.log"
            status=1
        fi
    done
    grep '^deps: c' "$folder/test.log" # what could not be installed
    sed -n '/^The following tests FAILED/,$p; /^skipped /p' "$folder/test.log"
    tail -n 1 "$folder/test.log"
    return $status
}

if [ "${1-}" = --inside ]; then
    folder=$2
    system=$folder/system
    run_commands
    exit
fi
[ "$(id -u)" = 0 ] || fail "only root can make a system in a folder"
folder=${1-$(mktemp -d /var/tmp/tally-bare.XXXXXX)}
mkdir -p "$folder" && folder=$(CDPATH='' cd -- "$folder" && pwd -P) || exit 1
system=$folder/system
[ ! -e "$system" ] || fail "$system is there already: remove it, or name another folder"
echo "bare: $SUITE in $system"
make_system
setpriv --pdeathsig KILL unshare --mount --propagation private --pid --fork --kill-child \
    "$0" --inside "$folder" &
child=$!
trap 'kill -KILL $child 2>/dev/null' EXIT # unshare keeps all milder signals from itself
trap 'exit 1' HUP INT TERM
wait $child || exit 1
rm -rf --one-file-system "$system"
