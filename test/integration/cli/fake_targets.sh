# SPDX-License-Identifier: MIT
#
# fake_targets.sh - sourced after golden.sh by tests of the command that need processes with a page and a
# socket whose every number is known.
#
#   name         what the processes are called; no other test has the name
#   targets      the ids of those that are to end with the test

name=fake-$$
${CC:-cc} "-I$here/src" -o "$scratch/$name" "$here/test/integration/cli/program_fake_target.c" \
    "$here/src/contract/wire.c" || fail "cannot compile the fake target"
targets=
stop_targets() {
    # shellcheck disable=SC2086
    [ -z "$targets" ] || kill -KILL $targets 2>/dev/null
    wait 2>/dev/null
}
golden_cleanup=stop_targets

# Ids are masked in the output, so they must not be numbers that stand there for something else.
until [ "$(sh -c 'echo $$')" -gt 1000 ]; do
    :
done
