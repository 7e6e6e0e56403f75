/* SPDX-License-Identifier: MIT
 *
 * test_control_service.c - the thread that serves the control socket, from outside: what it leaves alone
 * in the program, how it ends, what children have of it, and what it writes down.  The numbers are those of
 * docs/manual/control.md.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <tally/tally.h>
#include <unistd.h>

#include "contract/stats_page.h"
#include "control_target.h"
#include "test.h"

TEST_SETUP(require_tally);

static void check_all_blocked(unsigned long blocked) {
    for (int signal = 1; signal <= 64; signal++) {
        bool never = signal == SIGKILL || signal == SIGSTOP || signal == 32 || signal == 33;
        check(never || (blocked >> (signal - 1) & 1));
    }
}

TEST(s09_its_thread_has_a_name_and_all_signals_blocked) {
    start("control:read");
    int fd = reach();
    check(begins(ask(fd, "hello"), "ok ")); /* It runs. */
    check_eq(count_threads(target.pid), 2);
    char path[300], text[4096];
    snprintf(path, sizeof path, "/proc/%d/task", (int)target.pid);
    DIR *directory = opendir(path);
    check(directory != NULL);
    unsigned seen = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (atoi(entry->d_name) > 0 && atoi(entry->d_name) != target.pid) {
            snprintf(path, sizeof path, "/proc/%d/task/%s/status", (int)target.pid, entry->d_name);
            read_text(path, text, sizeof text);
            check(strstr(text, "Name:\ttally-control\n") != NULL);
            check_all_blocked(strtoul(strstr(text, "SigBlk:") + 8, NULL, 16));
            seen++;
        }
    }
    closedir(directory);
    check_eq(seen, 1);
    check_eq(end_target(), 0);
}

TEST(s10_a_child_serves_nobody_and_has_a_page_of_its_own) {
    start("control:write");
    int fd = reach();
    check(begins(ask(fd, "hello"), "ok "));
    pid_t child = atoi(order('f'));
    check(child > 0);
    for (int i = 0; i < 1000 && (look(child) != 1 || found.page.pid != (uint32_t)child); i++) {
        wait_a_little(); /* It may not have run yet, or be about to leave its parent's. */
    }
    check_eq(look(child), 1);
    check_eq(count_descriptors(child, "socket:", false), 0);
    check_eq(found.page.pid, child);
    check_str(found.page.socket_path, "");
    check_eq(found.page.control, 0);
    check_eq(count_threads(child), 1);
    check(begins(ask(fd, "hello"), "ok "));
    kill(child, SIGKILL);
    check_eq(end_target(), 0);
}

/* Neither the name nor the service goes with a child. */
static void check_child_ends_alone(char letter) {
    start("control:write");
    int fd = reach();
    check(begins(ask(fd, "hello"), "ok "));
    check_str(order(letter), "0");
    check(access(found.page.socket_path, F_OK) == 0);
    check(begins(ask(fd, "hello"), "ok "));
    fd = reach();
    check(fd >= 0);
    check(begins(ask(fd, "hello"), "ok "));
    check_eq(end_target(), 0);
}

TEST(s10_a_child_that_exits_leaves_its_parent_alone) {
    check_child_ends_alone('e');
}

TEST(s10_a_child_that_shares_memory_and_exits_leaves_its_parent_alone) {
    check_child_ends_alone('v');
}

TEST(s10_at_exit_a_directory_that_is_gone_is_not_made_again) {
    char folder[64];
    start("control:write");
    check_eq(look(target.pid), 1);
    check_eq(unlink(found.page.socket_path), 0);
    check_eq(rmdir(target.folder), 0);
    strcpy(folder, target.folder);
    target.folder[0] = '\0';
    check_eq(end_target(), 0);
    check(access(folder, F_OK) != 0);
}

/* No thread can be made. */
TEST(s11_a_socket_that_nobody_serves_is_not_told) {
    start("control:default");
    check_str(order('n'), "done");
    char number[24];
    snprintf(number, sizeof number, "%d", EAGAIN);
    check_str(order('s'), number);
    check_eq(look(target.pid), 1);
    check_str(found.page.socket_path, "");
    check_eq(found.page.control, 0);
    check_str(order('s'), number); /* and not EALREADY */
    check_eq(end_target(), 0);
}

TEST(s10_at_exit_the_name_goes_if_it_is_still_ours) {
    char path[STATS_PAGE_PATH_BYTES], folder[64];
    start("control:write");
    check_eq(look(target.pid), 1);
    strcpy(path, found.page.socket_path);
    check(access(path, F_OK) == 0);
    strcpy(folder, target.folder);
    target.folder[0] = '\0';
    check_eq(end_target(), 0);
    check(access(path, F_OK) != 0);
    check_eq(rmdir(folder), 0);
    start("control:write");
    check_eq(look(target.pid), 1);
    strcpy(path, found.page.socket_path);
    check_eq(unlink(path), 0);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    strcpy(folder, target.folder);
    target.folder[0] = '\0';
    check_eq(end_target(), 0);
    check(access(path, F_OK) == 0);
    unlink(path);
    check_eq(rmdir(folder), 0);
}

