#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Programs that were compiled with gperftools' own headers and linked with its library run under tally and
# get their answers, files and texts from it.
#
# The two libraries define the same names and act on the same variables.  So nothing may be bound to
# gperftools that belongs to the interface, neither by the program nor by gperftools itself, and nothing that
# gperftools does in constructors and at exit may show.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

filter=$build/libtally-gperftools.so
[ -f "$filter" ] || fail "$filter does not exist: build it, or say where it is in BUILD"
[ -f /usr/include/gperftools/tcmalloc.h ] || skip "gperftools is not installed"
need g++

# compile FILE OUTPUT OBJECT...: with the headers of gperftools, not ours.
compile() {
    source=$1
    output=$2
    shift 2
    case $source in
        *.c) compiler=${CC:-cc} ;;
        *) compiler="g++ -std=c++17" ;;
    esac
    $compiler -O1 -g -fno-omit-frame-pointer -fno-builtin -w -I"$here/test/lib" -c \
        -o "$output.o" "$here/test/integration/$source" || fail "$source does not compile"
    g++ -o "$output" "$output.o" "$@" -Wl,--no-as-needed -ltcmalloc_and_profiler -lpthread -ldl ||
        fail "$source does not link"
    readelf -d "$output" | grep -q 'NEEDED.*libtcmalloc_and_profiler' ||
        fail "$source is not linked with gperftools"
}

for file in test interrupt; do
    "${CC:-cc}" -O1 -fno-builtin -c -o "$scratch/$file.o" "$here/test/lib/$file.c" || fail "$file.c"
done
harness=("$scratch/test.o" "$scratch/interrupt.o")
compile test_gperftools.c "$scratch/in_c" "${harness[@]}"
compile test_gperftools_cxx.cc "$scratch/in_cxx" "${harness[@]}"
compile program_gperftools.cc "$scratch/program"

# The tests of the functions hold as they do for programs that never heard of gperftools' library.
for program in in_c in_cxx; do
    under_libc LD_PRELOAD="$filter" "$scratch/$program" >"$scratch/said" 2>&1 ||
        fail "$program: $(grep -v '^pass' "$scratch/said")"
    tail -n 1 "$scratch/said"
done

# bound PRELOAD PROGRAM: the names, as written in C++, that are bound to gperftools' library.
bound() {
    under_libc LD_PRELOAD="$1" LD_DEBUG=bindings LD_BIND_NOW=1 "$scratch/$2" --list 2>&1 |
        sed -n "s/.* to [^ ]*libtcmalloc[^ ]* .*symbol \`\([^']*\)'.*/\1/p" | sort -u | c++filt
}

# What belongs to the interface: the malloc family and the operators, and gperftools' functions and classes.
# Other members of its classes may call each other as they like.
family='(__libc_|__posix_)?(malloc|free|cfree|calloc|realloc|memalign|posix_memalign|aligned_alloc|valloc|pvalloc)'
family="$family|malloc_usable_size|malloc_stats|mallopt|mallinfo|nallocx|operator (new|delete).*"
gperftools='MallocExtension_.*|MallocExtension::(instance|Register|Initialize).*|Profiler[A-Z].*'
gperftools="$gperftools|HeapProfiler[A-Z][a-z]*|IsHeapProfilerRunning|GetHeapProfile"
checker='IsActive|GlobalChecker|NoGlobalLeaks|CancelGlobalCheck|DoNoLeaks|BytesLeaked|ObjectsLeaked'
checker="$checker|DoIgnoreObject|UnIgnoreObject|Disabler::.*|~HeapLeakChecker"
gperftools="$gperftools|HeapLeakChecker::($checker)\(.*|HeapLeakChecker::HeapLeakChecker\(char.*"
gperftools="$gperftools|HeapCleaner::(HeapCleaner|RunHeapCleanups)\(.*"
for program in in_c in_cxx program; do
    bound "$library" $program >"$scratch/bound"
    [ -s "$scratch/bound" ] || fail "$program: nothing is bound to gperftools: it is not loaded"
    grep -Ex "$family|$gperftools" "$scratch/bound" &&
        fail "$program: with libtally.so these are bound to gperftools"
    bound "$filter" $program >"$scratch/bound"
    grep -Ex "$family|$gperftools|tc_[a-z_]+" "$scratch/bound" &&
        fail "$program: with libtally-gperftools.so these are bound to gperftools"
done

# Lines of a report of leaks that do not begin with "tally:"; there is one such report if any.
report='^The [0-9]+ largest leaks:$|^Leak of [0-9]+ bytes in |^[[:space:]]+@ [0-9a-f]+ |^$'

