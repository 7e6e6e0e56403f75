/* SPDX-License-Identifier: MIT
 *
 * test_opt_foreign.c - environment variables of gperftools, mimalloc, the leak sanitizer and others, and the
 * options that they set.
 */
#include <stdio.h>

#include "base/os.h"
#include "opt/opt.h"
#include "opt_start.h"
#include "unit.h"

/* ---------------------------------------------------------------- gperftools' variables */

static void clear_launchers(void) {
    static const char *const names[] = {"PMIX_RANK", "SLURM_JOB_ID", "SLURM_PROCID", "OMPI_HOME",
                                        "PMI_RANK"};
    clear_environment();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        unsetenv(names[i]);
    }
}

TEST(heapprofile_means_every_allocation) {
    clear_launchers();
    setenv("HEAPPROFILE", "/tmp/a,b:c", 1);
    check_str(init((struct opt_program){"prof_prefix:x", NULL}), "");
    check_str(opt.prof_prefix, "/tmp/a,b:c");
    check(opt.prof && opt.prof_accum && opt.prof_final);
    check_eq(opt.lg_prof_sample, 0);
    check_eq(opt.prof_names, PROF_NAMES_GPERFTOOLS);
    check_eq(opt.prof_alloc_interval, 1 << 30);
    check_eq(opt.prof_live_step, 100 << 20);
    setenv("MALLOC_CONF", "lg_prof_sample:10", 1);
    check_str(init((struct opt_program){0}), "");
    check_eq(opt.lg_prof_sample, 10);
}

TEST(an_empty_heapprofile_turns_nothing_on) {
    clear_launchers();
    setenv("HEAPPROFILE", "", 1);
    check_str(init((struct opt_program){0}), "");
    check(!opt.prof);
    check_str(opt.prof_prefix, "jeprof");
    check(getenv("HEAPPROFILE_USE_PID") == NULL);
}

TEST(a_heapprofile_that_is_too_long_is_ignored) {
    static char too_long[5000];
    clear_launchers();
    memset(too_long, 'p', sizeof too_long - 1);
    setenv("HEAPPROFILE", too_long, 1);
    check_str(init((struct opt_program){0}), "tally: HEAPPROFILE is too long and is ignored\n");
    check(!opt.prof);
}

/* What the name becomes with a launcher's variables. */
static const char *prefix_with(const char *name, const char *value, const char *more) {
    clear_launchers();
    setenv("HEAPPROFILE", "h", 1);
    setenv(name, value, 1);
    if (more != NULL) {
        setenv(more, "7", 1);
    }
    check_str(init((struct opt_program){0}), "");
    return opt.prof_prefix;
}

TEST(ranks_and_process_ids_keep_files_apart) {
    char with_process[64];
    snprintf(with_process, sizeof with_process, "h_%d", getpid());
    check_str(prefix_with("PMIX_RANK", "3", "PMI_RANK"), "h.rank-3");
    check_str(prefix_with("SLURM_JOB_ID", "3", "SLURM_PROCID"), "h.slurmid-7");
    check_str(prefix_with("SLURM_JOB_ID", "3", NULL), with_process);
    check_str(prefix_with("OMPI_HOME", "3", "PMI_RANK"), with_process);
    check_str(prefix_with("PMI_RANK", "3", NULL), "h.rank-3");
    check_str(prefix_with("HEAPPROFILE_USE_PID", "", NULL), with_process);
    check_str(prefix_with("HEAPPROFILE_USE_PID", "yes", NULL), with_process);
    check_str(prefix_with("HEAPPROFILE_USE_PID", "on", NULL), "h");
}

TEST(programs_it_starts_have_their_process_id_in_the_name) {
    clear_launchers();
    setenv("HEAPPROFILE", "h", 1);
    setenv("HEAPPROFILE_USE_PID", "0", 1);
    check_str(init((struct opt_program){0}), "");
    check_str(opt.prof_prefix, "h");
    check_str(getenv("HEAPPROFILE_USE_PID"), "1");
    check_str(getenv("HEAPPROFILE"), "h");
    setenv("AFTERWARDS", "works", 1);
    check_str(getenv("AFTERWARDS"), "works");
}

