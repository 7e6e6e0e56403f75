/* SPDX-License-Identifier: MIT
 *
 * test_mallocx.c - jemalloc's functions with flags, through the compat header: what each promises,
 * every flag, what is refused, and random calls against a model.
 *
 * The flags are numbers in programs that were compiled long ago, so they are written as numbers
 * here. malloc_stats_print and malloc_message, which call the program back, are here as well.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <jemalloc/jemalloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <tally/tally.h>
#include <unistd.h>

#include "interrupt.h"
#include "random.h"
#include "test.h"

TEST_SETUP(require_tally);

enum { ZERO = 0x40, NO_CACHE = 0x100, ARENA_0 = 0x100000, UNUSED_BIT = 0x80 };

/* Around every edge: smallest, classes, small to large, units, chunks. */
static const size_t sizes[] = {0,     1,      8,      16,     17,      100,    112,
                               113,   1024,   1025,   4096,   4097,    8192,   14336,
                               16384, 16385,  24577,  32767,  32768,   32769,  36864,
                               65536, 100000, 131073, 999999, 2 << 20, 5000000};
enum { SIZES = sizeof sizes / sizeof *sizes };

static bool is_filled(const unsigned char *p, int byte, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        if (p[i] != byte) {
            return false;
        }
    }
    return true;
}

/* Memory of this size that was used before is what the next requests get. */
static void soil(size_t size, int flags) {
    void *dirty[8];
    for (int i = 0; i < 8; i++) {
        dirty[i] = mallocx(size, flags & ~ZERO);
        check(dirty[i] != NULL);
        memset(dirty[i], 0xd1, sallocx(dirty[i], 0));
    }
    for (int i = 0; i < 8; i++) {
        dallocx(dirty[i], flags);
    }
}

/* ---------------------------------------------------------------- numbers */

TEST(the_flags_are_jemallocs_numbers) {
    check_eq(MALLOCX_LG_ALIGN(0), 0);
    check_eq(MALLOCX_LG_ALIGN(12), 12);
    check_eq(MALLOCX_ALIGN(1), 0);
    check_eq(MALLOCX_ALIGN(4096), 12);
    check_eq(MALLOCX_ALIGN((size_t)1 << 31), 31);
    check_eq(MALLOCX_ALIGN((size_t)1 << 40), 40);
    check_eq(MALLOCX_ZERO, 0x40);
    check_eq(MALLOCX_TCACHE_NONE, 0x100);
    check_eq(MALLOCX_TCACHE(0), 0x200);
    check_eq(MALLOCX_TCACHE(7), 0x900);
    check_eq(MALLOCX_TCACHE(4093), 0xfff00);
    check_eq(MALLOCX_ARENA(0), 0x100000);
    check_eq(MALLOCX_ARENA(2046), 0x7ff00000);
    check_eq((unsigned)MALLOCX_ARENA(2047), 0x80000000u);
    check_eq((unsigned)MALLOCX_ARENA(4094), 0xfff00000u);
    check_eq(MALLCTL_ARENAS_ALL, 4096);
    check_eq(MALLCTL_ARENAS_DESTROYED, 4097);
}

TEST(the_hooks_lie_as_in_jemalloc) {
    check_eq(sizeof(extent_hooks_t), 72);
    check_eq(offsetof(extent_hooks_t, alloc), 0);
    check_eq(offsetof(extent_hooks_t, dalloc), 8);
    check_eq(offsetof(extent_hooks_t, destroy), 16);
    check_eq(offsetof(extent_hooks_t, commit), 24);
    check_eq(offsetof(extent_hooks_t, decommit), 32);
    check_eq(offsetof(extent_hooks_t, purge_lazy), 40);
    check_eq(offsetof(extent_hooks_t, purge_forced), 48);
    check_eq(offsetof(extent_hooks_t, split), 56);
    check_eq(offsetof(extent_hooks_t, merge), 64);
}

