/* SPDX-License-Identifier: MIT
 *
 * fuzz.h - what a fuzz target is, to libFuzzer and to the replay of a corpus alike.
 *
 * A target is one function that takes bytes and ends the process when something is wrong.
 * libFuzzer (clang, `make fuzz`) calls it with inputs it invents; replay.c calls it with the files
 * of a corpus and needs no more than a C compiler.
 */
#ifndef TALLY_TEST_FUZZ_H
#define TALLY_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Must hold whatever the input is. */
#define fuzz_check(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* The input as a stream; past its end there are zeros. */
struct input {
    const uint8_t *at;
    size_t left;
};

static inline unsigned input_byte(struct input *input) {
    if (input->left == 0) {
        return 0;
    }
    input->left--;
    return *input->at++;
}

static inline unsigned input_word(struct input *input) {
    unsigned high = input_byte(input);
    return high << 8 | input_byte(input);
}

#endif
