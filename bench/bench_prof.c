/* SPDX-License-Identifier: MIT
 *
 * bench_prof.c - what the heap profiler costs, for prof.py.  One line of key=value per run.
 *
 *      bench_prof parse [turns]            a program that mostly allocates: texts are parsed into trees of
 *                                          small nodes and strings, sorted, printed, and freed
 *      bench_prof live COUNT SIZE          holds COUNT objects of SIZE bytes; what the process then weighs
 *      bench_prof dump STACKS PATH...      makes so many stacks of 20 frames, an object each, and
 *                                          writes a profile to each path, while another thread allocates
 *
 * The profiler is armed through MALLOC_CONF.  This file is compiled with frame pointers.
 *
 * A stall is one call of malloc or free that takes long.  The kernel makes such calls, too, when it gives the
 * processor to somebody else; `stall_us` leaves out those in which that happened (involuntary context
 * switches), `raw_stall_us` does not, and `calm_us` is like the first, for the same time without a dump.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

/* Of the preloaded library, if it is tally. */
extern int tally_profile_dump(const char *path) __attribute__((weak));

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static double cpu_ms(clockid_t whose) {
    struct timespec now;
    clock_gettime(whose, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* ---------------------------------------------------------------- a program that parses */

/* A value is a word, or a list of values in brackets. */
struct value {
    char *word;
    struct value **items;
    unsigned count, room;
};

static uint32_t random_state = 1;

static uint32_t random_below(uint32_t most) {
    random_state = random_state * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)random_state * most >> 32);
}

struct text {
    char *bytes;
    size_t length, room;
};

NOINLINE static void text_add(struct text *text, char c) {
    if (text->length + 1 >= text->room) {
        text->room = text->room * 2 + 16;
        text->bytes = realloc(text->bytes, text->room);
    }
    text->bytes[text->length++] = c;
    text->bytes[text->length] = '\0';
}

NOINLINE static void write_random(struct text *text, unsigned depth) {
    unsigned items = 2 + random_below(6);
    text_add(text, '[');
    for (unsigned i = 0; i < items; i++) {
        if (depth > 0 && random_below(3) != 0) {
            write_random(text, depth - 1);
        } else {
            for (unsigned letters = 3 + random_below(30); letters > 0; letters--) {
                text_add(text, (char)('a' + random_below(26)));
            }
        }
        text_add(text, ' ');
    }
    text_add(text, ']');
}

NOINLINE static struct value *value_new(void) {
    struct value *value = calloc(1, sizeof *value);
    if (value == NULL) {
        exit(3);
    }
    return value;
}

NOINLINE static struct value *parse_word(const char **at) {
    size_t length = strcspn(*at, " ]");
    struct value *value = value_new();
    value->word = malloc(length + 1);
    memcpy(value->word, *at, length);
    value->word[length] = '\0';
    *at += length;
    return value;
}

NOINLINE static void value_append(struct value *list, struct value *item) {
    if (list->count == list->room) {
        list->room = list->room * 2 + 2;
        list->items = realloc(list->items, list->room * sizeof *list->items);
    }
    list->items[list->count++] = item;
}

NOINLINE static struct value *parse(const char **at) {
    if (**at != '[') {
        return parse_word(at);
    }
    struct value *list = value_new();
    ++*at;
    while (**at != ']') {
        value_append(list, parse(at));
        *at += **at == ' ';
    }
    ++*at;
    return list;
}

static int compare_values(const void *a, const void *b) {
    const struct value *left = *(struct value *const *)a, *right = *(struct value *const *)b;
    if (left->word != NULL && right->word != NULL) {
        return strcmp(left->word, right->word);
    }
    return (int)left->count - (int)right->count;
}

NOINLINE static void print_value(struct value *value, struct text *text) {
    if (value->word != NULL) {
        for (const char *c = value->word; *c != '\0'; c++) {
            text_add(text, *c);
        }
        return;
    }
    qsort(value->items, value->count, sizeof *value->items, compare_values);
    text_add(text, '[');
    for (unsigned i = 0; i < value->count; i++) {
        print_value(value->items[i], text);
        text_add(text, ' ');
    }
    text_add(text, ']');
}

NOINLINE static void value_free(struct value *value) {
    for (unsigned i = 0; i < value->count; i++) {
        value_free(value->items[i]);
    }
    free(value->items);
    free(value->word);
    free(value);
}

static int run_parse(unsigned turns) {
    struct text text = {0};
    write_random(&text, 7);
    double start = cpu_ms(CLOCK_PROCESS_CPUTIME_ID);
    size_t sum = 0;
    for (unsigned i = 0; i < turns; i++) {
        const char *at = text.bytes;
        struct text printed = {0};
        struct value *value = parse(&at);
        print_value(value, &printed);
        sum += printed.length;
        value_free(value);
        free(printed.bytes);
    }
    printf("cpu_ms=%.2f text_bytes=%zu sum=%zu\n", cpu_ms(CLOCK_PROCESS_CPUTIME_ID) - start,
           text.length, sum);
    return 0;
}

/* ---------------------------------------------------------------- bytes per live object */

static long resident_kib(void) {
    char line[256];
    long kib = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        sscanf(line, "Anonymous: %ld", &kib);
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib;
}

