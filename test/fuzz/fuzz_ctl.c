/* SPDX-License-Identifier: MIT
 *
 * fuzz_ctl.c - names, mibs, lengths and values of all kinds given to mallctl.
 *
 * An input is three bytes, a name up to a line feed, and the bytes of a new value.  Whatever they are:
 * the code is one of the documented ones, nothing is written behind what *oldlenp allows, a mib made
 * from the name answers as the name does, and a mib with one word replaced, too, does no harm.  Where
 * a value would be an address that mallctl follows, only lists of cached objects are given: a wrong
 * address is the caller's mistake.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <tally/tally.h>

#include "control/control.h"
#include "control/ctl.h"
#include "fuzz.h"

enum { DEPTH = 7, OLD_BYTES = 64, MOST_MADE = 16 };

static void check_code(int error) {
    fuzz_check(error == 0 || error == ENOENT || error == EPERM || error == EINVAL ||
               error == EFAULT || error == EAGAIN);
}

/* Names that make something are asked a few times only. */
static bool may_ask(const struct ctl_row *row) {
    static unsigned made;
    bool makes = row != NULL && (strstr(row->path, ".create") != NULL ||
                                 strstr(row->path, "arenas_create_ext") != NULL);
    return !makes || made++ < MOST_MADE;
}

static bool is_number(const struct ctl_row *row) {
    return row != NULL && row->type >= VALUE_BOOL && row->type <= VALUE_UINT32 &&
           row->type != VALUE_STRING && row->access < CTL_OWN_READ;
}

/* What may stand behind newp for this row; NULL: nothing may. */
static void *new_value(const struct ctl_row *row, char *bytes, char **list) {
    if (row == NULL || is_number(row) || strcmp(row->path, "epoch") == 0) {
        return bytes;
    }
    if (strcmp(row->path, "thread.tcache.ncached_max.write") == 0) {
        *list = bytes;
        return list;
    }
    return NULL;
}

struct old {
    unsigned char bytes[OLD_BYTES];
    size_t length;
};

static void check_old(const struct old *old, size_t given) {
    fuzz_check(old->length <= given);
    for (size_t i = given; i < OLD_BYTES; i++) {
        fuzz_check(old->bytes[i] == 0xee);
    }
}

/* A bool of the program is 0 or 1. */
static void fix_bool(const struct ctl_row *row, char *bytes) {
    if (row != NULL && row->type == VALUE_BOOL) {
        bytes[0] &= 1;
    }
}

struct request {
    const char *name;
    size_t given; /* *oldlenp */
    void *newp;
    size_t newlen;
    bool wants_old;
};

static int by_name(const struct request *r) {
    struct old old = {.length = r->given};
    memset(old.bytes, 0xee, sizeof old.bytes);
    int error = ctl_by_name(r->name, r->wants_old ? old.bytes : NULL,
                            r->wants_old ? &old.length : NULL, r->newp, r->newlen);
    check_code(error);
    check_old(&old, r->given);
    return error;
}

static int by_mib(const struct request *r, const size_t *mib, size_t depth) {
    struct old old = {.length = r->given};
    memset(old.bytes, 0xee, sizeof old.bytes);
    int error = ctl_by_mib(mib, depth, r->wants_old ? old.bytes : NULL,
                           r->wants_old ? &old.length : NULL, r->newp, r->newlen);
    check_code(error);
    check_old(&old, r->given);
    return error;
}

/* One word replaced: only read, since nobody knows what it is now. */
static void ask_neighbours(const size_t *mib, size_t depth, unsigned where, size_t word) {
    size_t other[DEPTH];
    memcpy(other, mib, sizeof other);
    if (depth > 0) {
        other[where % depth] = word;
    }
    size_t length = sizeof(unsigned);
    uint64_t old = 0;
    check_code(ctl_by_mib(other, depth, &old, NULL, NULL, 0));
    check_code(ctl_by_mib(other, where % (DEPTH + 1) < depth ? where % (DEPTH + 1) : depth, NULL,
                          &length, NULL, 0));
}

static void ask(struct request *r, unsigned flags) {
    size_t mib[DEPTH] = {0}, depth = flags % (DEPTH + 2) < DEPTH ? flags % (DEPTH + 2) : DEPTH;
    const struct ctl_row *row = ctl_find(r->name);
    if (!may_ask(row)) {
        return;
    }
    int error = by_name(r);
    size_t capacity = depth;
    int found = ctl_name_to_mib(r->name, mib, &depth);
    fuzz_check(found == 0 || found == ENOENT);
    fuzz_check(depth <= capacity);
    fuzz_check(row == NULL || found == 0); /* A prefix of a name is one. */
    for (size_t i = depth; i < DEPTH; i++) {
        fuzz_check(found != 0 || mib[i] == 0);
    }
    depth = DEPTH;
    found = ctl_name_to_mib(r->name, mib, &depth);
    if (found == 0 && row != NULL) {
        fuzz_check(by_mib(r, mib, depth) == error || row->access >= CTL_OWN_READ ||
                   row->access == CTL_GIVE);
    } else {
        fuzz_check(error == ENOENT);
    }
    if (found == 0) {
        ask_neighbours(mib, depth, flags >> 3, (size_t)r->given << (flags % 60));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool is_ready;
    if (!is_ready) {
        setenv("TALLY_CONF", "prof_prefix:", 1); /* No profiles in files. */
        tally_free(tally_malloc(1));
        is_ready = true;
    }
    struct input input = {data, size};
    unsigned flags = input_byte(&input), given = input_byte(&input), newlen = input_byte(&input);
    char name[256], value[1024] = {0};
    size_t n = 0, v = 0;
    while (input.left > 0 && n + 1 < sizeof name) {
        char c = (char)input_byte(&input);
        if (c == '\n') {
            break;
        }
        name[n++] = c;
    }
    name[n] = '\0';
    while (input.left > 0 && v + 1 < sizeof value) {
        value[v++] = (char)input_byte(&input);
    }
    const struct ctl_row *row = ctl_find(name);
    fix_bool(row, value);
    char *list;
    bool follows_old = row != NULL && strcmp(row->path, "arena.<i>.name") == 0;
    struct request request = {
        .name = name, .given = given % 32, .wants_old = flags & 1 && !follows_old};
    request.newp = flags & 2 ? new_value(row, value, &list) : NULL;
    request.newlen = flags & 4 && row != NULL ? ctl_type_size(row->type) : newlen % 64;
    if (request.newp == (void *)&list && request.newlen > sizeof list) {
        request.newlen = sizeof list;
    }
    ask(&request, flags);
    return 0;
}
