#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Parser, help, man pages and completions know the same options: each command's list is taken from all of
# them and compared.

# shellcheck source=test/lib/golden.sh
. "$(dirname -- "$0")/../../lib/golden.sh"

tally() {
    under_libc "$build/tally" "$@"
}

# --[no-]x in help stands for --x and --no-x.
names_of_help() {
    grep -E '^ +(-., )?--' | sed -E 's/^ +(-., )?//; s/ .*//' |
        sed -E 's/^--\[no-\](.*)/--\1\n--no-\1/; s/(\[=|=).*//' | grep -- -- | sort -u
}

names_of_man() {
    grep '^\.It .*Fl -' | grep -o 'Fl -[a-z][a-z-]*' | sed 's/Fl -/--/' | sort -u
}

names_of_fish() {
    grep -E "$1" "$scratch/fish" | grep -o -e ' -l [a-z-]*' | sed 's/ -l /--/' | sort -u
}

# The block of a command in the zsh script, from its label to the first line that ends it.
names_of_zsh() {
    awk -v begin="    $1)" 'index($0, begin) == 1 { on = 1 } on { print } on && /;;$/ { exit }' \
        "$scratch/zsh" | grep -oE "'\*--[a-z-]*" | sed "s/'\*//" | sort -u
}

names_of_bash() {
    # shellcheck disable=SC1091
    (
        . "$scratch/bash"
        COMP_WORDS=(tally "$1" --)
        COMP_CWORD=2
        compopt() { :; }
        _tally
        printf '%s\n' "${COMPREPLY[@]}"
    ) | sed 's/=$//' | grep -e '^--.' | sort -u
}

same() {
    diff "$scratch/$3" "$scratch/$4" >"$scratch/difference" ||
        fail "$1: $2 know other options: $(cat "$scratch/difference")"
}

for shell in bash zsh fish; do
    tally completion $shell >"$scratch/$shell" || fail "no completion for $shell"
done
bash -n "$scratch/bash" || fail "the completion for bash is no shell script"
! command -v zsh >/dev/null || zsh -n "$scratch/zsh" || fail "zsh does not take its completion"
! command -v fish >/dev/null || fish -n "$scratch/fish" || fail "fish does not take its completion"

tally --help >"$scratch/help" || fail "no help"
names_of_help <"$scratch/help" >"$scratch/global"
tally help --man | names_of_man >"$scratch/names"
same tally "help and man page" global names
names_of_fish '^complete -c tally( -s .)? -l' >"$scratch/names"
same tally "help and fish" global names
grep -q -e '--memory-limit' "$scratch/global" || fail "the global options are not found"

tally help --names >"$scratch/commands"
sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p' "$scratch/help" >"$scratch/listed"
same tally "tally --help and help --names" commands listed
while read -r command; do
    tally "$command" --help >"$scratch/help" || fail "no help for $command"
    names_of_help <"$scratch/help" >"$scratch/own"
    sort -u "$scratch/own" "$scratch/global" >"$scratch/all"
    tally help --man "$command" | names_of_man >"$scratch/names"
    same "$command" "help and man page" own names
    names_of_fish "seen_subcommand_from $command'" >"$scratch/names"
    same "$command" "help and fish" own names
    names_of_zsh "$command" >"$scratch/names"
    same "$command" "help and zsh" all names
    names_of_bash "$command" >"$scratch/names"
    same "$command" "help and bash" all names
    while read -r name; do # whatever else is wrong with it, it is known
        [ "$name" = --help ] || [ "$name" = --version ] ||
            tally "$command" "$name=" --help 2>&1 | head -n 1 >"$scratch/said"
        ! grep -q 'unknown option' "$scratch/said" || fail "$command: $(cat "$scratch/said")"
    done <"$scratch/all"
    tally "$command" --xyzzy 2>&1 | grep -q 'unknown option --xyzzy' ||
        fail "$command takes an option that no help mentions"
    echo "$command $(wc -l <"$scratch/own")" >>"$scratch/counts"
done <"$scratch/commands"
[ "$(wc -l <"$scratch/counts")" -ge 3 ] || fail "too few commands were looked at"
say Every command knows the same options everywhere.
