/* SPDX-License-Identifier: MIT
 *
 * test_dump.c - profiles are written to the byte as jemalloc's and gperftools' formats say, and leaks in
 * two lines.
 *
 * With PROFILES set, the test `files_for_readers` leaves files there, which test/interop shows to jeprof
 * and pprof.
 */
#define _GNU_SOURCE /* memfd_create */
#include <stdio.h>
#include <sys/stat.h>

#include "made_samples.h"
#include "opt/opt.h"
#include "prof/prof.h"
#include "unit.h"

static const char sampled_maps[] =
    "\nMAPPED_LIBRARIES:\n"
    "55d0aa000000-55d0aa002000 r-xp 00001000 fe:00 131 /opt/app/server\n"
    "7f10c0a00000-7f10c0aa0000 r-xp 00009000 fe:00 77 /usr/lib/libjemalloc.so.2\n";

/* ---------------------------------------------------------------- jemalloc's format */

TEST(heap_v2_is_jemallocs_to_the_byte) {
    make_sampled_example();
    char expected[2000];
    snprintf(expected, sizeof(expected), "%s%s",
             "heap_v2/524288\n"
             "  t*: 7: 13594 [0: 0]\n"
             "  t0: 3: 3072 [0: 0]\n"
             "  t1: 4: 18430 [0: 0] worker\n"
             "@ 0x7f10c0a01234 0x55d0aa001180 0x55d0aa0011f2 0x7f10c0845305\n"
             "  t*: 4: 4096 [0: 0]\n"
             "  t0: 3: 3072 [0: 0]\n"
             "  t1: 1: 1024 [0: 0]\n"
             "@ 0x7f10c0a01234 0x55d0aa001244 0x7f10c08a71f5\n"
             "  t*: 3: 301518 [0: 0]\n"
             "  t1: 3: 301518 [0: 0]\n",
             sampled_maps);
    check_str(dump_text(DUMP_JEMALLOC, DUMP_NOW), expected);
}

TEST(raw_counts_are_written_without_prof_unbias) {
    make_sampled_example();
    opt.prof_unbias = 0;
    check(strstr(dump_text(DUMP_JEMALLOC, DUMP_NOW), "524288\n  t*: 7: 331776 [0: 0]\n") != NULL);
}

TEST(accumulated_counts_are_written_with_prof_accum) {
    make_sampled_example();
    opt.prof_unbias = 0;
    opt.prof_accum = 1;
    maps_text = "";
    add_objects(add_stack(1, (uintptr_t[]){0x101}), 0, 16, 9, 0);
    check_str(dump_text(DUMP_JEMALLOC, DUMP_NOW),
              "heap_v2/524288\n"
              "  t*: 7: 331776 [18: 333968]\n"
              "  t0: 3: 3072 [14: 5264]\n"
              "  t1: 4: 328704 [4: 328704] worker\n"
              "@ 0x100\n"
              "  t*: 0: 0 [9: 144]\n"
              "  t0: 0: 0 [9: 144]\n"
              "@ 0x7f10c0a01234 0x55d0aa001180 0x55d0aa0011f2 0x7f10c0845305\n"
              "  t*: 4: 4096 [6: 6144]\n"
              "  t0: 3: 3072 [5: 5120]\n"
              "  t1: 1: 1024 [1: 1024]\n"
              "@ 0x7f10c0a01234 0x55d0aa001244 0x7f10c08a71f5\n"
              "  t*: 3: 327680 [3: 327680]\n"
              "  t1: 3: 327680 [3: 327680]\n");
}

TEST(ended_threads_are_listed_while_they_have_something) {
    threads_known = 4;
    thread_ended[1] = thread_ended[2] = true;
    thread_names[2] = "line\nbreak";
    maps_text = "";
    uint32_t stack = add_stack(2, (uintptr_t[]){0x101, 0x200});
    add_objects(stack, 1, 16, 4, 0);
    add_objects(stack, 2, 16, 4, 1);
    check_str(dump_text(DUMP_JEMALLOC, DUMP_NOW), "heap_v2/1\n"
                                                  "  t*: 1: 16 [0: 0]\n"
                                                  "  t0: 0: 0 [0: 0]\n"
                                                  "  t2: 1: 16 [0: 0] line break\n"
                                                  "  t3: 0: 0 [0: 0]\n"
                                                  "@ 0x100 0x200\n"
                                                  "  t*: 1: 16 [0: 0]\n"
                                                  "  t2: 1: 16 [0: 0]\n");
}

TEST(the_peak_is_written_instead_of_now) {
    maps_text = "";
    add_objects(add_stack(1, (uintptr_t[]){0x101}), 0, 16, 4, 1);
    weigh(&contexts[0].peak, 3, 16);
    check(strstr(dump_text(DUMP_JEMALLOC, DUMP_NOW), "@ 0x100\n  t*: 1: 16 ") != NULL);
    check(strstr(dump_text(DUMP_JEMALLOC, DUMP_PEAK), "@ 0x100\n  t*: 3: 48 ") != NULL);
}

TEST(a_stack_that_could_not_be_walked_has_one_address) {
    maps_text = "";
    add_objects(add_stack(0, (uintptr_t[]){0}), 0, 16, 1, 1);
    check(strstr(dump_text(DUMP_JEMALLOC, DUMP_NOW), "@ 0x0\n  t*: 1: 16 ") != NULL);
}

