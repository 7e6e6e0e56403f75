/* SPDX-License-Identifier: MIT
 *
 * test_heap.c - the parts tied together: every verdict about an address, sizes, resizing, totals
 * that add up, and memory that goes back.
 */
#include "heap/heap.h"

#include <sys/sysinfo.h>

#include "base/os.h"
#include "heap/arena.h"
#include "heap/classmap.h"
#include "heap/pages.h"
#include "heap/thread.h"
#include "unit.h"

enum { MIB = 1 << 20 };

/* heap_look, which is right, and heap_find, which must never say more, and only for an object that
 * holds the secret less. */
static struct heap_object judge(const void *address) {
    struct heap_object look = heap_look(address);
    struct heap_found found = heap_find(address);
    bool is_plain = look.verdict == HEAP_LIVE && look.span != NULL &&
                    (look.size_class == 0 || slab_word1(address) != slab_secret);
    check_eq(found.usable, is_plain ? look.size : 0);
    check_eq(found.size_class, is_plain ? look.size_class : 0);
    return look;
}

static enum heap_verdict verdict(const void *address) {
    return judge(address).verdict;
}

static void free_object(void *address) {
    struct heap_object object = judge(address);
    check_eq(object.verdict, HEAP_LIVE);
    check(heap_free(&object));
}

/* The whole of one object of every size class, and what its neighbourhood is judged to be. */
static void check_class_verdicts(void) {
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        bool zeroed;
        size_t size = size_classes[c].size;
        char *object = heap_alloc(size, &zeroed);
        check(object != NULL);
        struct heap_object look = judge(object);
        check_eq(look.verdict, HEAP_LIVE);
        check_eq(look.size_class, c);
        check_eq(look.size, size);
        check_eq(look.base, object);
        for (size_t i = 1; i < size; i += i < 64 || i > size - 64 ? 1 : 61) {
            look = judge(object + i);
            check_eq(look.verdict, HEAP_INTERIOR);
            check_eq(look.base, object);
            check_eq(look.size, size);
        }
        uintptr_t last = look.span->base + (uintptr_t)(size_classes[c].total - 1) * size;
        check(size_classes[c].total < 8 || verdict((void *)last) != HEAP_LIVE);
        free_object(object);
        check_eq(verdict(object), HEAP_DOUBLE_FREE);
        check_eq(verdict(object + 1), HEAP_INTERIOR);
    }
    heap_verify();
}

TEST(small_objects_are_judged_byte_by_byte) {
    start_heap();
    check_class_verdicts();
}

TEST(small_objects_are_judged_byte_by_byte_in_a_thread_with_a_heap) {
    start_heap();
    while (thread_self() == NULL) {
    }
    for (unsigned i = 0; i < 30; i++) { /* Through uncached, fresh and grown magazines. */
        check_class_verdicts();
    }
}

TEST(large_objects_are_judged_by_every_page) {
    start_heap();
    static const size_t sizes[] = {SMALL_MAX + 1, 100000, 2 * MIB, 7 * MIB + 123};
    for (unsigned i = 0; i < 4; i++) {
        bool zeroed;
        char *object = heap_alloc(sizes[i], &zeroed);
        struct heap_object look = judge(object);
        check_eq(look.verdict, HEAP_LIVE);
        check_eq(look.size_class, 0);
        check_eq(look.size, align_up(sizes[i], os_facts.page_bytes));
        for (size_t at = 16; at < sizes[i]; at += 4000) {
            look = judge(object + at);
            check_eq(look.verdict, HEAP_INTERIOR);
            check_eq(look.base, object);
        }
        free_object(object);
        check_eq(verdict(object), HEAP_FREE_PAGES);
        check_eq(verdict(object + sizes[i] - 1), HEAP_FREE_PAGES);
        heap_verify();
    }
}

TEST(object_that_was_never_handed_out_is_known) {
    start_heap();
    heap_trim();
    bool zeroed;
    heap_alloc(64, &zeroed);
    struct heap_object look = judge(heap_alloc(64, &zeroed));
    uintptr_t last = look.span->base + (uintptr_t)(size_classes[4].total - 1) * 64;
    check_eq(verdict((void *)last), HEAP_NEVER_ALLOCATED);
}

TEST(tail_behind_the_last_object_is_known) {
    start_heap();
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        const struct size_class *sc = &size_classes[c];
        bool zeroed;
        struct span *slab = judge(heap_alloc(sc->size, &zeroed)).span;
        uintptr_t tail = slab->base + (uintptr_t)sc->total * sc->size;
        if (tail <= slab->base + sc->slab_mask) {
            check_eq(verdict((void *)tail), HEAP_SLAB_END);
        }
    }
}