/* ---------------------------------------------------------------- names */

TEST(a_name_with_the_prefix_is_the_same_function) {
    static const char *const names[] = {"malloc",
                                        "calloc",
                                        "realloc",
                                        "free",
                                        "free_sized",
                                        "free_aligned_sized",
                                        "memalign",
                                        "valloc",
                                        "pvalloc",
                                        "mallocx",
                                        "posix_memalign",
                                        "aligned_alloc",
                                        "rallocx",
                                        "xallocx",
                                        "sallocx",
                                        "dallocx",
                                        "malloc_usable_size",
                                        "sdallocx",
                                        "nallocx",
                                        "mallctl",
                                        "mallctlbymib",
                                        "mallctlnametomib",
                                        "malloc_stats_print"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char prefixed[64] = "je_";
        strcat(prefixed, names[i]);
        check(dlsym(RTLD_DEFAULT, names[i]) != NULL);
        check_eq(dlsym(RTLD_DEFAULT, names[i]), dlsym(RTLD_DEFAULT, prefixed));
    }
}

TEST(malloc_message_is_one_variable_under_both_names) {
    check_eq(&malloc_message, &je_malloc_message);
    check(malloc_message == NULL);
}

/* ---------------------------------------------------------------- allocating */

TEST(no_bytes_are_the_smallest_object) {
    void *p = mallocx(0, 0);
    void *q = mallocx(0, ZERO);
    check(p != NULL && q != NULL && p != q);
    check_eq(sallocx(p, 0), 16);
    check_eq(sallocx(q, 0), 16);
    dallocx(p, 0);
    dallocx(q, 0);
}

static void check_object(size_t size, int flags) {
    soil(size, flags);
    unsigned char *p = mallocx(size, flags);
    check(p != NULL);
    check_eq((uintptr_t)p % ((size_t)1 << (flags & 63)), 0);
    size_t usable = sallocx(p, flags);
    check(usable >= size);
    check_eq(usable, malloc_usable_size(p));
    check_eq(usable, nallocx(size, flags));
    check((flags & ZERO) == 0 || is_filled(p, 0, usable));
    memset(p, 0xa5, usable);
    sdallocx(p, size, flags);
}

TEST(every_flag_with_every_size_gives_what_nallocx_said) {
    static const int others[] = {0,          ZERO,
                                 NO_CACHE,   NO_CACHE | ZERO,
                                 ARENA_0,    ARENA_0 | ZERO | NO_CACHE,
                                 UNUSED_BIT, UNUSED_BIT | ZERO};
    for (size_t s = 0; s < SIZES; s++) {
        for (int lg = 0; lg <= 22; lg += lg < 16 ? 1 : 3) {
            for (size_t o = 0; o < sizeof others / sizeof *others; o++) {
                check_object(sizes[s], others[o] | lg);
            }
        }
    }
    tally_verify();
}

TEST(nallocx_grows_with_the_size) {
    size_t before = 0;
    for (size_t size = 1; size < 300000; size += size < 5000 ? 1 : 97) {
        size_t usable = nallocx(size, 0);
        check(usable >= size && usable >= before);
        before = usable;
    }
}

TEST(what_cannot_be_is_refused) {
    static const size_t impossible[] = {SIZE_MAX, SIZE_MAX - 4095, (size_t)PTRDIFF_MAX + 1,
                                        PTRDIFF_MAX, (size_t)1 << 60};
    void *p = mallocx(100, 0);
    memset(p, 0x77, 100);
    for (size_t i = 0; i < sizeof impossible / sizeof *impossible; i++) {
        for (int flags = 0; flags <= (ZERO | NO_CACHE); flags += ZERO) {
            check_eq(nallocx(impossible[i], flags), 0);
            check(mallocx(impossible[i], flags) == NULL);
            check(rallocx(p, impossible[i], flags) == NULL);
            check_eq(xallocx(p, impossible[i], 0, flags), 112);
        }
    }
    for (int lg = 46; lg < 64; lg++) {
        check_eq(nallocx(1, lg), 0);
        check(mallocx(1, lg) == NULL);
        check(rallocx(p, 100, lg) == NULL);
    }
    check(is_filled(p, 0x77, 100));
    dallocx(p, 0);
}

