/* SPDX-License-Identifier: MIT
 *
 * stats_print.c - the heap's bytes as text for people: where they are, and that they add up.
 *
 * Threads     Counters are read one after the other while others allocate, so a sum may be off by
 *             what moved meanwhile; at rest it is exact.
 */
#include "base/fmt.h"
#include "base/os.h"
#include "control/control.h"
#include "heap/heap.h"

static void line(int fd, const char *name, size_t bytes, const char *remark) {
    char text[160];
    size_t n = fmt_text(text, sizeof(text), "  %-22s %14zu bytes   %s\n", name, bytes, remark);
    os_write(fd, text, n);
}

static void say(int fd, const char *text) {
    size_t n = 0;
    while (text[n] != '\0') {
        n++;
    }
    os_write(fd, text, n);
}

static void print_class(int fd, unsigned c) {
    size_t nslabs, nout, ncached;
    heap_class_counts(c, &nslabs, &nout, &ncached);
    if (nslabs == 0) {
        return;
    }
    char text[160];
    size_t n = fmt_text(text, sizeof(text), "  %6u %12zu %10zu %8zu\n", size_classes[c].size,
                        nout - ncached, ncached, nslabs);
    os_write(fd, text, n);
}

void control_print_stats(int fd) {
    struct heap_totals t = heap_totals();
    size_t spans = t.live + t.cached + t.slab_free + t.large_rest;
    say(fd, "tally: where the heap's bytes are\n");
    line(fd, "live", t.live, "held by the program, at usable size");
    line(fd, "+ cached", t.cached, "free objects in threads' magazines and depots");
    line(fd, "+ free in slabs", t.slab_free, "not handed out, or never touched");
    line(fd, "+ ends of large blocks", t.large_rest, "addresses behind the last page");
    line(fd, "= in spans", spans, "runs of pages that have an owner");
    line(fd, "+ free pages kept", t.dirty, "for reuse; malloc_trim gives them back");
    line(fd, "+ without memory", t.mapped - min_size(spans + t.dirty, t.mapped),
         "never used, or given back to the kernel");
    line(fd, "= mapped", t.mapped, "what the heap may use without asking the kernel");
    line(fd, "tally's own", t.metadata, "descriptors, beside the heap");
    if (t.reentered > 0) {
        line(fd, "calls in handlers", t.reentered, "number of allocations that interrupted tally");
    }
    say(fd, "    size         live     cached    slabs\n");
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        print_class(fd, c);
    }
}
