/* SPDX-License-Identifier: MIT
 *
 * test_size_class.c - every class, every size, every offset of every slab: nothing is sampled.
 */
#include "heap/size_class.h"

#include "heap/magazine.h"
#include "unit.h"

TEST_SETUP(size_class_init);

TEST(every_size_finds_the_smallest_class_that_holds_it) {
    unsigned expected = 1;
    for (size_t size = 0; size <= SMALL_MAX; size++) {
        if (size > size_classes[expected].size) {
            expected++;
        }
        check_eq(size_class_of(size), expected);
        check(size_classes[expected].size >= size);
        check(expected == 1 || size_classes[expected - 1].size < size);
    }
    check_eq(expected, CLASS_COUNT - 1);
}

TEST(sizes_ascend_in_multiples_of_sixteen_and_waste_little) {
    check_eq(size_classes[1].size, SMALLEST);
    check_eq(size_classes[CLASS_COUNT - 1].size, SMALL_MAX);
    for (unsigned c = 2; c < CLASS_COUNT; c++) {
        uint32_t size = size_classes[c].size, below = size_classes[c - 1].size;
        check(size > below);
        check_eq(size % 16, 0);
        /* The step is 16 bytes, an eighth of the power of two below, and for the last ones more. */
        check(size <= 256 ? size - below == 16 : (size - below) * (size <= 8192 ? 8 : 2) <= below);
    }
}

TEST(geometry_is_consistent) {
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        const struct size_class *sc = &size_classes[c];
        uint32_t slab = sc->slab_mask + 1;
        check(is_power_of_two(slab) && slab % (16 << 10) == 0);
        check_eq(sc->total, slab / sc->size);
        check(sc->total >= 1 && sc->total <= MOST_OBJECTS);
        check(slab % sc->size * 16 <= slab); /* The tail is at most a sixteenth. */
        check_eq(sc->mult, ((UINT64_C(1) << 32) + sc->size - 1) / sc->size);
        check(sc->room_max >= 1 && sc->room_max <= 2 * MAGAZINE_MOST);
    }
    struct size_class zero = {0};
    check(memcmp(&size_classes[0], &zero, sizeof zero) == 0);
    check(!size_class_is_start(&size_classes[0], 0));
}

/* All offsets of a slab, the tail included. */
TEST(is_start_and_index_are_right_at_every_offset_of_every_class) {
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        const struct size_class *sc = &size_classes[c];
        uint32_t index = 0, inside = 0;
        for (uint32_t offset = 0; offset <= sc->slab_mask; offset++) {
            bool start = inside == 0 && index < sc->total;
            if (size_class_is_start(sc, offset) != start || size_class_index(sc, offset) != index) {
                check_eq(c, 0);
                check_eq(offset, 0);
            }
            if (++inside == sc->size) {
                inside = 0;
                index++;
            }
        }
    }
}

TEST(aligned_class_is_the_smallest_that_fits_and_is_aligned) {
    for (size_t alignment = 1; alignment <= SMALL_MAX * 2; alignment *= 2) {
        for (size_t size = 0; size <= SMALL_MAX + 1; size += size < 300 || size > 32000 ? 1 : 37) {
            unsigned expected = 0;
            for (unsigned c = 1; c < CLASS_COUNT && expected == 0; c++) {
                bool fits = size_classes[c].size >= size && size_classes[c].size % alignment == 0;
                expected = fits && size <= SMALL_MAX ? c : 0;
            }
            /* Alignments above half of the largest size are given to large objects. */
            expected = alignment > SMALL_MAX / 2 ? 0 : expected;
            check_eq(size_class_aligned(size, alignment), expected);
        }
    }
}

TEST(objects_of_an_aligned_class_are_aligned_at_every_index) {
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        uint32_t size = size_classes[c].size;
        uint32_t alignment = size & -size; /* the largest power of two that divides the size */
        check(alignment <= size_classes[c].slab_mask + 1);
        for (unsigned i = 0; i < size_classes[c].total; i++) {
            check_eq(i * size % alignment, 0);
        }
    }
}