TEST(an_arena_that_does_not_exist_serves_nobody) {
    check(mallocx(100, MALLOCX_ARENA(3000)) == NULL);
    check(mallocx(100, MALLOCX_ARENA(4094)) == NULL);
    check(mallocx(100000, MALLOCX_ARENA(4094) | ZERO | NO_CACHE) == NULL);
    char *p = mallocx(100, 0);
    strcpy(p, "kept");
    check(rallocx(p, 5000, MALLOCX_ARENA(3000)) == NULL);
    check_str(p, "kept");
    dallocx(p, 0);
}

/* ---------------------------------------------------------------- freeing */

TEST(a_sized_free_takes_any_size_up_to_the_usable) {
    for (int flags = 0; flags <= NO_CACHE; flags += NO_CACHE) {
        for (size_t size = 113; size <= 128; size++) {
            sdallocx(mallocx(113, flags), size, flags);
            sdallocx(mallocx(100, flags | 6), size, flags | 6);
        }
        for (size_t size = 40000; size <= 40960; size += 60) {
            sdallocx(mallocx(40000, flags), size, flags);
        }
    }
    tally_verify();
}

TEST(nothing_is_freed_without_harm) {
    dallocx(NULL, 0);
    dallocx(NULL, NO_CACHE);
    sdallocx(NULL, 5, 0);
    sdallocx(NULL, 5, NO_CACHE | 6);
    check_eq(sallocx(NULL, 0), 0);
}

TEST(a_wrong_size_ends_the_process) {
    void *p = mallocx(100, 0);
    check_dies(sdallocx(p, 200, 0), ": wrong size: the object has 112 bytes", SIGABRT);
    check_dies(sdallocx(p, 200, NO_CACHE),
               "sdallocx(%p, 200): wrong size: the object has 112 bytes", SIGABRT);
    check_dies(sdallocx(p, 100, 12), ": wrong size: the object has 112 bytes", SIGABRT);
}

TEST(a_second_free_ends_the_process) {
    void *p = mallocx(100, 0);
    dallocx(p, 0);
    check_dies(dallocx(p, 0), "the 112-byte object is already free", SIGABRT);
    check_dies(dallocx(p, NO_CACHE), "dallocx(%p): the 112-byte object is already free", SIGABRT);
    check_dies(sdallocx(p, 100, NO_CACHE), "sdallocx(%p): the 112-byte object is already free",
               SIGABRT);
    check_dies(rallocx(p, 100, NO_CACHE), "rallocx(%p): the 112-byte object is already free",
               SIGABRT);
    check_dies(xallocx(p, 100, 0, 0), "xallocx(%p): the 112-byte object is already free", SIGABRT);
}

TEST(a_cache_that_was_never_made_ends_the_process) {
    void *p = mallocx(100, 0);
    check_dies_exactly(mallocx(100, MALLOCX_TCACHE(4000)), "tally: invalid tcache id (4000).",
                       SIGABRT);
    check_dies_exactly(dallocx(p, MALLOCX_TCACHE(0)), "tally: invalid tcache id (0).", SIGABRT);
    check_dies_exactly(sdallocx(p, 100, MALLOCX_TCACHE(4093)), "tally: invalid tcache id (4093).",
                       SIGABRT);
    check_dies_exactly(rallocx(p, 9000, MALLOCX_TCACHE(5)), "tally: invalid tcache id (5).",
                       SIGABRT);
}

/* ---------------------------------------------------------------- resizing */

