/* SPDX-License-Identifier: MIT
 *
 * test_dump_files.c - profiles and logs go into files that are complete or not there, under the names that
 * were asked for.
 */
#define _GNU_SOURCE /* memfd_create */
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/os.h"
#include "made_samples.h"
#include "opt/opt.h"
#include "out/out_file.h"
#include "prof/prof.h"
#include "unit.h"

/* ---------------------------------------------------------------- files */

static char directory[40]; /* "" while there is none */
static char path[400];

static const char *in_directory(const char *name) {
    if (directory[0] == '\0') {
        strcpy(directory, "/tmp/tally-dump-XXXXXX");
        check(mkdtemp(directory) != NULL);
    }
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return path;
}

/* The directory is empty, and goes. */
static void check_nothing_left(void) {
    check_eq(rmdir(directory), 0);
    directory[0] = '\0';
}

static void remove_file(const char *name) {
    check_eq(unlink(in_directory(name)), 0);
}

static const char *content(const char *name) {
    int fd = open(in_directory(name), O_RDONLY | O_NOFOLLOW);
    check(fd >= 0);
    ssize_t length = read(fd, text, sizeof(text) - 1);
    check(length >= 0);
    text[length] = '\0';
    close(fd);
    return text;
}

TEST(a_file_is_for_its_owner_alone) {
    make_sampled_example();
    umask(0);
    check_eq(dump_by_name(in_directory("a.heap")), 0);
    struct stat status;
    check_eq(lstat(path, &status), 0);
    check_eq(status.st_mode, S_IFREG | 0600);
    check(strstr(content("a.heap"), "heap_v2/524288\n  t*: 7: 13594 ") == text);
    remove_file("a.heap");
    check_nothing_left();
    check_eq(mapped_bytes, 0);
}

