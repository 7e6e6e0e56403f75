/* SPDX-License-Identifier: MIT
 *
 * test_control_socket.c - the control socket from outside: when there is one, where it lies and who may
 * reach it, whose directory it is, and what descendants of `tally run` have.  The numbers are those of
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
#include <sys/syscall.h>
#include <sys/wait.h>
#include <tally/tally.h>
#include <unistd.h>

#include "contract/stats_page.h"
#include "control_target.h"
#include "test.h"

TEST_SETUP(require_tally);

/* Has the process a handler for this signal? */
static bool catches(pid_t pid, int signal) {
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    read_text(path, text, sizeof text);
    const char *line = strstr(text, "SigCgt:");
    check(line != NULL);
    return strtoul(line + strlen("SigCgt:"), NULL, 16) >> (signal - 1) & 1;
}

/* ---------------------------------------------------------------- S-01, S-02, S-03 */

TEST(s01_it_is_off_by_default) {
    start_as(PLAIN, "", "");
    check_eq(look(target.pid), 1);
    check_str(found.page.socket_path, "");
    check_eq(found.page.control, 0);
    check_eq(count_threads(target.pid), 1);
    check_eq(count_descriptors(target.pid, "socket:", false), 0);
    check_eq(end_target(), 0);
}

static void check_off_with(const char *conf, const char *weaker) {
    start_as(PLAIN, conf, weaker);
    check_eq(look(target.pid), 1);
    check_str(found.page.socket_path, "");
    check_str(order('s'), "1"); /* EPERM */
    check_eq(count_threads(target.pid), 1);
    check_eq(end_target(), 0);
}

TEST(s01_off_by_any_source_is_final) {
    check_off_with("control:write", "control:off");
    check_off_with("control:off", "control:write");
}

TEST(s01_off_is_final_within_one_source_too) {
    check_off_with("control:off,control:write", "");
    check_off_with("control:read,control:off,control:default,control:read", "");
}

TEST(s01_a_program_that_may_not_be_dumped_has_none) {
    start("control:default");
    check_str(order('d'), "0");
    check_str(order('s'), "1"); /* EPERM */
    check_eq(end_target(), 0);
}

TEST(s01_the_program_may_open_and_close_it) {
    start("control:default");
    check_str(order('s'), "0");
    int fd = reach();
    check(fd >= 0);
    check(begins(ask(fd, "hello"), "ok version=" TALLY_VERSION " pid="));
    char number[24];
    snprintf(number, sizeof number, "%d", EALREADY);
    check_str(order('s'), number);
    char path[STATS_PAGE_PATH_BYTES];
    strcpy(path, found.page.socket_path);
    check_str(order('t'), "0");
    check(access(path, F_OK) != 0);
    check_str(receive(fd), "");
    for (int i = 0; i < 1000 && count_threads(target.pid) > 1; i++) {
        wait_a_little();
    }
    check_eq(count_threads(target.pid), 1);
    check_eq(look(target.pid), 1);
    check_str(found.page.socket_path, "");
    check_str(order('s'), "0");
    check_eq(end_target(), 0);
}

TEST(s02_s04_it_is_a_socket_with_a_name_and_mode_0600) {
    start("control:read");
    check_eq(look(target.pid), 1);
    struct stat facts;
    check_eq(lstat(found.page.socket_path, &facts), 0);
    check(S_ISSOCK(facts.st_mode));
    check_eq(facts.st_mode & 07777, 0600);
    check_eq(strncmp(found.page.socket_path, target.folder, strlen(target.folder)), 0);
    check_eq(found.page.control, 1);
    check_eq(end_target(), 0);
}

/* The target says so and goes on without. */
static void check_no_socket(const char *why) {
    char conf[200];
    snprintf(conf, sizeof conf, "control:write,control_dir:%s", target.folder);
    start_as(PLAIN, conf, "");
    check_eq(look(target.pid), 1);
    check_str(found.page.socket_path, "");
    check_eq(found.page.control, 0);
    check_eq(count_threads(target.pid), 1);
    check(begins(errors_of_target(), why));
    check_eq(end_target(), 0);
}

TEST(s03_a_directory_that_others_may_enter_is_refused_and_not_repaired) {
    struct stat facts;
    strcpy(target.folder, "/tmp/tally-control-XXXXXX");
    check(mkdtemp(target.folder) != NULL);
    check_eq(chmod(target.folder, 0710), 0);
    char again[64];
    strcpy(again, target.folder);
    char conf[200];
    snprintf(conf, sizeof conf, "control:write,control_dir:%s", target.folder);
    start_as(PLAIN, conf, "");
    check_eq(look(target.pid), 1);
    check_str(found.page.socket_path, "");
    check_eq(stat(again, &facts), 0);
    check_eq(facts.st_mode & 0777, 0710);
    check(begins(errors_of_target(), "tally: no control socket: its directory is not"));
    check_eq(end_target(), 0);
}