/* Shells write into what they find. */
TEST(a_variable_that_was_added_may_be_written_to) {
    clear_launchers();
    setenv("HEAPPROFILE", "h", 1);
    check_str(init((struct opt_program){0}), "");
    char *value = getenv("HEAPPROFILE_USE_PID");
    check(value != NULL);
    value[0] = '2';
    value[-1] = '=';
    check_str(getenv("HEAPPROFILE_USE_PID"), "2");
}

TEST(variables_are_out_of_sight_until_they_are_shown) {
    clear_launchers();
    setenv("HEAPCHECK", "normal", 1);
    setenv("CPUPROFILE", "file", 1);
    opt_gperftools_hide();
    check(getenv("HEAPCHECK") == NULL && getenv("CPUPROFILE") == NULL);
    setenv("AFTERWARDS", "works", 1);
    opt_gperftools_show();
    check_str(getenv("HEAPCHECK"), "normal");
    check_str(getenv("CPUPROFILE"), "file");
    opt_gperftools_show();
    check_str(getenv("HEAPCHECK"), "normal");
}

TEST(intervals_are_read_as_gperftools_reads_them) {
    clear_launchers();
    setenv("HEAP_PROFILE_ALLOCATION_INTERVAL", "12345 bytes", 1);
    setenv("HEAP_PROFILE_DEALLOCATION_INTERVAL", " 77", 1);
    setenv("HEAP_PROFILE_INUSE_INTERVAL", "-5", 1);
    setenv("HEAP_PROFILE_TIME_INTERVAL", "60", 1);
    setenv("HEAPPROFILESIGNAL", "12", 1);
    setenv("TCMALLOC_SAMPLE_PARAMETER", "524288", 1);
    check_str(init((struct opt_program){0}), "");
    check_eq(opt.prof_alloc_interval, 12345);
    check_eq(opt.prof_free_interval, 77);
    check_eq(opt.prof_live_step, 0);
    check_eq(opt.prof_time_interval, 60);
    check_eq(opt.prof_signal, 12);
    check_eq(opt.lg_prof_sample, 19);
    check(!opt.prof);
    setenv("HEAPPROFILESIGNAL", "99", 1);
    check_str(
        init((struct opt_program){0}),
        "tally: invalid value '99' for option 'prof_signal' in HEAPPROFILESIGNAL is ignored\n");
}

TEST(switches_are_read_as_gperftools_reads_them) {
    clear_launchers();
    setenv("HEAP_PROFILE_MMAP", "t", 1);
    setenv("HEAP_PROFILE_ONLY_MMAP", "0", 1);
    setenv("HEAP_PROFILE_MMAP_LOG", "", 1);
    setenv("HEAP_PROFILE_CLEANUP", "on", 1);
    check_str(init((struct opt_program){0}), "");
    check(opt.prof_mmap && !opt.prof_mmap_only && opt.prof_mmap_log && !opt.prof);
    setenv("HEAP_PROFILE_MMAP_LOG", "on", 1);
    setenv("HEAP_PROFILE_MMAP", "no", 1);
    check_str(init((struct opt_program){0}),
              "tally: HEAP_PROFILE_MMAP_LOG=on means false, as in gperftools\n");
    check(!opt.prof_mmap && !opt.prof_mmap_log);
    setenv("HEAP_PROFILE_ONLY_MMAP", "1", 1);
    setenv("HEAP_PROFILE_MMAP_LOG", "0", 1);
    check_str(init((struct opt_program){0}), "");
    check(opt.prof_mmap && opt.prof_mmap_only);
}

/* ---------------------------------------------------------------- variables of other allocators */

static const char *init_with(const char *variable, const char *value) {
    clear_environment();
    setenv(variable, value, 1);
    return init((struct opt_program){0});
}

TEST(switches_of_mimalloc_have_all_its_spellings) {
    static const char *const yes[] = {"", "1", "true", "YES", "On", "2"};
    static const char *const no[] = {"0", "false", "No", "OFF"};
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        check_str(init_with("MIMALLOC_SHOW_STATS", yes[i]), "");
        check_eq(opt.stats_print, 1);
    }
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++) {
        check_str(init_with("MIMALLOC_SHOW_STATS", no[i]), "");
        check_eq(opt.stats_print, 0);
    }
    check_str(init_with("MIMALLOC_SHOW_STATS", "maybe\n"),
              "tally: invalid value 'maybe?' of MIMALLOC_SHOW_STATS is ignored\n");
    check_eq(opt.stats_print, 0);
}

