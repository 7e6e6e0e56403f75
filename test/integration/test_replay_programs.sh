#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Bugs that other allocators had, replayed with programs that are compiled or started in a special
# way: a plug-in bound to libc's own malloc, a build that checks the sizes of objects, a program
# under the address sanitizer, and a look at the system calls a thread's start needs. Parts whose
# tools are not installed are named at the end; the test is skipped when none could be run.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"


compiler=${CC:-cc}
command -v "$compiler" >/dev/null || skip "there is no C compiler"
need timeout
prove_preload
sources=$here/test/integration
left_out=

# says EXPECTED WHAT COMMAND ...: under the library, prints this and nothing else, ends well
says() {
    expected=$1
    what=$2
    shift 2
    output=$(under_tally timeout "$patience" env "$@" 2>&1)
    status=$?
    [ $status -eq 0 ] || fail "$what: status $status: $output"
    [ "$output" = "$expected" ] || fail "$what: it printed: $output"
}

# A plug-in opened with RTLD_DEEPBIND would have libc's malloc and free. It has ours, so that blocks
# may go from one to the other; and dlopen looks for libraries where its caller's search path leads.
deepbind() {
    "$compiler" -O1 -g -fno-builtin -fPIC -shared -DPLUGIN -o "$scratch/plugin.so" \
        "$sources/program_plugin.c" || fail "program_plugin.c does not compile as a library"
    "$compiler" -O1 -g -fno-builtin -o "$scratch/host" "$sources/program_plugin.c" -ldl ||
        fail "program_plugin.c does not compile as a program"
    says done "a plug-in that uses memory" "$scratch/host" "$scratch/plugin.so" own
    says freed "a block that the plug-in allocated" "$scratch/host" "$scratch/plugin.so" crossed
    mkdir "$scratch/apart"
    mv "$scratch/plugin.so" "$scratch/apart"
    "$compiler" -O1 -g -fno-builtin -Wl,-rpath,"$scratch/apart" -o "$scratch/led" \
        "$sources/program_plugin.c" -ldl || fail "program_plugin.c does not link with a search path"
    says done "a plug-in found by its caller's path" "$scratch/led" plugin.so own
}

# Where the compiler knows no 3, 2 is what programs are built with.
fortify() {
    level=3
    echo '#if __has_builtin(__builtin_dynamic_object_size) == 0
#error
#endif' >"$scratch/level.c"
    "$compiler" -fsyntax-only "$scratch/level.c" 2>/dev/null || level=2
    "$compiler" -O2 -g -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=$level -o "$scratch/fortified" \
        "$sources/program_fortified.c" || fail "program_fortified.c does not compile"
    says kept "a fortified program" "$scratch/fortified"
    "$compiler" -O2 -g -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=$level -DWITH_TALLY_H \
        -I"$here/include" -o "$scratch/fortified_tally" "$sources/program_fortified.c" \
        -L"$build" -ltally || fail "program_fortified.c does not compile with tally.h"
    says kept "a fortified program that knows tally.h" LD_LIBRARY_PATH="$build" \
        "$scratch/fortified_tally"
    # The check itself works here, so it would have spoken.
    if [ $level -eq 3 ]; then
        output=$(under_tally timeout "$patience" "$scratch/fortified" too much 2>&1)
        status=$?
        [ $status -eq 134 ] || fail "a fortified program that writes too much: status $status"
        case $output in
        *"buffer overflow detected"*) ;;
        *) fail "a fortified program that writes too much: it printed: $output" ;;
        esac
    fi
}

# The sanitizer's malloc wins, by link order or by preload order, and the program must not notice
# that we are there too.
sanitizer() {
    "$compiler" -O1 -g -fsanitize=address -pthread -o "$scratch/sanitized" \
        "$sources/program_threads.c" -ldl 2>/dev/null || {
        left_out="$left_out address-sanitizer"
        return
    }
    says done "a program under the address sanitizer" \
        ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 "$scratch/sanitized"
    if ! command -v clang >/dev/null; then
        return
    fi
    # Here the runtime is part of the program.
    clang -O1 -g -fsanitize=address -pthread -o "$scratch/sanitized_static" \
        "$sources/program_threads.c" -ldl 2>/dev/null || return
    says done "a program with the address sanitizer inside" \
        ASAN_OPTIONS=detect_leaks=0 "$scratch/sanitized_static"
}

# libc registers the restartable sequences of each thread; a second registration would take them
# away from it. So there are as many with the library as without, but for a background thread of the
# library's own. The library is for the program, not for strace.
rseq_calls() {
    under_libc timeout "$patience" strace -f "$@" -e trace=rseq -o "$scratch/calls" \
        "$scratch/threads" >/dev/null 2>&1 || return 1
    grep -c 'rseq(' "$scratch/calls" || true # an old libc makes none
}

rseq() {
    "$compiler" -O1 -g -fno-builtin -pthread -o "$scratch/threads" \
        "$sources/program_threads.c" -ldl || fail "program_threads.c does not compile"
    without=$(rseq_calls) || {
        left_out="$left_out strace"
        return
    }
    with=$(rseq_calls -E LD_PRELOAD="$library" -E TALLY_CONF=background_thread:false) || fail "the program does not run under strace"
    [ "$with" -eq "$without" ] || fail "$with calls of rseq under the library, $without without"
}

deepbind
fortify
sanitizer
rseq
[ -z "$left_out" ] || echo "left out, not installed:$left_out"
echo "plug-ins, fortified programs, sanitized programs and restartable sequences are no trouble"
