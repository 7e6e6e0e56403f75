/* SPDX-License-Identifier: MIT
 *
 * test_slab.c - a slab of every class hands out each object once, carves no more than it must, and
 * publishes a granule exactly when all of it is carved.
 */
#include "heap/slab.h"

#include "base/os.h"
#include "heap/classmap.h"
#include "heap/fast.h"
#include "heap/pages.h"
#include "unit.h"

TEST_SETUP(start_heap);

static struct span *new_slab(unsigned size_class) {
    bool zeroed;
    size_t units = (size_classes[size_class].slab_mask + 1) / UNIT_BYTES;
    struct span *slab = pages_take(units, units, PAGES_MAY_GROW, &zeroed);
    check(slab != NULL);
    slab_create(slab, size_class, 0);
    slab_verify(slab);
    check(slab_is_empty(slab) && !slab_is_full(slab) && slab_nfree(slab) == 0);
    check(slab_is_apart(slab));
    return slab;
}

/* What drain does with an object, for a slab that no bin knows. */
static void put_back(struct span *slab, void *object) {
    uint32_t index = size_class_index(slab_class(slab), (uint32_t)((uintptr_t)object - slab->base));
    check(!bits_get(slab->bits, index));
    bits_set_range(slab->bits, index, 1);
    slab->nout--;
}

static void check_object(const struct span *slab, const void *object) {
    const struct size_class *sc = slab_class(slab);
    uint32_t offset = (uint32_t)((uintptr_t)object - slab->base);
    check(size_class_is_start(sc, offset));
    check(size_class_index(sc, offset) < slab->ncarved);
    check_eq(slab_word1(object), slab_secret);
}

TEST(secret_is_no_pointer_and_no_small_number) {
    struct random random = random_start(19, 0);
    for (unsigned i = 0; i < 1000; i++) {
        slab_init(random_next(&random));
        check(slab_secret >> 48 != 0 && slab_secret >> 48 != 0xffff);
        check(slab_secret % 2 == 1);
    }
    slab_init(1);
    uint64_t one = slab_secret;
    slab_init(2);
    check(one != slab_secret);
}

/* Takes all objects in random portions; each comes once, descending inside a portion, and the first
 * portions come from the lowest addresses. */
TEST(each_object_of_each_class_is_handed_out_once) {
    struct random random = random_start(20, 0);
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        const struct size_class *sc = &size_classes[c];
        struct span *slab = new_slab(c);
        uintptr_t expected = slab->base;
        unsigned taken = 0;
        while (!slab_is_full(slab)) {
            void *slots[200];
            unsigned wanted = (unsigned)random_below(&random, 200) + 1;
            unsigned got = slab_take(slab, slots, wanted);
            slab_verify(slab);
            unsigned left = sc->total - taken;
            check_eq(got, wanted < left ? wanted : left);
            for (unsigned i = got; i > 0; i--) {
                check_eq(slots[i - 1], expected);
                check_object(slab, slots[i - 1]);
                expected += sc->size;
            }
            taken += got;
            check_eq(slab_nout(slab), taken);
        }
        void *none;
        check_eq(slab_take(slab, &none, 1), 0);
        check_eq(taken, sc->total);
    }
}

TEST(objects_put_back_are_taken_lowest_first) {
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        unsigned total = size_classes[c].total;
        struct span *slab = new_slab(c);
        void *slots[MOST_OBJECTS];
        check_eq(slab_take(slab, slots, total), total);
        for (unsigned i = 0; i < total; i += 3) {
            put_back(slab, slots[i]);
            slab_verify(slab);
        }
        unsigned count = (total + 2) / 3;
        check_eq(slab_nfree(slab), count);
        void *again[MOST_OBJECTS];
        check_eq(slab_take(slab, again, total), count);
        slab_verify(slab);
        for (unsigned i = 0; i < count; i++) {
            check_eq(again[i], slots[i * 3]);
        }
    }
}

TEST(carving_touches_no_page_before_it_is_needed) {
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        const struct size_class *sc = &size_classes[c];
        struct span *slab = new_slab(c);
        void *slot;
        unsigned taken = 0;
        while (slab_take(slab, &slot, 1) == 1) {
            taken++;
            /* Carved objects start before the end of the page that the last one needed starts in. */
            size_t last_start = (size_t)(taken - 1) * sc->size;
            size_t page_end = align_up(last_start + 1, os_facts.page_bytes);
            check((size_t)(slab->ncarved - 1) * sc->size < page_end);
        }
        slab_verify(slab);
    }
}

TEST(granule_is_published_when_all_its_objects_are_carved) {
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        const struct size_class *sc = &size_classes[c];
        struct span *slab = new_slab(c);
        void *slot;
        do {
            for (unsigned g = 0; g <= sc->slab_mask >> LG_UNIT; g++) {
                /* The number of objects that start before the end of this granule. */
                unsigned needed = ((g + 1) * UNIT_BYTES + sc->size - 1) / sc->size;
                needed = needed < sc->total ? needed : sc->total;
                unsigned byte = slab->ncarved >= needed ? c * 4 : 0;
                check_eq(classmap_get(slab->base + g * UNIT_BYTES), byte);
            }
        } while (slab_take(slab, &slot, 1) == 1);
    }
}

TEST(publishing_a_granule_carves_it_and_what_lies_before) {
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        const struct size_class *sc = &size_classes[c];
        struct span *slab = new_slab(c);
        void *slot;
        check_eq(slab_take(slab, &slot, 1), 1);
        slab_publish_granule(slab, (uintptr_t)slot);
        slab_verify(slab);
        check_eq(classmap_get((uintptr_t)slot), c * 4);
        check_eq(slab_nout(slab), 1);
        uintptr_t last = slab->base + (uintptr_t)(sc->total - 1) * sc->size;
        slab_publish_granule(slab, last);
        slab_verify(slab);
        check_eq(slab->ncarved, sc->total);
        check_eq(classmap_get(last), c * 4);
        check_eq(slab_word1((void *)last), slab_secret);
    }
}

TEST(destroyed_slab_has_left_the_class_map) {
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        struct span *slab = new_slab(c);
        void *slots[MOST_OBJECTS];
        uintptr_t base = slab->base, bytes = size_classes[c].slab_mask + 1;
        unsigned some = size_classes[c].total / 2 + 1;
        for (unsigned i = slab_take(slab, slots, some); i > 0; i--) {
            put_back(slab, slots[i - 1]);
        }
        slab_destroy(slab);
        check_eq(slab->kind, SPAN_NONE);
        for (uintptr_t at = base; at < base + bytes; at += UNIT_BYTES) {
            check_eq(classmap_get(at), 0);
        }
        pages_give_back(base, bytes / UNIT_BYTES);
    }
    pages_verify();
}

TEST(verify_stops_at_a_broken_count) {
    struct span *slab = new_slab(3);
    void *slots[10];
    slab_take(slab, slots, 10);
    slab_verify(slab);
    slab->nout++;
    check_dies(slab_verify(slab), "tally: internal error: ", SIGABRT);
}
