/* SPDX-License-Identifier: MIT
 *
 * test_ctl.c - every name of jemalloc's tree (ctl_names.def), each used rightly and in every wrong way.
 *
 * What each leaf does is the matter of test_ctl_leaves.c.
 */
#include "control/ctl.h"

#include <errno.h>
#include <stdio.h>

#include "control/ctl_set.h"
#include "control/snapshot.h"
#include "unit.h"

enum type { NONE, BOOL, CHARS, UNSIGNED, SIZE, SSIZE, INT64, UINT64, UINT32, POINTER, STRUCT };
enum use { R, RW, W, MUST, RUN, VERIFY, OWN, SOURCE, MANUAL, UNARMED, NOT_OFFERED };

static const size_t type_size[] = {
    [BOOL] = sizeof(bool),       [CHARS] = sizeof(char *),    [UNSIGNED] = sizeof(unsigned),
    [SIZE] = sizeof(size_t),     [SSIZE] = sizeof(ssize_t),   [INT64] = sizeof(int64_t),
    [UINT64] = sizeof(uint64_t), [UINT32] = sizeof(uint32_t), [POINTER] = sizeof(void *),
    [STRUCT] = sizeof(uint64_t),
};

struct name {
    const char *path;
    enum type type;
    enum use use;
};

#define NAME(path, type, use) {path, type, use},
static const struct name names[] = {
#include "ctl_names.def"
};
#undef NAME

enum { NAMES = sizeof names / sizeof names[0], DEPTH = 7 };

static bool fake_background = true;

static bool background_is_on(void) {
    return fake_background;
}

static bool background_set(bool on) {
    fake_background = on;
    return true;
}

static void start(void) {
    start_heap_with("stats_print:false");
    control_services.background_is_on = background_is_on;
    control_services.background_set = background_set;
}

/* One call and what it may leave behind: the buffer has a margin that must stay as it is. */
struct answer {
    int error;
    size_t length;
    unsigned char bytes[64];
};

static struct answer ask(const char *path, size_t length, void *newp, size_t newlen) {
    struct answer answer = {.length = length};
    memset(answer.bytes, 0xee, sizeof answer.bytes);
    answer.error = ctl_by_name(path, answer.bytes, &answer.length, newp, newlen);
    return answer;
}

/* Says which name it was about before a check fails. */
static void check_name(bool holds, const struct name *name, const char *what) {
    if (!holds) {
        test_say("    ", name->path, ": ", what, "\n", NULL);
        check(holds);
    }
}

static bool is_untouched(const struct answer *answer, size_t from) {
    for (size_t i = from; i < sizeof answer->bytes; i++) {
        if (answer->bytes[i] != 0xee) {
            return false;
        }
    }
    return true;
}

static bool reads(const struct name *name) {
    return name->use == R || name->use == RW;
}

static size_t components(const char *path) {
    size_t n = 1;
    for (; *path != '\0'; path++) {
        n += *path == '.';
    }
    return n;
}

/* ---------------------------------------------------------------- names and mibs */

TEST(every_name_of_the_document_has_a_mib) {
    start();
    for (size_t i = 0; i < NAMES; i++) {
        size_t mib[DEPTH + 1] = {0}, length = DEPTH + 1;
        int error = ctl_name_to_mib(names[i].path, mib, &length);
        check_name(error == 0, &names[i], "not found");
        check_eq(length, components(names[i].path));
    }
}

TEST(a_mib_leads_where_its_name_leads) {
    start();
    for (size_t i = 0; i < NAMES; i++) {
        const struct name *name = &names[i];
        if (!reads(name)) {
            continue;
        }
        struct answer by_name = ask(name->path, type_size[name->type], NULL, 0);
        size_t mib[DEPTH], depth = DEPTH;
        check_eq(ctl_name_to_mib(name->path, mib, &depth), 0);
        struct answer by_mib = {.length = type_size[name->type]};
        memset(by_mib.bytes, 0xee, sizeof by_mib.bytes);
        by_mib.error = ctl_by_mib(mib, depth, by_mib.bytes, &by_mib.length, NULL, 0);
        check_name(by_mib.error == by_name.error, name, "mib and name differ in error");
        check_name(memcmp(by_mib.bytes, by_name.bytes, sizeof by_mib.bytes) == 0, name,
                   "mib and name differ in value");
    }
}

