#!/bin/sh
# SPDX-License-Identifier: MIT
#
# git under the library: init, add, commit, log, diff, gc with two threads and fsck in a
# repository made for the purpose, and the same under libc. Names and dates are fixed, so even the
# commit hashes are equal. git starts many processes; all of them inherit the preload. `git cat-
# file --batch` waits for its input and is looked at while it does.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

need git
prove_preload

# git_work RUNNER DIRECTORY: everything, with the output that must not depend on the allocator.
git_work() {
    runner=$1
    mkdir "$2"
    cd "$2" || fail "there is no $2"
    run_git() {
        "$runner" GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=tester GIT_AUTHOR_EMAIL=t@example.org \
            GIT_COMMITTER_NAME=tester GIT_COMMITTER_EMAIL=t@example.org \
            GIT_AUTHOR_DATE='2024-01-01T00:00:00Z' GIT_COMMITTER_DATE='2024-01-01T00:00:00Z' \
            git "$@"
    }
    run_git init -q -b main . || fail "git init"
    for round in 1 2 3; do
        awk -v round="$round" 'BEGIN {
            for (f = 0; f < 150; f++) {
                name = "file" f ".txt"
                for (l = 0; l < 100; l++) {
                    print "line", l, (l % 7 == round ? "changed in " round : f * l) > name
                }
                close(name)
            }
        }'
        run_git add . || fail "git add"
        run_git commit -q -m "round $round" || fail "git commit"
    done
    run_git log --stat
    run_git diff HEAD~2 HEAD
    run_git -c gc.auto=0 -c pack.threads=2 gc -q || fail "git gc"
    run_git count-objects -v | grep -v size
    run_git fsck --full 2>&1
    run_git rev-parse HEAD
    cd "$scratch" || fail "there is no $scratch"
}

git_work under_libc "$scratch/one" >"$scratch/libc"
git_work under_tally "$scratch/two" >"$scratch/tally" 2>"$scratch/errors"
quiet "$scratch/errors"
same_output git "$scratch/libc" "$scratch/tally"
grep -qE '^[0-9a-f]{40,64}$' "$scratch/tally" || fail "git did not come to its end"

cd "$scratch/two" || fail "there is no repository"
under_libc git rev-list --objects --all | cut -d' ' -f1 >"$scratch/objects"
under_libc git cat-file --batch <"$scratch/objects" >"$scratch/contents.libc"
run_held "$scratch/objects" "$scratch/contents.tally" git cat-file --batch
same_output "git cat-file" "$scratch/contents.libc" "$scratch/contents.tally"
echo "git: $(wc -l <"$scratch/objects") objects and $(wc -l <"$scratch/tally") lines as under libc"
