/* SPDX-License-Identifier: MIT
 *
 * sym_image.h - the names and lines of one module's addresses, as one block of bytes.
 *
 * A worker sends it through a pipe and the cache keeps it in a file, so there is one format and one check:
 *
 *      header | places, by offset | frames | texts, each with a NUL
 *
 * An offset is that of the instruction in the module's file, the same wherever that is mapped.  An
 * image is read in place, after sym_image_check, whoever made it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SYM_IMAGE_BYTES_MOST = 256 << 20,
    SYM_BUILD_ID_CHARS = 129, /* 64 bytes in hexadecimal and a NUL */
};

enum sym_flag {
    SYM_HAS_FILE = 1 << 0,      /* the module or its debug file was found */
    SYM_HAS_DWARF = 1 << 1,     /* with debug information */
    SYM_IS_NEW = 1 << 2,        /* not everything came out of the cache */
    SYM_NO_DEBUGINFOD = 1 << 3, /* asked for, but the library is missing */
    SYM_NO_CXX_NAMES = 1 << 4,  /* libstdc++ is missing, or had to be left out */
};

struct sym_header {
    char magic[8];
    uint32_t checksum; /* CRC-32 of all after this word */
    uint32_t flags;
    uint32_t place_count, frame_count, text_bytes;
    uint32_t build_id;             /* text: what the cache calls the module; "" where unknown */
    uint32_t other_path, other_id; /* texts: a file that was refused, and its build-id */
};

struct sym_place {
    uint64_t offset;
    uint32_t frames, frame_count; /* innermost first; none: there is no name */
};

struct sym_frame {
    uint32_t system_name, name, file; /* texts */
    uint32_t line, start_line;        /* 0 where unknown */
};

/* True when every index in the image leads to something in it. */
bool sym_image_check(const void *image, size_t length);

const struct sym_header *sym_image_header(const void *image);
/* NULL when the image does not know the offset. */
const struct sym_place *sym_image_find(const void *image, uint64_t offset);
const struct sym_place *sym_image_places(const void *image);
const struct sym_frame *sym_image_frames(const void *image, const struct sym_place *place);
const char *sym_image_text(const void *image, uint32_t text);

/* An image that grows: places in any order. */
struct sym_builder {
    struct sym_header header;
    struct sym_place *places;
    struct sym_frame *frames;
    char *texts;
    uint32_t place_room, frame_room, text_room;
    struct sym_text *table; /* texts that are there already */
    uint32_t table_size, table_used;
};

void sym_builder_init(struct sym_builder *builder);
void sym_builder_free(struct sym_builder *builder);
/* Equal texts share a number; "" is 0. */
uint32_t sym_builder_text(struct sym_builder *builder, const char *text);
/* From what the linker calls a function to what people call it; both are remembered. */
uint32_t sym_builder_name(struct sym_builder *builder, uint32_t system_name);
/* Frames of the place are those added since the last place. */
void sym_builder_frame(struct sym_builder *builder, struct sym_frame frame);
void sym_builder_place(struct sym_builder *builder, uint64_t offset);
/* Copies a place of a checked image. */
void sym_builder_copy(struct sym_builder *builder, const void *image,
                      const struct sym_place *place);
/* Everything in one block, from must_alloc.  No two places may have the same offset. */
void *sym_builder_finish(struct sym_builder *builder, size_t *length);
