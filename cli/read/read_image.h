/* SPDX-License-Identifier: MIT
 *
 * read_image.h - what a reader has read, sent from the process that parses to the one that asked.
 *
 * Numbers of eight bytes and texts with their length before them, in the order of the structs.  The sender may
 * be in the hands of the file it has read.  So the receiver believes nothing: it builds everything anew, an
 * index that leads nowhere ends the reading, and so does more than was agreed to.
 */
#pragma once

#include "read/read.h"

/* One end of a pipe.  `has_failed` once it broke, or what came makes no sense. */
struct image_pipe {
    int fd;
    bool has_failed;
    uint64_t left; /* bytes that may still be received */
    size_t at, end;
    uint8_t bytes[1 << 16];
};

void image_put_number(struct image_pipe *pipe, uint64_t number);
void image_put_text(struct image_pipe *pipe, const char *text);
void image_put_profile(struct image_pipe *pipe, const struct profile *profile);
void image_put_run(struct image_pipe *pipe, const struct read_run *run);
/* What is still in the buffer goes out. */
void image_flush(struct image_pipe *pipe);

/* Nothing, 0, "" or NULL, where the pipe has failed.  A text is the caller's. */
uint64_t image_take_number(struct image_pipe *pipe);
char *image_take_text(struct image_pipe *pipe);
struct profile *image_take_profile(struct image_pipe *pipe);
struct read_run *image_take_run(struct image_pipe *pipe);