static int run_live(size_t count, size_t size) {
    long before = resident_kib();
    void **objects = malloc(count * sizeof *objects);
    double start = cpu_ms(CLOCK_PROCESS_CPUTIME_ID);
    for (size_t i = 0; i < count; i++) {
        objects[i] = malloc(size);
        memset(objects[i], 1, size);
    }
    double spent = cpu_ms(CLOCK_PROCESS_CPUTIME_ID) - start;
    printf("cpu_ms=%.2f grown_kib=%ld\n", spent, resident_kib() - before);
    for (size_t i = 0; i < count; i++) {
        free(objects[i]);
    }
    free(objects);
    return 0;
}

/* ---------------------------------------------------------------- a dump, and who waits for it */

enum { TURNS = 15 };

static void **kept;
static size_t kept_count;

NOINLINE static void turn_left(unsigned number, unsigned level);
NOINLINE static void turn_right(unsigned number, unsigned level);

/* The bits of the number decide which functions the stack is made of. */
static inline void turn(unsigned number, unsigned level) {
    if (level == TURNS) {
        kept[kept_count++] = malloc(64);
    } else if (number >> level & 1) {
        turn_left(number, level + 1);
    } else {
        turn_right(number, level + 1);
    }
    __asm__ volatile("");
}

static void turn_left(unsigned number, unsigned level) {
    turn(number, level);
    __asm__ volatile("nop"); /* unlike the other one, or the compiler would make them one */
}

static void turn_right(unsigned number, unsigned level) {
    turn(number, level);
}

static void pin(unsigned which) {
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--) {
        if (CPU_ISSET((size_t)cpu, &all) && which-- == 0) {
            CPU_ZERO(&one);
            CPU_SET((size_t)cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
            return;
        }
    }
}

enum { OFF, CALM, DUMP, PHASES };

static struct {
    _Atomic int phase;
    _Atomic bool stop;
    double longest[PHASES], raw[PHASES];
    unsigned long calls[PHASES], above_ms[PHASES];
} waiter;

static long switches(void) {
    struct rusage used;
    getrusage(RUSAGE_THREAD, &used);
    return used.ru_nivcsw;
}

static void note(double took_us, bool was_switched) {
    int phase = waiter.phase;
    waiter.calls[phase]++;
    if (took_us > waiter.raw[phase]) {
        waiter.raw[phase] = took_us;
    }
    if (!was_switched && took_us > waiter.longest[phase]) {
        waiter.longest[phase] = took_us;
    }
    waiter.above_ms[phase] += !was_switched && took_us > 1000;
}

static void *allocate(void *nothing) {
    void *blocks[256] = {NULL};
    unsigned next = 0;
    pin(0);
    while (!waiter.stop) {
        next = (next + 1) % 256;
        long before = switches();
        double start = now_us();
        free(blocks[next]);
        blocks[next] = malloc(16 + next * 8);
        double took = now_us() - start;
        note(took, switches() != before);
    }
    for (next = 0; next < 256; next++) {
        free(blocks[next]);
    }
    return nothing;
}

static int run_dump(unsigned stacks, char **paths) {
    pthread_t thread;
    double spent = 0;
    kept = malloc(stacks * sizeof *kept);
    for (unsigned i = 0; i < stacks; i++) {
        turn(i, 0);
    }
    pthread_create(&thread, NULL, allocate, NULL);
    pin(1);
    usleep(100000);
    for (; *paths != NULL; paths++) {
        double start = now_us(), cpu_start = cpu_ms(CLOCK_THREAD_CPUTIME_ID);
        waiter.phase = DUMP;
        int error = tally_profile_dump != NULL ? tally_profile_dump(*paths) : -1;
        waiter.phase = OFF;
        double took = now_us() - start;
        const char *ending = strrchr(*paths, '.') + 1;
        printf("%s_ms=%.2f %s_cpu_ms=%.2f ", ending, took / 1e3, ending,
               cpu_ms(CLOCK_THREAD_CPUTIME_ID) - cpu_start);
        spent += took;
        if (error != 0) {
            fprintf(stderr, "%s: %s\n", *paths, strerror(error));
            return 4;
        }
        usleep(10000);
    }
    waiter.phase = CALM;
    usleep((useconds_t)spent);
    waiter.phase = OFF;
    waiter.stop = true;
    pthread_join(thread, NULL);
    printf(
        "stall_us=%.1f raw_stall_us=%.1f calm_us=%.1f raw_calm_us=%.1f above_1ms=%lu calls=%lu\n",
        waiter.longest[DUMP], waiter.raw[DUMP], waiter.longest[CALM], waiter.raw[CALM],
        waiter.above_ms[DUMP], waiter.calls[DUMP]);
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "parse") == 0) {
        return run_parse(argc > 2 ? (unsigned)atoi(argv[2]) : 30);
    }
    if (strcmp(what, "live") == 0 && argc == 4) {
        return run_live(strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10));
    }
    if (strcmp(what, "dump") == 0 && argc > 3) {
        return run_dump((unsigned)atoi(argv[2]), argv + 3);
    }
    fprintf(stderr, "usage: bench_prof parse [TURNS] | live COUNT SIZE | dump STACKS PATH...\n");
    return 2;
}