TEST(a_partial_mib_is_refused_and_a_partial_name_has_one) {
    start();
    for (size_t i = 0; i < NAMES; i++) {
        const struct name *name = &names[i];
        size_t whole[DEPTH], depth = DEPTH;
        check_eq(ctl_name_to_mib(name->path, whole, &depth), 0);
        for (size_t n = 0; n < depth; n++) {
            size_t mib[DEPTH + 1], length = n;
            memset(mib, 0xee, sizeof mib);
            check_eq(ctl_name_to_mib(name->path, mib, &length), 0);
            check_eq(length, n);
            check_name(memcmp(mib, whole, n * sizeof mib[0]) == 0, name, "beginning differs");
            check_eq(mib[n], SIZE_MAX / 255 * 0xee);
            check_name(ctl_by_mib(mib, n, NULL, NULL, NULL, 0) == ENOENT, name, "partial mib");
        }
    }
}

TEST(a_name_that_stops_early_or_goes_on_too_long_is_unknown) {
    start();
    for (size_t i = 0; i < NAMES; i++) {
        const struct name *name = &names[i];
        char path[128];
        snprintf(path, sizeof path, "%s.more", name->path);
        check_name(ctl_by_name(path, NULL, NULL, NULL, 0) == ENOENT, name, "more");
        snprintf(path, sizeof path, "%s.", name->path);
        check_name(ctl_by_name(path, NULL, NULL, NULL, 0) == ENOENT, name, "dot at the end");
        snprintf(path, sizeof path, ".%s", name->path);
        check_name(ctl_by_name(path, NULL, NULL, NULL, 0) == ENOENT, name, "dot at the start");
        snprintf(path, sizeof path, "%sx", name->path);
        check_name(ctl_by_name(path, NULL, NULL, NULL, 0) == ENOENT, name, "one letter more");
        snprintf(path, sizeof path, "%s", name->path);
        char *dot = strrchr(path, '.');
        if (dot != NULL) {
            *dot = '\0';
            check_name(ctl_by_name(path, NULL, NULL, NULL, 0) == ENOENT, name, "inner node");
            size_t mib[DEPTH], depth = DEPTH;
            check_name(ctl_name_to_mib(path, mib, &depth) == 0, name, "mib of inner node");
            check_eq(depth, components(path));
        }
    }
}

TEST(what_is_beyond_the_capacity_is_not_looked_at) {
    start();
    size_t mib[2] = {0}, length = 1;
    check_eq(ctl_name_to_mib("arenas.no_such_name.at_all", mib, &length), 0);
    check_eq(length, 1);
    length = 2;
    check_eq(ctl_name_to_mib("arenas.no_such_name.at_all", mib, &length), ENOENT);
    check_eq(length, 2);
    length = 0;
    check_eq(ctl_name_to_mib("no_such_name", mib, &length), 0);
    check_eq(length, 0);
}

TEST(eight_components_are_too_many) {
    start();
    size_t mib[8], length = 8;
    check_eq(ctl_name_to_mib("stats.arenas.0.bins.0.mutex.num_ops.x", mib, &length), ENOENT);
    check_eq(ctl_by_name("a.b.c.d.e.f.g.h", NULL, NULL, NULL, 0), ENOENT);
    length = 7;
    check_eq(ctl_name_to_mib("stats.arenas.0.bins.0.mutex.num_ops", mib, &length), 0);
    mib[7] = 0;
    check_eq(ctl_by_mib(mib, 8, NULL, NULL, NULL, 0), ENOENT);
    check_eq(ctl_by_mib(mib, 7, NULL, NULL, NULL, 0), 0);
}

