#!/bin/bash
# SPDX-License-Identifier: MIT
#
# demo.sh - what `make demo` shows: two programs from Debian, under libc's malloc and under tally, and where
# the memory of one of them went.
#
#     tools/demo.sh build/libtally.so
#
# Each program does the same work in turn under both, several times; the table has the best time
# and the peak memory.  That the library really serves the program is not assumed: each run looks
# for it in its own memory map, and that all runs print the same is compared.
set -eu

library=${1:-build/libtally.so}
rounds=${DEMO_ROUNDS:-3}
here=$(cd "$(dirname "$0")" && pwd)
[ -e "$library" ] || { echo "demo: no $library: run make first" >&2; exit 1; }
library=$(cd "$(dirname "$library")" && pwd)/$(basename "$library")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# A python3 that is a wrapper script would be measured in place of the interpreter.
python=$(python3 -c 'import sys; print(sys.executable)')

# A million rows in memory, two indexes, queries with joins, grouping and sorting.  The last line
# asks the parent of the shell, which is sqlite3, for its map.
cat >"$scratch/work.sql" <<'EOF'
create table item(id integer primary key, name text, price integer, shelf integer);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 1000000)
    insert into item select i, 'item ' || (i * 7919 % 1000003), i * 31 % 9973, i % 500 from n;
create index item_name on item(name);
create index item_shelf on item(shelf, price);
select count(*), sum(price), min(name), max(name) from item;
select a.shelf, count(*) from item a join item b on b.name = 'item ' || a.id
    where a.shelf < 20 group by a.shelf order by 2 desc, 1 limit 3;
update item set name = name || ' (sold)' where shelf % 5 = 0;
delete from item where shelf % 7 = 0;
select count(*), sum(length(name)) from item;
.shell grep -c libtally /proc/$PPID/maps >"$MAPPED" || true
EOF

# Many small objects of many sizes, with PYTHONMALLOC=malloc, so that each is a malloc.
cat >"$scratch/work.py" <<'EOF'
import os
import random
random.seed(1)
words = {}
for number in range(250000):
    key = "w%d" % random.randrange(60000)
    words.setdefault(key, []).append((number, str(number) * random.randrange(1, 8)))
longest = sorted(words, key=lambda word: (-sum(len(text) for _, text in words[word]), word))
print(len(words), longest[:3])
for word in longest[::2]:
    del words[word]
tree = {word: {text: number for number, text in pairs} for word, pairs in words.items()}
print(sum(len(branch) for branch in tree.values()))
with open("/proc/self/maps") as maps, open(os.environ["MAPPED"], "w") as out:
    out.write("%d\n" % maps.read().count("libtally"))
EOF

# run NAME LIBRARY COMMAND...: one measurement, appended to NAME's file; proves what was loaded.
run() {
    local name=$1 preload=$2 kind=libc count
    shift 2
    [ "$preload" = - ] || kind=tally
    export MAPPED=$scratch/mapped
    rm -f "$MAPPED"
    python3 "$here/measure.py" "$scratch/$name.$kind.out" "$preload" "$@" >>"$scratch/$name.$kind"
    count=$(cat "$MAPPED")
    if [ "$kind" = tally ] && [ "$count" = 0 ]; then
        echo "demo: $name ran without the library" >&2
        exit 1
    elif [ "$kind" = libc ] && [ "$count" != 0 ]; then
        echo "demo: $name has the library where it should not" >&2
        exit 1
    fi
}

# best NAME KIND: the least time and the least peak of all rounds.
best() {
    sort -n "$scratch/$1.$2" | awk 'NR == 1 { s = $1; k = $2 } $2 < k { k = $2 } END { print s, k }'
}

row() {
    local name=$1
    if ! cmp -s "$scratch/$name.libc.out" "$scratch/$name.tally.out"; then
        echo "demo: $name prints something else under tally" >&2
        exit 1
    fi
    echo "$name $(best "$name" libc) $(best "$name" tally)" | awk '{
        printf "%-9s %7.2f s %7.2f s  x %.2f   %7.1f MiB %7.1f MiB  x %.2f\n",
               $1, $2, $4, $4 / $2, $3 / 1024, $5 / 1024, $5 / $3 }'
}

export PYTHONMALLOC=malloc PYTHONHASHSEED=0
unset MALLOC_CONF TALLY_CONF
echo "sqlite3 and python3, $rounds times each under libc's malloc and under tally, some 30 seconds:"
for ((round = 1; round <= rounds; round++)); do
    [ -t 2 ] && printf '\rround %d of %d ' "$round" "$rounds" >&2
    for preload in - "$library"; do
        run sqlite3 "$preload" sqlite3 -batch -init /dev/null :memory: ".read $scratch/work.sql"
        run python3 "$preload" "$python" -s "$scratch/work.py"
    done
done
[ -t 2 ] && printf '\r                    \r' >&2

echo "             time, best of $rounds               peak memory"
echo "program        libc      tally                 libc       tally"
row sqlite3
row python3
cat <<EOF

What happened: sqlite3 built, indexed and queried a table of a million rows in memory, and python3
built and thinned out dictionaries of strings, each under libc's malloc and again with
    LD_PRELOAD=$library
Every run under tally found the library in its own memory map, every run without did not, and both
printed the same.  Below x 1.00 tally took less.  Nothing was configured; every free was checked.
EOF

# The last words: the summary of a run.
command=$(dirname "$library")/tally
if [ ! -x "$command" ]; then
    echo "demo: no summary of a run: the command tally was not built, it needs libdw and zlib" >&2
    exit 0
fi
recording=$(dirname "$library")/demo.tally
rm -f "$recording"
cat <<EOF

Where did the memory go?  python3 once more, under the command, which samples one allocation in 64 KiB:
    $command run python3 work.py
EOF
export MAPPED=$scratch/mapped
"$command" run -o "$recording" "$python" -s "$scratch/work.py" >"$scratch/python3.run.out"
if ! cmp -s "$scratch/python3.run.out" "$scratch/python3.tally.out"; then
    echo "demo: python3 prints something else under tally run" >&2
    exit 1
fi