TEST(the_ending_chooses_the_format) {
    static const struct {
        const char *name, *beginning;
    } names[] = {
        {"a.heap", "heap_v2/"},  {"a.gperf", "heap profile:"}, {"a.hprof", "heap profile:"},
        {"a.pb.gz", "\x1f\x8b"}, {"a.pb", "\x1f\x8b"},         {"a.tally", "\x1f\x8b"},
        {"a", "\x1f\x8b"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        check_eq(dump_by_name(in_directory(names[i].name)), 0);
        check(strncmp(content(names[i].name), names[i].beginning, strlen(names[i].beginning)) == 0);
        remove_file(names[i].name);
    }
    check_eq(dump_to_file(in_directory("a.heap"), DUMP_GPERFTOOLS, DUMP_NOW), 0);
    check(strstr(content("a.heap"), "heap profile:") == text);
    remove_file("a.heap");
    check_nothing_left();
}

TEST(a_file_that_exists_is_left_alone) {
    FILE *file = fopen(in_directory("a.heap"), "w");
    fputs("mine", file);
    fclose(file);
    check_eq(dump_to_file(path, DUMP_JEMALLOC, DUMP_NOW), -EEXIST);
    check_str(content("a.heap"), "mine");
    remove_file("a.heap");
    check_nothing_left();
}

TEST(a_file_that_was_given_stays_as_it_is_without_memory) {
    make_many();
    FILE *file = fopen(in_directory("a.heap"), "w");
    fputs("mine", file);
    fclose(file);
    int error = -ENOMEM;
    long allowed = 0;
    for (; error != 0; allowed++) {
        check_str(content("a.heap"), "mine");
        maps_allowed = allowed;
        error = dump_to_given(in_directory("a.heap"), DUMP_JEMALLOC, DUMP_NOW);
        maps_allowed = -1;
        check(error == 0 || error == -ENOMEM);
        check_eq(mapped_bytes, 0);
    }
    check(allowed > 10);
    check(strncmp(content("a.heap"), "heap_v2/", 8) == 0);
    remove_file("a.heap");
    check_nothing_left();
}

TEST(names_are_judged_and_nothing_changes) {
    check_eq(out_file_judge(in_directory("a.heap")), OUT_TARGET_NEW);
    check_eq(access(path, F_OK), -1);
    FILE *file = fopen(path, "w");
    check_eq(out_file_judge(path), OUT_TARGET_EMPTY);
    fputs("mine", file);
    fclose(file);
    check_eq(out_file_judge(path), OUT_TARGET_FILLED);
    check_str(content("a.heap"), "mine");
    remove_file("a.heap");
    check_eq(out_file_judge("/dev/null"), OUT_TARGET_STREAM);
    check_eq(out_file_judge("/dev/stderr"), OUT_TARGET_STREAM);
    check_eq(out_file_judge("/dev/full"), -EEXIST);
    check_eq(out_file_judge("/nowhere/at/all.heap"), -ENOENT);
    check_eq(out_file_judge(""), -ENOENT);
    check_eq(out_file_judge(directory), -EEXIST);
    check_nothing_left();
    check_eq(mapped_bytes, 0);
}

TEST(a_link_in_the_way_is_not_followed) {
    in_directory("a.heap");
    check_eq(symlink("elsewhere", path), 0);
    check_eq(dump_to_file(path, DUMP_JEMALLOC, DUMP_NOW), -EEXIST);
    check_eq(access(in_directory("elsewhere"), F_OK), -1);
    remove_file("a.heap");
    check_nothing_left();
}

TEST(a_link_that_comes_late_is_not_replaced) {
    appears = in_directory("a.heap");
    check_eq(dump_to_file(path, DUMP_JEMALLOC, DUMP_NOW), -EEXIST);
    check_eq(access(in_directory("elsewhere"), F_OK), -1);
    struct stat status;
    check(lstat(in_directory("a.heap"), &status) == 0 && S_ISLNK(status.st_mode));
    remove_file("a.heap");
    check_nothing_left();
}

TEST(what_a_killed_process_left_is_passed_over) {
    char left[64];
    snprintf(left, sizeof(left), ".tally-%u-0.part", (unsigned)getpid());
    close(open(in_directory(left), O_CREAT | O_WRONLY, 0600));
    check_eq(dump_to_file(in_directory("a.heap"), DUMP_JEMALLOC, DUMP_NOW), 0);
    remove_file("a.heap");
    remove_file(left);
    check_nothing_left();
}

TEST(directories_that_are_not_there_are_errors) {
    in_directory("");
    check_eq(dump_to_file("/nowhere/at/all.heap", DUMP_JEMALLOC, DUMP_NOW), -ENOENT);
    check_eq(dump_to_file("/proc/self/a.heap", DUMP_JEMALLOC, DUMP_NOW), -ENOENT);
    check_eq(dump_to_file("/dev/null/a.heap", DUMP_JEMALLOC, DUMP_NOW), -ENOTDIR);
    check_eq(dump_to_file("", DUMP_JEMALLOC, DUMP_NOW), -ENOENT);
    check_eq(dump_to_file(directory, DUMP_JEMALLOC, DUMP_NOW), -EEXIST);
    memset(text, 'x', 300);
    text[300] = '\0';
    check_eq(dump_to_file(in_directory(text), DUMP_JEMALLOC, DUMP_NOW), -ENAMETOOLONG);
    memset(text, '/', 6000);
    text[6000] = '\0';
    check_eq(dump_to_file(text, DUMP_JEMALLOC, DUMP_NOW), -ENAMETOOLONG);
    check_nothing_left();
    check_eq(mapped_bytes, 0);
}

TEST(a_directory_that_is_not_ours_is_an_error) {
    if (geteuid() == 0) {
        check_eq(setresuid(65534, 65534, 65534), 0);
    }
    check_eq(dump_to_file("/etc/a.heap", DUMP_JEMALLOC, DUMP_NOW), -EACCES);
}

/* SIGXFSZ would end the test. */
TEST(a_full_disk_leaves_nothing_behind) {
    struct rlimit limit = {100000, RLIM_INFINITY};
    check_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    make_many();
    for (int format = DUMP_JEMALLOC; format <= DUMP_GPERFTOOLS; format++) {
        check_eq(dump_to_file(in_directory("a"), (enum dump_format)format, DUMP_NOW), -EFBIG);
    }
    check_nothing_left();
    check_eq(mapped_bytes, 0);
}

TEST(descriptors_that_take_nothing_are_errors) {
    make_sampled_example();
    int full = open("/dev/full", O_WRONLY);
    int reading = open("/dev/null", O_RDONLY);
    for (int format = DUMP_JEMALLOC; format <= DUMP_GPERFTOOLS; format++) {
        check_eq(dump_to_descriptor(full, (enum dump_format)format, DUMP_NOW), -ENOSPC);
        check_eq(dump_to_descriptor(reading, (enum dump_format)format, DUMP_NOW), -EBADF);
        check_eq(dump_to_descriptor(-1, (enum dump_format)format, DUMP_NOW), -EBADF);
    }
    int ends[2];
    check_eq(pipe(ends), 0);
    close(ends[0]);
    check_eq(dump_to_descriptor(ends[1], DUMP_JEMALLOC, DUMP_NOW), -EPIPE);
    check_eq(mapped_bytes, 0);
}

TEST(a_descriptor_gets_the_same_bytes) {
    make_sampled_example();
    int fd = memfd_create("dump", 0);
    check_eq(dump_to_descriptor(fd, DUMP_JEMALLOC, DUMP_NOW), 0);
    static char got[4000];
    ssize_t length = pread(fd, got, sizeof(got) - 1, 0);
    check(length > 0);
    got[length] = '\0';
    check_str(got, dump_text(DUMP_JEMALLOC, DUMP_NOW));
}

/* What a program that has closed its standard descriptors prints goes into no file of ours. */
TEST(standard_descriptors_are_not_taken) {
    check_child({
        in_directory("a");
        close(0);
        close(1);
        int fd = os_create(path);
        int maps = os_open("/proc/self/maps");
        check(fd > 2);
        check(maps > 2);
        check(fcntl(fd, F_GETFD) == FD_CLOEXEC);
        unlink(path);
        rmdir(directory);
    });
}

TEST(without_memory_nothing_is_left_behind) {
    make_many();
    for (int format = DUMP_JEMALLOC; format <= DUMP_GPERFTOOLS; format++) {
        int error = -ENOMEM;
        long allowed = 0;
        for (; error != 0; allowed++) {
            maps_allowed = allowed;
            error = dump_to_file(in_directory("a"), (enum dump_format)format, DUMP_NOW);
            maps_allowed = -1;
            check(error == 0 || error == -ENOMEM);
            check_eq(mapped_bytes, 0);
            check_eq(access(path, F_OK), error == 0 ? 0 : -1);
        }
        check(allowed > 10);
        remove_file("a");
        check_nothing_left();
    }
    maps_allowed = 3;
    size_t length = 0;
    check(dump_to_memory(DUMP_JEMALLOC, DUMP_NOW, &length) == NULL);
    check_eq(mapped_bytes, 0);
}

/* ---------------------------------------------------------------- names */

static void expect(const char *name) {
    if (access(in_directory(name), F_OK) != 0) {
        test_fail(__FILE__, __LINE__, name);
    }
    remove_file(name);
}

static void set_prefix(const char *prefix) {
    check(out_file_set_prefix(in_directory(prefix)));
}

TEST(automatic_names_follow_jemallocs_scheme) {
    process_id = 26296;
    set_prefix("jeprof");
    check_eq(dump_automatically('i'), 0);
    expect("jeprof.26296.0.i0.heap");
    check_eq(dump_automatically('m'), 0);
    expect("jeprof.26296.1.m0.heap");
    check_eq(dump_to_file(in_directory("own"), DUMP_JEMALLOC, DUMP_NOW), 0);
    expect("own");
    check_eq(dump_automatically('u'), 0);
    expect("jeprof.26296.2.u0.heap");
    check_eq(dump_automatically('i'), 0);
    expect("jeprof.26296.3.i1.heap");
    check_eq(dump_automatically('f'), 0);
    expect("jeprof.26296.4.f.heap");
    check_nothing_left();
    check_eq(mapped_bytes, 0);
}

TEST(names_of_an_earlier_process_are_passed_over) {
    process_id = 7;
    set_prefix("p");
    close(open(in_directory("p.7.0.f.heap"), O_CREAT | O_WRONLY, 0600));
    check_eq(symlink("nowhere", in_directory("p.7.1.f.heap")), 0);
    check_eq(dump_automatically('f'), 0);
    expect("p.7.2.f.heap");
    remove_file("p.7.0.f.heap");
    remove_file("p.7.1.f.heap");
    check_nothing_left();
}

TEST(names_tell_the_time_when_asked) {
    process_id = 7;
    opt.prof_time_in_name = 1;
    set_prefix("p");
    static const struct {
        uint64_t seconds;
        const char *name;
    } times[] = {{951782400, "p.7.0.m0.20000229T000000Z.heap"},
                 {1709251199, "p.7.1.m1.20240229T235959Z.heap"},
                 {1767225599, "p.7.2.m2.20251231T235959Z.heap"},
                 {1767225600, "p.7.3.m3.20260101T000000Z.heap"},
                 {4107542400, "p.7.4.m4.21000301T000000Z.heap"}};
    for (size_t i = 0; i < sizeof(times) / sizeof(*times); i++) {
        wall_ns = times[i].seconds * 1000000000;
        check_eq(dump_automatically('m'), 0);
        expect(times[i].name);
    }
    check_nothing_left();
}

TEST(names_tell_the_pid_namespace_when_asked) {
    process_id = 7;
    opt.prof_pid_namespace = 1;
    set_prefix("p");
    char link[64], name[100];
    ssize_t length = readlink("/proc/self/ns/pid", link, sizeof(link) - 1);
    check(length > 6);
    link[length - 1] = '\0'; /* pid:[4026531836] */
    snprintf(name, sizeof(name), "p.%s.7.0.f.heap", link + 5);
    check_eq(dump_automatically('f'), 0);
    expect(name);
    check_nothing_left();
}

TEST(the_format_of_automatic_dumps_can_be_chosen) {
    process_id = 7;
    set_prefix("p");
    opt.prof_format = 1;
    check_eq(dump_automatically('m'), 0);
    check(strncmp(content("p.7.0.m0.pb.gz"), "\x1f\x8b", 2) == 0);
    opt.prof_format = 2;
    check_eq(dump_automatically('m'), 0);
    check(strstr(content("p.7.1.m1.hprof"), "heap profile:") == text);
    remove_file("p.7.0.m0.pb.gz");
    remove_file("p.7.1.m1.hprof");
    check_nothing_left();
}

TEST(an_empty_prefix_writes_nothing) {
    check(out_file_set_prefix(""));
    struct capture capture = capture_begin();
    check_eq(dump_automatically('i'), -EINVAL);
    check_eq(dump_automatically('m'), -EINVAL);
    check_str(capture_end(capture), "");
    memset(text, 'x', 5000);
    text[5000] = '\0';
    check(!out_file_set_prefix(text));
    text[4096] = '\0';
    check(out_file_set_prefix(text));
    check_eq(dump_automatically('m'), -ENAMETOOLONG);
}

TEST(automatic_dumps_that_fail_say_so_in_one_line) {
    process_id = 7;
    check(out_file_set_prefix("/nowhere/p"));
    struct capture capture = capture_begin();
    check_eq(dump_automatically('m'), -ENOENT); /* Its caller hears of it. */
    check_eq(dump_automatically('f'), -ENOENT);
    check_str(capture_end(capture), "tally: cannot write the heap profile /nowhere/p.7.1.f.heap: "
                                    "there is no such directory (2)\n");
}

/* ---------------------------------------------------------------- JSON */

static struct prof_event events[8];
static size_t event_count, event_next;

static bool next_event(void *context, struct prof_event *event) {
    check(context == events);
    if (event_next == event_count) {
        event_next = 0;
        return false;
    }
    *event = events[event_next++];
    return true;
}

static void make_events(void) {
    threads_known = 8;
    thread_names[7] = "a\"b\\c\n\xc3\xa4\xff";
    add_stack(1, (uintptr_t[]){0xa1});
    add_stack(2, (uintptr_t[]){0xb1, 0xb2});
    add_stack(1, (uintptr_t[]){0xc1});
    events[0] = (struct prof_event){.stack = 2,
                                    .thread = 7,
                                    .freed_stack = 0,
                                    .freed_thread = 3,
                                    .born_ns = 10,
                                    .freed_ns = 20,
                                    .requested = 3003,
                                    .usable = 3072,
                                    .is_freed = true,
                                    .end_is_known = true};
    events[1] = events[0];
    events[1].stack = 0;
    events[1].usable = 16;
    event_count = 2;
}

TEST(the_log_is_jemallocs_json) {
    make_events();
    process_id = 1;
    set_prefix("p");
    struct dump_log log = {{next_event, events}, 12345, "5.3.1"};
    check_eq(dump_log(NULL, &log), 0);
    check_str(content("p.1.0.json"),
              "{\"info\":{\"duration\":12345,\"version\":\"5.3.1\",\"lg_sample_rate\":19,"
              "\"prof_time_resolution\":\"default\",\"pid\":1},"
              "\"threads\":[{\"thr_uid\":3,\"thr_name\":\"\"},"
              "{\"thr_uid\":7,\"thr_name\":\"a\\\"b\\\\c\\u000a\xc3\xa4\\ufffd\"}],"
              "\"stack_traces\":[[\"0xa1\"],[\"0xc1\"]],"
              "\"allocations\":[{\"alloc_thread\":1,\"free_thread\":0,\"alloc_trace\":1,"
              "\"free_trace\":0,\"alloc_timestamp\":10,\"free_timestamp\":20,\"usize\":3072},"
              "{\"alloc_thread\":1,\"free_thread\":0,\"alloc_trace\":0,\"free_trace\":0,"
              "\"alloc_timestamp\":10,\"free_timestamp\":20,\"usize\":16}]}");
    remove_file("p.1.0.json");
    event_count = 0;
    opt.prof_time_resolution = 1;
    check_eq(dump_log(in_directory("named"), &log), 0);
    check(strstr(content("named"), "\"prof_time_resolution\":\"high\",\"pid\":1},\"threads\":[],"
                                   "\"stack_traces\":[],\"allocations\":[]}") != NULL);
    opt.prof_time_resolution = 0;
    check_eq(dump_log(in_directory("named"), &log), 0); /* over the first */
    check(strstr(content("named"), "\"prof_time_resolution\":\"default\"") != NULL);
    remove_file("named");
    check(out_file_set_prefix(""));
    check_eq(dump_log(NULL, &log), -EINVAL);
    check_nothing_left();
    check_eq(mapped_bytes, 0);
}

/* A generator of many events: every pair of stack and thread of 300. */
static uint32_t generated;
static bool generate_event(void *context, struct prof_event *event) {
    (void)context;
    *event = (struct prof_event){.stack = 299 - generated * 7 % 300,
                                 .thread = generated % 97,
                                 .freed_stack = generated % 300,
                                 .freed_thread = 96 - generated % 97,
                                 .is_freed = true,
                                 .end_is_known = true};
    return generated++ < 30000;
}

TEST(places_in_the_log_are_those_of_stacks_and_threads) {
    threads_known = 97;
    for (uintptr_t i = 0; i < 300; i++) {
        add_stack(1, &i);
    }
    struct dump_log log = {{generate_event, NULL}, 0, ""};
    check_eq(dump_log(in_directory("log"), &log), 0);
    const char *json = content("log");
    /* With all of them in use, places are numbers. */
    uint32_t i = 0;
    for (const char *at = strstr(json, "\"alloc_thread\":"); at != NULL;
         at = strstr(at + 1, "\"alloc_thread\":"), i++) {
        unsigned thread, free_thread, stack, free_stack;
        check_eq(sscanf(at,
                        "\"alloc_thread\":%u,\"free_thread\":%u,\"alloc_trace\":%u,"
                        "\"free_trace\":%u",
                        &thread, &free_thread, &stack, &free_stack),
                 4);
        check(thread == i % 97 && free_thread == 96 - i % 97);
        check(stack == 299 - i * 7 % 300 && free_stack == i % 300);
    }
    check_eq(i, 30000);
    remove_file("log");
    check_nothing_left();
}

TEST(recent_allocations_are_jemallocs_json) {
    make_events();
    rate = 524288;
    events[1].is_freed = events[1].end_is_known = false;
    size_t length = 0;
    char *json = dump_recent((struct dump_events){next_event, events}, 3, &length);
    check(json != NULL);
    check_eq(strlen(json), length);
    check_str(json, "{\"sample_interval\":524288,\"recent_alloc_max\":3,\"recent_alloc\":["
                    "{\"size\":3003,\"usize\":3072,\"released\":true,\"alloc_thread_uid\":7,"
                    "\"alloc_thread_name\":\"a\\\"b\\\\c\\u000a\xc3\xa4\\ufffd\",\"alloc_time\":10,"
                    "\"alloc_trace\":[\"0xc1\"],\"dalloc_thread_uid\":3,\"dalloc_time\":20,"
                    "\"dalloc_trace\":[\"0xa1\"]},"
                    "{\"size\":3003,\"usize\":16,\"released\":false,\"alloc_thread_uid\":7,"
                    "\"alloc_thread_name\":\"a\\\"b\\\\c\\u000a\xc3\xa4\\ufffd\",\"alloc_time\":10,"
                    "\"alloc_trace\":[\"0xa1\"]}]}");
    dump_release(json, length);
    event_count = 0;
    json = dump_recent((struct dump_events){next_event, events}, -1, &length);
    check_str(json, "{\"sample_interval\":524288,\"recent_alloc_max\":-1,\"recent_alloc\":[]}");
    dump_release(json, length);
    check_eq(mapped_bytes, 0);
}
