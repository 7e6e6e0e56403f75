/* SPDX-License-Identifier: MIT
 *
 * test_control_requests.c - the control socket from outside: who may ask what, and what happens to those
 * who ask wrongly, too much or too slowly.  The numbers are those of docs/manual/control.md.
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
#include <unistd.h>

#include "contract/stats_page.h"
#include "control_target.h"
#include "test.h"

TEST_SETUP(require_tally);

/* ---------------------------------------------------------------- S-05, S-06 */

TEST(s05_who_may_look_may_not_change_anything) {
    static const char *const refused[] = {"start",     "stop",  "set key=prof.active value=true",
                                          "purge",     "reset", "mark text=x",
                                          "leak-check"};
    start("control:read");
    int fd = reach();
    check(fd >= 0);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        check(begins(ask(fd, refused[i]), "err 3 this needs control:write"));
    }
    rest_a_second();
    check(begins(ask(fd, "hello"), "ok "));
    check_eq(look(target.pid), 1);
    check_eq(found.page.profile_rate, 0);
    check_eq(end_target(), 0);
}

TEST(s05_what_is_a_path_a_limit_or_of_one_thread_cannot_be_set) {
    static const struct {
        const char *key, *reason;
    } rows[] = {
        {"prof.prefix", "this cannot be set from outside: it says where files are written"},
        {"prof.dump", "this cannot be set from outside: it writes a file"},
        {"arena.0.reset", "this cannot be set from outside: it frees objects"},
        {"opt.prof", "this is only read"},
        {"thread.arena", "this cannot be set from outside: it is about the thread that calls"},
        {"arena.0.extent_hooks", "this cannot be set from outside: its value is an address"},
        {"experimental.prof_recent.alloc_max", "this cannot be set from outside: it is a limit"},
        {"no.such.key", "there is no such name"},
    };
    start("control:write");
    int fd = reach();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char request[100], answer[160];
        snprintf(request, sizeof request, "set key=%s value=1", rows[i].key);
        snprintf(answer, sizeof answer, "err 3 %s", rows[i].reason);
        check(begins(ask(fd, request), answer));
        if (i == 6) {
            rest_a_second();
        }
    }
    check_eq(end_target(), 0);
}

TEST(values_of_every_kind_are_set_from_outside) {
    start("control:write");
    int fd = reach();
    check(begins(ask(fd, "set key=max_background_threads value=1"), "ok old="));
    check(
        begins(ask(fd, "set key=max_background_threads value=-1"), "err 1 the value is a number"));
    check(begins(ask(fd, "set key=arena.4096.purge value=run"), "ok\n"));
    check(begins(ask(fd, "set key=arena.0.decay value=1"), "err 1 the value is the word run"));
    check(begins(ask(fd, "set key=arena.0.name value=first"), "ok\n"));
    check(begins(ask(fd, "set key=arena.0.dss value=secondary"), "ok old="));
    rest_a_second();
    fd = reach();
    check(begins(ask(fd, "set key=arena.0.dss value=nothing"), "err 1 the value is not accepted"));
    check(begins(ask(fd, "set key=arena.0.dss value=primary"), "ok old=secondary"));
    check(begins(ask(fd, "set key=epoch value=1"), "ok old="));
    check(begins(ask(fd, "set key=stats.mutexes.reset value=run"), "ok\n"));
    check(begins(ask(fd, "set key=arena.4000.purge value=run"), "err 3 there is no such name"));
    check_eq(end_target(), 0);
}

TEST(s06_output_goes_to_one_file_or_pipe_that_is_open_for_writing) {
    start("control:write,prof:true,lg_prof_sample:10");
    order('a');
    int fd = reach();
    int ends[2];
    check_eq(pipe(ends), 0);
    int file = temporary_file(O_WRONLY);
    int reads = temporary_file(O_RDONLY);
    int device = open("/dev/null", O_WRONLY);
    int folder = open("/tmp", O_RDONLY);
    check(begins(ask(fd, "dump"), "err 1 a descriptor"));
    check(begins(ask_with(fd, "dump", &reads, 1), "err 3 "));
    check(begins(ask_with(fd, "dump", &device, 1), "err 3 "));
    check(begins(ask_with(fd, "maps", &folder, 1), "err 3 "));
    check(begins(ask_with(fd, "maps", &ends[1], 1), "ok bytes="));
    check(begins(ask_with(fd, "dump", &file, 1), "ok bytes="));
    struct stat facts;
    check(fstat(file, &facts) == 0 && facts.st_size > 100);
    check_eq(end_target(), 0);
}