TEST(null_names_and_mibs_are_refused) {
    start();
    size_t length = 3;
    check_eq(ctl_by_name(NULL, NULL, NULL, NULL, 0), EINVAL);
    check_eq(ctl_by_name("", NULL, NULL, NULL, 0), ENOENT);
    check_eq(ctl_name_to_mib("version", NULL, &length), EINVAL);
    check_eq(ctl_name_to_mib("version", &length, NULL), EINVAL);
    check_eq(ctl_by_mib(NULL, 0, NULL, NULL, NULL, 0), ENOENT);
    check_eq(ctl_by_mib(NULL, 1, NULL, NULL, NULL, 0), EINVAL);
}

/* The path with its index number `nth`, counted from the left, replaced; NULL when it has fewer. */
static const char *with_index(const char *path, unsigned nth, const char *index, char *out) {
    const char *at = path;
    for (unsigned n = 0;; n++) {
        at = strstr(at, ".0.");
        if (at == NULL) {
            return NULL;
        }
        if (n == nth) {
            break;
        }
        at += 2;
    }
    sprintf(out, "%.*s%s%s%s", (int)(at - path), path, *index != '\0' ? "." : "", index, at + 2);
    return out;
}

TEST(an_index_is_digits_within_its_range) {
    static const struct {
        const char *index;
        bool is_right;
    } cases[] = {
        {"0", true},
        {"00", true},
        {"0x", true},
        {"0 ", true},
        {"", false},
        {"x", false},
        {"-0", false},
        {"+0", false},
        {" 0", false},
        {"4095", false},
        {"4294967296", false},
        {"18446744073709551616", false},
        {"99999999999999999999999999", false},
    };
    start();
    for (size_t i = 0; i < NAMES; i++) {
        for (unsigned nth = 0; nth < 2; nth++) {
            for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
                char path[160];
                size_t mib[DEPTH], depth = DEPTH;
                if (with_index(names[i].path, nth, cases[c].index, path) == NULL) {
                    continue;
                }
                int error = ctl_name_to_mib(path, mib, &depth);
                check_name(error == (cases[c].is_right ? 0 : ENOENT), &names[i], path);
            }
        }
    }
}

TEST(index_words_may_be_overwritten) {
    start();
    size_t mib[DEPTH], depth = DEPTH, size, length = sizeof size;
    check_eq(ctl_name_to_mib("arenas.bin.0.size", mib, &depth), 0);
    check_eq(mib[2], 0);
    for (size_t bin = 0; bin < BIN_CLASSES; bin++) {
        mib[2] = bin;
        check_eq(ctl_by_mib(mib, depth, &size, &length, NULL, 0), 0);
        check_eq(size, size_classes[bin + 1].size);
    }
    mib[2] = BIN_CLASSES;
    check_eq(ctl_by_mib(mib, depth, &size, &length, NULL, 0), ENOENT);
    mib[2] = SIZE_MAX;
    check_eq(ctl_by_mib(mib, depth, &size, &length, NULL, 0), ENOENT);
}

TEST(a_word_of_a_mib_is_valid_below_its_node_only) {
    start();
    size_t mib[DEPTH], depth = DEPTH;
    check_eq(ctl_name_to_mib("thread.tcache.flush", mib, &depth), 0);
    for (size_t word = 0; word < 2 * ctl_row_count(); word++) {
        size_t wrong[3] = {mib[0], word, mib[2]};
        int error = ctl_by_mib(wrong, 3, NULL, NULL, NULL, 0);
        check_eq(error, word == mib[1] ? 0 : ENOENT);
    }
    size_t above[3] = {mib[0], mib[1], mib[2] | (size_t)1 << 16};
    check_eq(ctl_by_mib(above, 3, NULL, NULL, NULL, 0), ENOENT);
}

TEST(rows_that_share_a_beginning_stand_together) {
    for (size_t row = 1; row < ctl_row_count(); row++) {
        const char *path = ctl_rows[row].path;
        for (size_t n = strlen(path); n > 0; n--) {
            bool is_boundary = path[n] == '.' || path[n] == '\0';
            if (!is_boundary) {
                continue;
            }
            bool before = false, gap = false;
            for (size_t other = 0; other < row; other++) {
                const char *there = ctl_rows[other].path;
                bool same = strncmp(there, path, n) == 0 && (there[n] == '.' || there[n] == '\0');
                gap |= before && !same;
                before |= same;
            }
            check(!before || !gap);
            check(path[n] == '.' || !before); /* No name twice, and none that is inner, too. */
        }
        check(components(path) <= DEPTH);
    }
}

