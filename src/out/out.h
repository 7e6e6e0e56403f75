/* SPDX-License-Identifier: MIT
 *
 * out.h - text and bytes, collected into pieces of 64 KiB.
 *
 * A writer of a format puts what it has to say and never looks for errors: the first one is kept, what
 * comes after it is dropped, and out_end() tells it.
 *
 * Threads     One out, one thread.
 */
#pragma once

#include "base/common.h"
#include "out/pile.h"

enum { OUT_BYTES = 64 << 10 };

struct out {
    /* Where pieces go: 0 or a negative errno. */
    int (*take)(void *target, const char *bytes, size_t length);
    void *target;
    int error;
    size_t length;
    char buffer[OUT_BYTES];
};

void out_begin(struct out *out, int (*take)(void *target, const char *bytes, size_t length),
               void *target);

/* Passes on what is left.  0, or the first error. */
int out_end(struct out *out);

/* Targets: a descriptor, given by its address, and a pile. */
int out_to_descriptor(void *fd, const char *bytes, size_t length);
int out_to_file(void *fd, const char *bytes, size_t length); /* leaves a tenth of the disk free */
int out_to_pile(void *pile, const char *bytes, size_t length);

void out_bytes(struct out *out, const void *bytes, size_t length);
void out_string(struct out *out, const char *text);
void out_char(struct out *out, char c);

/* Room for so many bytes, at most OUT_BYTES; what is used of it is added to `length`. */
char *out_room(struct out *out, size_t bytes);

/* A number with at least so many characters, up to 24: filled with blanks, or hexadecimal with zeros
 * and without 0x. */
void out_decimal(struct out *out, uint64_t number, unsigned width);
void out_hex(struct out *out, uint64_t number, unsigned width);