TEST(rallocx_keeps_the_contents_at_every_size) {
    for (size_t from = 0; from < SIZES; from++) {
        for (size_t to = 0; to < SIZES; to++) {
            for (int flags = 0; flags <= NO_CACHE; flags += NO_CACHE) {
                unsigned char *p = mallocx(sizes[from], flags);
                size_t before = sallocx(p, 0);
                memset(p, 0x3c, before);
                unsigned char *q = rallocx(p, sizes[to], flags);
                check(q != NULL);
                check_eq(sallocx(q, 0), nallocx(sizes[to], flags));
                check(is_filled(q, 0x3c, before < sizes[to] ? before : sizes[to]));
                dallocx(q, flags);
            }
        }
    }
    tally_verify();
}

TEST(rallocx_with_zeros_clears_what_is_beyond_the_old_usable_size) {
    for (size_t from = 0; from < SIZES; from++) {
        for (size_t to = from + 1; to < SIZES; to++) {
            soil(sizes[to], 0);
            unsigned char *p = mallocx(sizes[from], 0);
            size_t before = sallocx(p, 0);
            memset(p, 0x3c, before);
            unsigned char *q = rallocx(p, sizes[to], ZERO);
            size_t after = sallocx(q, 0);
            size_t kept = before < after ? before : after;
            check(is_filled(q, 0x3c, kept));
            check(is_filled(q + kept, 0, after - kept));
            sdallocx(q, sizes[to], 0);
        }
    }
}

TEST(rallocx_brings_an_object_to_its_alignment) {
    for (size_t s = 1; s < SIZES; s++) {
        for (int lg = 4; lg <= 21; lg++) {
            char *keep[3] = {mallocx(sizes[s], 0), mallocx(sizes[s], 0), mallocx(sizes[s], 0)};
            keep[1][0] = 'x';
            char *q = rallocx(keep[1], sizes[s] + 1, lg);
            check(q != NULL && q[0] == 'x');
            check_eq((uintptr_t)q % ((size_t)1 << lg), 0);
            sdallocx(q, sizes[s] + 1, lg);
            sdallocx(keep[0], sizes[s], 0);
            sdallocx(keep[2], sizes[s], 0);
        }
    }
}

TEST(rallocx_of_nothing_and_to_nothing_gives_an_object) {
    void *p = rallocx(NULL, 100, 0);
    check_eq(sallocx(p, 0), 112);
    p = rallocx(p, 0, 0);
    check_eq(sallocx(p, 0), 16);
    p = rallocx(p, 0, NO_CACHE);
    check_eq(sallocx(p, 0), 16);
    dallocx(p, 0);
}

TEST(xallocx_leaves_small_objects_as_they_are) {
    char *p = mallocx(100, 0);
    check_eq(xallocx(p, 100, 0, 0), 112);
    check_eq(xallocx(p, 1, 0, 0), 112);
    check_eq(xallocx(p, 0, 0, 0), 112);
    check_eq(xallocx(p, 5000, 0, 0), 112);
    check_eq(xallocx(p, 100000, 100000, ZERO), 112);
    check_eq(xallocx(p, 100, SIZE_MAX, 0), 112);
    dallocx(p, 0);
}

TEST(xallocx_shrinks_and_grows_large_objects_where_they_are) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *p = mallocx(1 << 20, 0);
    memset(p, 0x3c, 1 << 20);
    check_eq(xallocx(p, 600000, 0, 0), nallocx(600000, 0));
    check_eq(sallocx(p, 0), (600000 + page - 1) / page * page);
    check_eq(xallocx(p, 600000, 0, 0), nallocx(600000, 0)); /* once more changes nothing */
    check_eq(xallocx(p, 100, 100, 0), nallocx(600000, 0));  /* it would be small */
    check_eq(xallocx(p, 100, 99900, 0), nallocx(100000, 0));
    check(is_filled(p, 0x3c, 100000));
    size_t before = sallocx(p, 0);
    check_eq(xallocx(p, 900000, 0, ZERO), nallocx(900000, 0)); /* into what was just left */
    check(is_filled(p, 0x3c, before));
    check(is_filled(p + before, 0, nallocx(900000, 0) - before));
    sdallocx(p, 900000, 0);
    tally_verify();
}

