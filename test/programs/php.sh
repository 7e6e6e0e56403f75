#!/bin/sh
# SPDX-License-Identifier: MIT
#
# php under the library: it opens its modules with RTLD_DEEPBIND, so that their free would be libc's.
# Arrays, strings, JSON, regular expressions, sorting; with its own allocator and, by USE_ZEND_ALLOC,
# with ours for everything.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

need php
prove_preload

cat >"$scratch/script.php" <<'PHP'
<?php
mt_srand(7);
$table = [];
for ($i = 0; $i < 40000; $i++) {
    $key = "key" . mt_rand(0, 4999);
    $table[$key][] = "value $i " . str_repeat("y", mt_rand(0, 99));
    if ($i % 3 == 0) {
        unset($table["key" . mt_rand(0, 4999)]);
    }
}
ksort($table);
$json = json_encode($table);
echo count($table), " ", strlen($json), " ", md5($json), "\n";
$again = json_decode($json, true);
echo $again == $table ? "same" : "other", "\n";
echo preg_match_all('/value \d*7 y{3,9}\b/', $json), "\n";
$words = explode(" ", str_replace([",", '"'], " ", $json));
sort($words);
echo count($words), " ", $words[count($words) - 1], "\n";
echo implode(" ", get_loaded_extensions()) != "" ? "end" : "", "\n";
PHP

for zend in 1 0; do
    under_libc USE_ZEND_ALLOC=$zend php "$scratch/script.php" >"$scratch/libc" ||
        fail "php fails under libc"
    under_tally env USE_ZEND_ALLOC=$zend php "$scratch/script.php" >"$scratch/tally" ||
        fail "php with USE_ZEND_ALLOC=$zend ends with status $?"
    same_output php "$scratch/libc" "$scratch/tally"
    [ "$(tail -n 1 "$scratch/tally")" = end ] || fail "php did not finish its script"
done
echo "php: $(wc -l <"$scratch/tally") lines as under libc, with its allocator and without"
