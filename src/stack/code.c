/* SPDX-License-Identifier: MIT
 *
 * code.c - executable ranges with their tables, as a sorted array that is replaced as a whole.
 *
 *      .eh_frame_hdr   1, three encodings, where .eh_frame is, how many
 *                      { start of a function, its description } ...      sorted, relative to the header
 *
 * A description (FDE) and the rules it shares with others (CIE) are copied into the caller's room
 * and run there (cfi.h).
 *
 * Threads     An array is never changed once handlers can see it.  The previous array is given back
 *             when all handlers that could have seen it have ended.
 */
#include "stack/code.h"

#include <elf.h>
#include <stdatomic.h>
#include <string.h>

#include "base/hash.h"
#include "base/os.h"
#include "base/os_confined.h"
#include "base/os_timer.h"
#include "out/maps.h"
#include "stack/rules.h"

struct range {
    uintptr_t start, end;
    uintptr_t header;  /* of its tables; it says: */
    uint32_t count;    /* functions; 0: no tables */
    uint32_t identity; /* of the file: another may be mapped here later */
};

struct ranges {
    size_t bytes; /* of all of it */
    size_t count;
    struct range at[];
};

static struct {
    struct ranges *_Atomic now;
    struct ranges *before; /* to be given back */
    struct pile text;      /* of the maps that `now` was made from */
} g;

enum { HEADER_BYTES = 12, ENTRY_BYTES = 8 };

/* ---------------------------------------------------------------- looking */

static bool copy(void *to, uintptr_t from, size_t bytes) {
    return os_copy(to, from, bytes, os_facts.confined);
}

/* Where the file that is mapped at `base` has its tables; 0: it has none. */
static uintptr_t find_header(uintptr_t base) {
    enum { HEADERS_MOST = 64 };
    Elf64_Ehdr file;
    Elf64_Phdr header;
    uintptr_t first = 0; /* address of the beginning, as the file says */
    if (!copy(&file, base, sizeof(file)) || memcmp(file.e_ident, ELFMAG, SELFMAG) != 0 ||
        file.e_phentsize != sizeof(header)) {
        return 0;
    }
    for (size_t i = 0; i < min_size(file.e_phnum, HEADERS_MOST); i++) {
        if (!copy(&header, base + file.e_phoff + i * sizeof(header), sizeof(header))) {
            return 0;
        }
        if (header.p_type == PT_LOAD && header.p_offset == 0) {
            first = header.p_vaddr;
        }
        if (header.p_type == PT_GNU_EH_FRAME) {
            return base + header.p_vaddr - first;
        }
    }
    return 0;
}

/* Functions in the table; 0 if it does not have the form that all linkers use. */
static uint32_t count_functions(uintptr_t header) {
    static const unsigned char expected[4] = {1, 0x1b, 0x03, 0x3b};
    unsigned char bytes[HEADER_BYTES];
    uint32_t count;
    if (header == 0 || !copy(bytes, header, sizeof(bytes)) ||
        memcmp(bytes, expected, sizeof(expected)) != 0) {
        return 0;
    }
    memcpy(&count, bytes + 8, sizeof(count));
    return count;
}

/* The file whose beginning was seen last, and where that is mapped. */
struct file {
    const char *path;
    size_t path_bytes;
    uintptr_t start;
    uintptr_t header;
    uint32_t count;
    bool is_opened; /* the last two are known */
};

/* Only files with code are opened: the others may be many, and on slow disks. */
static void open_file(struct file *file) {
    if (!file->is_opened) {
        file->is_opened = true;
        file->header = find_header(file->start);
        file->count = count_functions(file->header);
    }
}

/* A hash of all that follows the addresses: offset, device, inode and path. */
static uint32_t identify(const char *text, size_t length) {
    const char *from = memchr(text, ' ', length);
    from = from != NULL ? from : text + length;
    uint64_t hash = hash_bytes(HASH_TEXT, from, (size_t)(text + length - from));
    return (uint32_t)(hash ^ hash >> 32);
}

static void add_range(struct ranges *ranges, const struct maps_line *line, struct file *file,
                      uint32_t identity) {
    bool is_of_file = file->path_bytes > 0 && file->path_bytes == line->path_bytes &&
                      memcmp(file->path, line->path, file->path_bytes) == 0;
    if (is_of_file) {
        open_file(file);
    }
    ranges->at[ranges->count++] =
        (struct range){line->start, line->end, is_of_file ? file->header : 0,
                       is_of_file ? file->count : 0, identity};
}

static void read_ranges(struct ranges *ranges, const struct maps *maps) {
    struct file file = {0};
    size_t length;
    for (size_t at = 0; (length = maps_next_line(maps, at)) > 0; at += length) {
        struct maps_line line;
        maps_parse_line(maps->text.bytes + at, length, &line);
        if (line.offset == 0 && line.path_bytes > 0) {
            file = (struct file){
                .path = line.path, .path_bytes = line.path_bytes, .start = line.start};
        }
        if (line.is_executable) {
            add_range(ranges, &line, &file, identify(maps->text.bytes + at, length));
        }
    }
}

static size_t count_executable(const struct maps *maps) {
    size_t count = 0;
    size_t length;
    for (size_t at = 0; (length = maps_next_line(maps, at)) > 0; at += length) {
        count += maps_line_is_executable(maps->text.bytes + at, length);
    }
    return count;
}

