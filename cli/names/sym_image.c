/* SPDX-License-Identifier: MIT
 *
 * sym_image.c - builds and checks images.
 *
 * The check is the readers' whole defence: a file may have taken over the worker that read it, and
 * anybody who was root for a moment may have written the cache.  After the check no index needs
 * another look.
 */
#include "names/sym_image.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/hash.h"
#include "common/cli.h"
#include "names/demangle.h"

static const char magic[8] =
    "tallysy1"; /* the last character is the version, names' spelling included */

_Static_assert(sizeof(struct sym_header) % _Alignof(struct sym_place) == 0, "places are aligned");

struct sym_text {
    uint32_t text; /* 0: free */
    uint32_t name; /* what people call it; UINT32_MAX: not asked for yet */
};

static uint32_t checksum_of(const void *image, size_t length) {
    size_t skipped = offsetof(struct sym_header, flags);
    return (uint32_t)crc32_z(0, (const uint8_t *)image + skipped, length - skipped);
}

static size_t bytes_of(const struct sym_header *header) {
    return sizeof *header + header->place_count * sizeof(struct sym_place) +
           header->frame_count * sizeof(struct sym_frame) + header->text_bytes;
}

const struct sym_header *sym_image_header(const void *image) {
    return image;
}

const struct sym_place *sym_image_places(const void *image) {
    return (const struct sym_place *)((const uint8_t *)image + sizeof(struct sym_header));
}

static const struct sym_frame *all_frames(const void *image) {
    return (const struct sym_frame *)(sym_image_places(image) +
                                      sym_image_header(image)->place_count);
}

const struct sym_frame *sym_image_frames(const void *image, const struct sym_place *place) {
    return all_frames(image) + place->frames;
}

const char *sym_image_text(const void *image, uint32_t text) {
    return (const char *)(all_frames(image) + sym_image_header(image)->frame_count) + text;
}

static bool places_are_right(const void *image) {
    const struct sym_header *header = image;
    const struct sym_place *places = sym_image_places(image);
    for (uint32_t i = 0; i < header->place_count; i++) {
        if (places[i].frames > header->frame_count ||
            places[i].frame_count > header->frame_count - places[i].frames ||
            (i > 0 && places[i].offset <= places[i - 1].offset)) {
            return false;
        }
    }
    return true;
}

static bool frames_are_right(const void *image) {
    const struct sym_header *header = image;
    const struct sym_frame *frames = all_frames(image);
    for (uint32_t i = 0; i < header->frame_count; i++) {
        if (frames[i].system_name >= header->text_bytes || frames[i].name >= header->text_bytes ||
            frames[i].file >= header->text_bytes) {
            return false;
        }
    }
    return true;
}

bool sym_image_check(const void *image, size_t length) {
    const struct sym_header *header = image;
    if (length < sizeof *header || length > SYM_IMAGE_BYTES_MOST ||
        memcmp(header->magic, magic, sizeof magic) != 0 || length != bytes_of(header) ||
        header->checksum != checksum_of(image, length)) {
        return false;
    }
    uint32_t bytes = header->text_bytes;
    bool has_texts = bytes > 0 && sym_image_text(image, bytes - 1)[0] == '\0' &&
                     sym_image_text(image, 0)[0] == '\0' && header->build_id < bytes &&
                     header->other_path < bytes && header->other_id < bytes;
    return has_texts && places_are_right(image) && frames_are_right(image);
}

static int compare_places(const void *a, const void *b) {
    uint64_t left = ((const struct sym_place *)a)->offset;
    uint64_t right = ((const struct sym_place *)b)->offset;
    return left < right ? -1 : left > right;
}

const struct sym_place *sym_image_find(const void *image, uint64_t offset) {
    struct sym_place wanted = {.offset = offset};
    return bsearch(&wanted, sym_image_places(image), sym_image_header(image)->place_count,
                   sizeof wanted, compare_places);
}

void sym_builder_init(struct sym_builder *builder) {
    *builder = (struct sym_builder){0};
    memcpy(builder->header.magic, magic, sizeof magic);
    builder->table_size = 1024;
    builder->table = must_zeroed(builder->table_size * sizeof builder->table[0]);
    builder->texts = must_alloc(builder->text_room = 4096);
    builder->texts[0] = '\0';
    builder->header.text_bytes = 1;
}

void sym_builder_free(struct sym_builder *builder) {
    free(builder->places);
    free(builder->frames);
    free(builder->texts);
    free(builder->table);
}

static uint32_t hash_of(const char *text) {
    uint64_t hash = hash_text(HASH_TEXT, text);
    return (uint32_t)(hash ^ hash >> 32);
}

