/* SPDX-License-Identifier: MIT
 *
 * program_neighbour.c - a library that replaces clock_gettime and sched_getcpu and allocates in
 * both. Preloaded beside ours by test_neighbours.sh.
 *
 * It allocates at every call, small and large, so that every lock of the allocator is asked for;
 * only its own nested calls go straight to the kernel, or it would never return.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

unsigned long neighbour_calls;

/* Volatile, because <stdlib.h> promises the compiler that malloc never comes back to this file. */
static __thread volatile int inside __attribute__((tls_model("initial-exec")));

static void allocate(void) {
    enum { SMALL = 100 };
    void *small[SMALL];
    if (inside) {
        return;
    }
    inside = 1;
    for (int i = 0; i < SMALL; i++) {
        small[i] = malloc((size_t)i * 16);
    }
    free(malloc(100000));
    free(malloc(3000000));
    for (int i = 0; i < SMALL; i++) {
        free(small[i]);
    }
    inside = 0;
    __atomic_add_fetch(&neighbour_calls, 1, __ATOMIC_RELAXED);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    allocate();
    return (int)syscall(SYS_clock_gettime, clock, time);
}

int sched_getcpu(void) {
    unsigned cpu = 0;
    allocate();
    return syscall(SYS_getcpu, &cpu, NULL, NULL) == 0 ? (int)cpu : -1;
}