TEST(xallocx_takes_less_where_there_is_no_room_for_the_extra) {
    char *p = mallocx(8 << 20, 0);
    check_eq(xallocx(p, 1 << 20, 0, 0), 1 << 20);
    char *wall = NULL;
    char *walls[64];
    size_t count = 0;
    while (count < 64 && (wall = mallocx(1 << 20, 0)) != NULL && wall != p + (4 << 20)) {
        walls[count++] = wall; /* until one stands in the way */
    }
    if (wall != p + (4 << 20)) {
        skip("no block came to stand where it should");
    }
    for (size_t i = 0; i < count; i++) {
        dallocx(walls[i], 0);
    }
    check_eq(xallocx(p, 2 << 20, 6 << 20, 0), 2 << 20);
    check_eq(xallocx(p, 5 << 20, 0, 0), 2 << 20); /* nothing is between */
    dallocx(p, 0);
    dallocx(wall, 0);
}

TEST(xallocx_does_not_promise_an_alignment_it_cannot_give) {
    char *p = mallocx(100000, 0);
    char *q = mallocx(100000, 0);
    char *odd = (uintptr_t)p % (1 << 21) != 0 ? p : q; /* one of two neighbours is */
    size_t before = sallocx(odd, 0);
    check_eq(xallocx(odd, 50000, 0, 21), before);
    dallocx(p, 0);
    dallocx(q, 0);
}

/* Added up without care, the two would be less than the object has. */
TEST(xallocx_clamps_the_extra) {
    void *p = mallocx(1 << 20, 0);
    check_eq(xallocx(p, 200000, 0, 0), nallocx(200000, 0));
    check_eq(xallocx(p, 300000, SIZE_MAX - 200000, 0), nallocx(300000, 0));
    check_eq(xallocx(p, SIZE_MAX, SIZE_MAX, 0), nallocx(300000, 0));
    dallocx(p, 0);
}

/* ---------------------------------------------------------------- places made by mallctl */

TEST(an_object_lies_in_the_arena_that_was_asked_for) {
    unsigned arena = 0;
    size_t bytes = sizeof arena;
    check_eq(mallctl("arenas.create", &arena, &bytes, NULL, 0), 0);
    int flags = MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE;
    for (size_t s = 0; s < SIZES; s++) {
        void *p = mallocx(sizes[s], flags);
        unsigned found = 0;
        check_eq(mallctl("arenas.lookup", &found, &bytes, &p, sizeof p), 0);
        check_eq(found, arena);
        p = rallocx(p, sizes[s] * 2 + 1, flags);
        check(p != NULL);
        check_eq(mallctl("arenas.lookup", &found, &bytes, &p, sizeof p), 0);
        check_eq(found, arena);
        dallocx(p, flags);
    }
}

TEST(a_cache_that_was_made_gives_back_what_it_got) {
    unsigned cache = 0;
    size_t bytes = sizeof cache;
    check_eq(mallctl("tcache.create", &cache, &bytes, NULL, 0), 0);
    int flags = MALLOCX_TCACHE(cache);
    void *p = mallocx(100, flags);
    check(p != NULL);
    dallocx(p, flags);
    check_eq(mallocx(100, flags), p);
    sdallocx(p, 100, flags);
    check_eq(mallctl("tcache.flush", NULL, NULL, &cache, sizeof cache), 0);
    check_eq(mallctl("tcache.destroy", NULL, NULL, &cache, sizeof cache), 0);
    check_dies(mallocx(100, flags), "invalid tcache id", SIGABRT);
}

/* ---------------------------------------------------------------- calling the program back */

