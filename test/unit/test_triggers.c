/* SPDX-License-Identifier: MIT
 *
 * test_triggers.c - each trigger writes a profile when it should, and none when it should not.
 *
 * The profiler, its files, the clock and the memory of the system are the test's own: the linker turns
 * what triggers.c calls into the functions below.  What is counted is told as prof.c tells it.
 */
#include "control/triggers.h"
#include "prof/tell.h"

#include <errno.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/os.h"
#include "control/control.h"
#include "fake_profiler.h"
#include "heap/fast.h"
#include "opt/opt.h"
#include "prof/prof.h"
#include "unit.h"

enum { MIB = 1 << 20 };

static struct {
    bool is_short, leaks;
    uint64_t now_ms;
    char kinds[64]; /* of the profiles written so far */
    unsigned files, leak_reports;
    int exists; /* so many files are in the way */
} fake = {.now_ms = 1000000};

/* A profiler that is on. */
static void turn_on(void) {
    profiler.armed = profiler.active = true;
}

TEST_SETUP(turn_on);

void __wrap_prof_read_totals(struct prof_totals *totals);
void __wrap_prof_read_totals(struct prof_totals *totals) {
    *totals = (struct prof_totals){.live.all_bytes = profiler.live,
                                   .accumulated.all_bytes = profiler.allocated};
}
int __wrap_dump_automatically(char kind);
int __wrap_dump_automatically(char kind) {
    size_t length = strlen(fake.kinds);
    check(length + 1 < sizeof fake.kinds);
    fake.kinds[length] = kind;
    return profiler.error;
}
int __wrap_dump_to_file(const char *path, enum dump_format format, enum dump_what what);
int __wrap_dump_to_file(const char *path, enum dump_format format, enum dump_what what) {
    check_eq(format, DUMP_GPERFTOOLS);
    check_eq(what, DUMP_NOW);
    if (fake.exists > 0) {
        fake.exists--;
        return -EEXIST;
    }
    fake.files++;
    snprintf(profiler.path, sizeof profiler.path, "%s", path);
    return profiler.error;
}
bool __wrap_dump_report_leaks(void);
bool __wrap_dump_report_leaks(void) {
    fake.leak_reports++;
    return fake.leaks && opt.prof_leak_error;
}
bool __wrap_pressure_is_above(uint64_t share);
bool __wrap_pressure_is_above(uint64_t share) {
    check(share != 0);
    return fake.is_short;
}
uint64_t __wrap_os_now_ms(void);
uint64_t __wrap_os_now_ms(void) {
    return fake.now_ms;
}

/* A call of the program that takes a slow path. */
static void slow_call(void) {
    tally_purge();
}

/* The program allocates or frees so much, and the profiler tells. */
static void change(double allocated, double freed) {
    profiler.allocated += allocated;
    profiler.live += allocated - freed;
    tell_totals((uint64_t)profiler.allocated, (uint64_t)profiler.live);
    slow_call();
}

static void start(const char *conf) {
    char text[256];
    snprintf(text, sizeof text, "background_thread:false,%s", conf);
    start_heap_with(text);
    slow_call();
    check_str(fake.kinds, "");
}

/* ---------------------------------------------------------------- volumes */

TEST(without_options_nothing_is_written) {
    start("prof:true");
    change(1e15, 0);
    change(0, 1e15);
    fake.now_ms += 1 << 30;
    slow_call();
    check_str(fake.kinds, "");
}

TEST(every_interval_of_allocated_bytes_is_a_profile) {
    start("lg_prof_interval:20");
    change(MIB - 1, 0);
    check_str(fake.kinds, "");
    change(1, 0);
    check_str(fake.kinds, "i");
    slow_call();
    change(MIB / 2, 0);
    check_str(fake.kinds, "i");
    change(10.0 * MIB, 0); /* Several at once are one. */
    check_str(fake.kinds, "ii");
    change(MIB, MIB);
    check_str(fake.kinds, "iii");
}

TEST(nothing_is_written_while_sampling_is_off) {
    start("prof_alloc_interval:1000");
    profiler.active = false;
    change(5000, 0);
    check_str(fake.kinds, "");
    profiler.active = true;
    slow_call();
    check_str(fake.kinds, "");
    change(1000, 0);
    check_str(fake.kinds, "i");
}

TEST(every_interval_of_freed_bytes_is_a_profile) {
    start("prof_free_interval:1000");
    change(10000, 999);
    check_str(fake.kinds, "");
    change(0, 1);
    check_str(fake.kinds, "i");
    change(0, 999);
    check_str(fake.kinds, "i");
    change(0, 1);
    check_str(fake.kinds, "ii");
}

