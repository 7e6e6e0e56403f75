/* SPDX-License-Identifier: MIT
 *
 * container.h - a container of frames.h that grows while the process runs.
 *
 * Threads     One struct container, one thread at a time, inside and with no lock held.  Errors are
 *             negative errno values.
 */
#pragma once

#include "contract/frames.h"
#include "out/out_file.h"

/* A container being written; all zeros: none.  The path ends in ".part" until container_end. */
struct container {
    uint32_t process; /* its owner; a child that shares this memory must not write */
    uint64_t device, inode;
    uint64_t bytes; /* of whole frames */
    uint64_t start_ns;
    char path[OUT_FILE_NAME_BYTES];
};

/* A point of the series, as FRAME_STAT has it. */
struct container_point {
    uint64_t t_ns, rss, live, held, allocated, freed;
};

/* Creates `path`.part with header and FRAME_HEAD, whose lines are given.  If that fails nothing is
 * left behind; -EEXIST if either name is taken. */
int container_begin(struct container *container, const char *path, const char *lines,
                    size_t length);

/* Nanoseconds since container_begin. */
uint64_t container_now(const struct container *container);

/* Each appends one frame.  If that fails the file is cut back to its last whole frame.  A profile
 * of more than `most` bytes is not written: -EMSGSIZE; after it or -ENOMEM more frames may follow.
 * `dump` writes the profile, into a FRAME_SNAP or a FRAME_CPU. */
int container_profile(struct container *container, enum frame_type type, uint64_t most,
                      int (*dump)(struct out_sink sink));
int container_stat(struct container *container, const struct container_point *points,
                   unsigned count);
int container_note(struct container *container, const char *text);
int container_leaks(struct container *container, const char *text, size_t length);

/* FRAME_BYE with these lines, then the name without ".part", if that is still free. */
int container_end(struct container *container, const char *lines, size_t length);