TEST(s11_a_program_that_closes_everything_is_served_no_more) {
    start("control:write");
    int fd = reach();
    check(begins(ask(fd, "hello"), "ok "));
    char path[STATS_PAGE_PATH_BYTES];
    strcpy(path, found.page.socket_path);
    errors_of_target();
    check_str(order('c'), "done");
    int late = connect_below("", path); /* which wakes the thread */
    for (int i = 0; i < 1000 && count_threads(target.pid) > 1; i++) {
        wait_a_little();
    }
    check_eq(count_threads(target.pid), 1);
    check_str(errors_of_target(),
              "tally: control: the program has closed the socket, so nobody is served any more\n");
    check(late < 0 || receive(late)[0] == '\0');
    check(access(path, F_OK) != 0);
    check_str(order('a'), "done");
    check_eq(end_target(), 0);
}

TEST(s11_a_program_that_closes_everything_can_begin_anew) {
    start("control:write");
    int fd = reach();
    check(begins(ask(fd, "hello"), "ok "));
    close(fd);
    for (int i = 0; i < 1000 && count_descriptors(target.pid, "socket:", false) > 1; i++) {
        wait_a_little();
    }
    wait_a_little(); /* Without clients, the thread waits for nothing but connections. */
    check_str(order('c'), "done");
    check_str(order('t'), "0");
    for (int i = 0; i < 1000 && count_threads(target.pid) > 1; i++) {
        wait_a_little();
    }
    check_eq(count_threads(target.pid), 1);
    check_str(order('s'), "0");
    check_eq(count_threads(target.pid), 2);
    check_eq(end_target(), 0);
}

/* The thread ends: it does not try for ever. */
static void check_service_ends(char letter) {
    start("control:write");
    int fd = reach();
    check(begins(ask(fd, "hello"), "ok "));
    close(fd);
    if (strcmp(order(letter), "0") != 0) {
        skip("the kernel lets us have no filter");
    }
    fd = connect_below("", found.page.socket_path); /* which wakes the thread, if it sleeps */
    for (int i = 0; i < 1000 && count_threads(target.pid) > 1; i++) {
        wait_a_little();
    }
    check_eq(count_threads(target.pid), 1);
    check(strstr(errors_of_target(), "so nobody is served any more\n") != NULL);
    check(access(found.page.socket_path, F_OK) != 0);
    check_str(order('a'), "done");
    check_eq(end_target(), 0);
}

TEST(s11_a_thread_that_may_not_wait_ends) {
    check_service_ends('p');
}

TEST(s11_a_thread_that_may_not_accept_ends) {
    check_service_ends('q');
}

TEST(s11_a_socket_that_is_shut_down_is_served_no_more) {
    check_service_ends('h');
}

TEST(s12_behind_a_filter_of_system_calls_there_is_neither_page_nor_socket) {
    start_as(CONFINED, "control:write", "");
    check_eq(look(target.pid), 0);
    check_eq(count_threads(target.pid), 1);
    check_eq(count_descriptors(target.pid, "socket:", false), 0);
    check_str(order('a'), "done");
    check_eq(end_target(), 0);
}

/* What the target has said of requests of this process. */
static void check_lines(const char *const ends[], unsigned count) {
    char text[500];
    int n = 0;
    for (unsigned i = 0; i < count; i++) {
        n += snprintf(text + n, sizeof text - (size_t)n, "tally: control: pid %d uid %u: %s\n",
                      (int)getpid(), (unsigned)geteuid(), ends[i]);
    }
    check_str(errors_of_target(), text);
}

TEST(s12_a_program_that_has_confined_itself_is_not_killed_at_its_end) {
    char conf[150];
    strcpy(target.folder, "/tmp/tally-control-XXXXXX");
    check(mkdtemp(target.folder) != NULL);
    snprintf(conf, sizeof conf, "control:write,control_dir:%s/c,run_file:%s/a.tally", target.folder,
             target.folder);
    start_as(PLAIN, conf, "");
    check(reach() >= 0);
    if (strcmp(order('k'), "0") != 0) {
        skip("the kernel lets us have no filter");
    }
    check_eq(end_target(), 0);
}

TEST(s13_requests_leave_nothing_on_standard_error) {
    start("control:read");
    int fd = reach();
    ask(fd, "hello");
    ask(fd, "purge");
    ask(fd, "bogus");
    check_eq(end_target(), 0);
    check_str(errors_of_target(), "");
}

TEST(s13_each_request_leaves_a_line_if_that_is_wanted) {
    start("control:read,control_log:true");
    int fd = reach();
    ask(fd, "hello");
    ask(fd, "purge");
    ask(fd, "bogus");
    static const char *const ends[] = {"hello: ok", "purge: denied", "bogus: unknown"};
    check_lines(ends, 3);
    check_eq(end_target(), 0);
}

TEST(s13_who_looks_again_and_again_is_counted) {
    start("control:write,control_log:true");
    int fd = reach();
    for (int i = 0; i < 4; i++) {
        check(begins(ask(fd, "stats"), "ok"));
    }
    check(begins(ask(fd, "purge"), "ok"));
    check(begins(ask(fd, "purge"), "ok"));
    static const char *const ends[] = {"stats: ok", "stats: ok (3 more)", "purge: ok", "purge: ok"};
    check_lines(ends, 4);
    check_eq(end_target(), 0);
}

/* A program that closes standard error may get a file of its own under that number. */
TEST(s13_nothing_is_written_to_a_file_in_the_place_of_standard_error) {
    start("control:write,control_log:true");
    int fd = reach();
    check(begins(ask(fd, "hello"), "ok "));
    check_str(order('2'), "done");
    check(begins(ask(fd, "purge"), "ok "));
    check(begins(ask(fd, "bogus"), "err 2 "));
    check_str(order('z'), "0"); /* bytes in the file */
    check_eq(end_target(), 0);
}
