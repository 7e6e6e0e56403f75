/* SPDX-License-Identifier: MIT
 *
 * cfi.c - runs the part of a function's unwind program that finds its return address.
 *
 *      description (FDE)   length, distance back to the rules it shares (CIE), start, size, program
 *      shared rules (CIE)  length, 0, version, letters, factors, register of the return address, program
 *
 * Both programs are run up to the address in question.  Two things are followed: by which register and
 * offset the frame is found (the CFA), and where from there the return address is.
 */
#include "prof/cfi.h"

#include <string.h>

enum {
    ADVANCE = 0x40, /* in the upper two bits, the rest is the operand */
    OFFSET = 0x80,
    RESTORE = 0xc0,
    NOTHING = 0,
    ADVANCE_1 = 2,
    ADVANCE_2 = 3,
    ADVANCE_4 = 4,
    OFFSET_EXTENDED = 5,
    RESTORE_EXTENDED = 6,
    UNDEFINED = 7,
    SAME_VALUE = 8,
    REGISTER = 9,
    REMEMBER_STATE = 10,
    RESTORE_STATE = 11,
    DEFINE_FRAME = 12,
    DEFINE_REGISTER = 13,
    DEFINE_OFFSET = 14,
    DEFINE_EXPRESSION = 15,
    EXPRESSION = 16,
    SIGN_RETURN_ADDRESS = 0x2d, /* aarch64 */
    ARGUMENTS_SIZE = 0x2e,
};

enum { REMEMBERED_MOST = 8 };

struct state {
    unsigned reg;
    int64_t offset;
    int64_t of_return; /* from the frame */
    bool is_simple;    /* the frame is a register and an offset */
    bool has_return;
};

struct program {
    const unsigned char *next, *end;
    uint64_t code_factor;
    int64_t data_factor;
    uint64_t return_register;
    uintptr_t at, until;
    struct state state, first; /* now, and after the shared program */
    struct state remembered[REMEMBERED_MOST];
    unsigned depth;
};

/* ---------------------------------------------------------------- numbers */

static uint64_t read_unsigned(const unsigned char **next) {
    uint64_t value = 0;
    unsigned shift = 0;
    unsigned char byte;
    do {
        byte = *(*next)++;
        value |= shift < 64 ? (uint64_t)(byte & 0x7f) << shift : 0;
        shift += 7;
    } while (byte & 0x80);
    return value;
}

static int64_t read_signed(const unsigned char **next) {
    const unsigned char *start = *next;
    uint64_t value = read_unsigned(next);
    unsigned bits = (unsigned)(*next - start) * 7;
    bool is_negative = (*next)[-1] & 0x40;
    return (int64_t)(is_negative && bits < 64 ? value | ~UINT64_C(0) << bits : value);
}

static uint64_t read_fixed(const unsigned char **next, unsigned bytes) {
    uint64_t value = 0;
    memcpy(&value, *next, bytes);
    *next += bytes;
    return value;
}

/* ---------------------------------------------------------------- the program */

static void set_offset(struct program *program, uint64_t reg, int64_t offset) {
    if (reg == program->return_register) {
        program->state.of_return = offset;
        program->state.has_return = true;
    }
}

static void restore(struct program *program, uint64_t reg) {
    if (reg == program->return_register) {
        program->state.of_return = program->first.of_return;
        program->state.has_return = program->first.has_return;
    }
}

static void lose(struct program *program, uint64_t reg) {
    program->state.has_return &= reg != program->return_register;
}

static void define(struct program *program, uint64_t reg, int64_t offset) {
    program->state.reg = (unsigned)reg;
    program->state.offset = offset;
    program->state.is_simple = true;
}

static bool remember(struct program *program) {
    if (program->depth == REMEMBERED_MOST) {
        return false;
    }
    program->remembered[program->depth++] = program->state;
    return true;
}

static bool recall(struct program *program) {
    if (program->depth == 0) {
        return false;
    }
    program->state = program->remembered[--program->depth];
    return true;
}

/* Operations with operands of variable length; false for what is not known here. */
static bool run_long(struct program *program, unsigned operation) {
    const unsigned char **next = &program->next;
    if (operation == DEFINE_EXPRESSION) {
        uint64_t length = read_unsigned(next);
        *next += length;
        program->state.is_simple = false;
        return true;
    }
    uint64_t first = read_unsigned(next);
    switch (operation) {
    case OFFSET_EXTENDED:
        set_offset(program, first, (int64_t)read_unsigned(next) * program->data_factor);
        return true;
    case RESTORE_EXTENDED:
        restore(program, first);
        return true;
    case UNDEFINED:
    case SAME_VALUE:
        lose(program, first);
        return true;
    case REGISTER:
        lose(program, first);
        (void)read_unsigned(next);
        return true;
    case DEFINE_FRAME:
        define(program, first, (int64_t)read_unsigned(next));
        return true;
    case DEFINE_REGISTER:
        define(program, first, program->state.offset);
        return true;
    case DEFINE_OFFSET:
        program->state.offset = (int64_t)first;
        return true;
    case EXPRESSION: {
        uint64_t length = read_unsigned(next);
        *next += length;
        lose(program, first);
        return true;
    }
    default:
        return operation == ARGUMENTS_SIZE;
    }
}