TEST(live_bytes_above_a_threshold_are_one_profile) {
    start("prof_live_threshold:16000");
    change(16000, 0);
    check_str(fake.kinds, "");
    change(1, 0);
    check_str(fake.kinds, "u");
    change(100000, 0);
    change(0, 100000);
    change(16000, 16000);
    check_str(fake.kinds, "u");
    change(0, 1000); /* 15001 are 15/16 of it still. */
    change(16000, 0);
    check_str(fake.kinds, "u");
    change(0, 17000);
    change(4000, 0);
    check_str(fake.kinds, "uu");
}

TEST(live_bytes_that_grow_are_a_profile_at_each_step) {
    start("prof_live_step:1000");
    change(1000, 0);
    check_str(fake.kinds, "u");
    change(5000, 5000);
    check_str(fake.kinds, "u");
    change(0, 900);
    change(1899, 0);
    check_str(fake.kinds, "u");
    change(1, 0);
    check_str(fake.kinds, "uu");
    change(10000, 0);
    check_str(fake.kinds, "uuu");
    change(1000, 0);
    check_str(fake.kinds, "uuuu");
}

TEST(triggers_that_come_together_are_one_profile) {
    start("prof_alloc_interval:1000,prof_live_step:1000,prof_live_threshold:500");
    change(2000, 0);
    check_str(fake.kinds, "i");
    change(10, 0);
    check_str(fake.kinds, "i");
}

TEST(what_was_forgotten_does_not_count) {
    start("prof_alloc_interval:1000,prof_live_step:1000");
    change(900, 0);
    check_eq(ctl_by_name("prof.reset", NULL, NULL, NULL, 0), 0);
    slow_call();
    change(900, 0);
    check_str(fake.kinds, "");
    change(100, 0);
    check_str(fake.kinds, "i");
}

TEST(set_uid_programs_write_nothing) {
    start("prof_alloc_interval:1000,prof_final:true,prof_leak:true");
    os_facts.secure = true;
    change(5000, 0);
    triggers_signal();
    slow_call();
    check(!triggers_exit());
    check_str(fake.kinds, "");
    check_eq(fake.leak_reports, 0);
}

/* ---------------------------------------------------------------- peaks */

TEST(each_new_height_of_the_heap_is_a_profile) {
    start("prof_gdump:true,dirty_decay_ms:-1");
    void *first = tally_malloc(8 * MIB);
    slow_call();
    check_str(fake.kinds, "u");
    tally_free(first);
    first = tally_malloc(8 * MIB);
    slow_call();
    check_str(fake.kinds, "u");
    void *second = tally_malloc(8 * MIB);
    slow_call();
    check_str(fake.kinds, "uu");
    bool off = false;
    check_eq(ctl_by_name("prof.gdump", NULL, NULL, &off, sizeof off), 0);
    void *third = tally_malloc(8 * MIB);
    slow_call();
    check_str(fake.kinds, "uu");
    tally_free(first);
    tally_free(second);
    tally_free(third);
}

/* ---------------------------------------------------------------- clock, memory, signal */

TEST(time_that_passes_is_a_profile) {
    start("prof_time_interval:10");
    fake.now_ms += 9999;
    slow_call();
    check_str(fake.kinds, "");
    fake.now_ms += 1;
    slow_call();
    check_str(fake.kinds, "i");
    slow_call();
    fake.now_ms += 60000;
    slow_call();
    slow_call();
    check_str(fake.kinds, "ii");
    profiler.active = false;
    fake.now_ms += 60000;
    slow_call();
    check_str(fake.kinds, "ii");
}

TEST(the_background_thread_is_told_when_to_look) {
    start("prof_time_interval:10");
    fake.now_ms += 4000;
    thread_mark_inside(true);
    check_eq(triggers_tick(), 6000);
    fake.now_ms += 6000;
    check_eq(triggers_tick(), 10000);
    check_str(fake.kinds, "i");
    profiler.active = false;
    check_eq(triggers_tick(), UINT64_MAX);
    check(!triggers_want_thread());
    profiler.active = true;
    check(triggers_want_thread());
    triggers_set_thread(true);
    thread_mark_inside(false);
    fake.now_ms += 60000;
    slow_call(); /* It is the thread's business now. */
    check_str(fake.kinds, "i");
    triggers_set_thread(false);
    slow_call();
    check_str(fake.kinds, "ii");
}

