/* SPDX-License-Identifier: MIT
 *
 * cfi.c - runs the part of a function's unwind program that finds its return address.
 *
 *      description (FDE)   length, distance back to the rules it shares (CIE), start, size, program
 *      shared rules (CIE)  length, 0, version, letters, factors, register of the return address, program
 *
 * Both programs are run up to the address in question.  They say which register and offset give the
 * frame (the CFA), and where, from there, the return address and the caller's frame pointer and
 * base register are; the rest is ignored.
 *
 * A frame may be given by an expression.  Those that compilers and linkers make add to the stack
 * pointer a number that depends on the address alone (the linker's stubs), or read one word at the
 * frame pointer (functions that align their stack).  So they are run with different values in a
 * register: a result that differs by as much is that register plus an offset.
 */
#include "stack/cfi.h"

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
    OFFSET_EXTENDED_SIGNED = 17,
    DEFINE_FRAME_SIGNED = 18,
    DEFINE_OFFSET_SIGNED = 19,
    VALUE_OFFSET = 20,
    VALUE_EXPRESSION = 22,
    SIGN_RETURN_ADDRESS = 0x2d, /* aarch64 */
    ARGUMENTS_SIZE = 0x2e,
};

enum { REMEMBERED_MOST = 8 };

/* A piece of the program that computes a place; 0 bytes: none. */
struct expression {
    const unsigned char *bytes;
    size_t length;
};

/* Where the caller's value of a register is. */
struct place {
    enum { PLACE_UNSAID, PLACE_SAME, PLACE_AT, PLACE_COMPUTED, PLACE_LOST } kind;
    int64_t offset; /* from the frame */
    struct expression expression;
};

struct state {
    unsigned reg;
    int64_t offset;
    struct expression expression; /* of the frame, if it is not a register and an offset */
    struct place returned;        /* the return address */
    struct place pointer;         /* the frame pointer */
    struct place base;
};

