#!/bin/sh
# SPDX-License-Identifier: MIT
#
# sqlite3 under the library: tables, indexes, joins, window functions, JSON and a rollback in
# memory, with the same answers as under libc.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

need sqlite3
prove_preload

cat >"$scratch/script.sql" <<'SQL'
create table person(id integer primary key, name text, city text, age integer);
create table visit(person integer, day integer, note text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 30000)
    insert into person select i, 'name ' || (i * 7919 % 30000), 'city ' || (i % 97), i % 83 from n;
with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000)
    insert into visit select i * 31 % 30000 + 1, i % 365, printf('%0*d', i % 200, i) from n;
create index by_city on person(city, age);
create index by_person on visit(person);
select city, count(*), avg(age), max(name) from person group by city order by 2 desc, 1 limit 5;
select sum(length(note)), count(distinct person) from visit;
select name, n from (select p.name, count(*) n from person p join visit v on v.person = p.id
    group by p.id) order by n desc, name limit 5;
select id, sum(age) over (order by id rows between 50 preceding and current row) from person
    where id % 3000 = 0;
select length(group_concat(name, ';')) from person;
select json_extract(json_group_array(json_object('id', id, 'city', city)), '$[777].city')
    from person;
begin;
delete from person where age > 40;
select count(*) from person;
rollback;
select count(*) from person;
update visit set note = note || note where day < 100;
vacuum;
select sum(length(note)) from visit;
pragma integrity_check;
SQL

under_libc sqlite3 :memory: <"$scratch/script.sql" >"$scratch/libc" ||
    fail "sqlite3 fails under libc"
run_held "$scratch/script.sql" "$scratch/tally" sqlite3 :memory:
same_output sqlite3 "$scratch/libc" "$scratch/tally"
[ "$(tail -n 1 "$scratch/tally")" = ok ] || fail "sqlite3 did not finish its script"
echo "sqlite3: $(wc -l <"$scratch/tally") lines as under libc"
