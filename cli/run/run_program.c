/* SPDX-License-Identifier: MIT
 *
 * run_program.c - the program that `tally run` starts: its environment, its signals, its end.
 *
 *      environment     LD_PRELOAD begins with the library, TALLY_CONF ends with our keys, TALLY_ROOT says
 *                      which process is meant; nothing else changes
 *      child           the program, in our process group, with our descriptors
 *      we              wait, and pass on signals that were sent to us
 *
 * A signal from the terminal, or to the whole group, reaches the program anyway: only what a process sent
 * to us alone is passed on (witness.h).
 */
#define _GNU_SOURCE /* pipe2 */
#include "run/run_program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cli.h"
#include "common/escape.h"
#include "live/target.h"
#include "run/witness.h"

enum {
    GRACE_SECONDS = 5, /* from SIGTERM to SIGKILL at --timeout */
    NS_PER_SECOND = 1000000000,
};

static void set_joined(const char *name, const char *first, const char *between,
                       const char *second) {
    char *text = must_alloc(strlen(first) + strlen(between) + strlen(second) + 1);
    sprintf(text, "%s%s%s", first, between, second);
    if (setenv(name, text, 1) != 0) {
        complain(EXIT_OWN_FAILURE, "no memory for the environment");
        _exit(EXIT_OWN_FAILURE);
    }
    free(text);
}

static const char *or_empty(const char *text) {
    return text != NULL ? text : "";
}

static void set_environment(const struct run_plan *plan) {
    const char *preload = or_empty(getenv("LD_PRELOAD")), *conf = or_empty(getenv("TALLY_CONF"));
    set_joined("LD_PRELOAD", plan->library, preload[0] != '\0' ? ":" : "", preload);
    set_joined("TALLY_CONF", conf, conf[0] != '\0' ? "," : "", plan->conf);
}

int run_program_print(const struct run_plan *plan) {
    set_environment(plan);
    static const char *const names[] = {"LD_PRELOAD", "TALLY_CONF"};
    for (size_t i = 0; i < 2; i++) {
        printf("%s=", names[i]);
        escape_shell(stdout, getenv(names[i]));
        putchar('\n');
    }
    return EXIT_DONE;
}

/* ---------------------------------------------------------------- start and end */

/* What the handlers use.  The child is set before they are, and stays when they are gone. */
static volatile pid_t child;
static volatile sig_atomic_t is_late;

static void pass_on(int number, siginfo_t *info, void *context) {
    (void)context;
    int saved = errno;
    /* By a process, not by the terminal, and not to all of a group that the program is in. */
    bool is_for_all = info->si_code > 0 || witness_has(number);
    if (child > 0 && (!is_for_all || (info->si_code <= 0 && getpgid(child) != getpgrp()))) {
        kill(child, number);
    }
    if (is_for_all) {
        witness_forget();
    }
    errno = saved;
}

static void end_late(int number) {
    (void)number;
    int saved = errno;
    kill(child, is_late ? SIGKILL : SIGTERM);
    is_late = 1;
    errno = saved;
}

static const int passed_on[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
enum { PASSED_ON = sizeof passed_on / sizeof passed_on[0] };

/* The earlier signal actions, restored when the program has ended. */
static struct sigaction before_us[PASSED_ON];

static void watch_signals(void) {
    struct sigaction action = {.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < PASSED_ON; i++) { /* One after the other. */
        sigaddset(&action.sa_mask, passed_on[i]);
    }
    for (size_t i = 0; i < PASSED_ON; i++) {
        sigaction(passed_on[i], &action, &before_us[i]);
    }
}

/* A summary can take a while, and signals end it like any other program. */
static void leave_signals(void) {
    struct itimerval none = {0};
    setitimer(ITIMER_REAL, &none, NULL);
    for (size_t i = 0; i < PASSED_ON; i++) {
        sigaction(passed_on[i], &before_us[i], NULL);
    }
    witness_end();
}

static void watch_time(uint64_t timeout_ns) {
    struct sigaction action = {.sa_handler = end_late, .sa_flags = SA_RESTART};
    struct itimerval timer = {
        .it_value = {(time_t)(timeout_ns / NS_PER_SECOND),
                     (suseconds_t)(timeout_ns % NS_PER_SECOND / 1000)},
        .it_interval = {GRACE_SECONDS, 0},
    };
    sigemptyset(&action.sa_mask);
    if (timeout_ns != 0) {
        timer.it_value.tv_usec += timer.it_value.tv_sec == 0 && timer.it_value.tv_usec == 0;
        sigaction(SIGALRM, &action, NULL);
        setitimer(ITIMER_REAL, &timer, NULL);
    }
}

/* In the child: becomes the program, or reports through the pipe why not. */
_Noreturn static void become_program(const struct run_plan *plan, char **words, int report) {
    char root[64];
    snprintf(root, sizeof root, "%d:%llu", (int)getpid(),
             (unsigned long long)target_start_time(getpid()));
    set_environment(plan);
    setenv("TALLY_ROOT", root, 1);
    execvp(words[0], words);
    int error = errno;
    ssize_t written = write(report, &error, sizeof error);
    (void)written;
    _exit(EXIT_NOT_FOUND);
}

int run_program_start(const struct run_plan *plan, char **words) {
    int report[2];
    int error = 0;
    sigset_t all, before;
    struct sigaction by_default = {.sa_handler = SIG_DFL}, on_end;
    if (pipe2(report, O_CLOEXEC) != 0) {
        return errno;
    }
    fflush(NULL);
    sigfillset(&all); /* Nothing is lost between the fork and the handlers. */
    sigprocmask(SIG_BLOCK, &all, &before);
    /* If SIGCHLD is ignored, wait(2) does not say how a child ended. */
    sigaction(SIGCHLD, &by_default, &on_end);
    child = fork();
    if (child == 0) {
        sigaction(SIGCHLD, &on_end, NULL);
        sigprocmask(SIG_SETMASK, &before, NULL);
        close(report[0]);
        become_program(plan, words, report[1]);
    }
    error = child < 0 ? errno : 0;
    close(report[1]);
    if (child > 0) {
        witness_start();
        watch_signals();
        watch_time(plan->wishes->timeout_ns);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (child > 0) {
        ssize_t length;
        do {
            length = read(report[0], &error, sizeof error);
        } while (length < 0 && errno == EINTR);
    }
    close(report[0]);
    return error;
}

/* The id is the program's until it is reaped, so the handlers, which send to it, go first. */
int run_program_wait(void) {
    siginfo_t end;
    int status = 0;
    while (waitid(P_PID, (id_t)child, &end, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
    }
    leave_signals();
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

static void stop_waiting(int number) {
    (void)number;
}

/* Processes whose parent has ended became our children.  Without SA_RESTART a signal ends the waiting. */
void run_program_wait_for_rest(void) {
    struct sigaction action = {.sa_handler = stop_waiting}, before[2];
    sigaction(SIGINT, &action, &before[0]);
    sigaction(SIGTERM, &action, &before[1]);
    while (waitpid(-1, NULL, 0) > 0) {
    }
    sigaction(SIGINT, &before[0], NULL);
    sigaction(SIGTERM, &before[1], NULL);
}

pid_t run_program_pid(void) {
    return child;
}

bool run_program_is_late(void) {
    return is_late;
}
