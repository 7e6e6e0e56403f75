# SPDX-License-Identifier: MIT
#
# redis_server.sh - sourced after under_tally.sh by tests that need a redis-server: it listens on a
# Unix socket in the scratch directory alone and is stopped at the end of the test.
#
#   start_server libc|tally [NAME=VALUE ...] [-- OPTION ...]   the process id is in $server
#   ask COMMAND ...                                            what redis-cli prints
#   shut_down                                                  ends it and looks whether it went well
#   stop_server                                                ends it

need redis-server
need redis-cli
need redis-benchmark
prove_preload

server=
stop_server() {
    [ -z "$server" ] || kill "$server" 2>/dev/null
    [ -z "$server" ] || wait "$server" 2>/dev/null
    server=
}
trap 'stop_server; rm -rf "$scratch"' EXIT

ask() {
    under_libc redis-cli -s "$scratch/socket" "$@"
}

answers_or_is_gone() {
    [ "$(ask ping 2>/dev/null)" = PONG ] || ! kill -0 "$server" 2>/dev/null
}

wait_until_ready() {
    until_so answers_or_is_gone
    kill -0 "$server" 2>/dev/null || fail "redis-server ended: $(tail -n 3 "$scratch/log")"
}

start_server() {
    allocator=$1
    settings=
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        settings="$settings $1"
        shift
    done
    [ $# -eq 0 ] || shift
    set -- redis-server --port 0 --unixsocket "$scratch/socket" --dir "$scratch" --save '' \
        --daemonize no --loglevel warning "$@"
    # Settings are words without blanks.
    if [ "$allocator" = tally ]; then
        start_under_tally $settings "$@" >"$scratch/log" 2>"$scratch/errors"
        server=$started
        wait_until_mapped "$server"
    else
        start_under_libc $settings "$@" >"$scratch/log" 2>&1
        server=$started
    fi
    wait_until_ready
}

# The library has had nothing to say.
shut_down() {
    mapped_in "$server" || fail "redis-server lost the library"
    ask shutdown nosave >/dev/null 2>&1
    wait "$server" || fail "redis-server ended with status $?: $(tail -n 3 "$scratch/log")"
    server=
    quiet "$scratch/errors"
    quiet "$scratch/log"
}
