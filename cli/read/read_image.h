/* SPDX-License-Identifier: MIT
 *
 * read_image.h - what a reader has read, sent from the process that parses to the one that asked.
 *
 * Numbers of eight bytes and texts with their length before them, in the order of the structs.  The
 * file may have taken over the sender that read it.  So the receiver trusts nothing: it builds
 * everything anew, and fails at an index that leads nowhere or at more bytes than agreed.
 */
#pragma once

#include "read/read.h"

/* One end of a pipe.  `has_failed` once it breaks, or what arrives makes no sense. */
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
/* Sends what is still in the buffer. */
void image_flush(struct image_pipe *pipe);

/* Nothing, 0, "" or NULL, where the pipe has failed.  The caller frees a text. */
uint64_t image_take_number(struct image_pipe *pipe);
char *image_take_text(struct image_pipe *pipe);
struct profile *image_take_profile(struct image_pipe *pipe);
struct read_run *image_take_run(struct image_pipe *pipe);
