/* SPDX-License-Identifier: MIT
 *
 * ctl_arena.c - arena.<i>.* and arenas.*: looking at, making and steering arenas.
 *
 * Three settings of an arena have no effect in tally.  They are kept here, so that a program that
 * sets one can read it back.
 *
 * Threads     Settings are single atomic words.
 */
#include <errno.h>
#include <string.h>

#include "base/os.h"
#include "control/ctl.h"
#include "control/snapshot.h"
#include "heap/heap.h"

enum { SETTINGS_ALL = ARENA_INDICES, SETTINGS };

static const char *const dss_words[] = {"disabled", "primary", "secondary"};

static struct {
    _Atomic uint8_t dss; /* place in dss_words, plus 1; 0: not set */
    _Atomic bool has_oversize_threshold;
    _Atomic size_t oversize_threshold;
    _Atomic size_t retain_grow_limit; /* 0: not set */
} settings[SETTINGS] SPARSE;

/* The longest time that can be expressed in nanoseconds. */
#define MOST_DECAY_MS INT64_C(18446744072000)

/* Does this index word stand for all arenas together? */
static bool means_all(size_t arena) {
    return arena == SNAPSHOT_ALL || arena == snapshot_arenas();
}

/* Is there an arena of this index now?  An index that stands for several is not one. */
static bool is_one(size_t arena) {
    return arena < ARENA_INDICES && arena < arena_limit() && arena_exists((unsigned)arena);
}

int arena_initialized(struct ctl_call *call) {
    call->value.boolean = snapshot_arena(call->word[0]) != NULL;
    return 0;
}

/* Calls `act` for one arena or for all; for an arena that does not exist there is nothing to do. */
static int for_each(struct ctl_call *call, void (*act)(unsigned arena)) {
    size_t arena = call->word[0];
    bool all = means_all(arena);
    if (arena == SNAPSHOT_DESTROYED) {
        return EFAULT;
    }
    for (unsigned a = all ? 0 : (unsigned)arena; a < (all ? arena_limit() : arena + 1); a++) {
        if (is_one(a)) {
            act(a);
        }
    }
    return 0;
}

int arena_decay_leaf(struct ctl_call *call) {
    return for_each(call, arena_decay);
}

int arena_purge_leaf(struct ctl_call *call) {
    return for_each(call, arena_purge);
}

int arena_reset_leaf(struct ctl_call *call) {
    size_t arena = call->word[0];
    return is_one(arena) && arena_reset((unsigned)arena) ? 0 : EFAULT;
}

int arena_destroy_leaf(struct ctl_call *call) {
    size_t arena = call->word[0];
    if (!is_one(arena) || !arena_destroy((unsigned)arena)) {
        return EFAULT;
    }
    snapshot_note_destroyed((unsigned)arena);
    return 0;
}

/* ---------------------------------------------------------------- settings without effect */

static const char *dss_of(size_t index) {
    unsigned set = settings[index].dss != 0 ? settings[index].dss : settings[SETTINGS_ALL].dss;
    union value initial = {.string = "secondary"};
    ctl_option("dss", &initial);
    return set != 0 ? dss_words[set - 1] : initial.string;
}

static int set_dss(size_t index, const char *word) {
    for (size_t i = 0; word != NULL && i < sizeof(dss_words) / sizeof(dss_words[0]); i++) {
        if (strcmp(word, dss_words[i]) == 0) {
            settings[index].dss = (uint8_t)(i + 1);
            return 0;
        }
    }
    return EINVAL;
}

int arena_dss(struct ctl_call *call) {
    size_t arena = call->word[0];
    if (!means_all(arena) && !is_one(arena)) {
        return EFAULT;
    }
    size_t index = means_all(arena) ? SETTINGS_ALL : arena;
    if (call->writes) {
        return set_dss(index, call->value.string);
    }
    call->value.string = dss_of(index);
    return 0;
}

int stats_arena_dss(struct ctl_call *call) {
    size_t arena = call->word[0];
    call->value.string = is_one(arena) && !means_all(arena) ? dss_of(arena) : "N/A";
    return 0;
}

int arena_oversize_threshold(struct ctl_call *call) {
    size_t arena = call->word[0];
    if (!is_one(arena)) {
        return EFAULT;
    }
    if (call->writes) {
        settings[arena].oversize_threshold = call->value.size;
        settings[arena].has_oversize_threshold = true;
        return 0;
    }
    union value initial = {.size = 8 << 20};
    ctl_option("oversize_threshold", &initial);
    call->value.size =
        settings[arena].has_oversize_threshold ? settings[arena].oversize_threshold : initial.size;
    return 0;
}

/* Largest run of pages that has a name. */
#define LARGEST_RUN ((size_t)7 << 60)

/* Runs of pages have four sizes per doubling above eight pages. */
static size_t round_down_to_run(size_t bytes) {
    size_t pages = bytes / os_facts.page_bytes;
    unsigned lg = bits_floor_log2(pages);
    size_t step = lg > 2 ? (size_t)1 << (lg - 2) : 1;
    return pages / step * step * os_facts.page_bytes;
}

int arena_retain_grow_limit(struct ctl_call *call) {
    union value retain = {.boolean = true};
    ctl_option("retain", &retain);
    if (!retain.boolean) {
        return ENOENT;
    }
    size_t arena = call->word[0];
    if (!is_one(arena)) {
        return EFAULT;
    }
    if (!call->writes) {
        size_t set = settings[arena].retain_grow_limit;
        call->value.size = set != 0 ? set : round_down_to_run(LARGEST_RUN);
        return 0;
    }
    if (call->value.size < os_facts.page_bytes) {
        return EFAULT;
    }
    settings[arena].retain_grow_limit = round_down_to_run(min_size(call->value.size, LARGEST_RUN));
    return 0;
}

