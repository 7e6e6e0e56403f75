/* SPDX-License-Identifier: MIT
 *
 * test_ctl_prof.c - what the names prof.* of mallctl do, and how they refuse.  The profiler behind them is the
 * test's own, so that each answer can be asked for.
 */
#include <errno.h>
#include <stdio.h>

#include "base/os.h"
#include "control/ctl.h"
#include "ctl_calls.h"
#include "fake_profiler.h"
#include "opt/opt.h"
#include "prof/prof.h"
#include "unit.h"

static struct {
    bool thread_active, active_init, refuse;
    char name[64], prefix[64];
    char kind;
    enum dump_format format;
    ssize_t recent;
} fake = {.thread_active = true, .active_init = true};

bool __wrap_prof_thread_is_active(void);
bool __wrap_prof_thread_is_active(void) {
    return fake.thread_active;
}
bool __wrap_prof_thread_set_active(bool active);
bool __wrap_prof_thread_set_active(bool active) {
    if (!fake.refuse) {
        fake.thread_active = active;
    }
    return !fake.refuse;
}
bool __wrap_prof_thread_active_init(void);
bool __wrap_prof_thread_active_init(void) {
    return fake.active_init;
}
void __wrap_prof_set_thread_active_init(bool active);
void __wrap_prof_set_thread_active_init(bool active) {
    fake.active_init = active;
}
bool __wrap_prof_thread_set_name(const char *name);
bool __wrap_prof_thread_set_name(const char *name) {
    snprintf(fake.name, sizeof fake.name, "%s", name);
    return !fake.refuse;
}
void __wrap_prof_thread_get_name(char name[16]);
void __wrap_prof_thread_get_name(char name[16]) {
    snprintf(name, 16, "%.15s", fake.name);
}
int __wrap_dump_automatically(char kind);
int __wrap_dump_automatically(char kind) {
    fake.kind = kind;
    return profiler.error;
}
int __wrap_dump_to_given(const char *path, enum dump_format format, enum dump_what what);
int __wrap_dump_to_given(const char *path, enum dump_format format, enum dump_what what) {
    snprintf(profiler.path, sizeof profiler.path, "%s", path);
    fake.format = format;
    check_eq(what, DUMP_NOW);
    return profiler.error;
}
bool __wrap_out_file_set_prefix(const char *prefix);
bool __wrap_out_file_set_prefix(const char *prefix) {
    snprintf(fake.prefix, sizeof fake.prefix, "%s", prefix);
    return !fake.refuse;
}
ssize_t __wrap_prof_recent_max(void);
ssize_t __wrap_prof_recent_max(void) {
    return fake.recent;
}
void __wrap_prof_recent_set_max(ssize_t most);
void __wrap_prof_recent_set_max(ssize_t most) {
    fake.recent = most;
}

static int write_text(const char *name, const char *text) {
    return ctl_by_name(name, NULL, NULL, &text, sizeof text);
}

TEST(profiling_that_was_never_armed_cannot_be_used) {
    start_heap();
    check(read_bool("config.prof"));
    check(!read_bool("prof.active"));
    check(!read_bool("prof.thread_active_init"));
    check(!read_bool("thread.prof.active"));
    check(!read_bool("prof.gdump"));
    check_eq(write_bool("prof.active", false), 0);
    check_eq(write_bool("prof.gdump", true), ENOENT);
    check_eq(write_bool("prof.thread_active_init", true), ENOENT);
    check_eq(write_bool("thread.prof.active", true), ENOENT);
    check_eq(write_text("thread.prof.name", "x"), ENOENT);
    check_eq(write_text("prof.dump", "x"), ENOENT);
    check_eq(act("prof.dump"), ENOENT);
    check_eq(write_text("prof.prefix", "x"), ENOENT);
    check_eq(act("prof.reset"), ENOENT);
    check_eq(act("prof.log_start"), ENOENT);
    check_eq(act("prof.log_stop"), ENOENT);
    check_eq(write_ssize_t("experimental.prof_recent.alloc_max", 1), ENOENT);
    check_eq(act("experimental.prof_recent.alloc_dump"), ENOENT);
    check_eq(act("prof.stats.bins.0.live"), ENOENT);
    check(!read_bool("prof.active"));
    check_eq(read_size_t("prof.lg_sample"), 0);
    check_eq(read_uint64_t("prof.interval"), 0);
}

