/* SPDX-License-Identifier: MIT
 *
 * test_control_uses.c - what the control socket is for, from outside: profiles, statistics, settings, leak
 * checks and the page of counters.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tally/tally.h>
#include <unistd.h>

#include "contract/stats_page.h"
#include "control_target.h"
#include "test.h"

TEST_SETUP(require_tally);

TEST(a_profile_is_started_dumped_and_stopped_from_outside) {
    start("control:write");
    int fd = reach();
    int file = temporary_file(O_RDWR);
    check(begins(ask_with(fd, "dump", &file, 1), "err 6 the profiler was not started yet"));
    check(begins(ask(fd, "start rate=1k"), "ok rate=1024"));
    order('a');
    check(begins(ask(fd, "stats"), "ok"));
    check_eq(look(target.pid), 1);
    check_eq(found.page.profile_rate, 1024);
    check(found.page.profile_samples > 10);
    check(begins(output_of(fd, "dump format=pprof", "ok "), "\x1f\x8b"));
    check(begins(output_of(fd, "dump format=gperftools kind=peak", "ok "), "heap profile: "));
    check(begins(ask(fd, "reset"), "ok"));
    check(begins(ask(fd, "stop"), "ok"));
    rest_a_second();
    check(begins(ask(fd, "stats"), "ok"));
    check_eq(look(target.pid), 1);
    check_eq(found.page.profile_rate, 0);
    check_eq(found.page.profile_samples, 0);
    check_eq(end_target(), 0);
}

/* The number behind a key of an answer. */
static long number_of(const char *answer, const char *key) {
    const char *at = strstr(answer, key);
    check(at != NULL);
    return atol(at + strlen(key));
}

TEST(time_on_the_processor_is_recorded_from_outside) {
    start("control:write");
    int fd = reach();
    int file = temporary_file(O_RDWR);
    check(begins(ask_with(fd, "dump kind=cpu", &file, 1), "err 6 the processor's time was not"));
    check(begins(ask(fd, "stop kind=cpu"), "err 6 the processor's time is not recorded"));
    check(begins(ask(fd, "start kind=cpu hz=200"), "ok hz=200"));
    check(strstr(ask(fd, "hello"), "profiling=0 cpu=1") != NULL);
    check_eq(look(target.pid), 1);
    check_eq(found.page.cpu_hz, 200);
    check(begins(ask(fd, "start kind=cpu"), "err 4 the processor's time is recorded already"));
    order('b');
    rest_a_second();
    fd = reach(); /* mistakes count */
    check(begins(output_of(fd, "dump kind=cpu", "ok "), "\x1f\x8b"));
    const char *stopped = ask(fd, "stop kind=cpu");
    check_eq(number_of(stopped, "left_out="), 0);
    long samples = number_of(stopped, "samples=");
    check(samples >= 30 && samples <= 90); /* 60, and none twice */
    const char *bytes = output_of(fd, "dump kind=cpu format=gperftools-cpu", "ok samples=");
    const uint64_t header[] = {0, 3, 0, 5000, 0};
    check(memcmp(bytes, header, sizeof header) == 0);
    check(begins(ask(fd, "reset kind=cpu"), "ok"));
    check(strstr(ask(fd, "start kind=cpu hz=5000"), "ok hz=4000") != NULL);
    rest_a_second();
    check_eq(number_of(ask(fd, "stop"), "samples="), 0); /* it sleeps */
    check(begins(ask(fd, "start kind=time"), "err 1 "));
    check(begins(ask(fd, "start kind=cpu hz=0"), "err 1 "));
    check_eq(end_target(), 0);
}

/* The sizes of a file; -1: there is none. */
static long size_of(const char *path) {
    struct stat facts;
    return stat(path, &facts) == 0 ? (long)facts.st_size : -1;
}

TEST(a_profile_that_goes_to_a_file_is_stopped_with_it) {
    char options[128], path[64];
    snprintf(path, sizeof path, "/tmp/tally-test-%d.prof", (int)getpid());
    snprintf(options, sizeof options, "control:write,cpu_hz:1000,cpu_file:%s", path);
    start(options);
    int fd = reach();
    long before = size_of(path);
    check(begins(ask(fd, "start kind=cpu"), "err 4 the processor's time is recorded already"));
    order('b');
    rest_a_second();
    check(number_of(ask(fd, "stop kind=cpu"), "samples=") > 0);
    long written = size_of(path);
    check(before > 0 && written > before);
    check(begins(ask(fd, "start kind=cpu hz=1000"), "ok hz=1000"));
    check_eq(end_target(), 0);
    check_eq(size_of(path), written); /* what comes later is not the file's */
    unlink(path);
}

