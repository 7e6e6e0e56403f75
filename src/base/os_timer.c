/* SPDX-License-Identifier: MIT
 *
 * os_timer.c - timers, threads and careful copies, by raw system calls.
 */
#define _GNU_SOURCE /* SIGEV_THREAD_ID */
#include "base/os_timer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>

#include "base/fmt.h"
#include "base/os.h"
#include "base/os_call.h"

/* ---------------------------------------------------------------- timers */

/* The kernel makes the number of a thread's clock from that of the thread. */
static long clock_number(const struct os_timer_target *target) {
    enum { OF_THREAD = 4, SCHEDULED_TIME = 2, SHIFT = 3 };
    return target->clock == OS_CLOCK_THREAD
               ? (int)(~target->thread << SHIFT | OF_THREAD | SCHEDULED_TIME)
               : CLOCK_MONOTONIC;
}

int os_timer_create(const struct os_timer_target *target) {
    struct sigevent event;
    int timer = 0;
    memset(&event, 0, sizeof(event));
    event.sigev_signo = target->signal;
    event.sigev_value.sival_int = (int)target->value;
    event.sigev_notify = SIGEV_THREAD_ID;
    event._sigev_un._tid = (int)target->thread;
    long error =
        raw_call(SYS_timer_create, clock_number(target), (long)&event, (long)&timer, 0, 0, 0);
    return error < 0 ? (int)error : timer;
}

static uint64_t read_clock(long number, bool *is_read) {
    enum { NS_PER_S = 1000000000 };
    struct timespec time = {0};
    *is_read = raw_call(SYS_clock_gettime, number, (long)&time, 0, 0, 0, 0) == 0;
    return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

uint64_t os_process_time_ns(void) {
    bool is_read;
    return read_clock(CLOCK_PROCESS_CPUTIME_ID, &is_read);
}

int os_timer_of_process(bool is_wall, uint64_t period_ns) {
    enum { NS_PER_US = 1000, US_PER_S = 1000000 };
    uint64_t us = period_ns / NS_PER_US;
    struct timeval time = {.tv_sec = (time_t)(us / US_PER_S),
                           .tv_usec = (suseconds_t)(us % US_PER_S)};
    struct itimerval timer = {time, time};
    return (int)raw_call(SYS_setitimer, is_wall ? ITIMER_REAL : ITIMER_PROF, (long)&timer, 0, 0, 0,
                         0);
}

static struct timespec as_time(uint64_t ns) {
    enum { NS_PER_S = 1000000000 };
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

int os_timer_set(int timer, uint64_t first_ns, uint64_t period_ns) {
    struct itimerspec times = {.it_interval = as_time(period_ns), .it_value = as_time(first_ns)};
    return (int)raw_call(SYS_timer_settime, timer, 0, (long)&times, 0, 0, 0);
}

void os_timer_delete(int timer) {
    raw_call(SYS_timer_delete, timer, 0, 0, 0, 0, 0);
}

/* ---------------------------------------------------------------- threads */

static const char folder[] = "/proc/self/task";

/* A folder has two links, and one more for each folder in it. */
uint32_t os_count_threads(void) {
    struct statx found;
    long error = raw_call(SYS_statx, AT_FDCWD, (long)folder, 0, STATX_NLINK, (long)&found, 0);
    return error == 0 && found.stx_nlink > 2 ? found.stx_nlink - 2 : 0;
}

bool os_time_of_thread(uint32_t thread, uint64_t *ns) {
    struct os_timer_target target = {OS_CLOCK_THREAD, thread, 0, 0};
    bool is_read;
    *ns = read_clock(clock_number(&target), &is_read);
    return is_read;
}

bool os_working_folder(char *path, size_t capacity) {
    bool found = raw_call(SYS_getcwd, (long)path, (long)capacity, 0, 0, 0, 0) > 0 && path[0] == '/';
    path[0] = found ? '/' : '\0';
    return found;
}

bool os_name_of_thread(uint32_t thread, char name[16]) {
    char path[48], text[32];
    fmt_text(path, sizeof(path), "%s/%u/comm", folder, thread);
    int length = os_read_file(path, text, sizeof(text));
    memset(name, 0, 16);
    if (length <= 0) {
        return false;
    }
    length -= text[length - 1] == '\n';
    memcpy(name, text, min_size((size_t)length, 15));
    return true;
}

/* ---------------------------------------------------------------- copies */

/* Page by page, each tried before it is read. */
__attribute__((no_sanitize("address", "thread"))) static bool
copy_what_is_readable(char *to, uintptr_t from, size_t bytes) {
    while (bytes > 0) {
        size_t part = min_size(bytes, os_facts.page_bytes - from % os_facts.page_bytes);
        if (!os_is_readable(align_down(from, os_facts.page_bytes))) {
            return false;
        }
        for (size_t i = 0; i < part; i++) {
            to[i] = ((const volatile char *)from)[i];
        }
        to += part;
        from += part;
        bytes -= part;
    }
    return true;
}

bool os_copy(void *to, uintptr_t from, size_t bytes, bool is_careful) {
    struct iovec here = {to, bytes};
    struct iovec there = {(void *)from, bytes};
    long done = -ENOSYS;
    if (!is_careful) {
        done = raw_call(SYS_process_vm_readv, os_process_id(), (long)&here, 1, (long)&there, 1, 0);
    }
    if (done == -ENOSYS || done == -EPERM) {
        return copy_what_is_readable(to, from, bytes);
    }
    return done == (long)bytes;
}