/* ---------------------------------------------------------------- reading */

TEST(every_readable_name_has_its_type) {
    start();
    for (size_t i = 0; i < NAMES; i++) {
        const struct name *name = &names[i];
        if (!reads(name)) {
            continue;
        }
        size_t size = type_size[name->type];
        struct answer answer = ask(name->path, size, NULL, 0);
        check_name(answer.error == 0, name, "cannot be read");
        check_eq(answer.length, size);
        check_name(is_untouched(&answer, size), name, "wrote too much");
        check_name(ctl_by_name(name->path, NULL, NULL, NULL, 0) == 0, name, "read of nothing");
        struct answer no_length = answer;
        check_eq(ctl_by_name(name->path, no_length.bytes, NULL, NULL, 0), 0);
        check_eq(ctl_by_name(name->path, NULL, &no_length.length, NULL, 0), 0);
        check(memcmp(&no_length, &answer, sizeof answer) == 0);
        if (name->type == BOOL) {
            check(answer.bytes[0] <= 1);
        } else if (name->type == CHARS) {
            char *text;
            memcpy(&text, answer.bytes, sizeof text);
            check(text != NULL && strlen(text) < 4096);
        }
    }
}

TEST(a_wrong_length_copies_what_fits_and_says_so) {
    start();
    for (size_t i = 0; i < NAMES; i++) {
        const struct name *name = &names[i];
        if (!reads(name)) {
            continue;
        }
        size_t size = type_size[name->type];
        struct answer right = ask(name->path, size, NULL, 0);
        for (size_t length = 0; length <= size + 8; length++) {
            struct answer answer = ask(name->path, length, NULL, 0);
            size_t copied = length < size ? length : size;
            check_name(answer.error == (length == size ? 0 : EINVAL), name, "wrong length");
            check_eq(answer.length, copied);
            check_name(memcmp(answer.bytes, right.bytes, copied) == 0, name, "wrong bytes");
            check_name(is_untouched(&answer, copied), name, "wrote too much");
        }
    }
}

TEST(a_source_of_options_that_was_not_there_is_unknown) {
    start();
    for (size_t i = 0; i < NAMES; i++) {
        if (names[i].use == SOURCE) {
            check_eq(ask(names[i].path, sizeof(char *), NULL, 0).error, ENOENT);
        }
    }
}

/* ---------------------------------------------------------------- wrong directions */

TEST(a_name_that_is_read_only_cannot_be_written) {
    start();
    for (size_t i = 0; i < NAMES; i++) {
        const struct name *name = &names[i];
        if (name->use != R) {
            continue;
        }
        uint64_t value = 1;
        struct answer answer = ask(name->path, type_size[name->type], &value, sizeof value);
        check_name(answer.error == EPERM, name, "was written");
        check_eq(answer.length, type_size[name->type]);
        check(is_untouched(&answer, 0));
        check_eq(ctl_by_name(name->path, NULL, NULL, &value, 0), EPERM);
        check_eq(ctl_by_name(name->path, NULL, NULL, NULL, 1), EPERM);
    }
}

TEST(a_wrong_length_of_a_new_value_changes_nothing) {
    start();
    for (size_t i = 0; i < NAMES; i++) {
        const struct name *name = &names[i];
        if (name->use != RW) {
            continue;
        }
        size_t size = type_size[name->type];
        struct answer before = ask(name->path, size, NULL, 0);
        unsigned char value[16] = {1, 1};
        for (size_t length = 0; length <= sizeof value; length++) {
            if (length == size) {
                continue;
            }
            struct answer answer = ask(name->path, size, value, length);
            check_name(answer.error == EINVAL, name, "wrong length of new value");
            check_eq(answer.length, size);
            check(is_untouched(&answer, 0));
        }
        struct answer after = ask(name->path, size, NULL, 0);
        check_name(memcmp(&before, &after, sizeof after) == 0, name, "changed");
    }
}

