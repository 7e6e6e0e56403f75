#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The heap serves in every hour of a process's life, from before the constructors to after the exit
# handlers, in every way a program can be started: bound lazily or at once, the library preloaded
# between two others or linked or static, at fixed addresses, under an auditor of the loader and
# under valgrind, with few file descriptors and with none, in an empty root directory.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

ulimit -c 0

compiler=${CC:-cc}
command -v "$compiler" >/dev/null || skip "there is no C compiler"
need timeout
prove_preload

# What we were started with must not be counted as the program's; 255 is the shell's own.
for fd in /proc/self/fd/*; do
    fd=${fd##*/}
    if [ "$fd" -gt 2 ] && [ "$fd" -ne 255 ]; then
        eval "exec $fd>&-"
    fi
done

not_tried=0
# leave_out SENTENCE: a part that cannot be tried here.
leave_out() {
    echo "skipped: $*"
    not_tried=$((not_tried + 1))
}

# build OUTPUT COMPILER-WORDS...: program_life.c unless another source is named.
build() {
    local output=$1
    shift
    "$compiler" -O1 -g -fno-builtin -pthread -o "$scratch/$output" "$@" ||
        fail "$output does not compile"
}
source=$here/test/integration/program_life.c
build life "$source"
build linked "$source" -Wl,--no-as-needed "$library" -Wl,-rpath,"$build"
build a.so "$source" -fPIC -shared "-DLIFE_MARK='a'"
build b.so "$source" -fPIC -shared "-DLIFE_MARK='b'"
build audit.so "$here/test/integration/program_audit.c" -fPIC -shared
build audit_linked.so "$here/test/integration/program_audit.c" -fPIC -shared \
    -Wl,--no-as-needed "$library" -Wl,-rpath,"$build"

# lives WHAT EXPECTED COMMAND...: the program lived through these hours, in this order, and nobody
# had anything to say.
lives() {
    local what=$1 expected=$2 status
    shift 2
    under_libc timeout $patience "$@" >"$scratch/output" 2>"$scratch/errors"
    status=$?
    [ $status -eq 0 ] || fail "$what: status $status after '$(cat "$scratch/output")':" \
        "$(head -n 3 "$scratch/errors")"
    [ "$(cat "$scratch/output")" = "$expected" ] ||
        fail "$what: it lived through '$(cat "$scratch/output")', not through '$expected'"
    [ ! -s "$scratch/errors" ] || fail "$what: standard error has: $(head -n 3 "$scratch/errors")"
    echo "$what: lives"
}

own=pcmtxzyd # the hours of a program without libraries
between=$scratch/a.so:$library:$scratch/b.so

# The loader runs constructors from the last library to the first, destructors the other way round.
for binding in LD_BIND_NOW= LD_BIND_NOW=1; do
    lives "between two libraries, $binding" pbacmtxzydab \
        env $binding LD_PRELOAD="$between" "$scratch/life"
    lives "between two libraries, $binding, quick_exit" pbacmtq \
        env $binding LD_PRELOAD="$between" "$scratch/life" quick
    lives "linked, $binding" $own env $binding "$scratch/linked"
    lives "linked, between two libraries, $binding" pbacmtxzydab \
        env $binding LD_PRELOAD="$scratch/a.so:$scratch/b.so" "$scratch/linked"
    lives "under an auditor, $binding" pbacmtxzydab \
        env $binding LD_AUDIT="$scratch/audit.so" LD_PRELOAD="$between" "$scratch/life"
    lives "under an auditor that has the library, $binding" pbacmtxzydab \
        env $binding LD_AUDIT="$scratch/audit_linked.so" LD_PRELOAD="$between" "$scratch/life"
    lives "the library for the auditor alone, $binding" $own \
        env $binding LD_AUDIT="$scratch/audit_linked.so" "$scratch/life"
done

static_forms=""
for form in -static -static-pie; do
    if "$compiler" $form -fPIE -O1 -g -fno-builtin -pthread -o "$scratch/life$form" "$source" \
        "$build/libtally.a" 2>"$scratch/errors"; then
        lives "$form" $own "$scratch/life$form"
        lives "$form, quick_exit" pcmtq "$scratch/life$form" quick
        static_forms="$static_forms $form"
    else
        leave_out "$form: it does not link here: $(head -n 1 "$scratch/errors")"
    fi
done

if setarch -R true 2>/dev/null; then
    lives "at fixed addresses" pbacmtxzydab setarch -R env LD_PRELOAD="$between" "$scratch/life"
    for form in $static_forms; do
        lives "at fixed addresses, $form" $own setarch -R "$scratch/life$form"
    done
else
    leave_out "setarch -R does not work here: addresses stay random"
fi

# Without descriptors the exit status is all there is to see. The loader needs one to open a library,
# which is why none at all is for static programs.
bare() {
    local what=$1 status
    shift
    (exec env -i "$@" bare <&- >&- 2>&-)
    status=$?
    [ $status -eq 0 ] || fail "$what: status $status"
    echo "$what: lives"
}
bare "no descriptor open" LD_PRELOAD="$between" "$scratch/life"
bare "no descriptor open, linked" "$scratch/linked"
for form in $static_forms; do
    bare "no descriptor open, $form" "$scratch/life$form"
done
if command -v prlimit >/dev/null; then
    lives "at most four descriptors" pbacmtxzydab \
        prlimit --nofile=4:4 env LD_PRELOAD="$between" "$scratch/life"
    for form in $static_forms; do
        bare "RLIMIT_NOFILE 0, $form" prlimit --nofile=0:0 "$scratch/life$form"
    done
else
    leave_out "prlimit is not installed: no limit of descriptors"
fi

# An empty root: the program, and what it is linked to, and nothing else. No /proc, no /dev.
mkdir "$scratch/root"
if chroot "$scratch" "/root" 2>/dev/null; [ $? -ne 125 ]; then # 125: chroot itself was refused
    for form in $static_forms; do
        cp "$scratch/life$form" "$scratch/root/program"
        lives "in an empty root, $form" $own chroot "$scratch/root" /program
        rm "$scratch/root/program"
    done
    cp "$scratch/life" "$scratch/root/program"
    cp "$library" "$scratch/root/library.so"
    for object in $(ldd "$scratch/life" | grep -o '/[^ ]*'); do
        mkdir -p "$scratch/root$(dirname "$object")"
        cp -L "$object" "$scratch/root$object"
    done
    lives "in an empty root" $own \
        chroot "$scratch/root" "$(ldd "$scratch/life" | grep -o '/[^ ]*ld-[^ ]*')" \
        --preload /library.so /program
else
    leave_out "only root may change the root directory"
fi

# valgrind puts its own malloc in the place of every other, unless it is told not to; a double free
# shows whose it is.
if command -v valgrind >/dev/null; then
    ours=(--soname-synonyms=somalloc=nouserintercepts --undef-value-errors=no)
    lives "under valgrind" $own env LD_PRELOAD="$library" valgrind -q "$scratch/life"
    lives "under valgrind, with our malloc" $own \
        env LD_PRELOAD="$library" valgrind -q "${ours[@]}" "$scratch/life"
    build twice "$here/test/integration/program_static.c"
    { under_tally valgrind -q "${ours[@]}" "$scratch/twice" twice >"$scratch/output" 2>&1; } 2>/dev/null
    grep -q '^tally: free(' "$scratch/output" ||
        fail "under valgrind: it is not our malloc: $(head -n 3 "$scratch/output")"
else
    leave_out "valgrind is not installed"
fi

[ $not_tried -eq 0 ] || skip "$not_tried parts could not be tried, the others passed"