struct heard {
    void *opaque; /* what must come along */
    size_t calls;
    size_t bytes;
};
static struct heard heard;

static void hear(void *opaque, const char *text) {
    heard.calls += opaque == heard.opaque;
    heard.bytes += strlen(text);
    void *p = malloc(300); /* as everywhere, and not as in a handler that interrupts the library */
    check_eq(malloc_usable_size(p), nallocx(300, 0));
    p = realloc(p, 70000);
    check(p != NULL);
    free(p);
}

TEST(the_reader_of_statistics_may_allocate) {
    heard.opaque = &heard;
    malloc_stats_print(hear, &heard, NULL);
    check(heard.calls > 0 && heard.bytes > 100);
    size_t text = heard.bytes;
    malloc_stats_print(hear, &heard, "J");
    check(heard.bytes > text);
    tally_verify();
}

static void hear_message(void *opaque, const char *text) {
    heard.calls += opaque == heard.opaque;
    heard.bytes += strlen(text);
}

TEST(statistics_without_a_reader_go_to_malloc_message) {
    malloc_message = hear_message;
    heard.opaque = &heard;
    malloc_stats_print(NULL, &heard, "");
    check(heard.calls > 0 && heard.bytes > 100);
}

TEST(statistics_without_anybody_go_to_standard_error) {
    check_dies(
        {
            malloc_stats_print(NULL, NULL, "");
            abort();
        },
        "bytes", SIGABRT);
}

static void shout(void *opaque, const char *text) {
    (void)opaque;
    (void)!write(STDERR_FILENO, "heard: ", 7);
    (void)!write(STDERR_FILENO, text, strlen(text));
}

TEST(malloc_message_gets_what_the_library_says) {
    void *p = malloc(100);
    free(p);
    malloc_message = shout;
    check_dies_exactly(free(test_launder(p)),
                       "heard: tally: free(%p): the 112-byte object is already free", SIGABRT);
    je_malloc_message = NULL;
    check_dies_exactly(free(test_launder(p)),
                       "tally: free(%p): the 112-byte object is already free", SIGABRT);
}

/* ---------------------------------------------------------------- in a handler */

static size_t nagain;

static void call_everything(uintptr_t at) {
    (void)at;
    char *p = mallocx(100, ZERO | NO_CACHE | 6);
    check(p != NULL && (uintptr_t)p % 64 == 0 && is_filled((unsigned char *)p, 0, 100));
    p[99] = 'x';
    p = rallocx(p, 200, ZERO | NO_CACHE);
    check(p != NULL && p[99] == 'x');
    check(xallocx(p, 300, 100, 0) >= 200 && sallocx(p, 0) >= 200 && nallocx(200, 0) >= 200);
    sdallocx(p, 200, NO_CACHE);
    size_t mib[2];
    size_t length = 2;
    nagain += mallctlnametomib("arenas.narenas", mib, &length) == EAGAIN;
}

/* Large blocks, because their calls have no part in which a handler might do harm. */
TEST(every_function_may_interrupt_the_library) {
    if (!interrupt_is_possible()) {
        skip("this processor has no way to interrupt at every instruction");
    }
    for (int i = 0; i < 3; i++) {
        dallocx(rallocx(mallocx(70000, 0), 90000, 0), 0);
    }
    interrupt_at_every(call_everything);
    interrupt_begin();
    void *p = rallocx(mallocx(70000, 0), 90000, ZERO);
    dallocx(p, NO_CACHE);
    check(interrupt_end());
    check(nagain > 100);
    size_t mib[2];
    size_t length = 2;
    check(mallctlnametomib("arenas.narenas", mib, &length) != EAGAIN);
    tally_verify();
}

/* ---------------------------------------------------------------- against a model */

enum { SLOTS = 300, STEPS = 60000 };

/* What the model knows of an object: all its bytes have one value. */
struct slot {
    unsigned char *p;
    size_t size;
    int align;
    unsigned char value;
};