/* The file of the run has this text, which is written as it is. */
static bool run_file_has(const char *text) {
    static char bytes[1 << 20];
    char path[80];
    snprintf(path, sizeof path, "%s/a.tally.part", target.folder);
    int file = open(path, O_RDONLY);
    check(file >= 0);
    ssize_t n = read(file, bytes, sizeof bytes);
    close(file);
    return n > 0 && memmem(bytes, (size_t)n, text, strlen(text)) != NULL;
}

TEST(a_run_that_is_recorded_can_be_marked_and_keeps_its_rate) {
    char conf[150];
    strcpy(target.folder, "/tmp/tally-control-XXXXXX");
    check(mkdtemp(target.folder) != NULL);
    snprintf(conf, sizeof conf, "control:write,control_dir:%s,run_file:%s/a.tally,lg_prof_sample:4",
             target.folder, target.folder);
    start_as(PLAIN, conf, "");
    order('a');
    int fd = reach();
    check(begins(ask(fd, "start rate=512k"), "err 4 this run is recorded at another rate"));
    check(begins(ask(fd, "start"), "ok rate=16"));
    check(begins(ask(fd, "start rate=16"), "ok rate=16"));
    check(begins(ask(fd, "stats"), "ok"));
    check_eq(look(target.pid), 1);
    check_eq(found.page.profile_rate, 16);
    check(found.page.profile_samples > 100);
    check(begins(ask(fd, "mark text=the%20load%20begins"), "ok"));
    check(run_file_has("the load begins"));
    check(!run_file_has("reset: "));
    check(begins(ask(fd, "reset"), "ok"));
    check(run_file_has("reset: "));
    check_eq(end_target(), 0);
}

TEST(statistics_are_read_and_settings_changed_from_outside) {
    start("control:write");
    order('a');
    int fd = reach();
    check(strstr(output_of(fd, "stats", "ok bytes="), "tally: where the heap's bytes are\n") !=
          NULL);
    check(begins(output_of(fd, "stats format=json", "ok bytes="), "{"));
    check(begins(ask(fd, "set key=arena.4096.dirty_decay_ms value=0"), "ok old="));
    check(begins(ask(fd, "set key=arenas.dirty_decay_ms value=-2"), "err 1 "));
    check(begins(ask(fd, "set key=arenas.dirty_decay_ms value=77"), "ok old=1000"));
    check(begins(ask(fd, "set key=arenas.dirty_decay_ms value=x"), "err 1 "));
    rest_a_second();
    fd = reach(); /* the mistakes count */
    check(begins(ask(fd, "set key=arenas.dirty_decay_ms value=78"), "ok old=77"));
    check(begins(ask(fd, "set key=prof.active value=maybe"), "err 1 "));
    check(begins(ask(fd, "purge"), "ok bytes="));
    const char *leaks = output_of(fd, "leak-check quick=1", "ok pause_ns=");
    check(begins(leaks, "tally-leaks 1\nheap "));
    check(strstr(leaks, "\nend\n") != NULL);
    check(begins(ask(fd, "mark text=x"), "err 6 nothing is recorded"));
    check_eq(end_target(), 0);
}

TEST(a_stopped_target_can_be_read) {
    start_as(PLAIN, "", "");
    order('a');
    kill(target.pid, SIGSTOP);
    check_eq(waitpid(target.pid, NULL, WUNTRACED), target.pid);
    check_eq(look(target.pid), 1);
    check_eq(found.page.magic, STATS_PAGE_MAGIC);
    check_eq(found.page.pid, target.pid);
    kill(target.pid, SIGCONT);
    check_eq(end_target(), 0);
}

/* S-19: whatever its children do, the page of the target stays its own and whole. */
TEST(a_storm_of_forks_leaves_the_page_of_the_parent_alone) {
    start("control:read");
    int fd = reach();
    check(begins(ask(fd, "stats"), "ok"));
    char letter = 'm';
    check_eq(write(target.input, &letter, 1), 1);
    struct pollfd item = {.fd = target.output, .events = POLLIN};
    unsigned looks = 0, odd = 0;
    do {
        check_eq(look(target.pid), 1);
        check_eq(found.page.pid, target.pid);
        odd += found.page.sequence % 2;
        looks++;
    } while (poll(&item, 1, 0) == 0);
    check(looks > 1 && odd < looks);
    check_eq(count_descriptors(target.pid, "socket:", false), 2);
    check_eq(end_target(), 0);
}
