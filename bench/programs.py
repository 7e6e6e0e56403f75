# SPDX-License-Identifier: MIT
"""The real programs of the bench: what is run, on which generated input.

Each function below prepares its input in a directory and returns a Job, or raises Absent with the
reason when the program is not installed.  Inputs are generated from a fixed seed, so all
allocators and all machines get the same ones.  `scale` is 1 normally and less with --quick.
"""
import random
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Optional


class Absent(Exception):
    """The program is not on this machine."""


@dataclass
class Job:
    argv: list
    launch_options: list = field(default_factory=list)  # further options for bench_launch
    parallel: bool = False  # timed by the wall clock and not pinned; others by CPU time, pinned
    client: Optional[Callable] = None  # for a server: drives it, then makes it end


def need(*names):
    for name in names:
        if shutil.which(name) is None:
            raise Absent(f"{name} is not installed")


def write_words(path, megabytes):
    """Text of lines with some random words each; many lines are alike at their beginning."""
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 10)))
             for _ in range(5000)]
    with open(path, "w", encoding="ascii") as file:
        written = 0
        while written < megabytes * 1_000_000:
            text = "\n".join(" ".join(rng.choices(words, k=8)) for _ in range(1000)) + "\n"
            written += file.write(text)


SQL = """
PRAGMA temp_store = memory;
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, city TEXT, price REAL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
INSERT INTO item SELECT i, printf('name %d of many', (i * 7919) % 1000003),
                        printf('city %d', (i * 31) % 997), i * 0.25 FROM n;
CREATE INDEX item_name ON item (name);
SELECT city, count(*), avg(price), group_concat(id % 10, '') FROM item GROUP BY city ORDER BY 3;
UPDATE item SET name = name || ' (sold)' WHERE id % 5 = 0;
SELECT count(*) FROM item a JOIN item b ON b.name = a.name || ' (sold)';
DELETE FROM item WHERE id % 3 = 0;
SELECT name, price FROM item ORDER BY city, name DESC;
"""


def sqlite(directory: Path, scale):
    need("sqlite3")
    script = directory / "bench.sql"
    script.write_text(SQL.format(rows=int(150_000 * scale)))
    return Job(["sqlite3", ":memory:"], ["--stdin", str(script)])


PYTHON = """
import json
rows = [{{"id": i, "name": "row %d" % i, "tags": ["a%d" % (i % 7), "b%d" % (i % 11)],
          "at": {{"x": i * 0.5, "y": i * 0.25}}}} for i in range({rows})]
total = 0
for turn in range(4):
    text = json.dumps(rows)
    again = json.loads(text)
    total += len(text)
    index = {{row["name"]: row for row in again}}
    groups = {{}}
    for row in again:
        groups.setdefault(row["tags"][0], []).append(row)
    rows = sorted(index.values(), key=lambda row: row["name"][::-1])
    parts = text.split(",")
    total += len("|".join(reversed(parts)))
print(total)
"""


def python(directory: Path, scale):
    """PYTHONMALLOC=malloc takes Python's own small-object allocator out of the way; with it the
    allocator below sees little more than arenas of 1 MiB.  -I would have it ignore the variables.
    A given seed of hashes makes runs alike."""
    interpreter = Path("/usr/bin/python3")
    if not interpreter.exists():
        raise Absent("/usr/bin/python3 is not installed")
    script = directory / "bench_objects.py"
    script.write_text(PYTHON.format(rows=int(30_000 * scale)))
    return Job([str(interpreter), "-s", str(script)],
               ["--env", "PYTHONMALLOC=malloc", "--env", "PYTHONHASHSEED=1"])


PYTHON_GRAPH = """
class Node:
    __slots__ = ("left", "right", "name")
    def __init__(self, left, right, name):
        self.left, self.right, self.name = left, right, name
total = 0
for turn in range({turns}):
    tuples = [(i, i + 0.5, str(i)) for i in range(300000)]
    total += sum(len(one[2]) for one in tuples)
    tree = None
    for i in range(100000):
        tree = Node(tree if i % 7 else None, tuples[i], (i, turn))
    kept = {{one[2]: one for one in tuples[::5]}}
    del tuples, tree
    total += len(kept)
print(total)
"""


def python_graph(directory: Path, scale):
    """Many small objects that are built, walked and dropped, as in `python`."""
    job = python(directory, scale)
    script = directory / "bench_graph.py"
    script.write_text(PYTHON_GRAPH.format(turns=max(1, int(5 * scale))))
    job.argv[-1] = str(script)
    return job


RUBY = """
Node = Struct.new(:left, :right, :name)
total = 0
{turns}.times do |turn|
  rows = (0...60000).map {{ |i| ["row %d" % i, [i, i * 0.5], {{ id: i, tag: "t#{{i % 97}}" * (i % 9) }}] }}
  tree = nil
  rows.each_with_index {{ |row, i| tree = Node.new(i % 7 == 0 ? nil : tree, row, row[0] + "x" * (i % 50)) }}
  index = rows.to_h {{ |row| [row[0], row] }}
  total += index.keys.sort.each_slice(7).sum {{ |some| some.join(",").size }}
end
puts total
"""