TEST(s03_a_directory_of_another_user_is_refused) {
    strcpy(target.folder, "/tmp/tally-control-XXXXXX");
    check(mkdtemp(target.folder) != NULL);
    if (geteuid() != 0 || chown(target.folder, NOBODY, NOBODY) != 0) {
        rmdir(target.folder);
        skip("only root can give a directory away");
    }
    check_no_socket("tally: no control socket: its directory is not");
}

TEST(s03_a_link_to_a_directory_is_refused) {
    char real[64] = "/tmp/tally-control-XXXXXX";
    check(mkdtemp(real) != NULL);
    snprintf(target.folder, sizeof target.folder, "%s-link", real);
    check_eq(symlink(real, target.folder), 0);
    check_no_socket("tally: no control socket: ");
    rmdir(real);
}

TEST(s03_a_directory_that_is_missing_is_made_private) {
    strcpy(target.folder, "/tmp/tally-control-XXXXXX");
    check(mkdtemp(target.folder) != NULL);
    char conf[200];
    umask(0);
    snprintf(conf, sizeof conf, "control:write,control_dir:%s/made", target.folder);
    start_as(PLAIN, conf, "");
    int fd = reach();
    check(fd >= 0 && begins(ask(fd, "hello"), "ok "));
    char path[80];
    snprintf(path, sizeof path, "%s/made", target.folder);
    struct stat facts;
    check_eq(stat(path, &facts), 0);
    check_eq(facts.st_mode & 0777, 0700);
    check_eq(end_target(), 0);
}

/* ---------------------------------------------------------------- below `tally run` */

/* As the command starts it, but that TALLY_ROOT is another process: this is a descendant. */
static void start_descendant(const char *children) {
    static char root[] = "TALLY_ROOT=1:1";
    char conf[250];
    target.root = root;
    strcpy(target.folder, "/tmp/tally-control-XXXXXX");
    check(mkdtemp(target.folder) != NULL);
    snprintf(conf, sizeof conf,
             "control:write,control_dir:%s/c,prof_signal:%d,run_file:%s/a.tally,run_children:%s",
             target.folder, SIGUSR1, target.folder, children);
    start_as(PLAIN, conf, "");
}

TEST(a_descendant_has_no_socket_no_thread_and_no_handler_of_signals) {
    start_descendant("other");
    check_eq(look(target.pid), 1);
    check_str(found.page.socket_path, "");
    check_eq(count_threads(target.pid), 1);
    check_str(order('a'), "done");
    kill(target.pid, SIGUSR1);
    int status = end_target();
    check(WIFSIGNALED(status));
    check_eq(WTERMSIG(status), SIGUSR1);
}

TEST(a_descendant_that_is_wanted_has_them) {
    start_descendant("test_c*");
    int fd = reach();
    check(fd >= 0);
    check(begins(ask(fd, "hello"), "ok "));
    kill(target.pid, SIGUSR1);
    check_str(order('a'), "done");
    check_eq(end_target(), 0);
}

TEST(a_descendant_may_still_open_a_socket_itself) {
    start_descendant("");
    check_str(order('s'), "0");
    check(reach() >= 0);
    check_eq(end_target(), 0);
}

/* A child that is not recorded: the signal ends it, as it would without us. */
TEST(a_forked_child_that_is_quiet_has_no_handler_of_signals) {
    char conf[250];
    strcpy(target.folder, "/tmp/tally-control-XXXXXX");
    check(mkdtemp(target.folder) != NULL);
    snprintf(conf, sizeof conf, "prof_signal:%d,run_file:%s/a.tally", SIGUSR1, target.folder);
    start_as(PLAIN, conf, "");
    pid_t child = atoi(order('f'));
    check(child > 0);
    for (int i = 0; i < 1000 && catches(child, SIGUSR1); i++) {
        wait_a_little(); /* It may not have run yet. */
    }
    check(!catches(child, SIGUSR1));
    check(catches(target.pid, SIGUSR1));
    kill(child, SIGKILL);
    kill(target.pid, SIGUSR1);
    check_str(order('a'), "done");
    check_eq(end_target(), 0);
}

/* ---------------------------------------------------------------- S-04 */

/* Another user with the right to pass all modes of files, so that only the socket can refuse. */
static int ask_as_nobody(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};
    data[0].effective = data[0].permitted = 1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH;
    if (prctl(PR_SET_KEEPCAPS, 1) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0 ||
        syscall(SYS_capset, &head, data) != 0) {
        return NO_NAMESPACES;
    }
    int fd = connect_below("", found.page.socket_path);
    return fd >= 0 && strncmp(receive(fd), "tally1 ", 7) == 0 ? 0 : 1;
}