TEST(foreign_addresses_are_foreign) {
    start_heap();
    static int global;
    int local;
    void *from_libc = malloc(100);
    check_eq(verdict(&global), HEAP_FOREIGN);
    check_eq(verdict(&local), HEAP_FOREIGN);
    check_eq(verdict(from_libc), HEAP_FOREIGN);
    check_eq(verdict(NULL), HEAP_FOREIGN);
    check_eq(verdict((void *)UINTPTR_MAX), HEAP_FOREIGN);
    check_eq(verdict((void *)(uintptr_t)heap_totals), HEAP_FOREIGN);
    bool zeroed;
    uintptr_t object = (uintptr_t)heap_alloc(100, &zeroed);
    for (unsigned bit = 46; bit < 64; bit++) { /* Equal in all bits that the class map looks at. */
        check_eq(verdict((void *)(object ^ UINT64_C(1) << bit)), HEAP_FOREIGN);
    }
    free(from_libc);
}

TEST(live_object_that_holds_the_secret_is_live) {
    start_heap();
    while (thread_self() == NULL) {
    }
    void *object = tally_malloc(100);
    slab_set_word1(object, slab_secret); /* What the program writes there is its own affair. */
    check_eq(verdict(object), HEAP_LIVE);
    tally_free(object);
    check_eq(verdict(object), HEAP_DOUBLE_FREE);
    heap_verify();
}

TEST(aligned_objects_are_aligned_and_sized_as_announced) {
    start_heap();
    for (size_t alignment = 16; alignment <= 8 * MIB; alignment *= 2) {
        for (size_t size = 1; size <= 300000; size = size * 3 / 2 + 1) {
            void *object = heap_alloc_aligned(size, alignment);
            check(object != NULL);
            check_eq((uintptr_t)object % alignment, 0);
            struct heap_object look = judge(object);
            check_eq(look.verdict, HEAP_LIVE);
            check_eq(look.size, heap_size_for(size, alignment));
            check(look.size >= size);
            memset(object, 1, size);
            free_object(object);
        }
        heap_verify();
    }
}

TEST(announced_size_is_the_size) {
    start_heap();
    for (size_t size = 0; size <= SMALL_MAX + 20000; size += size < 5000 ? 1 : 101) {
        bool zeroed;
        void *object = heap_alloc(size, &zeroed);
        check_eq(judge(object).size, heap_size_for(size, 1));
        check(heap_size_for(size, 1) >= size);
        free_object(object);
    }
}

TEST(only_large_objects_resize_in_place) {
    start_heap();
    bool zeroed;
    struct heap_object small = judge(heap_alloc(100, &zeroed));
    check(!heap_resize(&small, 90));
    check(!heap_resize(&small, 50000));
    void *address = heap_alloc(500000, &zeroed);
    struct heap_object large = judge(address);
    check(heap_resize(&large, 100000));
    check_eq(judge(address).size, align_up(100000, os_facts.page_bytes));
    check(heap_resize(&large, 100001));
    heap_verify();
    free_object(address);
}

/* The lines of the totals add up to what is mapped; live is exactly what the test holds. */
static void check_totals(size_t live) {
    struct heap_totals t = heap_totals();
    check_eq(t.live, live);
    check_eq(t.live + t.cached + t.slab_free + t.large_rest, pages_totals().used);
    check(pages_totals().used + t.dirty <= t.mapped);
    check_eq(t.mapped % CHUNK_BYTES, 0);
}

TEST(totals_add_up_at_every_step) {
    start_heap();
    static void *objects[2000];
    struct random random = random_start(28, 0);
    size_t live = 0;
    for (unsigned step = 0; step < 20000 / SLOWER; step++) {
        void **slot = &objects[random_below(&random, 2000)];
        if (*slot == NULL) {
            size_t size = (size_t)1 << random_below(&random, 18);
            *slot = tally_malloc(random_below(&random, size) + size / 2);
            live += judge(*slot).size;
        } else {
            live -= judge(*slot).size;
            tally_free(*slot);
            *slot = NULL;
        }
        if (step % 16 == 0) {
            check_totals(live);
        }
        if (step % 1024 == 0) {
            heap_verify();
            heap_trim();
            check_eq(heap_totals().dirty, 0);
            check_eq(heap_totals().cached, 0);
            check_totals(live);
        }
    }
}

