/* SPDX-License-Identifier: MIT
 *
 * fuzz_ops.c - bytes become calls of the allocator, and a shadow of the heap says what must hold.
 *
 * Each byte chooses a call, the next ones its arguments: malloc, calloc, realloc, the aligned ones,
 * the sized frees, usable_size, purge, bursts that run magazines full and empty, and which of three
 * threads makes the next calls, so that a block is freed where it was not allocated, also after
 * that thread has ended.  Calls are made one at a time, so an input always does the same.
 *
 * What must hold of every block: it is aligned, lies beside all others, keeps its contents, has the
 * usable size it had, and reads as zeros after calloc; impossible requests are refused with ENOMEM;
 * errno is kept by all else.  After each input everything is freed, and the heap is sound and
 * empty.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include <tally/tally.h>

#include "fuzz.h"
#include "heap/size_class.h"

#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION /* libFuzzer is at work */
enum { VERIFIES_ALWAYS = 0 };
#else
enum { VERIFIES_ALWAYS = 1 };
#endif

enum {
    BLOCKS = 48,
    BURST_MOST = 320,
    WORKERS = 2,          /* besides the main thread */
    LIVE_MOST = 48 << 20, /* bytes */
    WHOLE = 2048,         /* bytes up to which every byte of a block is looked at */
    STEP = 509,
    KEPT_ERRNO = 4321,
    CALLS_MOST = 4000,
};

struct block {
    unsigned char *start;
    size_t size; /* as requested */
    size_t usable;
    size_t alignment;
    unsigned char id;
    bool sized; /* may be freed with its size alone */
};

static struct {
    struct block block[BLOCKS];
    unsigned char *burst[BURST_MOST];
    unsigned nburst;
    size_t burst_usable;
    size_t live; /* bytes */
    unsigned char next_id;
} g;

/* ---------------------------------------------------------------- contents */

static size_t next_byte(size_t at, size_t size) {
    size_t step = size <= WHOLE ? 1 : STEP;
    return at + 1 == size ? size : at + step < size ? at + step : size - 1;
}

static unsigned char byte_for(const struct block *block, size_t at) {
    return (unsigned char)(block->id * 31 + at * 7 + 1);
}

static void fill(const struct block *block) {
    for (size_t at = 0; at < block->usable; at = next_byte(at, block->usable)) {
        block->start[at] = byte_for(block, at);
    }
}

/* Of a block that had `usable` bytes, the first `bytes`. */
static void check_contents(const struct block *block, size_t usable, size_t bytes) {
    for (size_t at = 0; at < bytes; at = next_byte(at, usable)) {
        fuzz_check(block->start[at] == byte_for(block, at));
    }
}

static void check_zeros(const struct block *block) {
    for (size_t at = 0; at < block->size; at++) {
        fuzz_check(block->start[at] == 0);
    }
}

static void check_live(const struct block *block) {
    fuzz_check((uintptr_t)block->start % block->alignment == 0);
    fuzz_check(tally_usable_size(block->start) == block->usable);
    fuzz_check(block->usable >= block->size);
    check_contents(block, block->usable, block->usable);
}

static bool overlap(const unsigned char *a, size_t na, const unsigned char *b, size_t nb) {
    return a < b + nb && b < a + na;
}

static void check_beside_others(const struct block *block) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        const struct block *other = &g.block[i];
        fuzz_check(other == block || other->start == NULL ||
                   !overlap(block->start, block->usable, other->start, other->usable));
    }
    for (unsigned i = 0; i < g.nburst; i++) {
        fuzz_check(!overlap(block->start, block->usable, g.burst[i], g.burst_usable));
    }
}

/* ---------------------------------------------------------------- arguments */

/* Sizes as programs ask for them, borders of classes, large ones, and those no one can have. */
static size_t take_size(struct input *input) {
    unsigned kind = input_byte(input);
    size_t size;
    switch (kind % 8) {
    case 0:
    case 1:
    case 2:
        size = input_byte(input) * (kind % 8 + 1);
        break;
    case 3:
        size = input_word(input);
        break;
    case 4:
        size = size_classes[1 + input_byte(input) % (CLASS_COUNT - 1)].size + kind / 8 % 3 - 1;
        break;
    case 5:
        size = (size_t)input_word(input) << 4;
        break;
    case 6:
        size = ((size_t)1 << (input_byte(input) % 23)) + kind / 8 % 3 - 1;
        break;
    default:
        size = SIZE_MAX >> (input_byte(input) % 3);
        return kind / 8 % 2 ? size - input_byte(input) : size;
    }
    return g.live < LIVE_MOST ? size : size % 64;
}

