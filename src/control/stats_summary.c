/* SPDX-License-Identifier: MIT
 *
 * stats_summary.c - where the heap's bytes are, for people: from what the program holds to what the
 * heap may occupy, in lines that add up.
 *
 * Threads     Counters are read one after the other while other threads allocate, so a sum may be
 *             off by what they moved meanwhile; at rest it is exact.
 */
#include "control/pressure.h"
#include "control/stats.h"
#include "heap/counts.h"

static void line(struct out *out, const char *name, size_t bytes, const char *remark) {
    out_text(out, "  %-22s %14zu bytes   %s\n", name, bytes, remark);
}

static void print_class(struct out *out, unsigned size_class) {
    size_t nslabs, nout, ncached;
    heap_class_counts(size_class, &nslabs, &nout, &ncached);
    if (nslabs > 0) {
        out_text(out, "  %6u %12zu %10zu %8zu\n", size_classes[size_class].size, nout - ncached,
                 ncached, nslabs);
    }
}

static void print_classes(struct out *out) {
    out_text(out, "    size         live     cached    slabs\n");
    for (unsigned c = 1; c < CLASS_COUNT; c++) {
        print_class(out, c);
    }
}

void stats_summary(struct out *out, bool with_classes) {
    struct heap_totals t = heap_totals();
    size_t spans = t.live + t.cached + t.slab_free + t.large_rest;
    size_t rss = pressure_resident_bytes();
    out_text(out, "tally: where the heap's bytes are\n");
    line(out, "live", t.live, "held by the program, at usable size");
    line(out, "+ cached", t.cached, "free objects in threads' magazines and depots");
    line(out, "+ free in slabs", t.slab_free, "not handed out, or never touched");
    line(out, "+ ends of large blocks", t.large_rest, "addresses behind the last page");
    line(out, "= in spans", spans, "runs of pages that have an owner");
    line(out, "+ free pages kept", t.dirty, "for reuse; malloc_trim gives them back");
    line(out, "+ tally's own", t.metadata, "descriptors, beside the heap");
    line(out, "= resident at most", spans + t.dirty + t.metadata, "if every page was touched");
    if (rss > 0) {
        line(out, "RSS of the process", rss, "says the kernel; code and stacks are in it");
    }
    line(out, "without memory", t.mapped - min_size(spans + t.dirty, t.mapped),
         "addresses never used, or given back");
    if (t.reentered > 0) {
        line(out, "calls in handlers", t.reentered, "number of allocations that interrupted tally");
    }
    if (with_classes) {
        print_classes(out);
    }
}
