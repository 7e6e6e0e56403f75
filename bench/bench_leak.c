/* SPDX-License-Identifier: MIT
 *
 * bench_leak.c - how long a check for leaks holds up a program, and how long it takes.
 *
 *      bench_leak [mib=1024] [size=0] [threads=4] [rounds=5] [in_place=0]
 *
 * Fills the heap with so many MiB of objects of one size, or of 16 to 2,000 bytes where that is 0, of which
 * each leads to the next, starts threads that allocate and free, and checks an odd number of times.  One line:
 * the median of the pauses in ms, the least and the most, the median of whole checks, and the first per GiB
 * of live heap.
 **/
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tally/tally.h>

#include "leak/leak.h"

static _Atomic bool stops;
static void **first; /* all objects, one leads to the next */

static size_t random_size(size_t size, uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return size != 0 ? size : 16 + (*state >> 33) % 1985;
}

static size_t fill(size_t bytes, size_t size) {
    uint64_t state = 1;
    size_t done = 0;
    while (done < bytes) {
        size_t next = random_size(size, &state);
        void **object = tally_malloc(next);
        if (object == NULL) {
            break;
        }
        memset(object, 1, next);
        *object = first;
        first = object;
        done += tally_usable_size(object);
    }
    return done;
}

static void *churn(void *unused) {
    void *own[256] = {0};
    uint64_t state = (uintptr_t)&own;
    for (unsigned i = 0; !stops; i++) {
        tally_free(own[i % 256]);
        own[i % 256] = tally_malloc(random_size(0, &state));
    }
    return unused;
}

static unsigned long option(int count, char **arguments, const char *name, unsigned long value) {
    size_t length = strlen(name);
    for (int i = 1; i < count; i++) {
        if (strncmp(arguments[i], name, length) == 0 && arguments[i][length] == '=') {
            value = strtoul(arguments[i] + length + 1, NULL, 0);
        }
    }
    return value;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int count, char **arguments) {
    size_t bytes = option(count, arguments, "mib", 1024) << 20;
    size_t size = option(count, arguments, "size", 0);
    unsigned long threads = option(count, arguments, "threads", 4);
    unsigned long rounds = option(count, arguments, "rounds", 5) | 1;
    struct leak_wish wish = {.in_place = option(count, arguments, "in_place", 0) != 0,
                             .max_pause_ns = 600000000000};
    pthread_t thread;
    size_t live = fill(bytes, size);
    for (unsigned long i = 0; i < threads; i++) {
        pthread_create(&thread, NULL, churn, NULL);
    }
    double *pauses = calloc(rounds, sizeof(double)), *totals = calloc(rounds, sizeof(double));
    for (unsigned long i = 0; i < rounds; i++) {
        struct leak_result *result = NULL;
        if (!leak_check(&wish, &result) || result->kinds[LEAK_DEFINITE].objects != 0) {
            fprintf(stderr, "%s\n", result == NULL ? "no memory" : result->why);
            return 1;
        }
        pauses[i] = (double)result->pause_ns / 1e6;
        totals[i] = (double)result->total_ns / 1e6;
        leak_release(result);
    }
    stops = true;
    qsort(pauses, rounds, sizeof(double), compare);
    qsort(totals, rounds, sizeof(double), compare);
    double gib = (double)live / (double)(1 << 30);
    printf("live_mib=%.0f pause_ms=%.1f pause_least_ms=%.1f pause_most_ms=%.1f total_ms=%.0f "
           "pause_ms_per_gib=%.1f\n",
           gib * 1024, pauses[rounds / 2], pauses[0], pauses[rounds - 1], totals[rounds / 2],
           pauses[rounds / 2] / gib);
    return 0;
}