TEST(variables_of_other_allocators_set_options) {
    check_str(init_with("MIMALLOC_PURGE_DELAY", "-1"), "");
    check_eq(opt.dirty_decay_ms, -1);
    check_str(init_with("MIMALLOC_PURGE_DELAY", "0"), "");
    check_eq(opt.dirty_decay_ms, 0);
    check_eq(count_lines(init_with("MIMALLOC_PURGE_DELAY", "-2")), 1);
    check_eq(opt.dirty_decay_ms, 1000);
    check_eq(count_lines(init_with("MIMALLOC_PURGE_DELAY", "1,zero:true")), 1);
    check_eq(opt.zero, 0);
    check(strstr(init_with("MIMALLOC_VERBOSE", "1"), "-- Set conf value: confirm_conf:true") !=
          NULL);
    check_eq(opt.confirm_conf, 1);
    check_str(init_with("MIMALLOC_SHOW_ERRORS", "0"), "");
    check_str(init_with("MIMALLOC_ARENA_EAGER_COMMIT", "2"),
              "tally: variable MIMALLOC_ARENA_EAGER_COMMIT=2 has no effect\n");
    check_str(init_with("MIMALLOC_USE_NUMA_NODES", "4"),
              "tally: variable MIMALLOC_USE_NUMA_NODES=4 has no effect\n");
    char bytes[32];
    snprintf(bytes, sizeof bytes, "%u", 1000 * os_facts.cpus);
    check_str(init_with("TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", bytes), "");
    check_eq(opt.thread_cache_bytes, 1000);
    check_str(init_with("TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", "9223372036854775807"), "");
    check_eq(opt.thread_cache_bytes, 1 << 30);
    check_eq(count_lines(init_with("TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", "")), 1);
    check_eq(opt.thread_cache_bytes, 1 << 20);
}

/* ---------------------------------------------------------------- variables of leak checkers */

/* The heap checker of gperftools. */

static struct options heapcheck(const char *mode, const char *variable, const char *value) {
    defaults();
    setenv("HEAPCHECK", mode, 1);
    if (variable != NULL) {
        setenv(variable, value, 1);
    }
    check_str(init((struct opt_program){0}), "");
    struct options found = opt;
    clear_environment();
    return found;
}

