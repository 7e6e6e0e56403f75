/* SPDX-License-Identifier: MIT
 *
 * program_gperftools.cc - a program that was written for gperftools and is linked with it, for
 * test_gperftools_linked.sh: it holds memory, uses time, and loses memory if it is told to.
 *
 *      program_gperftools [lose | local | signal NUMBER]
 */
#include <gperftools/heap-checker.h>
#include <gperftools/heap-profiler.h>
#include <gperftools/malloc_extension.h>
#include <gperftools/profiler.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void *volatile held;
static volatile unsigned long sum;

/* What the variables ask for is asked for in main as much as before it. */
static const char *const variables[] = {"HEAPPROFILE", "CPUPROFILE", "HEAPCHECK"};

__attribute__((noinline)) static void hold_memory(void) {
    held = malloc(10 << 20);
    memset(held, 1, 10 << 20);
}

static void *lose_blocks(void *unused) {
    for (int i = 0; i < 3; i++) {
        void *volatile lost = malloc(1000);
        lost = NULL;
        (void)lost;
    }
    return unused;
}

/* In another thread, so that no register and no stack remembers. */
static void lose_memory(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, lose_blocks, NULL) == 0) {
        pthread_join(thread, NULL);
    }
}

/* A quarter of a second of this thread's time. */
__attribute__((noinline)) static void use_time(void) {
    struct timespec begin, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do {
        for (unsigned long i = 0; i < 1000000; i++) {
            sum += i * i;
        }
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1000000000 + now.tv_nsec - begin.tv_nsec < 250000000);
}

static int check_locally(void) {
    HeapLeakChecker checker("local");
    lose_memory();
    bool is_clean = checker.NoLeaks();
    printf("local %s, %ld bytes in %ld objects\n", is_clean ? "clean" : "lost",
           (long)checker.BytesLeaked(), (long)checker.ObjectsLeaked());
    return 0;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    for (unsigned i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        if (getenv(variables[i]) != NULL) {
            printf("%s is set\n", variables[i]);
        }
    }
    hold_memory();
    size_t bytes = 0;
    MallocExtension::instance()->GetNumericProperty("generic.current_allocated_bytes", &bytes);
    printf("%zu MiB in use\n", bytes >> 20);
    printf("heap profiler %s\n", IsHeapProfilerRunning() ? "on" : "off");
    if (strcmp(mode, "signal") == 0) {
        raise(atoi(argv[2]));
    }
    use_time();
    struct ProfilerState state;
    ProfilerGetCurrentState(&state);
    printf("cpu profiler %s\n", state.enabled && state.samples_gathered > 0 ? "on" : "off");
    if (strcmp(mode, "signal") == 0) {
        raise(atoi(argv[2]));
    }
    if (strcmp(mode, "lose") == 0) {
        lose_memory();
    }
    return strcmp(mode, "local") == 0 ? check_locally() : 0;
}
