/* SPDX-License-Identifier: MIT
 *
 * test_confine.c - a process that has given up its rights computes, answers, and can do nothing else.
 */
#define _GNU_SOURCE /* pipe2 */
#include "common/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

static int input[2], result[2];

/* What the body writes to descriptor 3, as text, when it is confined. */
static const char *confined(void (*body)(void)) {
    static char text[64];
    check(pipe2(input, O_CLOEXEC) == 0 && pipe2(result, O_CLOEXEC) == 0);
    check(write(input[1], "question", 8) == 8);
    pid_t pid = fork();
    if (pid == 0) {
        const int kept[] = {result[1], input[0]};
        confine_start(kept, 2, (uint64_t)4 << 30);
        confine_finish(1);
        body();
        _exit(0);
    }
    close(result[1]);
    ssize_t length = read(result[0], text, sizeof text - 1);
    text[length > 0 ? length : 0] = '\0';
    check(waitpid(pid, NULL, 0) == pid);
    return text;
}

static void say(const char *text) {
    if (write(CONFINE_RESULT, text, strlen(text)) < 0) {
        _exit(1);
    }
}

static void answer_with_memory(void) {
    char *memory = malloc(1 << 24);
    ssize_t length = read(CONFINE_RESULT + 1, memory, 1 << 24);
    memory[length > 0 ? length : 0] = '\0';
    say(memory);
    free(memory);
}

TEST(it_reads_its_input_and_answers) {
    check_str(confined(answer_with_memory), "question");
}

static void say_if_refused(long outcome, const char *word) {
    say(outcome == -1 && errno == EPERM ? "" : word);
}

static void try_everything(void) {
    char byte = 'x';
    say_if_refused(open("/etc/passwd", O_RDONLY), "open ");
    say_if_refused(socket(AF_UNIX, SOCK_STREAM, 0), "socket ");
    say_if_refused(fork(), "fork ");
    say_if_refused(kill(getppid(), 0), "kill ");
    say_if_refused(unlink("/tmp/no-such-file"), "unlink ");
    say_if_refused(syscall(SYS_ptrace, 0, 0, 0, 0), "ptrace ");
    say_if_refused(write(CONFINE_RESULT + 1, &byte, 1), "write ");
    say_if_refused(write(2, &byte, 1), "stderr ");
    say_if_refused(read(CONFINE_RESULT, &byte, 1), "read ");
    say_if_refused(read(0, &byte, 1), "stdin ");
    say_if_refused(execl("/bin/true", "true", (char *)NULL), "exec ");
    say("end");
}

TEST(everything_else_is_refused) {
    check_str(confined(try_everything), "end");
}

TEST(its_addresses_its_time_and_its_core_are_limited) {
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit time, core;
        confine_start(NULL, 0, (uint64_t)1 << 40);
        bool is_limited = getrlimit(RLIMIT_CPU, &time) == 0 && time.rlim_cur == 300 &&
                          getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_cur == 0;
        _exit(!is_limited);
    }
    int status;
    check(waitpid(pid, &status, 0) == pid);
    check_eq(status, 0);
}

TEST(root_becomes_nobody) {
    if (geteuid() != 0) {
        skip("only root can");
    }
    pid_t pid = fork();
    if (pid == 0) {
        confine_start(NULL, 0, (uint64_t)4 << 30);
        confine_finish(0);
        _exit(open("/etc/shadow", O_RDONLY) >= 0);
    }
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    int status;
    siginfo_t info;
    check(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) ==
          0); /* still there to be looked at */
    FILE *file = fopen(path, "r");
    bool is_nobody = false;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        is_nobody |= strcmp(line, "Uid:\t65534\t65534\t65534\t65534\n") == 0;
    }
    check(waitpid(pid, &status, 0) == pid);
    check_eq(status, 0);
    check(is_nobody);
}
