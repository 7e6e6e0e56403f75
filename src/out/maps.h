/* SPDX-License-Identifier: MIT
 *
 * maps.h - what is loaded where: the executable parts of the address space, with build ids.
 *
 * Threads     All functions may be called from any thread, with no lock held; the loader is not
 *             asked, so nobody waits for its lock.  One struct maps, one thread.
 */
#pragma once

#include "base/common.h"
#include "out/pile.h"

/* Bytes of a build id in hexadecimal, with the end of the string. */
enum { MAPS_BUILD_ID = 2 * 32 + 1 };

/* One executable mapping of a file. */
struct maps_module {
    uintptr_t start, end;
    uint64_t offset;              /* of `start` in the file */
    uint32_t path;                /* where in the text of the maps it begins; */
    uint32_t path_bytes;          /* it has no end of its own.  Without " (deleted)". */
    char build_id[MAPS_BUILD_ID]; /* "" where none can be read */
};

/* All zeros: nothing is known. */
struct maps {
    struct pile text;    /* the file /proc/self/maps */
    struct pile modules; /* in the order of their addresses */
    size_t count;        /* of modules */
    size_t program;      /* which of them is the program; `count` where none is */
    bool hides;          /* addresses are not to be shown */
};

/* Reads them.  Where /proc is missing, or there is no memory, `maps` is empty. */
void maps_read(struct maps *maps);
void maps_release(struct maps *maps);

const struct maps_module *maps_module(const struct maps *maps, size_t index);

/* The index of the module that contains the address, or `count`. */
size_t maps_find(const struct maps *maps, uintptr_t address);

/* An address of a module, or its end, as it may be shown.  If hidden, it is as if the modules lay
 * one behind the other, far apart, so readers find the same places; 0 outside of all. */
uintptr_t maps_tell(const struct maps *maps, size_t module, uintptr_t address);

/* Takes the next line off a text of maps, with its end; 0 bytes when there is none. */
size_t maps_next_line(const struct maps *maps, size_t at);

/* The useful fields of a line.  A line that is cut short has no path. */
struct maps_line {
    uintptr_t start, end;
    uint64_t offset;
    bool is_executable;
    const char *path; /* in the line, without an end of its own and without " (deleted)" */
    size_t path_bytes;
};
void maps_parse_line(const char *line, size_t length, struct maps_line *fields);

/* The text alone, into an empty pile; false if it cannot be read to its end. */
bool maps_read_text(struct pile *text);

/* Is this line about executable memory? */
bool maps_line_is_executable(const char *line, size_t length);