/* ---------------------------------------------------------------- settings of an arena */

static bool is_decay_ms(ssize_t ms) {
    return ms >= -1 && ms <= MOST_DECAY_MS;
}

static int decay_ms(struct ctl_call *call, enum chunk_queue which) {
    size_t arena = call->word[0];
    if (!is_one(arena)) {
        return EFAULT;
    }
    if (!call->writes) {
        call->value.ssize = arena_decay_ms((unsigned)arena, which);
        return 0;
    }
    ssize_t ms = call->value.ssize;
    return is_decay_ms(ms) && arena_set_decay_ms((unsigned)arena, which, ms) ? 0 : EFAULT;
}

int arena_dirty_decay_ms(struct ctl_call *call) {
    return decay_ms(call, CHUNK_DIRTY);
}

int arena_muzzy_decay_ms(struct ctl_call *call) {
    return decay_ms(call, CHUNK_MUZZY);
}

/* `alloc` is the only hook that must be given. */
static bool are_hooks(const struct extent_hooks *hooks) {
    return hooks != NULL && hooks->alloc != NULL;
}

int arena_extent_hooks(struct ctl_call *call) {
    size_t arena = call->word[0];
    if (!is_one(arena)) {
        return EFAULT;
    }
    if (!call->writes) {
        call->value.pointer = arena_hooks((unsigned)arena);
        return 0;
    }
    if (!are_hooks(call->value.pointer)) {
        return EINVAL;
    }
    return arena_set_hooks((unsigned)arena, call->value.pointer) ? 0 : EAGAIN;
}

/* Input and output are both pointers to a pointer to text; nothing is done unless both are
 * right. */
int arena_name_leaf(struct ctl_call *call) {
    size_t arena = call->word[0];
    if (means_all(arena) || arena == SNAPSHOT_DESTROYED) {
        return EINVAL;
    }
    if (!is_one(arena)) {
        return EFAULT;
    }
    bool reads = call->oldp != NULL && call->oldlenp != NULL;
    char *buffer = NULL, *name = NULL;
    if (reads && *call->oldlenp == sizeof(buffer)) {
        memcpy(&buffer, call->oldp, sizeof(buffer));
    }
    if (ctl_take_new(call, &name, sizeof(name)) != 0 || (reads && buffer == NULL) ||
        (call->newp != NULL && name == NULL)) {
        return EINVAL;
    }
    if (reads) {
        arena_get_name((unsigned)arena, buffer);
    }
    if (name != NULL) {
        arena_set_name((unsigned)arena, name);
    }
    return 0;
}

/* ---------------------------------------------------------------- all arenas */

int arenas_narenas(struct ctl_call *call) {
    call->value.number = snapshot_arenas();
    return 0;
}

static int decay_of_new(struct ctl_call *call, enum chunk_queue which) {
    if (!call->writes) {
        call->value.ssize = arena_default_decay_ms(which);
        return 0;
    }
    ssize_t ms = call->value.ssize;
    return is_decay_ms(ms) && arena_set_default_decay_ms(which, ms) ? 0 : EFAULT;
}

int arenas_dirty_decay_ms(struct ctl_call *call) {
    return decay_of_new(call, CHUNK_DIRTY);
}

int arenas_muzzy_decay_ms(struct ctl_call *call) {
    return decay_of_new(call, CHUNK_MUZZY);
}

/* Forgets what was kept for the previous arena of this index. */
static void forget_settings(unsigned arena) {
    settings[arena].dss = 0;
    settings[arena].has_oversize_threshold = false;
    settings[arena].retain_grow_limit = 0;
}

static int create(struct ctl_call *call, struct extent_hooks *hooks) {
    if (hooks != NULL && !are_hooks(hooks)) {
        return EINVAL;
    }
    int index = arena_create(hooks);
    if (index < 0) {
        return EAGAIN;
    }
    unsigned arena = (unsigned)index;
    forget_settings(arena);
    snapshot_note_made(arena);
    return ctl_put_old(call, &arena, sizeof(arena));
}

int arenas_create(struct ctl_call *call) {
    struct extent_hooks *hooks = NULL;
    int error = ctl_verify_old(call, sizeof(unsigned));
    if (error == 0) {
        error = ctl_take_new(call, &hooks, sizeof(hooks));
    }
    return error != 0 ? error : create(call, hooks);
}

int arenas_create_ext(struct ctl_call *call) {
    struct {
        struct extent_hooks *hooks;
        bool metadata_use_hooks;
    } config = {0};
    int error = ctl_verify_old(call, sizeof(unsigned));
    if (error == 0) {
        error = ctl_take_new(call, &config, sizeof(config));
    }
    return error != 0 ? error : create(call, config.hooks);
}

int arenas_lookup(struct ctl_call *call) {
    void *address = NULL;
    if (call->newp == NULL || ctl_take_new(call, &address, sizeof(address)) != 0) {
        return EINVAL;
    }
    int index = arena_of(address);
    if (index < 0) {
        return EINVAL;
    }
    unsigned arena = (unsigned)index;
    return ctl_put_old(call, &arena, sizeof(arena));
}

int arenas_pactivep(struct ctl_call *call) {
    if (!is_one(call->word[0])) {
        return EFAULT;
    }
    call->value.pointer = arena_pactive((unsigned)call->word[0]);
    return 0;
}
