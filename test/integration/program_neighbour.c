/* SPDX-License-Identifier: MIT
 *
 * program_neighbour.c - a library that replaces functions of libc and allocates in all of them:
 * those that the allocator asks libc for, and those that it should not. Preloaded beside ours by
 * test_neighbours.sh.
 *
 * It allocates at every call, small and large, so that every lock of the allocator is asked for;
 * only its own nested calls go straight to the kernel, or it would never return.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
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

/* From the file, since libc's own function is the one that is replaced. */
unsigned long getauxval(unsigned long type) {
    unsigned long entry[2];
    unsigned long value = 0;
    allocate();
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/auxv", O_RDONLY);
    while (syscall(SYS_read, fd, entry, sizeof entry) == sizeof entry) {
        value = entry[0] == type ? entry[1] : value;
    }
    syscall(SYS_close, fd);
    return value;
}

extern int __pthread_key_create(pthread_key_t *key, void (*destructor)(void *));

int pthread_key_create(pthread_key_t *key, void (*destructor)(void *)) {
    allocate();
    return __pthread_key_create(key, destructor);
}

typedef void handler(void);
int __register_atfork(handler *prepare, handler *parent, handler *child, void *object);

/* What pthread_atfork calls in libc. */
int __register_atfork(handler *prepare, handler *parent, handler *child, void *object) {
    int (*next)(handler *, handler *, handler *, void *) =
        (int (*)(handler *, handler *, handler *, void *))dlsym(RTLD_NEXT, "__register_atfork");
    allocate();
    return next(prepare, parent, child, object);
}

int open(const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    int mode = va_arg(list, int);
    va_end(list);
    allocate();
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

void *mmap(void *start, size_t bytes, int protection, int flags, int fd, off_t offset) {
    allocate();
    return (void *)syscall(SYS_mmap, start, bytes, protection, flags, fd, offset);
}

int munmap(void *start, size_t bytes) {
    allocate();
    return (int)syscall(SYS_munmap, start, bytes);
}

int mprotect(void *start, size_t bytes, int protection) {
    allocate();
    return (int)syscall(SYS_mprotect, start, bytes, protection);
}

int madvise(void *start, size_t bytes, int advice) {
    allocate();
    return (int)syscall(SYS_madvise, start, bytes, advice);
}