TEST(trim_gives_all_free_memory_back) {
    start_heap_with("dirty_decay_ms:-1");
    static void *objects[20000];
    for (unsigned i = 0; i < 20000; i++) {
        objects[i] = tally_malloc(i % 3000);
        memset(objects[i], 1, i % 3000);
    }
    size_t resident = test_anonymous_bytes();
    check(pages_totals().used > 25 * MIB);
    for (unsigned i = 0; i < 20000; i++) {
        tally_free(objects[i]);
    }
    check(heap_trim() > 10 * MIB);
    check_eq(pages_totals().used, 0);
    check_eq(pages_totals().dirty, 0);
    check(resident == 0 || test_anonymous_bytes() < resident - 20 * MIB);
    heap_verify();
}

TEST(window_mode_serves_and_judges_alike) {
    limit_address_space((rlim_t)1 << 46);
    start_heap();
    check(classmap_is_windowed());
    for (unsigned i = 0; i < 30; i++) {
        check_class_verdicts();
    }
    check_eq(heap_totals().live, 0);
}

TEST(exhausted_memory_gives_null_and_comes_back) {
    static void *blocks[1000];
    unsigned count = 0;
    if (SANITIZED) {
        skip("a sanitizer cannot live with the address space limit this needs");
    }
    limit_address_space(256 << 20);
    start_heap();
    while ((blocks[count] = tally_malloc(1000000)) != NULL) {
        memset(blocks[count], 1, 1000000);
        check(++count < 1000);
    }
    check(count > 150);
    heap_verify();
    check(tally_calloc(1, 100000000) == NULL);
    tally_free(blocks[0]);
    blocks[0] = tally_malloc(1000000);
    check(blocks[0] != NULL); /* what was freed can be had again */
    for (unsigned i = 0; i < count; i++) {
        tally_free(blocks[i]);
    }
    heap_verify();
    void *large = tally_calloc(1, 100000000);
    check(large != NULL);
    tally_free(large);
    check_eq(heap_totals().live, 0);
}

/* 1 means that the kernel promises more than it has, to everybody. */
static bool kernel_promises_everything(void) {
    char mode = '?';
    int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY);
    bool known = fd >= 0 && read(fd, &mode, 1) == 1;
    close(fd);
    return !known || mode == '1';
}

/* Without asking the kernel for all of it at once, the heap would describe it bit by bit until
 * memory is gone. */
TEST(request_beyond_all_memory_is_refused_at_once) {
    struct sysinfo machine;
    check(sysinfo(&machine) == 0);
    if (kernel_promises_everything()) {
        skip("this kernel refuses no request (overcommit_memory is 1, or cannot be read)");
    }
    start_heap();
    size_t metadata = heap_totals().metadata, mapped = heap_totals().mapped;
    size_t bytes = 4 * (machine.totalram + machine.totalswap) * machine.mem_unit;
    check(tally_malloc(bytes) == NULL);
    check(tally_calloc(2, bytes / 2) == NULL);
    check(heap_totals().metadata < metadata + (1 << 20));
    check_eq(heap_totals().mapped, mapped);
    heap_verify();
    void *block = tally_malloc(3 * MIB);
    check(block != NULL);
    tally_free(block);
}

static _Atomic bool stop;

static void *work_on(void *unused) {
    (void)unused;
    static _Atomic unsigned stream;
    struct random random = random_start(29, stream++);
    void *blocks[64] = {0};
    while (!stop) {
        unsigned i = (unsigned)random_below(&random, 64);
        if (blocks[i] == NULL) {
            blocks[i] =
                tally_malloc(random_below(&random, random_below(&random, 9) ? 2000 : 90000));
        } else {
            tally_free(blocks[i]);
            blocks[i] = NULL;
        }
    }
    for (unsigned i = 0; i < 64; i++) {
        tally_free(blocks[i]);
    }
    return NULL;
}

static void work_in_child(void) {
    void *blocks[200];
    for (unsigned round = 0; round < 5; round++) {
        for (unsigned i = 0; i < 200; i++) {
            blocks[i] = tally_malloc(i * 167);
            check(blocks[i] != NULL);
            memset(blocks[i], (int)i, i * 167);
        }
        for (unsigned i = 0; i < 200; i++) {
            check(i == 0 || *(unsigned char *)blocks[i] == (unsigned char)i);
            tally_free(blocks[i]);
        }
    }
    pages_verify();
}

TEST(child_of_a_fork_among_busy_threads_works) {
    pthread_t threads[3];
    start_heap();
    for (unsigned i = 0; i < 3; i++) {
        check(pthread_create(&threads[i], NULL, work_on, NULL) == 0);
    }
    for (unsigned i = 0; i < 150 / SLOWER; i++) {
        check_child(work_in_child());
    }
    stop = true;
    for (unsigned i = 0; i < 3; i++) {
        check(pthread_join(threads[i], NULL) == 0);
    }
    heap_verify();
    check_eq(heap_totals().live, 0);
}