TEST(s06_more_than_one_descriptor_is_refused_and_none_stays) {
    start("control:write");
    int fd = reach();
    check(begins(ask(fd, "hello"), "ok "));
    unsigned before = count_descriptors(target.pid, "/", false);
    int both[2] = {temporary_file(O_WRONLY), temporary_file(O_WRONLY)};
    check(begins(ask_with(fd, "maps", both, 2), "err 1 one descriptor"));
    check(begins(ask_with(fd, "hello", both, 1), "err 1 this has no output"));
    check_eq(count_descriptors(target.pid, "/", false), before);
    check_eq(end_target(), 0);
}

/* ---------------------------------------------------------------- S-07, S-08 */

TEST(s07_a_message_that_is_too_long_is_refused) {
    static char bytes[6000];
    start("control:read");
    int fd = reach();
    memset(bytes, 'x', sizeof bytes);
    send_bytes(fd, bytes, sizeof bytes, NULL, 0);
    check(strstr(receive(fd), " err 1 a message has at most 4096 bytes\n") != NULL);
    send_bytes(fd, bytes, 4097, NULL, 0);
    check(strstr(receive(fd), " err 1 ") != NULL);
    check(begins(ask(fd, "hello"), "ok "));
    check_eq(end_target(), 0);
}

TEST(s07_four_are_served_and_a_fifth_is_told_to_come_later) {
    start("control:read");
    int clients[5];
    for (int i = 0; i < 4; i++) {
        clients[i] = reach();
        check(begins(ask(clients[i], "hello"), "ok "));
    }
    clients[4] = reach();
    check(strstr(receive(clients[4]), " err 4 too many connections\n") != NULL);
    check_str(receive(clients[4]), "");
    close(clients[0]);
    bool is_served = false;
    for (int i = 0; i < 60 && !is_served; i++) { /* until the place is seen to be free */
        int again = reach();
        check(again >= 0);
        is_served = strncmp(ask(again, "hello"), "ok ", 3) == 0;
        close(again);
        rest_a_second();
    }
    check(is_served);
    check_eq(end_target(), 0);
}

TEST(s07_eight_requests_are_served_in_a_second) {
    enum {
        REQUESTS = 100
    }; /* They would have to take 12 seconds to be no more than eight in each. */
    start("control:read");
    int fd = reach();
    unsigned served = 0, refused = 0;
    kill(target.pid, SIGSTOP); /* so that all are there when it looks */
    for (int i = 0; i < REQUESTS; i++) {
        send_bytes(fd, "tally1 16 hello\n", 16, NULL, 0);
    }
    kill(target.pid, SIGCONT);
    for (int i = 0; i < REQUESTS; i++) {
        const char *reply = receive(fd);
        served += strstr(reply, " ok ") != NULL;
        refused += strstr(reply, " err 5 ") != NULL;
    }
    check_eq(served + refused, REQUESTS);
    check(refused > 0 && served >= 8);
    rest_a_second();
    check(begins(ask(fd, "hello"), "ok "));
    check_eq(end_target(), 0);
}

TEST(s07_who_says_nothing_for_five_seconds_is_dropped) {
    start("control:read");
    int fd = reach();
    check(begins(ask(fd, "hello"), "ok "));
    check_str(receive(fd), ""); /* in the end */
    check_eq(end_target(), 0);
}

TEST(s07_a_reader_that_does_not_read_delays_only_itself) {
    start("control:read");
    int fd = reach();
    int ends[2];
    check_eq(pipe(ends), 0);
    check(fcntl(ends[1], F_SETPIPE_SZ, 4096) >= 4096);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(begins(ask_with(fd, "stats", &ends[1], 1), "err 8 ") ? 0 : 1);
    }
    for (int i = 0; i < 100; i++) {
        check_str(order('a'), "done");
    }
    int status = -1;
    check_eq(waitpid(pid, &status, 0), pid);
    check_eq(status, 0);
    check_eq(end_target(), 0);
}

