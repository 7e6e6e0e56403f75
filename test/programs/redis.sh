#!/bin/sh
# SPDX-License-Identifier: MIT
#
# redis-server under the library, driven by redis-benchmark and by commands whose replies are
# compared with those of a server under libc. The server listens on a Unix socket in the scratch
# directory alone. A background save makes it fork while it is full; the saved file is then loaded
# by a fresh server under libc.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

# shellcheck source=test/lib/redis_server.sh
. "$here/test/lib/redis_server.sh"

# Commands whose replies do not depend on time.
replies() {
    ask flushall
    ask eval 'for i = 1, 20000 do
        redis.call("set", "key:" .. i, string.rep("v", i % 700)) end return 1' 0
    ask eval 'for i = 1, 5000 do redis.call("rpush", "list", i) redis.call("hset", "hash", i, i * i)
        redis.call("zadd", "ranks", i % 97, "member" .. i)
        redis.call("sadd", "set", i % 1000) end return 1' 0
    ask dbsize
    ask strlen key:699
    ask lrange list 100 110
    ask hget hash 4999
    ask zrange ranks 0 5 withscores
    ask scard set
    ask append key:5 "$(awk 'BEGIN { for (i = 0; i < 5000; i++) { printf "x" } }')"
    ask eval 'for i = 1, 20000, 2 do
        redis.call("del", "key:" .. i) end return redis.call("dbsize")' 0
    ask sort list desc limit 0 5
}

start_server libc
replies >"$scratch/libc"
stop_server

start_server tally
replies >"$scratch/tally"
same_output redis "$scratch/libc" "$scratch/tally"
under_libc redis-benchmark -s "$scratch/socket" -n 20000 -c 20 -P 8 -d 100 -r 5000 -q \
    -t set,get,lpush,lpop,sadd,hset,zadd,mset >"$scratch/benchmark" 2>&1 ||
        fail "redis-benchmark: status $?"
[ "$(tr '\r' '\n' <"$scratch/benchmark" | grep -c 'requests per second')" -ge 8 ] ||
    fail "redis-benchmark did not finish: $(tail -n 3 "$scratch/benchmark")"

ask bgsave >/dev/null
background_save_is_over() {
    ask info persistence | grep -q 'rdb_bgsave_in_progress:0'
}
until_so background_save_is_over
ask info persistence | grep -q 'rdb_last_bgsave_status:ok' || fail "the background save failed"
size=$(ask dbsize)
shut_down

start_server libc
[ "$(ask dbsize)" = "$size" ] || fail "the saved file has $(ask dbsize) keys and not $size"
stop_server
echo "redis: replies as under libc, benchmark done, $size keys saved and loaded"
