#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Debian's redis-server is linked with libjemalloc; under the library all it asks of jemalloc is
# answered by tally, and the figures are right: what INFO, MEMORY STATS and MEMORY MALLOC-STATS say
# of the allocator is compared with what redis counts itself and with what the kernel says of the
# process. MEMORY PURGE gives memory back, and DEBUG MALLCTL reads and writes.
#
# Names that redis 7.0 uses: epoch, stats.allocated, stats.active, stats.resident, arenas.narenas,
# arena.<n>.purge with the number of arenas as index, background_thread; malloc_usable_size,
# nallocx and malloc_stats_print besides malloc and its kin.
#
# Bounds are wide enough for what redis holds besides its keys, and narrow enough that a figure
# which is not told, twice too large or half too small is seen.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

# shellcheck source=test/lib/redis_server.sh
. "$here/test/lib/redis_server.sh"

MIB=1048576
redis_path=$(PATH=$test_search_path command -v redis-server)
readelf -d "$redis_path" | grep -q 'NEEDED.*libjemalloc' ||
    skip "this redis-server is not linked with libjemalloc"

# info NAME: a field of INFO memory.
info() {
    ask info memory | tr -d '\r' | sed -n "s/^$1://p"
}

# stat NAME: a field of MEMORY STATS, whose names and values are alternate lines.
stat() {
    ask memory stats | grep -A 1 -xF "$1" | tail -n 1
}

# Without the pages of its files, which no allocator has to do with.
resident_by_kernel() {
    echo $(($(awk '$1 == "RssAnon:" { print $2 }' "/proc/$server/status") * 1024))
}

# between LEAST WHAT VALUE MOST
between() {
    case $3 in
        '' | *[!0-9]*) fail "$2 is '$3', not a number" ;;
    esac
    [ "$1" -le "$3" ] && [ "$3" -le "$4" ] || fail "$2 is $3, not between $1 and $4"
}

# within LEAST VALUE MOST: the same as an answer.
within() {
    [ "$1" -le "$2" ] && [ "$2" -le "$3" ]
}

# Redis copies the allocator's figures ten times a second, if it comes to it, and counts its own at once, so
# that they agree in the end.
figures_agree() {
    used=$(info used_memory)
    allocated=$(info allocator_allocated)
    active=$(info allocator_active)
    resident=$(info allocator_resident)
    kernel=$(resident_by_kernel)
    figures="used $used, allocated $allocated, active $active, resident $resident, RSS $kernel"
    within $((used - used / 20)) "$allocated" $((used + 4 * MIB)) &&
        within "$allocated" "$active" $((allocated + allocated / 3 + 8 * MIB)) &&
        within "$active" "$resident" $((active + active / 3 + 24 * MIB)) &&
        within $((kernel / 2)) "$resident" $((kernel + kernel / 4 + 8 * MIB)) &&
        sleep 0.3 && [ "$(info allocator_allocated)" -eq "$allocated" ] # at rest
}

check_figures() {
    until_so figures_agree
    # Where the allocator does not answer, redis takes the kernel's figure for both.
    [ "$active" -ne "$resident" ] || fail "the allocator does not tell its figures, $1"
    echo "$1: $figures"
}

# Nothing goes back to the kernel by itself, so that what MEMORY PURGE does is seen.
start_server tally MALLOC_CONF=dirty_decay_ms:-1,muzzy_decay_ms:-1 -- --enable-debug-command yes
info mem_allocator | grep -q '^jemalloc-' ||
    fail "the allocator is called $(info mem_allocator): redis was not built for jemalloc"

ask eval 'for i = 1, 60000 do
    redis.call("set", "key:" .. i, string.rep("v", 100 + i % 3000)) end return 1' 0 >/dev/null
under_libc redis-benchmark -s "$scratch/socket" -n 20000 -c 20 -P 8 -d 400 -r 20000 -q \
    -t set,get,lpush,lpop,sadd,hset >"$scratch/benchmark" 2>&1 ||
    fail "redis-benchmark: status $?"
check_figures "full"
between $((80 * MIB)) "used_memory, full," "$used" $((200 * MIB))

between $((allocated - MIB)) "allocator.allocated of MEMORY STATS" "$(stat allocator.allocated)" \
    $((allocated + MIB))
between $((active - MIB)) "allocator.active of MEMORY STATS" "$(stat allocator.active)" \
    $((active + MIB))
between $((resident - MIB)) "allocator.resident of MEMORY STATS" "$(stat allocator.resident)" \
    $((resident + MIB))

ask debug mallctl epoch 1 >/dev/null
between $((allocated - MIB)) "stats.allocated by DEBUG MALLCTL" \
    "$(ask debug mallctl stats.allocated)" $((allocated + MIB))

# The line that everyone who reads this text looks for, and its sections.
ask memory malloc-stats >"$scratch/stats"
for words in 'Begin jemalloc statistics' 'Allocated: [0-9]+, active: [0-9]+, metadata: [0-9]+' \
    'resident: [0-9]+, mapped: [0-9]+' 'bins:' 'End jemalloc statistics'; do
    grep -qE "$words" "$scratch/stats" ||
        fail "MEMORY MALLOC-STATS does not have '$words': $(head -c 500 "$scratch/stats")"
done
printed=$(sed -n 's/.*Allocated: \([0-9]*\),.*/\1/p' "$scratch/stats" | head -n 1)
between $((allocated - 2 * MIB)) "'Allocated' of MEMORY MALLOC-STATS" "$printed" \
    $((allocated + 2 * MIB))

# Three quarters of the keys go; what they took is still resident, until the purge.
ask eval 'for i = 1, 60000 do if i % 4 ~= 0 then redis.call("del", "key:" .. i) end end
    return 1' 0 >/dev/null
before=$(info allocator_resident)
kernel_before=$(resident_by_kernel)
ask flushall >/dev/null
[ "$(ask memory purge)" = OK ] || fail "MEMORY PURGE says $(ask memory purge)"
is_purged() {
    [ "$(info allocator_resident)" -le $((before / 2)) ] &&
        [ "$(resident_by_kernel)" -le $((kernel_before / 2)) ]
}
until_so is_purged
check_figures "empty and purged"

# What an operator may ask of the server.
[ "$(ask debug mallctl opt.dirty_decay_ms)" = -1 ] || fail "DEBUG MALLCTL does not read"
[ "$(ask debug mallctl-str version | cut -c 1-2)" = 5. ] ||
    fail "the version is $(ask debug mallctl-str version)"
[ "$(ask config set jemalloc-bg-thread no)" = OK ] || fail "background threads cannot be turned off"
[ "$(ask config set jemalloc-bg-thread yes)" = OK ] || fail "background threads cannot be turned on"
[ "$(ask ping)" = PONG ] || fail "it does not answer any more"
shut_down
echo "redis: all figures of the allocator are right, purging gives back"