TEST(memory_that_becomes_short_is_a_profile) {
    start("prof_memory_share:0.9");
    fake.now_ms += 1000;
    slow_call();
    check_str(fake.kinds, "");
    fake.is_short = true;
    slow_call(); /* Not looked at again so soon. */
    check_str(fake.kinds, "");
    fake.now_ms += 1000;
    slow_call();
    fake.now_ms += 1000;
    slow_call();
    check_str(fake.kinds, "u");
    fake.is_short = false;
    fake.now_ms += 1000;
    slow_call();
    fake.is_short = true;
    fake.now_ms += 1000;
    slow_call();
    check_str(fake.kinds, "uu");
}

TEST(a_signal_is_a_profile_at_the_next_slow_call) {
    start("prof_signal:10");
    raise(SIGUSR1);
    check_str(fake.kinds, "");
    slow_call();
    check_str(fake.kinds, "m");
    slow_call();
    check_str(fake.kinds, "m");
    profiler.active = false; /* What was sampled before is still worth a look. */
    raise(SIGUSR1);
    slow_call();
    check_str(fake.kinds, "mm");
    profiler.armed = false;
    raise(SIGUSR1);
    slow_call();
    check_str(fake.kinds, "mm");
}

TEST(a_signal_whose_profile_cannot_be_written_is_one_line) {
    start("prof_signal:10");
    profiler.error = -ENOSPC;
    raise(SIGUSR1);
    struct capture capture = capture_begin();
    slow_call();
    check_str(capture_end(capture),
              "tally: cannot write the heap profile that was asked for: the disk is full (28)\n");
}

TEST(a_signal_inside_the_allocator_is_not_lost) {
    start("prof_signal:10");
    thread_mark_inside(true);
    raise(SIGUSR1);
    slow_call();
    check_str(fake.kinds, "");
    thread_mark_inside(false);
    slow_call();
    check_str(fake.kinds, "m");
}

static void own_handler(int number) {
    (void)number;
    fake.files++;
}

TEST(a_signal_that_the_program_handles_is_left_alone) {
    signal(SIGUSR1, own_handler);
    struct capture capture = capture_begin();
    start("prof_signal:10");
    check_str(capture_end(capture),
              "tally: signal 10 is taken or cannot be caught: prof_signal is ignored\n");
    raise(SIGUSR1);
    slow_call();
    check_eq(fake.files, 1);
    check_str(fake.kinds, "");
}

TEST(a_signal_nobody_can_catch_is_said) {
    struct capture capture = capture_begin();
    start("prof_signal:9");
    check_str(capture_end(capture),
              "tally: signal 9 is taken or cannot be caught: prof_signal is ignored\n");
}

/* ---------------------------------------------------------------- the end, and fork */

TEST(the_end_is_a_profile_if_asked_for) {
    start("prof:true,prof_final:true");
    check(triggers_want_exit());
    check(!triggers_exit());
    check_str(fake.kinds, "f");
    check_eq(fake.leak_reports, 0);
}

TEST(without_arming_there_is_nothing_to_write_at_the_end) {
    start("prof_final:true,prof_leak:true");
    profiler.armed = profiler.active = false;
    check(!triggers_exit());
    check_str(fake.kinds, "");
    check_eq(fake.leak_reports, 0);
}

TEST(leaks_are_told_and_may_fail_the_process) {
    start("prof_final:true,prof_leak:true");
    fake.leaks = true;
    check(!triggers_exit());
    check_eq(fake.leak_reports, 1);
    opt.prof_leak_error = 1;
    check(triggers_exit());
    fake.leaks = false;
    check(!triggers_exit());
    fake.leaks = true;
    profiler.error = -EINVAL; /* An empty prefix wants neither file nor report. */
    check(!triggers_exit());
    check_eq(fake.leak_reports, 3);
}

TEST(a_process_with_leaks_ends_with_1) {
    pid_t child = fork();
    if (child == 0) {
        start("prof_final:true,prof_leak_error:true");
        fake.leaks = true;
        exit(0);
    }
    int status;
    check_eq(waitpid(child, &status, 0), child);
    check(WIFEXITED(status));
    check_eq(WEXITSTATUS(status), 1);
}

TEST(a_child_starts_anew) {
    start("prof_alloc_interval:1000,prof_signal:10");
    change(999, 0);
    triggers_signal();
    pid_t child = fork();
    if (child == 0) {
        slow_call();
        change(999, 0);
        _exit(fake.kinds[0] == '\0' ? 0 : 1);
    }
    int status;
    check_eq(waitpid(child, &status, 0), child);
    check_eq(status, 0);
    slow_call();
    check_str(fake.kinds, "m");
}

