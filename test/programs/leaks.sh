#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Thirty real programs and more under a leak check at exit: what it calls a definite leak is one. Programs
# do lose memory of their own; those are in leaks.supp beside this, each with the reason, by function. Programs
# without names are there as a whole: that they run and are checked is all that is seen of them, as of those
# that only say their version, and they are not counted. Whatever else is reported is a mistake.
#
#     BUILD=build bash test/programs/leaks.sh [NAME...]       only these programs, with their reports

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

prove_preload
only=" $* "
rules=$here/test/programs/leaks.supp
status_of_leaks=99
ran=0
all=0
bad=0
missing=
cd "$scratch" || exit 1
awk 'BEGIN { for (i = 0; i < 20000; i++) { print i * 7919 % 20011, "line", i % 101, i } }' >data
printf '{"a": [1, 2, {"b": "c"}], "d": null}\n' >data.json
printf '<a><b c="d">text</b><b/></a>\n' >data.xml
printf '#include <stdio.h>\nint main(void) { return puts("hello") < 0; }\n' >hello.c
printf 'all: one\none:\n\t@echo made\n' >Makefile
printf 'puts [llength [split [string repeat "a b " 1000]]]\n' >hello.tcl
printf '2^200\nquit\n' >hello.bc
printf 'digraph { a -> b -> c; a -> c }\n' >graph.dot
mkdir folder && cp data data.json hello.c folder

# check NAME COMMAND...: the command under the check; it may end as it likes, but not with a leak.
check() {
    look "$@"
    ran=$((ran + was_run))
}

# look NAME COMMAND...: the same, of one that proves little.
look() {
    was_run=0
    name=$1
    shift
    [ "$only" = "  " ] || [ "${only#* "$name" }" != "$only" ] || return 0
    if ! PATH=$test_search_path command -v "$1" >/dev/null 2>&1; then
        missing="$missing $name"
        return 0
    fi
    result=0
    conf=leak_check:exit,leak_exit_code:$status_of_leaks,leak_suppressions:$rules,leak_say_none:true,leak_max_pause_ms:60000
    under_libc timeout "$patience" env TALLY_CONF="$conf" LD_PRELOAD="$library" "$@" \
        >output 2>errors </dev/null || result=$?
    [ "$only" = "  " ] || cat errors
    if [ $result -eq $status_of_leaks ]; then
        grep -A 12 '^tally: leak check' errors | head -n 60
        echo "FAILED: $name has leaks that leaks.supp does not know"
        bad=$((bad + 1))
    elif ! grep -q '^tally: leak check' errors; then
        tail -n 3 errors
        echo "FAILED: $name was not checked (status $result)"
        bad=$((bad + 1))
    fi
    was_run=1
    all=$((all + 1))
}

check bash bash -c 'declare -A a; for i in {1..200}; do a[$i]=$(($i * $i)); done; echo ${#a[@]}'
check python3 python3 -c 'import json, re; print(len(json.dumps([{str(i): re.sub("a", "b", "banana")} for i in range(2000)])))'
check perl perl -e 'my %h; $h{$_ % 97} .= "x" x $_ for 1 .. 2000; print scalar(keys %h), "\n"'
check tclsh tclsh hello.tcl
check node node -e 'console.log(JSON.stringify([1, 2, {a: "b"}]))'
check sqlite3 sqlite3 :memory: 'create table t(a, b); insert into t values (1, 2), (3, 4); select sum(a * b) from t;'
check git git --no-pager diff --no-index data data.json
look gcc gcc -O2 -c hello.c -o hello.o
check clang clang -O1 -c hello.c -o hello2.o
check as as -o empty.o /dev/null
look ld ld -r -o joined.o hello.o
check make make
check cmake cmake -E tar cf more.tar folder
check gawk gawk '{ s[$3] += $1 } END { for (k in s) { n++ } print n }' data
check sed sed -E 's/([0-9]+) line/\1 LINE/; $!d' data
check grep grep -cE '^(1|2)[0-9]*.*9$' data
check find find . -type f -size +1 -name 'd*'
look sort sort -n -k3 data
check diff diff data data.json
look tar tar cf all.tar folder
check gzip gzip -k -f data
check xz xz -k -f -0 data
check bzip2 bzip2 -k -f data
check zstd zstd -q -k -f data
check openssl openssl dgst -sha256 data
check openssl-key openssl genrsa 1024
check curl curl -s "file://$PWD/data"
look wget wget --version
check jq jq -c '.a[2]' data.json
check xmllint xmllint --format data.xml
check m4 m4 -D x=y hello.c
check ls ls -lR folder
check ps ps -ef
check file file data data.json hello.c
look dot dot -Tsvg graph.dot
check vim vim -es -u NONE -c '%s/a/b/ge' -c q data.json
look ssh ssh -V
check gpg gpg --print-md sha256 data
look dpkg dpkg -l libc6
check objdump objdump -d hello.o
check readelf readelf -a hello.o
check strings strings -a hello.o
check bc bc -q hello.bc
check iconv iconv -f UTF-8 -t UTF-16 data
look gdb gdb --batch -ex 'print 6 * 7'
look psql psql --version
look redis-server redis-server --version
check convert convert -size 32x32 gradient: out.png

[ -z "$missing" ] || echo "not installed:$missing"
[ $bad -eq 0 ] || fail "$bad of $all programs"
[ "$only" != "  " ] || [ $ran -ge 30 ] || skip "only $ran of 30 programs are installed"
echo "$all programs, of which $ran count, and no definite leak that leaks.supp does not know"