static bool run_one(struct program *program) {
    unsigned operation = *program->next++;
    unsigned operand = operation & 0x3f;
    uint64_t advance = 0;
    switch (operation & 0xc0) {
    case ADVANCE:
        program->at += operand * program->code_factor;
        return true;
    case OFFSET:
        set_offset(program, operand, (int64_t)read_unsigned(&program->next) * program->data_factor);
        return true;
    case RESTORE:
        restore(program, operand);
        return true;
    default:
        break;
    }
    switch (operation) {
    case NOTHING:
    case SIGN_RETURN_ADDRESS:
        return true;
    case REMEMBER_STATE:
        return remember(program);
    case RESTORE_STATE:
        return recall(program);
    case ADVANCE_1:
        advance = read_fixed(&program->next, 1);
        break;
    case ADVANCE_2:
        advance = read_fixed(&program->next, 2);
        break;
    case ADVANCE_4:
        advance = read_fixed(&program->next, 4);
        break;
    default:
        return run_long(program, operation);
    }
    program->at += advance * program->code_factor;
    return true;
}

static bool run(struct program *program) {
    while (program->next < program->end && program->at <= program->until) {
        if (!run_one(program)) {
            return false;
        }
    }
    return true;
}

/* ---------------------------------------------------------------- descriptions */

/* Bytes of an address in an encoding of the tables; 0: unknown. */
static unsigned encoded_bytes(unsigned encoding) {
    static const unsigned bytes[8] = {sizeof(uintptr_t), 0, 2, 4, 8, 0, 0, 0};
    return bytes[encoding & 7];
}

/* The letters behind z say what the data behind the factors are; of interest is how addresses look. */
static bool read_encoding(const char *letters, const unsigned char *data, unsigned *encoding) {
    for (; *letters != '\0'; letters++) {
        if (*letters == 'R') {
            *encoding = *data;
            return true;
        }
        if (*letters == 'L') {
            data++;
        } else if (*letters == 'P') {
            unsigned bytes = encoded_bytes(*data);
            if (bytes == 0 || (*data & 0x70) == 0x50) { /* aligned: no compiler does */
                return false;
            }
            data += 1 + bytes;
        } else if (*letters != 'S' && *letters != 'B') {
            return false;
        }
    }
    return false;
}

/* Sets the program to that of the shared rules. */
static bool begin_shared(struct program *program, const unsigned char *shared, unsigned *encoding) {
    uint32_t length;
    memcpy(&length, shared, sizeof(length));
    const unsigned char *next = shared + 2 * sizeof(uint32_t);
    unsigned version = *next++;
    const char *letters = (const char *)next;
    next += strlen(letters) + 1;
    program->code_factor = read_unsigned(&next);
    program->data_factor = read_signed(&next);
    program->return_register = version == 1 ? *next++ : read_unsigned(&next);
    if (length == UINT32_MAX || letters[0] != 'z') {
        return false;
    }
    uint64_t data = read_unsigned(&next);
    program->next = next + data;
    program->end = shared + sizeof(length) + length;
    return read_encoding(letters + 1, next, encoding);
}

bool cfi_find_slot(const void *description, uintptr_t start, uintptr_t address,
                   struct cfi_slot *slot) {
    const unsigned char *own = description;
    uint32_t length, back;
    unsigned encoding;
    memcpy(&length, own, sizeof(length));
    memcpy(&back, own + sizeof(length), sizeof(back));
    struct program program = {.at = start, .until = address};
    if (length == UINT32_MAX || !begin_shared(&program, own + sizeof(length) - back, &encoding) ||
        !run(&program)) {
        return false;
    }
    program.first = program.state;
    const unsigned char *next = own + 2 * sizeof(uint32_t) + 2 * (size_t)encoded_bytes(encoding);
    uint64_t data = read_unsigned(&next);
    program.next = next + data;
    program.end = own + sizeof(length) + length;
    if (encoded_bytes(encoding) == 0 || !run(&program) || !program.state.is_simple ||
        !program.state.has_return) {
        return false;
    }
    *slot = (struct cfi_slot){program.state.reg, program.state.offset + program.state.of_return};
    return true;
}