TEST(nothing_recorded_is_a_profile_too) {
    maps_text = "";
    threads_known = 0;
    check_str(dump_text(DUMP_JEMALLOC, DUMP_NOW), "heap_v2/1\n  t*: 0: 0 [0: 0]\n");
    check_str(dump_text(DUMP_GPERFTOOLS, DUMP_NOW),
              "heap profile:      0:        0 [     0:        0] @ heapprofile\n"
              "\nMAPPED_LIBRARIES:\n");
}

/* ---------------------------------------------------------------- gperftools' format */

TEST(heap_text_is_gperftools_to_the_byte) {
    add_objects(add_stack(2, (uintptr_t[]){0x401141, 0x4011b5}), 0, 32, 2, 2);
    struct prof_sum *ever = &contexts[0].accumulated;
    *ever = (struct prof_sum){
        .objects = 4, .bytes = 1088, .requested = 1088, .all_objects = 4, .all_bytes = 1088};
    add_objects(add_stack(3, (uintptr_t[]){0x401137, 0x40118c, 0x4011b5}), 0, 4096, 1, 1);
    maps_text = "00400000-00402000 r-xp 00000000 08:01 131 /bin/demo\n"
                "00402000-00403000 rw-p 00002000 08:01 131 /bin/demo\n";
    check_str(dump_text(DUMP_GPERFTOOLS, DUMP_NOW),
              "heap profile:      3:     4160 [     5:     5184] @ heapprofile\n"
              "     1:     4096 [     1:     4096] @ 0x00401136 0x0040118c 0x004011b5\n"
              "     2:       64 [     4:     1088] @ 0x00401140 0x004011b5\n"
              "\nMAPPED_LIBRARIES:\n"
              "00400000-00402000 r-xp 00000000 08:01 131 /bin/demo\n");
}

TEST(heap_text_has_estimates_and_joins_threads) {
    make_sampled_example();
    const char *dumped = dump_text(DUMP_GPERFTOOLS, DUMP_NOW);
    check(strstr(dumped, "profile:   2068:  3842042 [  3093:  4891642] @ heapprofile\n") != NULL);
    check(strstr(dumped, "\n  2050:  2099200 [  3075:  3148800] @ 0x7f10c0a01234 0x") != NULL);
    check(strstr(dumped, "\n    18:  1742842 [    18:  1742842] @ 0x7f10c0a01234 0x") != NULL);
}

/* ---------------------------------------------------------------- leaks */

TEST(leaks_are_summed_up_in_two_lines) {
    make_sampled_example();
    add_objects(add_stack(1, (uintptr_t[]){0x101}), 0, 16, 9, 0);
    struct capture capture = capture_begin();
    check(!dump_report_leaks());
    check_str(capture_end(capture),
              "tally: Leak approximation summary: ~3842042 bytes, ~2068 objects, >= 2 contexts\n"
              "tally: Run jeprof on dump output for leak detail\n");
    check_eq(mapped_bytes, 0);
}

TEST(a_single_leak_is_an_error_when_asked) {
    add_objects(add_stack(1, (uintptr_t[]){0x101}), 0, 1, 1, 1);
    opt.prof_leak_error = 1;
    struct capture capture = capture_begin();
    check(dump_report_leaks());
    check_str(capture_end(capture),
              "tally: Leak approximation summary: ~1 byte, ~1 object, >= 1 context\n"
              "tally: Run jeprof on dump output for leak detail\n"
              "tally: Exiting with error code because memory leaks were detected\n");
}

TEST(no_leaks_are_no_lines) {
    add_objects(add_stack(1, (uintptr_t[]){0x101}), 0, 16, 9, 0);
    opt.prof_leak_error = 1;
    struct capture capture = capture_begin();
    check(!dump_report_leaks());
    check_str(capture_end(capture), "");
}

/* ---------------------------------------------------------------- for other readers */

/* Where its caller goes on. */
__attribute__((noinline)) static uintptr_t here(void) {
    return (uintptr_t)__builtin_return_address(0);
}

__attribute__((noinline)) static uint32_t reader_small(uintptr_t outer) {
    uintptr_t addresses[] = {here(), (uintptr_t)__builtin_return_address(0), outer};
    return add_stack(3, addresses);
}

/* Not the same code as above, or the compiler would make one of both. */
__attribute__((noinline)) static uint32_t reader_large(uintptr_t outer) {
    uintptr_t outermost = outer;
    uintptr_t addresses[] = {here(), (uintptr_t)__builtin_return_address(0), outermost, 0};
    check(addresses[0] != 0);
    return add_stack(3, addresses);
}

__attribute__((noinline)) static void reader_work(void) {
    uintptr_t outer = (uintptr_t)__builtin_return_address(0);
    uint32_t small = reader_small(outer);
    uint32_t large = reader_large(outer);
    add_objects(small, 0, 1000, 10, 7);
    add_objects(small, 1, 1000, 5, 5);
    add_objects(large, 1, 100000, 3, 2);
    __asm__ volatile("" : : "r"(small), "r"(large)); /* no tail call */
}

static void write_for_readers(const char *folder, const char *name) {
    static const char *const endings[] = {"heap", "pb.gz", "hprof"};
    char path[400];
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s.%s", folder, name, endings[i]);
        check_eq(dump_by_name(path), 0);
    }
}

TEST(files_for_readers) {
    const char *folder = getenv("PROFILES");
    if (folder == NULL) {
        skip("PROFILES names no folder");
    }
    threads_known = 2;
    thread_names[0] = "main";
    thread_names[1] = "worker";
    opt.prof_accum = 1;
    reader_work();
    write_for_readers(folder, "before");
    add_objects(contexts[0].stack, 0, 1000, 4, 4);
    write_for_readers(folder, "after");
    context_count = 0;
    make_sampled_example();
    write_for_readers(folder, "sampled");
}