def ruby(directory: Path, scale):
    """Strings, arrays and hashes beyond a few words are malloc's; the rest is ruby's own heap."""
    need("ruby")
    script = directory / "bench_objects.rb"
    script.write_text(RUBY.format(turns=max(1, int(6 * scale))))
    return Job(["ruby", "--disable=gems", str(script)])


PERL = """
my %count; my @kept; my $sum = 0;
for my $i (1 .. {rows}) {{
    my $key = "key" . ($i * 7919 % 200003);
    $count{{$key}} .= "x" x ($i % 40);
    push @kept, [ $i, $key, {{ length => length $count{{$key}} }} ] if $i % 3 == 0;
    delete $count{{"key" . ($i * 31 % 200003)}} if $i % 2;
    splice @kept, 0, 5000 if @kept > 50000;
}}
for my $key (sort keys %count) {{
    my $text = join ",", map {{ $_ . $key }} 1 .. 5;
    $text =~ s/key(\\d)/<$1>/g;
    $sum += length $text;
}}
print "$sum ", scalar(@kept), "\\n";
"""


def perl(directory: Path, scale):
    need("perl")
    script = directory / "bench_hashes.pl"
    script.write_text(PERL.format(rows=int(350_000 * scale)))
    return Job(["perl", str(script)])


C_FUNCTION = """
static struct node *build_{i}(struct node *list, int depth) {{
    struct node *head = list;
    for (int k = 0; k < depth + {i} % 7; k++) {{
        struct node *made = pool + (used++ % 4096);
        made->value = k * {i} + (head ? head->value : {i});
        made->name = names[(k + {i}) % 8];
        made->next = head;
        head = (made->value & 1) ? made : head;
        switch (made->value % 5) {{
        case 0: made->value += (int)sizeof names; break;
        case 1: made->value ^= {i}; break;
        case 2: made->value = made->value * 3 - k; break;
        default: made->value--; break;
        }}
    }}
    return head;
}}
int measure_{i}(int depth) {{
    int sum = 0;
    for (struct node *n = build_{i}(pool, depth); n && depth-- > 0; n = n->next) {{
        sum += n->value * (n->name ? n->name[0] : 1);
    }}
    return sum;
}}
"""


def gcc(directory: Path, scale):
    need("gcc")
    source = directory / "bench_large.c"
    source.write_text(
        "struct node { struct node *next; const char *name; int value; };\n"
        "static struct node pool[4096]; static unsigned used;\n"
        'static const char *const names[8] = {"a","b","c","d","e","f","g","h"};\n'
        + "".join(C_FUNCTION.format(i=i) for i in range(int(150 * scale))))
    return Job(["gcc", "-O2", "-c", str(source), "-o", "/dev/null"])


def sort(directory: Path, scale):
    need("sort")
    text = directory / "sort.txt"
    write_words(text, 20 * scale)
    return Job(["sort", "--parallel=2", "-S", "32M", "-T", str(directory), str(text)],
               ["--env", "LC_ALL=C"], parallel=True)


def xz(directory: Path, scale):
    need("xz")
    text = directory / "xz.txt"
    write_words(text, 12 * scale)
    return Job(["xz", "-1", "-T2", "--block-size=1MiB", "-c", str(text)], parallel=True)


def redis(directory: Path, scale):
    """The server is measured, by its CPU time for a fixed number of requests; the client is not
    run under the allocator.  Random keys and sizes keep its heap in motion."""
    need("redis-server", "redis-benchmark", "redis-cli")
    socket = str(directory / "redis.sock")
    requests = str(int(80_000 * scale))

    def quiet(*argv):
        try:
            return subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  timeout=300, check=False).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def drive(is_alive):
        deadline = time.monotonic() + 20
        while not quiet("redis-cli", "-s", socket, "ping"):
            if not is_alive() or time.monotonic() > deadline:
                raise RuntimeError("redis-server does not answer")
            time.sleep(0.02)
        common = ["redis-benchmark", "-s", socket, "-r", "50000", "-n", requests, "-P", "16", "-q"]
        done = quiet(*common, "-d", "100", "-t", "set,get,incr,lpush,lpop,sadd,hset")
        done = done and quiet(*common, "-d", "700", "-t", "set,mset")
        quiet("redis-cli", "-s", socket, "shutdown", "nosave")
        if not done:
            raise RuntimeError("redis-benchmark failed")

    return Job(["redis-server", "--port", "0", "--unixsocket", socket, "--save", "",
                "--appendonly", "no", "--dir", str(directory)], client=drive)


PROGRAMS = {"sqlite3": sqlite, "python3": python, "python3-graph": python_graph, "ruby": ruby,
            "perl": perl, "gcc": gcc, "sort": sort, "xz": xz, "redis": redis}