TEST(a_wrong_length_of_an_old_value_changes_nothing) {
    start();
    for (size_t i = 0; i < NAMES; i++) {
        const struct name *name = &names[i];
        if (name->use != RW || name->type == CHARS) {
            continue;
        }
        size_t size = type_size[name->type];
        struct answer before = ask(name->path, size, NULL, 0);
        uint64_t value = 1;
        struct answer answer = ask(name->path, size + 1, &value, size);
        check_name(answer.error == EINVAL, name, "wrong length of old value");
        struct answer after = ask(name->path, size, NULL, 0);
        check_name(memcmp(&before, &after, sizeof after) == 0, name, "changed");
    }
}

/* What can be set to the value it has; the profiler refuses any, and hooks are tested apart. */
static bool takes_its_own_value(const struct name *name) {
    return name->use == RW && strstr(name->path, "prof.") == NULL &&
           strcmp(name->path, "epoch") != 0 && strcmp(name->path, "arena.0.extent_hooks") != 0;
}

TEST(a_value_that_was_read_can_be_written) {
    start();
    for (size_t i = 0; i < NAMES; i++) {
        const struct name *name = &names[i];
        if (!takes_its_own_value(name)) {
            continue;
        }
        size_t size = type_size[name->type];
        struct answer before = ask(name->path, size, NULL, 0);
        unsigned char value[8];
        memcpy(value, before.bytes, sizeof value);
        struct answer answer = ask(name->path, size, value, size);
        check_name(answer.error == 0, name, "cannot be written");
        check(memcmp(&before, &answer, sizeof answer) == 0);
    }
}

TEST(a_name_that_only_acts_takes_no_pointer) {
    start();
    uint64_t value = 1;
    size_t length = sizeof value;
    for (size_t i = 0; i < NAMES; i++) {
        const struct name *name = &names[i];
        if (name->use != RUN && name->use != MANUAL) {
            continue;
        }
        check_eq(ctl_by_name(name->path, &value, &length, NULL, 0), EPERM);
        check_eq(ctl_by_name(name->path, &value, NULL, NULL, 0), EPERM);
        check_eq(ctl_by_name(name->path, NULL, &length, NULL, 0), EPERM);
        check_eq(ctl_by_name(name->path, NULL, NULL, &value, sizeof value), EPERM);
        check_eq(ctl_by_name(name->path, NULL, NULL, NULL, 1), EPERM);
        int expected = name->use == RUN ? 0 : EFAULT;
        check_name(ctl_by_name(name->path, NULL, NULL, NULL, 0) == expected, name, "acting");
    }
}

TEST(a_name_that_is_write_only_cannot_be_read) {
    start();
    uint64_t value = 0;
    size_t length = sizeof value;
    for (size_t i = 0; i < NAMES; i++) {
        const struct name *name = &names[i];
        if (name->use != W && name->use != MUST) {
            continue;
        }
        size_t size = type_size[name->type];
        check_name(ctl_by_name(name->path, &value, &length, &value, size) == EPERM, name, "read");
        check_eq(ctl_by_name(name->path, &value, NULL, &value, size), EPERM);
        check_eq(ctl_by_name(name->path, NULL, &length, &value, size), EPERM);
        check_eq(ctl_by_name(name->path, NULL, NULL, &value, size - 1), EINVAL);
        check_eq(ctl_by_name(name->path, NULL, NULL, &value, size + 1), EINVAL);
        int expected = name->use == MUST ? EINVAL : 0;
        check_name(ctl_by_name(name->path, NULL, NULL, NULL, 0) == expected, name, "nothing");
    }
}

TEST(a_name_that_makes_something_demands_a_place_for_it) {
    start();
    unsigned arenas = arena_limit();
    for (size_t i = 0; i < NAMES; i++) {
        const struct name *name = &names[i];
        if (name->use != VERIFY) {
            continue;
        }
        size_t size = type_size[name->type];
        check_name(ctl_by_name(name->path, NULL, NULL, NULL, 0) == EINVAL, name, "no place");
        for (size_t length = 0; length <= size + 4; length++) {
            if (length == size) {
                continue;
            }
            struct answer answer = ask(name->path, length, NULL, 0);
            check_name(answer.error == EINVAL, name, "wrong length");
            check_eq(answer.length, 0);
            check(is_untouched(&answer, 0));
        }
        size_t length = size;
        check_eq(ctl_by_name(name->path, NULL, &length, NULL, 0), EINVAL);
        check_eq(length, 0);
    }
    check_eq(arena_limit(), arenas);
    check(!tcaches_exists(0));
}