static struct sym_text *find_text(struct sym_builder *builder, const char *text) {
    uint32_t at = hash_of(text);
    for (;; at++) {
        struct sym_text *row = &builder->table[at & (builder->table_size - 1)];
        if (row->text == 0 || strcmp(builder->texts + row->text, text) == 0) {
            return row;
        }
    }
}

static void grow_table(struct sym_builder *builder) {
    struct sym_text *old = builder->table;
    uint32_t size = builder->table_size;
    builder->table_size = size * 2;
    builder->table = must_zeroed(builder->table_size * sizeof old[0]);
    for (uint32_t i = 0; i < size; i++) {
        if (old[i].text != 0) {
            *find_text(builder, builder->texts + old[i].text) = old[i];
        }
    }
    free(old);
}

uint32_t sym_builder_text(struct sym_builder *builder, const char *text) {
    size_t length = strlen(text) + 1;
    struct sym_text *row = find_text(builder, text);
    if (length == 1 || row->text != 0) {
        return length == 1 ? 0 : row->text;
    }
    uint32_t at = builder->header.text_bytes;
    if (length > SYM_IMAGE_BYTES_MOST / 2 - at) {
        return 0;
    }
    while (builder->text_room - at < length) {
        builder->texts = must_grow(builder->texts, builder->text_room *= 2);
    }
    memcpy(builder->texts + at, text, length);
    builder->header.text_bytes += (uint32_t)length;
    *row = (struct sym_text){at, UINT32_MAX};
    if (++builder->table_used > builder->table_size / 2) {
        grow_table(builder);
    }
    return at;
}

uint32_t sym_builder_name(struct sym_builder *builder, uint32_t system_name) {
    static char out[DEMANGLE_OUT_BYTES];
    if (system_name == 0) {
        return 0;
    }
    uint32_t name = find_text(builder, builder->texts + system_name)->name;
    if (name != UINT32_MAX) {
        return name;
    }
    bool is_mangled = demangle(builder->texts + system_name, out);
    name = is_mangled ? sym_builder_text(builder, out) : system_name;
    find_text(builder, builder->texts + system_name)->name = name;
    return name;
}

void sym_builder_frame(struct sym_builder *builder, struct sym_frame frame) {
    uint32_t count = builder->header.frame_count;
    if (count >= SYM_IMAGE_BYTES_MOST / 4 / sizeof frame) {
        return;
    }
    builder->frames = must_have_room(builder->frames, count, &builder->frame_room, sizeof frame);
    builder->frames[builder->header.frame_count++] = frame;
}

void sym_builder_place(struct sym_builder *builder, uint64_t offset) {
    struct sym_header *header = &builder->header;
    uint32_t first = 0;
    if (header->place_count > 0) {
        const struct sym_place *last = &builder->places[header->place_count - 1];
        first = last->frames + last->frame_count;
    }
    if (header->place_count >= SYM_IMAGE_BYTES_MOST / 8 / sizeof(struct sym_place)) {
        header->frame_count = first;
        return;
    }
    builder->places = must_have_room(builder->places, header->place_count, &builder->place_room,
                                     sizeof builder->places[0]);
    builder->places[header->place_count++] =
        (struct sym_place){offset, first, header->frame_count - first};
}

void sym_builder_copy(struct sym_builder *builder, const void *image,
                      const struct sym_place *place) {
    const struct sym_frame *frames = sym_image_frames(image, place);
    for (uint32_t i = 0; i < place->frame_count; i++) {
        struct sym_frame copy = frames[i];
        copy.system_name = sym_builder_text(builder, sym_image_text(image, frames[i].system_name));
        copy.name = sym_builder_text(builder, sym_image_text(image, frames[i].name));
        copy.file = sym_builder_text(builder, sym_image_text(image, frames[i].file));
        sym_builder_frame(builder, copy);
    }
    sym_builder_place(builder, place->offset);
}

void *sym_builder_finish(struct sym_builder *builder, size_t *length) {
    struct sym_header *header = &builder->header;
    if (header->place_count > 0) {
        qsort(builder->places, header->place_count, sizeof builder->places[0], compare_places);
    }
    *length = bytes_of(header);
    uint8_t *image = must_alloc(*length);
    const struct {
        const void *bytes;
        size_t count;
    } parts[] = {{header, sizeof *header},
                 {builder->places, header->place_count * sizeof builder->places[0]},
                 {builder->frames, header->frame_count * sizeof builder->frames[0]},
                 {builder->texts, header->text_bytes}};
    uint8_t *at = image;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].count > 0) {
            memcpy(at, parts[i].bytes, parts[i].count);
            at += parts[i].count;
        }
    }
    ((struct sym_header *)image)->checksum = checksum_of(image, *length);
    return image;
}