static struct ranges *make_ranges(const struct maps *maps) {
    size_t bytes = align_up(sizeof(struct ranges) + count_executable(maps) * sizeof(struct range),
                            os_facts.page_bytes);
    struct ranges *ranges = os_map(bytes);
    if (ranges != NULL) {
        ranges->bytes = bytes;
        read_ranges(ranges, maps);
    }
    return ranges;
}

static const struct range *find_range(const struct ranges *ranges, uintptr_t address) {
    size_t low = 0, high = ranges->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges->at[middle].end <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < ranges->count && ranges->at[low].start <= address ? &ranges->at[low] : NULL;
}

/* Is something in `old` missing from `now`, or different there? */
static bool has_lost(const struct ranges *old, const struct ranges *now) {
    for (size_t i = 0; i < old->count; i++) {
        const struct range *range = find_range(now, old->at[i].start);
        if (range == NULL || range->end < old->at[i].end || range->header != old->at[i].header ||
            range->identity != old->at[i].identity) {
            return true;
        }
    }
    return false;
}

static bool is_as_before(const struct pile *text) {
    return g.text.length == text->length && memcmp(g.text.bytes, text->bytes, text->length) == 0;
}

/* Puts new ranges in the place of the old ones. */
static bool replace(struct maps *maps) {
    struct ranges *now = make_ranges(maps);
    if (now == NULL) {
        pile_release(&maps->text);
        return false;
    }
    pile_release(&g.text);
    g.text = maps->text;
    struct ranges *old = g.now;
    bool lost = old != NULL && has_lost(old, now);
    /* Sequentially consistent, as is the check whether handlers run. */
    atomic_store(&g.now, now);
    g.before = old;
    if (lost) {
        rules_forget();
    }
    return true;
}

bool code_look(bool (*is_idle)(void)) {
    struct maps maps = {0};
    if (g.before != NULL && is_idle()) {
        os_unmap(g.before, g.before->bytes);
        g.before = NULL;
    }
    if (g.before != NULL || !maps_read_text(&maps.text) || is_as_before(&maps.text)) {
        pile_release(&maps.text);
        return false;
    }
    return replace(&maps);
}

STARTUP void code_forked(void) {
    /* The text may be half made, the old array half given back: both are lost. */
    g.text = (struct pile){0};
    g.before = NULL;
}

/* ---------------------------------------------------------------- finding */

struct entry {
    int32_t start, description; /* both from the header on */
};

bool code_copy(struct code_room *room, void *to, uintptr_t from, size_t bytes) {
    if (!room->is_asked) {
        room->is_asked = true;
        room->is_careful = os_is_confined();
    }
    return os_copy(to, from, bytes, room->is_careful);
}

/* The last entry that starts at or before the address. */
static bool find_entry(const struct range *range, uintptr_t address, struct code_room *room,
                       struct entry *found) {
    uint32_t low = 0, high = range->count;
    bool is_found = false;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        struct entry entry;
        uintptr_t at = range->header + HEADER_BYTES + (uintptr_t)middle * ENTRY_BYTES;
        if (!code_copy(room, &entry, at, sizeof(entry))) {
            return false;
        }
        if (range->header + (uintptr_t)(intptr_t)entry.start <= address) {
            *found = entry;
            is_found = true;
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return is_found;
}

/* Copies a part of the tables, with its length, and zeros behind it; its bytes, 0 without room. */
static size_t copy_part(struct code_room *room, size_t at, uintptr_t from) {
    uint32_t length;
    if (!code_copy(room, &length, from, sizeof(length)) ||
        length > CODE_ROOM - at - sizeof(length) - CFI_BEHIND) {
        return 0;
    }
    size_t bytes = sizeof(length) + length;
    if (!code_copy(room, room->bytes + at, from, bytes)) {
        return 0;
    }
    memset(room->bytes + at + bytes, 0, CFI_BEHIND);
    return bytes;
}

static bool find_rule(const struct range *range, uintptr_t address, struct code_room *room,
                      struct cfi_rule *rule) {
    struct entry entry;
    uint32_t back;
    if (!find_entry(range, address, room, &entry)) {
        return false;
    }
    uintptr_t own = range->header + (uintptr_t)(intptr_t)entry.description;
    size_t bytes = copy_part(room, 0, own);
    if (bytes < sizeof(uint32_t) + sizeof(back)) {
        return false;
    }
    memcpy(&back, room->bytes + sizeof(uint32_t), sizeof(back));
    size_t next = bytes + CFI_BEHIND;
    struct cfi_parts parts = {
        .description = room->bytes, .shared = room->bytes + next, .description_bytes = bytes};
    if (next + sizeof(uint32_t) + CFI_BEHIND >= CODE_ROOM) {
        return false;
    }
    parts.shared_bytes = copy_part(room, next, own + sizeof(uint32_t) - back);
    return parts.shared_bytes != 0 &&
           cfi_find_rule(&parts, range->header + (uintptr_t)(intptr_t)entry.start, address, rule);
}

struct cfi_rule code_find(uintptr_t address, struct code_room *room) {
    const struct ranges *ranges = atomic_load(&g.now);
    const struct range *range = ranges != NULL ? find_range(ranges, address) : NULL;
    struct cfi_rule rule;
    if (range == NULL) {
        return (struct cfi_rule){.frame = CFI_UNKNOWN};
    }
    return find_rule(range, address, room, &rule) ? rule : (struct cfi_rule){.frame = CFI_NO_TABLE};
}
