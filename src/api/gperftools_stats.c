/* SPDX-License-Identifier: MIT
 *
 * gperftools_stats.c - the statistics of the heap as gperftools prints them.
 *
 * Scripts read the lines that begin with "MALLOC:", so these are gperftools' to the letter.  The
 * figures are tally's, as gperftools_extension.c defines them, and add up.
 */
#include <gperftools/malloc_extension_c.h>

#include "api/gperftools_extension.h"
#include "api/life.h"
#include "api/names.h"
#include "base/fmt.h"
#include "heap/counts.h"

enum { LONG_FORM_BYTES = 10000 };

struct text {
    char *at;
    size_t room; /* with the NUL */
};

static void move_on(struct text *text, size_t length) {
    text->at += length;
    text->room -= length;
}

static void put_line(struct text *text, const char *line) {
    move_on(text, fmt_text(text->at, text->room, "%s\n", line));
}

/* MiB with one decimal. */
struct tenths {
    size_t whole;
    unsigned tenth;
};

static struct tenths mebibytes(size_t bytes) {
    size_t tenths = (size_t)(((unsigned __int128)bytes * 10 + (1 << 19)) >> 20);
    return (struct tenths){tenths / 10, (unsigned)(tenths % 10)};
}

static void put_bytes(struct text *text, char sign, size_t bytes, const char *label) {
    struct tenths mib = mebibytes(bytes);
    move_on(text, fmt_text(text->at, text->room, "MALLOC: %c %12zu (%5zu.%u MiB) %s\n", sign, bytes,
                           mib.whole, mib.tenth, label));
}

static void put_number(struct text *text, size_t number, const char *label) {
    move_on(text,
            fmt_text(text->at, text->room, "MALLOC:   %12zu              %s\n", number, label));
}

static void put_rule(struct text *text) {
    put_line(text, "------------------------------------------------");
}

static void put_summary(struct text *text, const struct extension_figures *f) {
    put_rule(text);
    put_bytes(text, ' ', f->allocated, "Bytes in use by application");
    put_bytes(text, '+', f->page_free, "Bytes in page heap freelist");
    put_bytes(text, '+', f->central_free, "Bytes in central cache freelist");
    put_bytes(text, '+', f->transfer_free, "Bytes in transfer cache freelist");
    put_bytes(text, '+', f->thread_free, "Bytes in thread cache freelists");
    put_bytes(text, '+', f->metadata, "Bytes in malloc metadata");
    put_line(text, "MALLOC:   ------------");
    put_bytes(text, '=', f->physical, "Actual memory used (physical + swap)");
    put_bytes(text, '+', f->unmapped, "Bytes released to OS (aka unmapped)");
    put_line(text, "MALLOC:   ------------");
    put_bytes(text, '=', f->physical + f->unmapped, "Virtual address space used");
    put_line(text, "MALLOC:");
    put_number(text, f->spans, "Spans in use");
    put_number(text, f->threads, "Thread heaps in use");
    put_number(text, UNIT_BYTES, "Tcmalloc page size");
    put_rule(text);
    put_line(text, "ReleaseFreeMemory() gives the bytes of freelists back to the OS.");
    put_line(text, "Bytes released to the OS are addresses without memory behind them.");
}

/* Free objects of a class, wherever they are.  False if there are none, or if this call interrupts
 * the allocator. */
static bool count_free(unsigned size_class, size_t *count) {
    size_t nslabs, nout, ncached;
    if (!life_enter()) {
        return false;
    }
    heap_class_counts(size_class, &nslabs, &nout, &ncached);
    life_leave();
    size_t room = nslabs * size_classes[size_class].total;
    *count = room - min_size(nout, room) + ncached;
    return *count > 0;
}

static void put_classes(struct text *text) {
    size_t count, sum = 0;
    put_rule(text);
    put_line(text, "Free objects in caches and slabs, by size class");
    put_rule(text);
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        if (!count_free(c, &count)) {
            continue;
        }
        size_t bytes = count * size_classes[c].size;
        sum += bytes;
        struct tenths mib = mebibytes(bytes), all = mebibytes(sum);
        move_on(text,
                fmt_text(text->at, text->room,
                         "class %3u [ %8u bytes ] : %8zu objs; %3zu.%u MiB; %3zu.%u cum MiB\n", c,
                         (unsigned)size_classes[c].size, count, mib.whole, mib.tenth, all.whole,
                         all.tenth));
    }
}

FOREIGN void MallocExtension_GetStats(char *buffer, int length) {
    struct extension_figures figures;
    struct text text = {buffer, length > 0 ? (size_t)length : 0};
    if (text.room == 0) {
        return;
    }
    (void)extension_read(&figures);
    put_summary(&text, &figures);
    if (length >= LONG_FORM_BYTES) {
        put_classes(&text);
    }
}
