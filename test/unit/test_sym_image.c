/* SPDX-License-Identifier: MIT
 *
 * test_sym_image.c - images of symbols: built, found again, and refused when a bit is wrong.
 */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "names/sym_image.h"
#include "test.h"

/* What a test makes last, to be found by whoever looks for leaks. */
static uint8_t *image, *copy;
static struct sym_builder builder;

static uint8_t *small_image(size_t *length) {
    sym_builder_init(&builder);
    uint32_t name = sym_builder_text(&builder, "name"), file = sym_builder_text(&builder, "a.c");
    sym_builder_frame(&builder, (struct sym_frame){name, name, file, 7, 3});
    sym_builder_frame(&builder, (struct sym_frame){file, name, name, 8, 0});
    sym_builder_place(&builder, 0x2000);
    sym_builder_place(&builder, 0x1000);
    sym_builder_frame(&builder, (struct sym_frame){name, name, file, 9, 3});
    sym_builder_place(&builder, 0x1800);
    builder.header.build_id = sym_builder_text(&builder, "abcd");
    uint8_t *made = sym_builder_finish(&builder, length);
    sym_builder_free(&builder);
    return made;
}

/* Makes the checksum right again, so that the other checks are reached. */
static void seal(size_t length) {
    size_t skipped = offsetof(struct sym_header, flags);
    ((struct sym_header *)image)->checksum =
        (uint32_t)crc32(0, image + skipped, (unsigned)(length - skipped));
}

TEST(an_image_has_what_was_put_into_it) {
    size_t length;
    image = small_image(&length);
    check(sym_image_check(image, length));
    check_eq(sym_image_header(image)->place_count, 3);
    const struct sym_place *place = sym_image_find(image, 0x2000);
    check(place != NULL);
    check_eq(place->frame_count, 2);
    const struct sym_frame *frames = sym_image_frames(image, place);
    check_str(sym_image_text(image, frames[0].name), "name");
    check_str(sym_image_text(image, frames[1].system_name), "a.c");
    check_eq(frames[1].line, 8);
    check_eq(sym_image_find(image, 0x1000)->frame_count, 0);
    check_eq(sym_image_find(image, 0x1800)->frame_count, 1);
    check(sym_image_find(image, 0x1801) == NULL);
    check_str(sym_image_text(image, sym_image_header(image)->build_id), "abcd");
}

TEST(equal_texts_share_a_number) {
    sym_builder_init(&builder);
    check_eq(sym_builder_text(&builder, ""), 0);
    uint32_t first = sym_builder_text(&builder, "x0");
    for (int i = 0; i < 5000; i++) {
        char text[32] = "x";
        test_decimal(text + 1, i);
        uint32_t number = sym_builder_text(&builder, text);
        check_eq(number, sym_builder_text(&builder, text));
    }
    check_eq(sym_builder_text(&builder, "x0"), first);
}

TEST(a_place_can_be_copied_into_another_image) {
    size_t length, length2;
    image = small_image(&length);
    sym_builder_init(&builder);
    sym_builder_text(&builder, "something that moves the others");
    sym_builder_copy(&builder, image, sym_image_find(image, 0x2000));
    copy = sym_builder_finish(&builder, &length2);
    check(sym_image_check(copy, length2));
    const struct sym_frame *frames = sym_image_frames(copy, sym_image_find(copy, 0x2000));
    check_str(sym_image_text(copy, frames[0].file), "a.c");
    check_eq(frames[0].line, 7);
}

TEST(a_cut_image_is_refused) {
    size_t length;
    image = small_image(&length);
    for (size_t cut = 0; cut < length; cut++) {
        uint8_t *part = malloc(cut + 1); /* so that a sanitizer sees a byte too far */
        memcpy(part, image, cut);
        check(!sym_image_check(part, cut));
        free(part);
    }
}

TEST(every_wrong_bit_is_noticed) {
    size_t length;
    image = small_image(&length);
    for (size_t i = 0; i < length * 8; i++) {
        image[i / 8] ^= (uint8_t)(1U << i % 8);
        check(!sym_image_check(image, length));
        image[i / 8] ^= (uint8_t)(1U << i % 8);
    }
    check(sym_image_check(image, length));
}

/* Whoever can compute a checksum still cannot make it lead outside. */
TEST(a_number_that_leads_outside_is_refused) {
    size_t length;
    image = small_image(&length);
    struct sym_header *header = (struct sym_header *)image;
    struct sym_place *places = (struct sym_place *)(header + 1);
    struct sym_frame *frames = (struct sym_frame *)(places + 3);
    uint32_t *numbers[] = {&header->build_id,      &header->other_path,  &header->other_id,
                           &places[0].frames,      &places[2].frames,    &places[1].frame_count,
                           &frames[0].system_name, &frames[1].name,      &frames[2].file,
                           &header->place_count,   &header->frame_count, &header->text_bytes};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        uint32_t right = *numbers[i];
        const uint32_t wrong[] = {UINT32_MAX, UINT32_MAX - 1, header->text_bytes + 1};
        for (size_t n = 0; n < sizeof wrong / sizeof wrong[0]; n++) {
            *numbers[i] = wrong[n];
            seal(length);
            check(!sym_image_check(image, length));
        }
        *numbers[i] = right;
    }
    uint64_t offset = places[1].offset;
    places[1].offset = places[0].offset; /* twice the same */
    seal(length);
    check(!sym_image_check(image, length));
    places[1].offset = offset;
    image[length - 1] = 'x'; /* the last text has no end */
    seal(length);
    check(!sym_image_check(image, length));
    image[length - 1] = '\0';
    seal(length);
    check(sym_image_check(image, length));
}