# run STATUS [NAME=VALUE ...] -- ARGUMENT...: the program in an empty folder, with each of the libraries.
run() {
    expected=$1
    shift
    settings=()
    while [ "$1" != -- ]; do
        settings+=("$1")
        shift
    done
    shift
    rm -rf "$scratch/folder"
    mkdir "$scratch/folder"
    (cd "$scratch/folder" && under_libc LD_PRELOAD="$preload" "${settings[@]}" "$scratch/program" \
        "$@" >"$scratch/output" 2>"$scratch/errors")
    status=$?
    case="${preload##*/}, ${settings[*]}"
    [ $status = "$expected" ] || fail "$case: status $status: $(cat "$scratch/errors")"
    grep -Ev "^tally: |$report" "$scratch/errors" >"$scratch/foreign" &&
        fail "$case: gperftools says $(cat "$scratch/foreign")"
}

# left NAME...: these files and no others are in the folder.
left() {
    [ "$(ls -A "$scratch/folder")" = "$(printf '%s\n' "$@")" ] ||
        fail "$case: it left $(ls -A "$scratch/folder")"
}

says() {
    grep -q -- "$1" "$scratch/$2" || fail "$case: it does not say '$1': $(cat "$scratch/$2")"
}

is_heap_profile() {
    grep -q '1: 10485760 \[.*\] @ 0x' "$scratch/folder/$1" || fail "$case: 10 MiB are not in $1"
}

# The beginning of gperftools' binary in 64-bit words: 0, 3, 0, the microseconds between samples, 0.
is_cpu_profile() {
    [ "$(od -An -v -t u8 -N 40 "$scratch/folder/$1" | tr -s ' \n' ' ')" = " 0 3 0 $2 0 " ] ||
        fail "$case: $1 is no profile at $2 microseconds"
    if [ "$preload" = "$library" ] && command -v google-pprof >/dev/null; then
        google-pprof --text "$scratch/program" "$scratch/folder/$1" 2>/dev/null |
            awk '$6 == "use_time" { found = 1 } END { exit !found }' ||
            fail "$case: use_time is not in $1"
    fi
}

ways="CPUPROFILE_PER_THREAD_TIMERS=1 CPUPROFILE_REALTIME=1 CPUPROFILE_TIMER_SIGNAL=40"
checks="minimal strict as-is normal"
for preload in "$library" "$filter"; do
    run 0 --
    left
    says '^10 MiB in use$' output
    says '^heap profiler off$' output
    says '^cpu profiler off$' output

    run 0 HEAPPROFILE=heap --
    left heap.0001.heap
    is_heap_profile heap.0001.heap
    says '^HEAPPROFILE is set$' output
    says '^heap profiler on$' output

    run 0 CPUPROFILE=cpu CPUPROFILE_FREQUENCY=250 --
    left cpu
    is_cpu_profile cpu 4000
    says '^CPUPROFILE is set$' output
    says '^cpu profiler on$' output

    for way in $ways; do
        run 0 CPUPROFILE=cpu $way --
        left cpu
        is_cpu_profile cpu 10000
    done

    run 0 CPUPROFILE=cpu CPUPROFILESIGNAL=12 -- signal 12
    left cpu.0
    is_cpu_profile cpu.0 10000

    for check in $checks; do
        run 0 HEAPCHECK=$check --
        run 1 HEAPCHECK=$check HEAP_CHECK_DUMP_DIRECTORY=. -- lose
        says '^tally: .*detected leaks of 3000 bytes in 3 objects' errors
        [ "$(grep -c 'Leak of' "$scratch/errors")" = 1 ] || fail "$case: $(cat "$scratch/errors")"
    done
    run 0 HEAPCHECK=local -- local
    says '^local lost, 3000 bytes in 3 objects$' output

    run 1 HEAPPROFILE=heap CPUPROFILE=cpu HEAPCHECK=normal HEAP_CHECK_DUMP_DIRECTORY=. -- lose
    is_heap_profile heap.0001.heap
    is_cpu_profile cpu 10000
    says 'detected leaks of 3000 bytes in 3 objects' errors
    ways= # What the two libraries have in common is tried with one of them.
    checks=normal
done

# An added variable may be written to, as bash does when it starts.
for variable in HEAPPROFILE CPUPROFILE; do
    under_tally $variable="$scratch/shell" bash -c "env | grep -c ^${variable}_USE_PID=1" \
        >"$scratch/output" 2>"$scratch/errors" || fail "bash ends with $?: $(cat "$scratch/errors")"
    [ "$(cat "$scratch/output")" = 1 ] || fail "children of bash are not told of ${variable}_USE_PID"
done
echo "files, texts and answers are tally's"
