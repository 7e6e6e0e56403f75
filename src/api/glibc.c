/* SPDX-License-Identifier: MIT
 *
 * glibc.c - the parts of <malloc.h> beyond the malloc family: questions about the heap and knobs.
 *
 * Programs and libraries call these to decide when to trim or to log their memory, so they answer
 * from tally's own counters.  mallopt's knobs belong to glibc's design and have no effect here; a
 * known one is accepted, as its callers expect.
 */
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <tally/tally.h>

#include "api/life.h"
#include "base/log.h"
#include "control/control.h"
#include "heap/counts.h"
#include "heap/heap.h"

#if TALLY_OVERRIDE

int __libc_mallopt(int parameter, int value);
struct mallinfo __libc_mallinfo(void);

/* As in glibc, the arena does not include large blocks: uordblks + fordblks == arena. */
EXPORT struct mallinfo2 mallinfo2(void) {
    struct heap_totals t = {0};
    if (life_enter()) {
        t = heap_totals();
        life_leave();
    }
    size_t arena = t.mapped - min_size(t.large_bytes, t.mapped);
    size_t in_use = t.live - min_size(t.large_bytes, t.live);
    return (struct mallinfo2){
        .arena = arena,
        .ordblks = t.threads,
        .hblks = t.large_blocks,
        .hblkhd = t.large_bytes,
        .fsmblks = t.cached,
        .uordblks = in_use,
        .fordblks = arena - min_size(in_use, arena),
        .keepcost = t.dirty,
    };
}

static struct mallinfo saturated_info(void) {
    struct mallinfo2 wide = mallinfo2();
    return (struct mallinfo){
        .arena = saturate_int(wide.arena),
        .ordblks = saturate_int(wide.ordblks),
        .hblks = saturate_int(wide.hblks),
        .hblkhd = saturate_int(wide.hblkhd),
        .fsmblks = saturate_int(wide.fsmblks),
        .uordblks = saturate_int(wide.uordblks),
        .fordblks = saturate_int(wide.fordblks),
        .keepcost = saturate_int(wide.keepcost),
    };
}

EXPORT struct mallinfo mallinfo(void) {
    return saturated_info();
}

EXPORT int malloc_trim(size_t pad) {
    (void)pad;
    return tally_purge() > 0;
}

EXPORT int mallopt(int parameter, int value) {
    (void)value;
    switch (parameter) {
    case M_MXFAST:
    case M_TRIM_THRESHOLD:
    case M_TOP_PAD:
    case M_MMAP_THRESHOLD:
    case M_MMAP_MAX:
    case M_CHECK_ACTION:
    case M_PERTURB:
    case M_ARENA_TEST:
    case M_ARENA_MAX:
        return 1;
    default:
        return 0;
    }
}

/* The summary and the totals; malloc_stats_print has the rest. */
EXPORT void malloc_stats(void) {
    if (life_enter()) {
        stats_print(log_write, NULL, "gmdax");
        life_leave();
    }
}

static size_t count_cached(unsigned size_class) {
    size_t nslabs, nout, ncached = 0;
    if (life_enter()) {
        heap_class_counts(size_class, &nslabs, &nout, &ncached);
        life_leave();
    }
    return ncached;
}

/* The elements of glibc's document that its readers look for. */
EXPORT int malloc_info(int options, FILE *stream) {
    if (options != 0) {
        return EINVAL;
    }
    struct mallinfo2 info = mallinfo2();
    fprintf(stream, "<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n");
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        size_t ncached = count_cached(c);
        if (ncached > 0) {
            unsigned size = size_classes[c].size;
            fprintf(stream, "  <size from=\"%u\" to=\"%u\" total=\"%zu\" count=\"%zu\"/>\n", size,
                    size, ncached * size, ncached);
        }
    }
    fprintf(stream, "</sizes>\n</heap>\n");
    fprintf(stream, "<total type=\"fast\" count=\"0\" size=\"0\"/>\n");
    fprintf(stream, "<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n", info.ordblks,
            info.fordblks);
    fprintf(stream, "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n", info.hblks, info.hblkhd);
    fprintf(stream, "<system type=\"current\" size=\"%zu\"/>\n", info.arena);
    fprintf(stream, "<system type=\"max\" size=\"%zu\"/>\n", info.arena);
    fprintf(stream, "</malloc>\n");
    return 0;
}

/* Names that static links and old binaries ask for. */
EXPORT int __libc_mallopt(int parameter, int value) {
    return mallopt(parameter, value);
}

EXPORT struct mallinfo __libc_mallinfo(void) {
    return saturated_info();
}

#endif