static void arm(void) {
    start_heap();
    check_eq(write_bool("prof.active", true), 0);
}

TEST(any_process_can_be_armed) {
    arm();
    check(read_bool("prof.active"));
    check(!read_bool("opt.prof"));
    check_eq(read_size_t("prof.lg_sample"), 19);
    check_eq(write_bool("prof.active", false), 0);
    check(!read_bool("prof.active"));
    check_eq(read_size_t("prof.lg_sample"), 19);
    check_eq(ctl_by_name("prof.active", NULL, NULL, &fake, 2), EINVAL);
}

TEST(switches_of_the_profiler_can_be_turned) {
    arm();
    check(read_bool("prof.thread_active_init") && read_bool("thread.prof.active"));
    check(!read_bool("prof.gdump"));
    check_eq(write_bool("prof.thread_active_init", false), 0);
    check_eq(write_bool("thread.prof.active", false), 0);
    check_eq(write_bool("prof.gdump", true), 0);
    check(!read_bool("prof.thread_active_init") && !read_bool("thread.prof.active"));
    check(read_bool("prof.gdump"));
    fake.refuse = true;
    check_eq(write_bool("thread.prof.active", true), EAGAIN);
}

TEST(the_name_of_a_thread_is_read_or_written) {
    arm();
    check_eq(write_text("thread.prof.name", "a name\twith blanks"), 0);
    check_str(fake.name, "a name\twith blanks");
    check_str(read_text("thread.prof.name"), "a name\twith bla");
    check_eq(write_text("thread.prof.name", ""), 0);
    check_str(read_text("thread.prof.name"), "");
    check_eq(write_text("thread.prof.name", NULL), EINVAL);
    check_eq(write_text("thread.prof.name", "line\n"), EINVAL);
    check_eq(write_text("thread.prof.name", "\x80"), EINVAL);
    const char *old, *text = "x";
    size_t length = sizeof old;
    check_eq(ctl_by_name("thread.prof.name", &old, &length, &text, sizeof text), EPERM);
    check_eq(ctl_by_name("thread.prof.name", NULL, NULL, &text, 4), EINVAL);
    fake.refuse = true;
    check_eq(write_text("thread.prof.name", "x"), EAGAIN);
    opt.prof_sys_thread_name = 1;
    check_eq(write_text("thread.prof.name", "x"), ENOENT);
}

TEST(the_ending_of_a_name_decides_about_the_format) {
    static const struct {
        const char *path;
        enum dump_format format;
    } cases[] = {
        {"x", DUMP_JEMALLOC},         {"x.heap", DUMP_JEMALLOC},    {".pb", DUMP_JEMALLOC},
        {"x.pb", DUMP_PROTO},         {"x.pb.gz", DUMP_PROTO},      {"x.tally", DUMP_PROTO},
        {"x.gperf", DUMP_GPERFTOOLS}, {"x.hprof", DUMP_GPERFTOOLS}, {"x.pb.other", DUMP_JEMALLOC}};
    arm();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_eq(write_text("prof.dump", cases[i].path), 0);
        check_str(profiler.path, cases[i].path);
        check_eq(fake.format, cases[i].format);
    }
}

TEST(a_dump_without_a_name_has_an_automatic_one) {
    arm();
    check_eq(act("prof.dump"), 0);
    check_eq(fake.kind, 'm');
    fake.kind = 0;
    check_eq(write_text("prof.dump", NULL), 0);
    check_eq(fake.kind, 'm');
    profiler.error = -EINVAL;
    check_eq(act("prof.dump"), EFAULT);
    check_eq(write_text("prof.dump", "x"), EFAULT);
    char *old;
    size_t length = sizeof old;
    check_eq(ctl_by_name("prof.dump", &old, &length, NULL, 0), EPERM);
    check_eq(ctl_by_name("prof.dump", NULL, NULL, &old, 4), EINVAL);
}

TEST(set_uid_programs_write_no_profile) {
    arm();
    os_facts.secure = true;
    profiler.path[0] = '\0';
    check_eq(act("prof.dump"), EFAULT);
    check_eq(write_text("prof.dump", "x"), EFAULT);
    check_eq(write_text("prof.log_start", "x"), EFAULT);
    check_eq(fake.kind, 0);
    check_str(profiler.path, "");
}