/* A profile that is not read for longer than clients may be silent, and one who asks meanwhile. */
TEST(s07_who_asks_while_another_is_served_is_answered) {
    start("control:write,prof:true,lg_prof_sample:8");
    order('a');
    int slow = reach(), other = reach();
    check(begins(ask(other, "hello"), "ok "));
    int ends[2];
    check_eq(pipe(ends), 0);
    check(fcntl(ends[1], F_SETPIPE_SZ, 4096) >= 4096);
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        _exit(begins(ask_with(slow, "dump format=jemalloc", &ends[1], 1), "ok ") ? 0 : 1);
    }
    close(ends[1]);
    struct pollfd item = {.fd = ends[0], .events = POLLIN};
    check_eq(poll(&item, 1, TEST_SECONDS * 1000), 1); /* It is being written. */
    send_bytes(other, "tally1 16 hello\n", 16, NULL, 0);
    for (int i = 0; i < 6; i++) {
        rest_a_second();
    }
    char bytes[4096];
    while (read(ends[0], bytes, sizeof bytes) > 0) {
    }
    int status = -1;
    check_eq(waitpid(pid, &status, 0), pid);
    check_eq(status, 0);
    check(strstr(receive(other), " ok version=") != NULL);
    check_eq(end_target(), 0);
}

TEST(s07_ten_thousand_connections_leave_nothing_behind) {
    start("control:read");
    int fd = reach();
    check(begins(ask(fd, "hello"), "ok "));
    close(fd);
    unsigned before = 0;
    for (int i = 0; i < 1000; i++) { /* until the client is seen to be gone */
        before = count_descriptors(target.pid, "socket:", false);
        if (before == 1) {
            break;
        }
        wait_a_little();
    }
    check_eq(before, 1);
    for (int i = 0; i < 10000; i++) {
        fd = connect_below("", found.page.socket_path);
        check(fd >= 0);
        close(fd);
    }
    for (int i = 0; i < 1000 && count_descriptors(target.pid, "socket:", false) != 1; i++) {
        wait_a_little();
        errors_of_target(); /* A full pipe would stop it. */
    }
    check_eq(count_descriptors(target.pid, "socket:", false), 1);
    fd = reach();
    check(begins(ask(fd, "hello"), "ok "));
    check_str(order('a'), "done");
    check_eq(end_target(), 0);
}

TEST(s07_a_target_without_descriptors_serves_when_it_has_some) {
    start("control:read");
    check_str(order('l'), "done");
    int fd = reach();
    check(fd >= 0);
    for (int i = 0; i < 3; i++) { /* so that it tries again, and may not even wait for so many */
        rest_a_second();
    }
    check_str(order('a'), "done");
    check_str(order('u'), "done");
    const char *reply = ask(fd, "hello");
    /* The connection may have been closed when it was taken from the queue and found no number. */
    if (reply[0] == '\0') {
        fd = reach();
        reply = ask(fd, "hello");
    }
    check(begins(reply, "ok "));
    check_eq(end_target(), 0);
}

TEST(s08_three_mistakes_close_the_connection) {
    static const char *const wrong[] = {"GET / HTTP/1.0\r\n\r\n", "tally1 99 hello\n",
                                        "tally1 16 hel"};
    start("control:read");
    int fd = reach();
    for (int i = 0; i < 3; i++) {
        send_bytes(fd, wrong[i], strlen(wrong[i]), NULL, 0);
        check(strstr(receive(fd), " err 1 this is no request\n") != NULL);
    }
    check_str(receive(fd), "");
    fd = reach();
    check(begins(ask(fd, "bogus"), "err 2 no such verb"));
    check(begins(ask(fd, "hello"), "ok "));
    check_eq(end_target(), 0);
}

/* ---------------------------------------------------------------- S-14 */

TEST(s14_addresses_can_be_kept_back) {
    start("control:read,prof:true,lg_prof_sample:8");
    order('a');
    int fd = reach();
    const char *maps = output_of(fd, "maps", "ok ");
    check(strstr(maps, "libtally.so") != NULL && strchr(maps, '-') < strchr(maps, ' '));
    check(begins(output_of(fd, "dump format=jemalloc", "ok "), "heap_v2/"));
    check_eq(end_target(), 0);
    start("control:read,prof:true,lg_prof_sample:8,hide_addresses:true");
    order('a');
    fd = reach();
    maps = output_of(fd, "maps", "ok ");
    check(strstr(maps, "libtally.so") != NULL);
    for (const char *line = maps; *line != '\0'; line = strchr(line, '\n') + 1) {
        char *rest;
        check(strtoul(line, &rest, 16) < 1ul << 32 && *rest == ' '); /* an offset in a file */
    }
    output_of(fd, "dump format=jemalloc", "err 6 ");
    output_of(fd, "dump format=gperftools", "err 6 ");
    output_of(fd, "dump format=pprof", "ok ");
    check_eq(end_target(), 0);
}
