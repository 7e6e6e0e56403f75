/* SPDX-License-Identifier: MIT
 *
 * witness.c - a process that signals gather at.
 *
 * It blocks all signals and waits for one that only we send.  The kernel marks a signal to a group
 * as pending for each member before the call of the sender returns, so it does not matter when the
 * witness runs: /proc shows it.
 */
#define _GNU_SOURCE /* syscall */
#include "run/witness.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/cli.h"

enum { LOOKS = 10, LOOK_MS = 5, FORGET_MS = 300, NS_PER_MS = 1000000 };

static pid_t witness = -1;
static char status_path[64];

static void sleep_ms(long ms) {
    struct timespec time = {0, ms * NS_PER_MS};
    nanosleep(&time, NULL);
}

_Noreturn static void stand_by(pid_t parent) {
    sigset_t all, request;
    struct timespec at_once = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "tally-witness");
    /* An open end of a pipe here would keep its reader waiting. */
    syscall(SYS_close_range, 0, ~0U, 0);
    sigfillset(&all);
    sigemptyset(&request);
    sigaddset(&request, SIGRTMIN);
    while (getppid() == parent) {
        if (sigwaitinfo(&request, NULL) > 0) {
            sleep_ms(FORGET_MS);
            while (sigtimedwait(&all, NULL, &at_once) > 0) {
            }
        }
    }
    _exit(0);
}

void witness_start(void) {
    pid_t parent = getpid();
    witness = fork();
    if (witness == 0) {
        stand_by(parent);
    }
    snprintf(status_path, sizeof status_path, "/proc/%d/status", (int)witness);
}

/* The set of signals that are pending for the process: hexadecimal, the lowest is the last bit. */
static unsigned long long pending(void) {
    static const char label[] = "\nShdPnd:\t";
    char text[4096];
    read_small(status_path, text, sizeof text);
    const char *found = strstr(text, label);
    return found != NULL ? strtoull(found + strlen(label), NULL, 16) : 0;
}

bool witness_has(int number) {
    for (int i = 0; witness > 0 && i < LOOKS; i++) {
        if (pending() >> (number - 1) & 1) {
            return true;
        }
        sleep_ms(LOOK_MS);
    }
    return false;
}

void witness_forget(void) {
    if (witness > 0) {
        kill(witness, SIGRTMIN);
    }
}

void witness_end(void) {
    if (witness > 0) {
        kill(witness, SIGKILL);
        while (waitpid(witness, NULL, 0) < 0 && errno == EINTR) {
        }
        witness = -1;
    }
}