TEST(prefix_and_rate_can_be_changed) {
    arm();
    check_eq(write_text("prof.prefix", "p"), 0);
    check_str(fake.prefix, "p");
    check_eq(write_text("prof.prefix", NULL), EFAULT);
    check_eq(act("prof.prefix"), EFAULT);
    fake.refuse = true;
    check_eq(write_text("prof.prefix", "p"), EFAULT);
    check_eq(act("prof.reset"), 0);
    check_eq(profiler.resets, 1);
    check_eq(read_size_t("prof.lg_sample"), 19);
    check_eq(write_size_t("prof.reset", 5), 0);
    check_eq(read_size_t("prof.lg_sample"), 5);
    check_eq(write_size_t("prof.reset", 64), 0);
    check_eq(read_size_t("prof.lg_sample"), 63);
    check_eq(write_unsigned("prof.reset", 3), EINVAL);
    size_t old, length = sizeof old;
    check_eq(ctl_by_name("prof.reset", &old, &length, NULL, 0), EPERM);
    check_eq(profiler.resets, 3);
}

TEST(the_number_of_recent_samples_can_be_changed) {
    arm();
    ssize_t old = 7, most = 3;
    size_t length = sizeof old;
    check_eq(ctl_by_name("experimental.prof_recent.alloc_max", &old, &length, &most, sizeof most),
             0);
    check_eq(old, 0);
    check_eq(fake.recent, 3);
    check_eq(write_ssize_t("experimental.prof_recent.alloc_max", -2), EINVAL);
    check_eq(write_ssize_t("experimental.prof_recent.alloc_max", -1), 0);
    check_eq(read_ssize_t("experimental.prof_recent.alloc_max"), -1);
    length = 4;
    most = 9;
    check_eq(ctl_by_name("experimental.prof_recent.alloc_max", &old, &length, &most, sizeof most),
             EINVAL);
    check_eq(fake.recent, -1);
    check_eq(act("experimental.prof_recent.alloc_dump"), EINVAL);
}

TEST(the_interval_is_what_options_say) {
    start_heap_with("lg_prof_interval:20");
    check_eq(read_uint64_t("prof.interval"), 1 << 20);
}

TEST(an_interval_in_bytes_wins) {
    start_heap_with("prof_alloc_interval:1000,lg_prof_interval:20");
    check_eq(read_uint64_t("prof.interval"), 1000);
}

static void some_hook(void) {
}

TEST(hooks_of_the_profiler_are_kept) {
    static const char *const names[] = {
        "experimental.hooks.prof_backtrace", "experimental.hooks.prof_dump",
        "experimental.hooks.prof_sample", "experimental.hooks.prof_sample_free"};
    start_heap();
    for (size_t i = 0; i < 4; i++) {
        void (*hook)(void) = some_hook, (*old)(void) = some_hook;
        size_t length = sizeof old;
        check_eq(act(names[i]), EINVAL);
        check_eq(ctl_by_name(names[i], &old, &length, &hook, sizeof hook), 0);
        check(old == (i == 0 ? (void (*)(void))prof_backtrace : NULL));
        check_eq(ctl_by_name(names[i], &old, &length, NULL, 0), 0);
        check(old == some_hook);
        hook = NULL;
        int expected = i == 0 ? EINVAL : 0;
        check_eq(ctl_by_name(names[i], NULL, NULL, &hook, sizeof hook), expected);
        check_eq(ctl_by_name(names[i], NULL, NULL, &hook, 4), EINVAL);
    }
}

static void say_it(const char *text) {
    os_write(2, "hook: ", 6);
    os_write(2, text, strlen(text));
}

static void die_with_hook(void (*hook)(const char *text)) {
    check_eq(ctl_by_name("experimental.hooks.safety_check_abort", NULL, NULL, &hook, sizeof hook),
             0);
    int on_stack = 0;
    tally_free(test_launder(&on_stack));
}

TEST(the_last_sentence_goes_to_the_hook) {
    start_heap();
    check_dies(die_with_hook(say_it), "hook: tally: free(%p): not memory of this heap", SIGABRT);
    check_dies_exactly(die_with_hook(NULL), "tally: free(%p): not memory of this heap", SIGABRT);
}