static int random_flags(struct random *random) {
    int flags = random_below(random, 2) ? 0 : (int)random_below(random, 15);
    flags |= random_below(random, 3) ? 0 : ZERO;
    flags |= random_below(random, 4) ? 0 : NO_CACHE;
    flags |= random_below(random, 4) ? 0 : ARENA_0;
    return flags;
}

static size_t random_size(struct random *random) {
    size_t most = (size_t)1 << (3 + random_below(random, 16));
    return 1 + random_below(random, most);
}

static void fill(struct slot *slot, struct random *random) {
    slot->value = (unsigned char)(1 + random_below(random, 255));
    memset(slot->p, slot->value, slot->size);
}

static void step_alloc(struct slot *slot, struct random *random) {
    int flags = random_flags(random);
    slot->size = random_size(random);
    slot->align = flags & 63;
    slot->p = mallocx(slot->size, flags);
    check(slot->p != NULL);
    check_eq((uintptr_t)slot->p % ((size_t)1 << slot->align), 0);
    check((flags & ZERO) == 0 || is_filled(slot->p, 0, sallocx(slot->p, 0)));
    fill(slot, random);
}

static void step_free(struct slot *slot, struct random *random) {
    int flags = random_flags(random) & ~63;
    check(is_filled(slot->p, slot->value, slot->size));
    if (random_below(random, 2)) {
        dallocx(slot->p, flags | (int)random_below(random, 64));
    } else {
        sdallocx(slot->p, slot->size, flags | slot->align);
    }
    slot->p = NULL;
}

static void step_realloc(struct slot *slot, struct random *random) {
    int flags = random_flags(random);
    size_t before = sallocx(slot->p, 0);
    size_t size = random_size(random);
    slot->p = rallocx(slot->p, size, flags);
    check(slot->p != NULL);
    check_eq((uintptr_t)slot->p % ((size_t)1 << (flags & 63)), 0);
    check(is_filled(slot->p, slot->value, size < slot->size ? size : slot->size));
    size_t after = sallocx(slot->p, 0);
    check_eq(after, nallocx(size, flags & 63));
    check((flags & ZERO) == 0 || after <= before || is_filled(slot->p + before, 0, after - before));
    slot->size = size;
    slot->align = flags & 63;
    fill(slot, random);
}

/* Afterwards the object's size is whatever xallocx says. */
static void step_resize(struct slot *slot, struct random *random) {
    int flags = slot->align | (random_below(random, 2) ? ZERO : 0);
    size_t before = sallocx(slot->p, 0);
    size_t after = xallocx(slot->p, random_size(random), random_size(random), flags);
    check_eq(after, sallocx(slot->p, 0));
    check(is_filled(slot->p, slot->value, after < slot->size ? after : slot->size));
    if (after == before) {
        return;
    }
    check((flags & ZERO) == 0 || after < before || is_filled(slot->p + before, 0, after - before));
    slot->size = after;
    fill(slot, random);
}

static void *work(void *stream) {
    static _Thread_local struct slot slots[SLOTS];
    struct random random = random_start(20, (uint64_t)(uintptr_t)stream);
    for (int i = 0; i < STEPS; i++) {
        struct slot *slot = &slots[random_below(&random, SLOTS)];
        unsigned choice = (unsigned)random_below(&random, 4);
        if (slot->p == NULL) {
            step_alloc(slot, &random);
        } else if (choice == 0) {
            step_resize(slot, &random);
        } else if (choice == 1) {
            step_realloc(slot, &random);
        } else {
            step_free(slot, &random);
        }
    }
    for (int i = 0; i < SLOTS; i++) {
        if (slots[i].p != NULL) {
            step_free(&slots[i], &random);
        }
    }
    return NULL;
}

TEST(random_calls_do_what_the_model_says) {
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++) {
        check_eq(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    tally_verify();
}
