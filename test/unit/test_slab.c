/* SPDX-License-Identifier: MIT
 *
 * test_slab.c - a slab of every class hands out each object once, carves no more than it must,
 * publishes a granule exactly when all of it is carved, and gives back the pages that hold nothing.
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
    slab->is_fresh = zeroed;
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
    check(slab_is_out(slab, size_class_index(sc, offset)));
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
            check_eq(slab->sheets_used, (taken * sc->size - 1) / SHEET_BYTES + 1);
            check_eq(slab->uncarved & ((UINT64_C(1) << slab->sheets_used) - 1), 0);
        }
        slab_verify(slab);
    }
}

TEST(granule_is_published_when_all_its_objects_are_carved) {
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        const struct size_class *sc = &size_classes[c];
        struct span *slab = new_slab(c);
        void *slot;
        unsigned taken = 0;
        do {
            size_t carved = align_up((size_t)taken * sc->size, SHEET_BYTES);
            bool is_all = carved >= (size_t)sc->total * sc->size;
            for (unsigned g = 0; g <= sc->slab_mask >> LG_UNIT; g++) {
                unsigned byte = is_all || carved >= (g + 1) * UNIT_BYTES ? c * 4 : 0;
                check_eq(classmap_get(slab->base + g * UNIT_BYTES), byte);
            }
            taken++;
        } while (slab_take(slab, &slot, 1) == 1);
    }
}

TEST(publishing_a_granule_carves_it) {
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

/* ---------------------------------------------------------------- giving pages back */

/* By looking at every byte: the sheets without an object that is out. */
static uint32_t free_sheets_slowly(const struct span *slab, const bool *is_out) {
    const struct size_class *sc = slab_class(slab);
    uint32_t sheets = 0;
    for (unsigned s = 0; s <= sc->slab_mask / SHEET_BYTES; s++) {
        bool is_free = true;
        for (size_t at = (size_t)s * SHEET_BYTES; at < (s + 1u) * SHEET_BYTES; at += 16) {
            is_free &= at / sc->size >= sc->total || !is_out[at / sc->size];
        }
        sheets |= is_free ? UINT32_C(1) << s : 0;
    }
    return sheets;
}

/* What reclaim.c does, but for the bin's part. */
static void purge(struct span *slab, uint32_t sheets, bool is_done) {
    slab->rest = SLAB_BUSY;
    slab_uncarve(slab, sheets);
    slab_verify(slab);
    for (unsigned s = 0; s < 32 && is_done; s++) {
        if (sheets >> s & 1) {
            memset((void *)(slab->base + (uintptr_t)s * SHEET_BYTES), 0, SHEET_BYTES);
        }
    }
    slab_note_purged(slab, is_done);
    slab_verify(slab);
}

static unsigned index_in(const struct span *slab, const void *object) {
    return (unsigned)(((uintptr_t)object - slab->base) / slab_class(slab)->size);
}

/* Takes and puts back at random, and purges now and then; what is out keeps what was written. */
static void live_and_purge(struct span *slab, struct random *random) {
    const struct size_class *sc = slab_class(slab);
    static bool is_out[MOST_OBJECTS];
    memset(is_out, 0, sizeof(is_out));
    for (unsigned step = 0; step < 300; step++) {
        void *slots[64];
        unsigned got = slab_take(slab, slots, 1 + (unsigned)random_below(random, 64));
        for (unsigned i = 0; i < got; i++) {
            unsigned index = index_in(slab, slots[i]);
            check(!is_out[index]);
            check_object(slab, slots[i]);
            is_out[index] = true;
            memset(slots[i], (int)index | 1, sc->size);
        }
        for (unsigned i = 0; i < sc->total; i++) {
            uint8_t *object = (uint8_t *)slab->base + (size_t)i * sc->size;
            if (is_out[i] && random_below(random, 4) < 3) {
                check(object[0] == (uint8_t)(i | 1) && object[sc->size - 1] == (uint8_t)(i | 1));
                slab_set_word1(object, slab_secret);
                put_back(slab, object);
                is_out[i] = false;
            }
        }
        uint32_t sheets = slab_sheets_to_purge(slab);
        uint32_t expected =
            free_sheets_slowly(slab, is_out) & ~(slab->is_fresh ? slab->uncarved : 0);
        check(os_facts.page_bytes != SHEET_BYTES || (sheets & ~expected) == 0);
        if (sheets != 0 && random_below(random, 3) == 0) {
            purge(slab, sheets, random_below(random, 4) != 0);
            check(!slab->is_fresh || slab_sheets_to_purge(slab) == 0);
        }
    }
}

TEST(pages_that_hold_nothing_go_and_come_again) {
    struct random random = random_start(24, 0);
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        live_and_purge(new_slab(c), &random);
    }
}

TEST(all_pages_that_can_go_are_found) {
    struct random random = random_start(25, 0);
    for (unsigned c = 1; c < CLASS_COUNT && os_facts.page_bytes == SHEET_BYTES; c++) {
        struct span *slab = new_slab(c);
        slab->is_fresh = false;
        static void *slots[MOST_OBJECTS];
        static bool is_out[MOST_OBJECTS];
        unsigned total = slab_take(slab, slots, slab_class(slab)->total);
        for (unsigned i = 0; i < total; i++) {
            unsigned index = index_in(slab, slots[i]);
            is_out[index] = random_below(&random, 10) == 0;
            if (!is_out[index]) {
                put_back(slab, slots[i]);
            }
        }
        check_eq(slab_sheets_to_purge(slab), free_sheets_slowly(slab, is_out));
    }
}

TEST(verify_stops_at_a_sheet_that_is_not_carved_and_holds_something) {
    struct span *slab = new_slab(3);
    void *slots[10];
    slab_take(slab, slots, 10);
    slab->uncarved |= 1;
    check_dies(slab_verify(slab), "tally: internal error: ", SIGABRT);
}

TEST(verify_stops_at_a_broken_count) {
    struct span *slab = new_slab(3);
    void *slots[10];
    slab_take(slab, slots, 10);
    slab_verify(slab);
    slab->nout++;
    check_dies(slab_verify(slab), "tally: internal error: ", SIGABRT);
}