static bool is_impossible(size_t size) {
    return size > PTRDIFF_MAX / 4;
}

static struct block *take_block(struct input *input) {
    return &g.block[input_byte(input) % BLOCKS];
}

/* ---------------------------------------------------------------- calls */

static void forget(struct block *block) {
    g.live -= block->usable;
    block->start = NULL;
}

static void free_block(struct block *block, unsigned how) {
    if (block->start == NULL) {
        return;
    }
    check_live(block);
    unsigned char *start = block->start;
    forget(block);
    if (how % 3 == 1 && block->sized) {
        tally_free_sized(start, block->size);
    } else if (how % 3 == 2 && !block->sized) {
        tally_free_aligned_sized(start, block->alignment, block->size);
    } else {
        tally_free(start);
    }
}

/* Enters what a call returned; NULL is right for what is impossible, and only for that. */
static void adopt(struct block *block, void *start) {
    fuzz_check((start == NULL) == is_impossible(block->size));
    fuzz_check(errno == (start == NULL ? ENOMEM : KEPT_ERRNO));
    errno = KEPT_ERRNO;
    block->start = start;
    if (start == NULL) {
        return;
    }
    block->usable = tally_usable_size(start);
    block->id = g.next_id++;
    g.live += block->usable;
    check_beside_others(block);
}

static void do_malloc(struct input *input) {
    struct block *block = take_block(input);
    free_block(block, 0);
    *block = (struct block){.size = take_size(input), .alignment = 16, .sized = true};
    adopt(block, tally_malloc(block->size));
    if (block->start != NULL) {
        fill(block);
    }
}

static void do_calloc(struct input *input) {
    struct block *block = take_block(input);
    free_block(block, 0);
    size_t size = take_size(input), count = input_byte(input) % 5 + 1;
    *block = (struct block){.size = size, .alignment = 16, .sized = true};
    if (!is_impossible(size)) {
        block->size = size / count * count;
        size /= count;
    }
    adopt(block, tally_calloc(count, size)); /* A product that is too large must be refused. */
    if (block->start != NULL) {
        check_zeros(block);
        fill(block);
    }
}

static void do_realloc(struct input *input) {
    struct block *block = take_block(input);
    size_t size = take_size(input);
    if (block->start == NULL) {
        *block = (struct block){.size = size, .alignment = 16, .sized = true};
        adopt(block, tally_realloc(NULL, size));
    } else {
        check_live(block);
        if (size == 0) {
            fuzz_check(tally_realloc(block->start, 0) == NULL);
            forget(block);
            return;
        }
        unsigned char *moved = tally_realloc(block->start, size);
        if (moved == NULL) { /* and the old one is as it was */
            fuzz_check(is_impossible(size) && errno == ENOMEM);
            errno = KEPT_ERRNO;
            check_live(block);
            return;
        }
        struct block old = *block;
        g.live -= old.usable;
        block->start = moved;
        check_contents(block, old.usable, old.size < size ? old.size : size);
        *block = (struct block){.size = size, .alignment = 16, .sized = true};
        adopt(block, moved);
    }
    if (block->start != NULL) {
        fill(block);
    }
}

static void do_aligned(struct input *input) {
    struct block *block = take_block(input);
    free_block(block, 0);
    unsigned how = input_byte(input);
    size_t alignment = (size_t)16 << how % (how / 128 ? 18 : 10);
    *block = (struct block){.size = take_size(input), .alignment = alignment};
    void *start = NULL;
    if (how / 16 % 3 == 0) {
        start = tally_aligned_alloc(alignment, block->size);
    } else if (how / 16 % 3 == 1) {
        start = tally_memalign(alignment, block->size);
    } else {
        int error = tally_posix_memalign(&start, alignment, block->size);
        fuzz_check(errno == KEPT_ERRNO);
        errno = error == 0 ? KEPT_ERRNO : error;
    }
    adopt(block, start);
    if (block->start != NULL) {
        fill(block);
    }
}

static void do_look(struct input *input) {
    const struct block *block = take_block(input);
    if (block->start != NULL) {
        check_live(block);
    }
}

/* The blocks of a burst hold their number. */
static void free_burst(unsigned order) {
    for (unsigned i = 0; i < g.nburst; i++) {
        unsigned at = order % 3 == 0 ? i : order % 3 == 1 ? g.nburst - 1 - i : (i * 7) % g.nburst;
        if (order % 3 == 2 && g.nburst % 7 == 0) {
            at = i; /* 7 would not reach all. */
        }
        fuzz_check(g.burst[at][0] == (unsigned char)at);
        tally_free(g.burst[at]);
    }
    g.live -= g.nburst * g.burst_usable;
    g.nburst = 0;
}