/* ---------------------------------------------------------------- gperftools */

/* What is said by `change`. */
static const char *said(double allocated, double freed) {
    struct capture capture = capture_begin();
    change(allocated, freed);
    return capture_end(capture);
}

static void start_numbered(const char *conf) {
    char text[256];
    snprintf(text, sizeof text, "prof:true,prof_names:gperftools,prof_prefix:/x/h%s", conf);
    start(text);
}

TEST(numbered_files_tell_why) {
    start_numbered(",prof_free_interval:3m,prof_time_interval:100,prof_signal:10");
    check_str(said(1024.0 * MIB, 1023.0 * MIB),
              "tally: Dumping heap profile to /x/h.0001.heap"
              " (1024 MB allocated cumulatively, 1 MB currently in use)\n");
    check_str(said(0, 0), "");
    check_str(said(4.0 * MIB, 4.0 * MIB), "tally: Dumping heap profile to /x/h.0002.heap"
                                          " (1027 MB freed cumulatively, 1 MB currently in use)\n");
    check_str(said(100.0 * MIB, 0),
              "tally: Dumping heap profile to /x/h.0003.heap (101 MB currently in use)\n");
    fake.now_ms += 100000;
    check_str(said(0, 0), "tally: Dumping heap profile to /x/h.0004.heap"
                          " (100 sec since the last dump)\n");
    raise(SIGUSR1);
    check_str(said(0, 0), "tally: Dumping heap profile to /x/h.0005.heap (signal)\n");
    check_str(fake.kinds, "");
}

TEST(any_numbered_file_starts_new_intervals) {
    start_numbered(",prof_alloc_interval:1000,prof_live_step:0,prof_signal:10");
    change(900, 900);
    raise(SIGUSR1);
    slow_call();
    check_eq(fake.files, 1);
    change(900, 900);
    check_eq(fake.files, 1);
    change(100, 100);
    check_eq(fake.files, 2);
}

TEST(files_that_exist_are_passed_over) {
    start_numbered("");
    fake.exists = 3;
    numbered_dump("x");
    check_str(profiler.path, "/x/h.0004.heap");
}

TEST(numbered_files_tell_the_time_when_asked) {
    start_numbered(",prof_time_in_name:true");
    numbered_dump("x");
    unsigned day, time;
    int length = 0;
    check_eq(sscanf(profiler.path, "/x/h.0001.%8uT%6uZ.heap%n", &day, &time, &length), 2);
    check_eq((size_t)length, strlen(profiler.path));
    check(day >= 20200101 && time < 240000);
}

TEST(a_file_that_cannot_be_written_is_one_line) {
    start_numbered("");
    profiler.error = -ENOSPC;
    struct capture capture = capture_begin();
    numbered_dump("x");
    check_str(capture_end(capture),
              "tally: cannot write the heap profile /x/h.0001.heap: the disk is full (28)\n");
}

TEST(a_forked_child_has_its_process_id_in_its_files) {
    start_numbered("");
    pid_t child = fork();
    if (child == 0) {
        char expected[64];
        snprintf(expected, sizeof expected, "/x/h_%d.0001.heap", getpid());
        slow_call();
        numbered_dump("x");
        _exit(strcmp(profiler.path, expected) == 0 ? 0 : 1);
    }
    int status;
    check_eq(waitpid(child, &status, 0), child);
    check_eq(status, 0);
}

TEST(numbered_files_can_be_started_at_any_time) {
    profiler.armed = profiler.active = false;
    start("");
    check(!numbered_is_running());
    check(!numbered_start(NULL) && !numbered_start(""));
    profiler.lg_sample = 19;
    check(numbered_start("/x/s"));
    check(profiler.active);
    check_eq(profiler.lg_sample, 0);
    check(!numbered_start("/x/t"));
    triggers_restart();
    slow_call();
    change(1024.0 * MIB, 0);
    check_str(profiler.path, "/x/s.0001.heap");
    numbered_stop();
    check(!numbered_is_running() && !profiler.active);
    check(numbered_start("/x/t"));
    numbered_dump("x");
    check_str(profiler.path, "/x/t.0002.heap"); /* The numbers go on. */
    struct capture capture = capture_begin();
    profiler.live = 5000;
    triggers_exit();
    check_str(capture_end(capture),
              "tally: Dumping heap profile to /x/t.0003.heap (Exiting, 4 kB in use)\n");
}

TEST(set_uid_programs_do_not_start) {
    start("");
    os_facts.secure = true;
    check(!numbered_start("/x/s"));
}