/* The target runs, and its page is found; how `work` ends in a child, and who that was. */
static int run_beside_target(int (*work)(void), pid_t *pid) {
    if (geteuid() != 0) {
        skip("only root can become another user");
    }
    start("control:write,control_log:true");
    check_eq(look(target.pid), 1);
    *pid = fork();
    if (*pid == 0) {
        _exit(work());
    }
    int status = -1;
    check_eq(waitpid(*pid, &status, 0), *pid);
    check(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(s04_another_user_who_gets_to_the_socket_is_refused_by_it) {
    pid_t pid;
    int status = run_beside_target(ask_as_nobody, &pid);
    if (status == NO_NAMESPACES) {
        skip("capabilities cannot be kept here");
    }
    check_eq(status, 0);
    char line[100];
    snprintf(line, sizeof line, "tally: control: pid %d uid %d: connect: denied\n", (int)pid,
             NOBODY);
    check_str(errors_of_target(), line);
    check_eq(end_target(), 0);
}

static int look_as_nobody(void) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)target.pid);
    bool refused = setresuid(NOBODY, NOBODY, NOBODY) == 0 &&
                   connect_below("", found.page.socket_path) < 0 && errno == EACCES &&
                   opendir(path) == NULL && errno == EACCES;
    return refused ? 0 : 1;
}

TEST(s04_another_user_cannot_even_get_there) {
    pid_t pid;
    check_eq(run_beside_target(look_as_nobody, &pid), 0);
    check_eq(end_target(), 0);
}

/* ---------------------------------------------------------------- other namespaces */

/* Its number 1, as it sees itself. */
static pid_t child_of(pid_t parent) {
    char path[64], text[64] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    int file = open(path, O_RDONLY);
    check(file < 0 || read(file, text, sizeof text - 1) >= 0);
    close(file);
    return atoi(text);
}

TEST(a_target_in_other_namespaces_is_reached_through_its_root) {
    char root[64];
    start_as(IN_NAMESPACES, "control:write,control_dir:/mnt/inside", "");
    pid_t inside = child_of(target.pid);
    if (inside <= 0) {
        skip("the kernel does not tell children of processes");
    }
    check_eq(look(inside), 1);
    check_eq(found.page.pid, 1);
    check_str(found.page.socket_path, "/mnt/inside/1.sock");
    snprintf(root, sizeof root, "/proc/%d/root", (int)inside);
    int fd = connect_below(root, found.page.socket_path);
    check(fd >= 0);
    check(begins(ask(fd, "hello"), "ok version=" TALLY_VERSION " pid=1 "));
    check(strstr(output_of(fd, "maps", "ok "), "test_control") != NULL);
    check_eq(end_target(), 0);
}

/* Three processes with the number 1, each in namespaces of its own, and one directory for all. */
TEST(s03_a_socket_that_is_served_is_left_alone_and_a_dead_one_is_replaced) {
    char conf[200], folder[] = "/var/tmp/tally-control-XXXXXX", first[80];
    check(mkdtemp(folder) != NULL);
    snprintf(conf, sizeof conf, "control:read,control_dir:%s", folder);
    snprintf(first, sizeof first, "%s/1.sock", folder);
    start_as(IN_NAMESPACES, conf, "");
    pid_t served = child_of(target.pid);
    if (served <= 0) {
        skip("the kernel does not tell children of processes");
    }
    check_eq(look(served), 1);
    check_str(found.page.socket_path, first);
    int input = target.input;
    pid_t parent = target.pid;
    start_as(IN_NAMESPACES, conf, "");
    check_eq(look(child_of(target.pid)), 1);
    check(begins(found.page.socket_path, folder));
    check(strncmp(found.page.socket_path + strlen(folder), "/1-", 3) == 0);
    int fd = connect_below("", first);
    check(fd >= 0 && begins(ask(fd, "hello"), "ok "));
    check_eq(end_target(), 0);
    kill(served, SIGKILL);
    check_eq(waitpid(parent, NULL, 0), parent);
    close(input);
    check(access(first, F_OK) == 0); /* Nobody was left to remove it. */
    start_as(IN_NAMESPACES, conf, "");
    check_eq(look(child_of(target.pid)), 1);
    check_str(found.page.socket_path, first);
    fd = connect_below("", first);
    check(fd >= 0 && begins(ask(fd, "hello"), "ok "));
    strcpy(target.folder, folder);
    check_eq(end_target(), 0);
}