struct program {
    const unsigned char *next, *end;
    uint64_t code_factor;
    int64_t data_factor;
    uint64_t return_register;
    uintptr_t at, until;
    bool has_data;             /* before the program of a description */
    struct state state, first; /* now, and after the shared program */
    struct state remembered[REMEMBERED_MOST];
    unsigned depth;
    struct place ignored; /* of any other register */
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

/* Where the register's place is kept; for any other register, one that nobody looks at. */
static struct place *place_of(struct program *program, struct state *state, uint64_t reg) {
    if (reg == program->return_register) {
        return &state->returned;
    }
    if (reg == FRAME_REGISTER) {
        return &state->pointer;
    }
    return reg == BASE_REGISTER ? &state->base : &program->ignored;
}

static void set_place(struct program *program, uint64_t reg, struct place place) {
    *place_of(program, &program->state, reg) = place;
}

static void set_offset(struct program *program, uint64_t reg, int64_t offset) {
    set_place(program, reg, (struct place){.kind = PLACE_AT, .offset = offset});
}

static void restore(struct program *program, uint64_t reg) {
    set_place(program, reg, *place_of(program, &program->first, reg));
}

static struct expression take_expression(struct program *program) {
    uint64_t length = read_unsigned(&program->next);
    size_t rest = program->next < program->end ? (size_t)(program->end - program->next) : 0;
    struct expression taken = {program->next, length < rest ? (size_t)length : rest};
    program->next += taken.length;
    return taken;
}

static void define(struct program *program, uint64_t reg, int64_t offset) {
    program->state.reg = (unsigned)reg;
    program->state.offset = offset;
    program->state.expression.length = 0;
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

static void run_expression(struct program *program, unsigned operation) {
    if (operation == DEFINE_EXPRESSION) {
        program->state.expression = take_expression(program);
        return;
    }
    uint64_t reg = read_unsigned(&program->next);
    struct expression expression = take_expression(program);
    set_place(program, reg,
              (struct place){.kind = operation == EXPRESSION ? PLACE_COMPUTED : PLACE_LOST,
                             .expression = expression});
}

/* Operations on the frame and on places, with operands of variable length; false if unknown. */
static bool run_long(struct program *program, unsigned operation) {
    const unsigned char **next = &program->next;
    int64_t factor = program->data_factor;
    uint64_t first = read_unsigned(next);
    switch (operation) {
    case OFFSET_EXTENDED:
        set_offset(program, first, (int64_t)read_unsigned(next) * factor);
        return true;
    case OFFSET_EXTENDED_SIGNED:
        set_offset(program, first, read_signed(next) * factor);
        return true;
    case RESTORE_EXTENDED:
        restore(program, first);
        return true;
    case UNDEFINED:
        set_place(program, first, (struct place){.kind = PLACE_LOST});
        return true;
    case SAME_VALUE:
        set_place(program, first, (struct place){.kind = PLACE_SAME});
        return true;
    case REGISTER:
    case VALUE_OFFSET:
        (void)read_unsigned(next);
        set_place(program, first, (struct place){.kind = PLACE_COMPUTED});
        return true;
    case DEFINE_FRAME:
        define(program, first, (int64_t)read_unsigned(next));
        return true;
    case DEFINE_FRAME_SIGNED:
        define(program, first, read_signed(next) * factor);
        return true;
    case DEFINE_REGISTER:
        define(program, first, program->state.offset);
        return true;
    case DEFINE_OFFSET:
        program->state.offset = (int64_t)first;
        return true;
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
    case DEFINE_EXPRESSION:
    case EXPRESSION:
    case VALUE_EXPRESSION:
        run_expression(program, operation);
        return true;
    case DEFINE_OFFSET_SIGNED:
        program->state.offset = read_signed(&program->next) * program->data_factor;
        return true;
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

/* The letters behind z describe the data behind the factors; only the encoding of addresses is
 * wanted.  Without a letter for it, they are plain. */
static bool read_encoding(const char *letters, const unsigned char *data, const unsigned char *end,
                          unsigned *encoding) {
    for (; *letters != '\0' && data < end; letters++) {
        if (*letters == 'R') {
            *encoding = *data;
            return true;
        }
        if (*letters == 'L') {
            data++;
        } else if (*letters == 'P') {
            unsigned bytes = encoded_bytes(*data);
            if (bytes == 0 || (*data & 0x70) == 0x50) { /* aligned: no compiler uses it */
                return false;
            }
            data += 1 + bytes;
        } else if (*letters != 'S' && *letters != 'B') {
            return false;
        }
    }
    *encoding = 0;
    return true;
}

/* Skips data that are preceded by their length. */
static const unsigned char *skip_data(const unsigned char *next, const unsigned char *end) {
    uint64_t length = read_unsigned(&next);
    return next < end && length < (uint64_t)(end - next) ? next + length : end;
}

/* Sets the program to that of the shared rules. */
static bool begin_shared(struct program *program, const unsigned char *shared, unsigned *encoding,
                         bool *is_signal) {
    uint32_t length;
    memcpy(&length, shared, sizeof(length));
    const unsigned char *next = shared + 2 * sizeof(uint32_t);
    unsigned version = *next++;
    const char *letters = (const char *)next;
    next += strlen(letters) + 1;
    program->code_factor = read_unsigned(&next);
    program->data_factor = read_signed(&next);
    program->return_register = version == 1 ? *next++ : read_unsigned(&next);
    if (length == UINT32_MAX || (letters[0] != 'z' && letters[0] != '\0')) {
        return false;
    }
    program->end = shared + sizeof(length) + length;
    program->next = next;
    program->has_data = letters[0] == 'z';
    *is_signal = strchr(letters, 'S') != NULL;
    *encoding = 0;
    if (!program->has_data) {
        return true;
    }
    program->next = skip_data(next, program->end);
    (void)read_unsigned(&next);
    return read_encoding(letters + 1, next, program->end, encoding);
}

/* Runs both programs; the second begins behind addresses of this encoding. */
static bool run_both(struct program *program, const unsigned char *own, unsigned encoding) {
    uint32_t length;
    if (encoded_bytes(encoding) == 0 || !run(program)) {
        return false;
    }
    program->first = program->state;
    memcpy(&length, own, sizeof(length));
    const unsigned char *next = own + 2 * sizeof(uint32_t) + 2 * (size_t)encoded_bytes(encoding);
    program->end = own + sizeof(length) + length;
    program->next = program->has_data ? skip_data(next, program->end) : next;
    return run(program);
}

/* ---------------------------------------------------------------- expressions */

enum {
    EXPRESSION_DEREFERENCE = 0x06,
    EXPRESSION_AND = 0x1a,
    EXPRESSION_PLUS = 0x22,
    EXPRESSION_PLUS_NUMBER = 0x23,
    EXPRESSION_SHIFT = 0x24,
    EXPRESSION_AT_LEAST = 0x2a,
    EXPRESSION_NUMBER = 0x30, /* 0 to 31 */
    EXPRESSION_REGISTER = 0x70,
    EXPRESSION_LAST = 0x8f,
    ADDRESS_REGISTER = 16, /* of x86-64: where the program is */
};

struct machine {
    int64_t stack, pointer; /* the registers */
    uintptr_t address;
    int64_t values[4];
    unsigned depth;
    bool reads; /* the word at the result is what is wanted */
};

static bool push(struct machine *machine, int64_t value) {
    if (machine->depth == sizeof(machine->values) / sizeof(machine->values[0])) {
        return false;
    }
    machine->values[machine->depth++] = value;
    return true;
}

static bool push_register(struct machine *machine, unsigned reg, int64_t offset) {
    if (reg == STACK_REGISTER) {
        return push(machine, machine->stack + offset);
    }
    if (reg == FRAME_REGISTER) {
        return push(machine, machine->pointer + offset);
    }
    return reg == ADDRESS_REGISTER && push(machine, (int64_t)machine->address + offset);
}

static bool combine(struct machine *machine, unsigned operation) {
    if (machine->depth < 2) {
        return false;
    }
    int64_t right = machine->values[--machine->depth];
    int64_t *left = &machine->values[machine->depth - 1];
    switch (operation) {
    case EXPRESSION_AND:
        *left &= right;
        return true;
    case EXPRESSION_PLUS:
        *left += right;
        return true;
    case EXPRESSION_SHIFT:
        *left = right >= 0 && right < 63 ? (int64_t)((uint64_t)*left << right) : 0;
        return true;
    case EXPRESSION_AT_LEAST:
        *left = *left >= right;
        return true;
    default:
        return false;
    }
}

static bool run_machine(struct machine *machine, struct expression expression) {
    const unsigned char *next = expression.bytes;
    const unsigned char *end = next + expression.length;
    while (next < end) {
        unsigned operation = *next++;
        bool done;
        if (machine->reads) { /* nothing may come after it */
            return false;
        }
        if (operation >= EXPRESSION_REGISTER && operation <= EXPRESSION_LAST) {
            done = push_register(machine, operation - EXPRESSION_REGISTER, read_signed(&next));
        } else if (operation >= EXPRESSION_NUMBER && operation < EXPRESSION_NUMBER + 32) {
            done = push(machine, operation - EXPRESSION_NUMBER);
        } else if (operation == EXPRESSION_DEREFERENCE) {
            done = machine->reads = true;
        } else if (operation == EXPRESSION_PLUS_NUMBER) {
            done =
                push(machine, (int64_t)read_unsigned(&next)) && combine(machine, EXPRESSION_PLUS);
        } else {
            done = combine(machine, operation);
        }
        if (!done) {
            return false;
        }
    }
    return machine->depth == 1;
}

/* A register and an offset, or the word there. */
struct solution {
    unsigned reg;
    int64_t offset;
    bool reads;
};

/* False if the expression has any other result. */
static bool solve(struct expression expression, uintptr_t address, struct solution *solution) {
    enum { APART = 1 << 20 };
    struct machine zero = {.address = address};
    struct machine stack = {.address = address, .stack = APART};
    struct machine pointer = {.address = address, .pointer = APART};
    if (!run_machine(&zero, expression) || !run_machine(&stack, expression) ||
        !run_machine(&pointer, expression)) {
        return false;
    }
    bool by_stack = stack.values[0] - zero.values[0] == APART;
    bool by_pointer = pointer.values[0] - zero.values[0] == APART;
    *solution =
        (struct solution){by_stack ? STACK_REGISTER : FRAME_REGISTER, zero.values[0], zero.reads};
    return by_stack != by_pointer;
}

/* ---------------------------------------------------------------- rules */

static bool fits(int64_t offset) {
    return offset == (int32_t)offset;
}

static bool find_frame(const struct state *state, uintptr_t address, struct cfi_rule *rule) {
    struct solution found = {state->reg, state->offset, false};
    if (state->expression.length != 0 && !solve(state->expression, address, &found)) {
        return false;
    }
    rule->offset = (int32_t)found.offset;
    if (found.reg == FRAME_REGISTER) {
        rule->frame = found.reads ? CFI_AT_POINTER : CFI_POINTER;
    } else if (found.reads || (found.reg != STACK_REGISTER && found.reg != BASE_REGISTER)) {
        return false;
    } else {
        rule->frame = found.reg == STACK_REGISTER ? CFI_STACK : CFI_BASE;
    }
    return fits(found.offset);
}

static bool find_return(const struct state *state, struct cfi_rule *rule) {
    switch (state->returned.kind) {
    case PLACE_LOST:
        rule->frame = CFI_END;
        return true;
    case PLACE_AT:
        rule->returns = CFI_AT_FRAME;
        rule->of_return = (int32_t)state->returned.offset;
        return fits(state->returned.offset);
    case PLACE_UNSAID:
    case PLACE_SAME:
        rule->returns = CFI_IN_REGISTER;
        return true;
    default:
        return false;
    }
}

static bool find_pointer(const struct state *state, uintptr_t address, struct cfi_rule *rule) {
    struct solution found = {.offset = state->pointer.offset};
    rule->saved = CFI_SAME;
    if (state->pointer.kind == PLACE_AT) {
        rule->saved = CFI_SAVED;
    } else if (state->pointer.kind == PLACE_COMPUTED) {
        if (state->pointer.expression.length == 0 ||
            !solve(state->pointer.expression, address, &found) || found.reads ||
            found.reg != FRAME_REGISTER) {
            return false;
        }
        rule->saved = CFI_SAVED_AT_ITSELF;
    }
    rule->of_saved = (int32_t)found.offset;
    return fits(found.offset);
}

static void find_base(const struct state *state, struct cfi_rule *rule) {
    rule->base = state->base.kind == PLACE_UNSAID || state->base.kind == PLACE_SAME ? CFI_SAME
                 : state->base.kind == PLACE_AT && fits(state->base.offset)         ? CFI_SAVED
                                                                                    : CFI_LOST;
    rule->of_base = (int32_t)state->base.offset;
}

static bool find_plain_rule(const struct state *state, uintptr_t address, struct cfi_rule *rule) {
    find_base(state, rule);
    return find_frame(state, address, rule) && find_return(state, rule) &&
           find_pointer(state, address, rule);
}

/* Is the length believable?  Copies may be damaged. */
static bool is_whole(const unsigned char *bytes, size_t length) {
    enum { LEAST = 12 };
    uint32_t said;
    memcpy(&said, bytes, sizeof(said));
    return said >= LEAST && length >= sizeof(said) && said <= length - sizeof(said);
}

/* Is the address in the function at all?  Its size is behind its start, in the same encoding. */
static bool is_inside(const unsigned char *own, unsigned encoding, uintptr_t distance) {
    unsigned bytes = encoded_bytes(encoding);
    const unsigned char *next = own + 2 * sizeof(uint32_t) + bytes;
    return distance < read_fixed(&next, bytes);
}

bool cfi_find_rule(const struct cfi_parts *parts, uintptr_t start, uintptr_t address,
                   struct cfi_rule *rule) {
    struct program program = {.at = start, .until = address};
    unsigned encoding;
    bool is_signal;
    *rule = (struct cfi_rule){0};
    if (!is_whole(parts->description, parts->description_bytes) ||
        !is_whole(parts->shared, parts->shared_bytes) ||
        !begin_shared(&program, parts->shared, &encoding, &is_signal)) {
        return false;
    }
    if (!is_inside(parts->description, encoding, address - start)) {
        return false;
    }
    bool has_rule = run_both(&program, parts->description, encoding) &&
                    find_plain_rule(&program.state, address, rule);
    if (is_signal && (!has_rule || TRAMPOLINE_IS_PLAIN)) {
        *rule = (struct cfi_rule){.frame = CFI_SIGNAL};
        return true;
    }
    return has_rule;
}
