#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Speedscope's own schema, from its package, accepts our file, as the validator ajv reads it; its totals are
# ours, and the schema can refuse: a file with a weight that is text is not accepted.  Nothing is fetched: the two
# are looked for where npm keeps what is installed for all, or in $NODE_PATH.

# shellcheck source=test/interop/exported.sh
. "$(dirname -- "$0")/exported.sh"

need node
if command -v npm >/dev/null; then
    NODE_PATH=${NODE_PATH:+$NODE_PATH:}$(npm root -g 2>/dev/null)
    export NODE_PATH
fi
node -e 'require.resolve("ajv"); require.resolve("speedscope/package.json")' 2>/dev/null ||
    skip "ajv and speedscope are not installed: npm install -g ajv speedscope"

cat >"$scratch/check.js" <<'END'
const fs = require("fs");
const Ajv = require("ajv");
const schema = JSON.parse(fs.readFileSync(require.resolve(
    "speedscope/dist/release/file-format-schema.json")));
const validate = new Ajv({strict: false, allErrors: true}).compile(schema);
const file = JSON.parse(fs.readFileSync(process.argv[2]));
if (!validate(file)) {
    console.log(JSON.stringify(validate.errors.slice(0, 3)));
    process.exit(1);
}
for (const profile of file.profiles) {
    console.log(profile.name, profile.weights.reduce((sum, weight) => sum + weight, 0),
        profile.endValue - profile.startValue);
}
END

check() {
    under_libc NODE_PATH="${NODE_PATH:-}" node "$scratch/check.js" "$1" >"$scratch/printed" 2>&1
}

exported hostile hostile.speedscope.json
check "$exported/hostile.speedscope.json" || fail "the schema refuses: $(cat "$scratch/printed")"
for type in alloc_objects alloc_space inuse_objects inuse_space; do
    same "$type in the weights and as the end" "$(grep "^$type " "$scratch/printed")" \
        "$type $(truth $type) $(truth $type)"
done

exported busy busy.speedscope.json
check "$exported/busy.speedscope.json" || fail "the schema refuses: $(cat "$scratch/printed")"

sed 's/"weights":\[[0-9]*/"weights":["much"/' "$exported/hostile.speedscope.json" >"$scratch/wrong"
cmp -s "$exported/hostile.speedscope.json" "$scratch/wrong" && fail "nothing was made wrong"
check "$scratch/wrong" && fail "the schema accepts a weight that is text"
grep -q must "$scratch/printed" || fail "it is refused for another reason: $(cat "$scratch/printed")"