TEST(what_is_not_there_is_unknown_in_every_direction) {
    start();
    uint64_t value = 0;
    size_t length = sizeof value;
    for (size_t i = 0; i < NAMES; i++) {
        const struct name *name = &names[i];
        if (name->use != UNARMED && name->use != NOT_OFFERED) {
            continue;
        }
        check_name(ctl_by_name(name->path, NULL, NULL, NULL, 0) == ENOENT, name, "nothing");
        check_eq(ctl_by_name(name->path, &value, &length, NULL, 0), ENOENT);
        check_eq(ctl_by_name(name->path, NULL, NULL, &value, sizeof value), ENOENT);
        check_eq(length, sizeof value);
        check_eq(value, 0);
    }
}

TEST(each_name_of_the_tree_is_of_the_document_or_of_tally) {
    start();
    /* Options of tally's own have a leaf, too; all else must be in the document. */
    for (size_t row = 0; row < ctl_row_count(); row++) {
        char path[128];
        snprintf(path, sizeof path, "%s", ctl_rows[row].path);
        for (char *at; (at = strstr(path, "<i>")) != NULL || (at = strstr(path, "<j>")) != NULL;) {
            memmove(at + 1, at + 3, strlen(at + 3) + 1);
            *at = '0';
        }
        char *family = strchr(path, '<');
        size_t n = family != NULL ? (size_t)(family - path) : strlen(path) + 1;
        bool found = false;
        for (size_t i = 0; i < NAMES && !found; i++) {
            found = strncmp(names[i].path, path, n) == 0;
        }
        if (!found) {
            test_say("    ", path, "\n", NULL);
        }
        check(found);
    }
}

/* A new name that can be written changes this list, so that somebody has to think about it. */
TEST(what_can_be_set_from_outside_is_this) {
    static const char *const settable[] = {
        "epoch",
        "background_thread",
        "max_background_threads",
        "arena.<i>.decay",
        "arena.<i>.purge",
        "arena.<i>.dss",
        "arena.<i>.oversize_threshold",
        "arena.<i>.dirty_decay_ms",
        "arena.<i>.muzzy_decay_ms",
        "arena.<i>.retain_grow_limit",
        "arena.<i>.name",
        "arenas.dirty_decay_ms",
        "arenas.muzzy_decay_ms",
        "prof.thread_active_init",
        "prof.active",
        "prof.gdump",
        "stats.mutexes.reset",
    };
    size_t next = 0, count = sizeof settable / sizeof settable[0];
    for (size_t row = 0; row < ctl_row_count(); row++) {
        if (ctl_set_refusal_of(&ctl_rows[row]) == NULL) {
            test_say("    ", ctl_rows[row].path, "\n", NULL);
            check(next < count && strcmp(ctl_rows[row].path, settable[next]) == 0);
            next++;
        }
    }
    check_eq(next, count);
}

#define CTL(path, type, access, function, help)
#define CTL_INSIDE(start, why) start,
static const char *const inside[] = {
#include "control/ctl.def"
};
#undef CTL
#undef CTL_INSIDE

TEST(what_is_refused_from_outside_is_there_and_can_be_written) {
    for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
        bool found = false;
        for (size_t row = 0; row < ctl_row_count() && !found; row++) {
            const char *refusal = ctl_set_refusal_of(&ctl_rows[row]);
            found = strncmp(ctl_rows[row].path, inside[i], strlen(inside[i])) == 0 &&
                    refusal != NULL && strcmp(refusal, "this is only read") != 0;
        }
        if (!found) {
            test_say("    ", inside[i], "\n", NULL);
        }
        check(found);
    }
}