TEST(heapcheck_is_the_table_of_its_modes) {
    static const struct {
        const char *mode;
        uint64_t when, since_main, roots;
    } rows[] = {
        {"minimal", LEAK_CHECK_EXIT, 1, 1},  {"normal", LEAK_CHECK_EXIT, 0, 1},
        {"strict", LEAK_CHECK_STRICT, 0, 1}, {"draconian", LEAK_CHECK_STRICT, 0, 0},
        {"as-is", LEAK_CHECK_EXIT, 0, 1},    {"local", LEAK_CHECK_LOCAL, 0, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct options found = heapcheck(rows[i].mode, NULL, NULL);
        check_eq(found.leak_check, rows[i].when);
        check_eq(found.leak_since_main, rows[i].since_main);
        check_eq(found.leak_threads, rows[i].roots);
        check_eq(found.leak_globals, rows[i].roots);
        check_eq(found.prof, 1);
        check_eq(found.lg_prof_sample, 0);
        check_eq(found.leak_text, LEAK_TEXT_GPERFTOOLS);
        check_eq(found.leak_exit_code, 1);
        check_eq(found.leak_max_offset, 1024);
        check_str(found.leak_dump_dir, "/tmp");
        check_eq(found.prof_final, 0);
    }
}

TEST(sensitivity_of_heapcheck_is_for_as_is_only) {
    check_eq(heapcheck("normal", "HEAP_CHECK_IGNORE_THREAD_LIVE", "false").leak_threads, 1);
    check_eq(heapcheck("as-is", "HEAP_CHECK_IGNORE_THREAD_LIVE", "false").leak_threads, 0);
    check_eq(heapcheck("as-is", "HEAP_CHECK_IGNORE_GLOBAL_LIVE", "0").leak_globals, 0);
    check_eq(heapcheck("as-is", "HEAP_CHECK_AFTER_DESTRUCTORS", "1").leak_check, LEAK_CHECK_STRICT);
    check_eq(heapcheck("normal", "HEAP_CHECK_AFTER_DESTRUCTORS", "1").leak_check, LEAK_CHECK_EXIT);
}

TEST(variables_of_heapcheck_are_options) {
    check_eq(heapcheck("normal", "HEAP_CHECK_MAX_POINTER_OFFSET", "-1").leak_max_offset, 0);
    check_eq(heapcheck("normal", "HEAP_CHECK_MAX_POINTER_OFFSET", "64").leak_max_offset, 64);
    check_eq(heapcheck("normal", "HEAP_CHECK_POINTER_SOURCE_ALIGNMENT", "1").leak_step, 1);
    check_eq(heapcheck("normal", "HEAP_CHECK_POINTER_SOURCE_ALIGNMENT", "0").leak_step, 8);
    check_eq(heapcheck("normal", "HEAP_CHECK_MAX_LEAKS", "3").leak_max_reports, 3);
    check_eq(heapcheck("normal", "HEAP_CHECK_MAX_LEAKS", "-1").leak_max_reports, 0);
    check_eq(heapcheck("normal", "HEAP_CHECK_IDENTIFY_LEAKS", "true").leak_list_objects, 1);
    check_eq(heapcheck("normal", "HEAP_CHECK_TEST_POINTER_ALIGNMENT", "1").leak_test_alignment, 1);
    check_str(heapcheck("normal", "HEAP_CHECK_DUMP_DIRECTORY", "/var/x,y").leak_dump_dir,
              "/var/x,y");
    check_eq(heapcheck("normal", NULL, NULL).leak_say_none, 1);
    check_eq(heapcheck("normal", "PERFTOOLS_VERBOSE", "-1").leak_say_none, 0);
}

TEST(an_empty_heapcheck_is_off_and_any_other_word_ends_the_program) {
    defaults();
    setenv("HEAPCHECK", "", 1);
    check_str(init((struct opt_program){0}), "tally: HEAPCHECK is empty: no leak check\n");
    check_eq(opt.leak_check, LEAK_CHECK_OFF);
    check_eq(opt.prof, 0);
    setenv("HEAPCHECK", "harsh", 1);
    os_init();
    struct opt_program program = {0};
    check_dies(opt_init(program), "Unsupported heap_check flag: harsh", SIGABRT);
    clear_environment();
}

TEST(lsan_options_are_options) {
    defaults();
    setenv("LSAN_OPTIONS", "exitcode=7:suppressions=/a/b.supp,max_leaks=5 report_objects=1:fast=0",
           1);
    check_str(init((struct opt_program){0}), "");
    check_eq(opt.leak_exit_code, 7);
    check_str(opt.leak_suppressions, "/a/b.supp");
    check_eq(opt.leak_max_reports, 5);
    check_eq(opt.leak_list_objects, 1);
    check_eq(opt.leak_check, LEAK_CHECK_OFF);
    setenv("LSAN_OPTIONS", "suppressions='/a b:c':exitcode", 1);
    check_str(init((struct opt_program){0}), "");
    check_str(opt.leak_suppressions, "/a b:c");
    setenv("LSAN_OPTIONS", "suppressions=", 1);
    check_str(init((struct opt_program){0}), "");
    check_str(opt.leak_suppressions, "");
    clear_environment();
}

TEST(a_leak_check_records_every_allocation_unless_the_profiler_is_set) {
    defaults();
    setenv("TALLY_CONF", "leak_check:exit", 1);
    check_str(init((struct opt_program){0}), "");
    check_eq(opt.prof, 1);
    check_eq(opt.lg_prof_sample, 0);
    setenv("TALLY_CONF", "leak_check:exit,prof:true,lg_prof_sample:12", 1);
    check_str(init((struct opt_program){0}), "");
    check_eq(opt.lg_prof_sample, 12);
    clear_environment();
}