static void do_burst(struct input *input) {
    unsigned count = input_byte(input) + 1;
    size_t size = take_size(input) % 5000;
    free_burst(count);
    for (unsigned i = 0; i < count && g.live < LIVE_MOST; i++) {
        unsigned char *start = tally_malloc(size);
        fuzz_check(start != NULL);
        g.burst_usable = tally_usable_size(start);
        struct block block = {.start = start, .usable = g.burst_usable};
        check_beside_others(&block);
        memset(start, (int)i, g.burst_usable);
        g.burst[g.nburst++] = start;
        g.live += g.burst_usable;
    }
}

/* ---------------------------------------------------------------- who makes the call */

typedef void (*operation)(struct input *input);

static struct worker {
    pthread_t thread;
    bool is_alive;
    operation call; /* NULL: nothing to do */
    struct input *input;
    bool must_end;
} workers[WORKERS];

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void *work(void *argument) {
    struct worker *worker = argument;
    pthread_mutex_lock(&mutex);
    while (!worker->must_end) {
        if (worker->call == NULL) {
            pthread_cond_wait(&changed, &mutex);
            continue;
        }
        errno = KEPT_ERRNO;
        worker->call(worker->input);
        fuzz_check(errno == KEPT_ERRNO);
        worker->call = NULL;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static void call_in(struct worker *worker, operation call, struct input *input) {
    if (!worker->is_alive) {
        worker->must_end = false;
        fuzz_check(pthread_create(&worker->thread, NULL, work, worker) == 0);
        worker->is_alive = true;
    }
    pthread_mutex_lock(&mutex);
    worker->call = call;
    worker->input = input;
    pthread_cond_broadcast(&changed);
    while (worker->call != NULL) {
        pthread_cond_wait(&changed, &mutex);
    }
    pthread_mutex_unlock(&mutex);
}

static void end_worker(struct worker *worker) {
    if (worker->is_alive) {
        pthread_mutex_lock(&mutex);
        worker->must_end = true;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
        pthread_join(worker->thread, NULL);
        worker->is_alive = false;
    }
}

static void make_call(unsigned who, operation call, struct input *input) {
    if (who == 0) {
        errno = KEPT_ERRNO;
        call(input);
        fuzz_check(errno == KEPT_ERRNO);
    } else {
        call_in(&workers[who - 1], call, input);
    }
}

/* ---------------------------------------------------------------- one input */

static void do_free(struct input *input) {
    struct block *block = take_block(input);
    free_block(block, input_byte(input));
}

static void do_free_burst(struct input *input) {
    free_burst(input_byte(input));
}

static void do_purge(struct input *input) {
    (void)input;
    tally_purge();
}

/*
 * Walks the whole heap, which takes as long as hundreds of inputs: a replay walks each time,
 * libFuzzer now and then, and then the input it names may be one after the input that did the harm.
 */
static void do_verify(struct input *input) {
    (void)input;
    static unsigned walks;
    if (VERIFIES_ALWAYS || ++walks % 1024 == 0) {
        tally_verify();
    }
}

static void play(struct input *input) {
    static const operation calls[] = {do_malloc, do_malloc,  do_free,      do_free,
                                      do_calloc, do_realloc, do_realloc,   do_aligned,
                                      do_look,   do_burst,   do_free_burst};
    enum { CALLS = sizeof calls / sizeof calls[0] };
    unsigned who = 0;
    for (unsigned n = 0; input->left > 0 && n < CALLS_MOST; n++) {
        unsigned what = input_byte(input);
        if (what % 16 < CALLS) {
            make_call(who, calls[what % 16], input);
        } else if (what % 16 == CALLS) {
            make_call(who, what / 16 % 4 == 0 ? do_verify : do_purge, input);
        } else if (what % 16 == CALLS + 1) {
            end_worker(&workers[what / 16 % WORKERS]);
        } else {
            who = what / 16 % (WORKERS + 1);
        }
    }
}

static void free_all(void) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        free_block(&g.block[i], 0);
    }
    free_burst(0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input input = {data, size};
    struct tally_totals totals;
    static bool is_ready;
    if (!is_ready) { /* Nobody but this input gives memory back. */
        setenv("TALLY_CONF", "background_thread:false", 1);
        tally_free(tally_malloc(1));
        is_ready = true;
    }
    play(&input);
    free_all();
    fuzz_check(g.live == 0);
    do_verify(&input);
    tally_totals(&totals);
    fuzz_check(totals.live == 0);
    return 0;
}
