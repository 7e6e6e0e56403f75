/* SPDX-License-Identifier: MIT
 *
 * test_ctl_leaves.c - what single names of mallctl do, and how they refuse.
 */
#include <errno.h>
#include <stdio.h>

#include "base/os.h"
#include "control/ctl.h"
#include "ctl_calls.h"
#include "unit.h"

static uint32_t read_uint32_t(const char *name) {
    uint32_t value;
    size_t length = sizeof value;
    check_eq(ctl_by_name(name, &value, &length, NULL, 0), 0);
    return value;
}

struct fill {
    size_t nfree, nregs, size;
};

struct bin_fill {
    void *slabcur;
    struct fill slab;
    size_t bin_nfree, bin_nregs;
};

static struct bin_fill query(void *address) {
    struct bin_fill fill;
    memset(&fill, 0xee, sizeof fill);
    size_t length = sizeof fill;
    check_eq(sizeof fill, 48);
    check_eq(
        ctl_by_name("experimental.utilization.query", &fill, &length, &address, sizeof address), 0);
    return fill;
}

struct batch {
    void **ptrs;
    size_t num, size;
    int flags;
};

static size_t alloc_batch(struct batch batch, int expected) {
    size_t filled = 0, length = sizeof filled;
    check_eq(ctl_by_name("experimental.batch_alloc", &filled, &length, &batch, sizeof batch),
             expected);
    return filled;
}

/* ---------------------------------------------------------------- the root */

TEST(epoch_gives_the_new_value_and_all_others_the_old) {
    start_heap();
    check_eq(read_uint64_t("epoch"), 1);
    uint64_t epoch = 77;
    size_t length = sizeof epoch;
    check_eq(ctl_by_name("epoch", &epoch, &length, &epoch, sizeof epoch), 0);
    check_eq(epoch, 2);
    check_eq(write_uint64_t("epoch", 0), 0);
    check_eq(read_uint64_t("epoch"), 3);
    ssize_t ms = 5000, old = 0;
    length = sizeof old;
    ssize_t before = read_ssize_t("arenas.dirty_decay_ms");
    check_eq(ctl_by_name("arenas.dirty_decay_ms", &old, &length, &ms, sizeof ms), 0);
    check_eq(old, before);
    check_eq(read_ssize_t("arenas.dirty_decay_ms"), 5000);
}

TEST(statistics_are_those_of_the_last_epoch) {
    start_heap();
    size_t before = read_size_t("stats.allocated");
    void *object = tally_malloc(1 << 20);
    check_eq(read_size_t("stats.allocated"), before);
    check_eq(write_uint64_t("epoch", 1), 0);
    check_eq(read_size_t("stats.allocated"), before + (1 << 20));
    tally_free(object);
    check(read_size_t("stats.allocated") <= read_size_t("stats.active"));
    check(read_size_t("stats.active") < read_size_t("stats.resident"));
    check(read_size_t("stats.active") <= read_size_t("stats.mapped"));
}

TEST(the_version_tells_the_interface_and_who_answers) {
    start_heap();
    check(strncmp(read_text("version"), "5.3.1-", 6) == 0);
    check(strstr(read_text("version"), "tally-" TALLY_VERSION) != NULL);
}

static bool refuse_background(bool on) {
    (void)on;
    return false;
}

static bool background_says_yes(void) {
    return true;
}

TEST(a_background_thread_that_cannot_be_is_an_error) {
    start_heap();
    control_services.background_is_on = NULL;
    check_eq(act("background_thread"), ENOENT);
    control_services.background_is_on = background_says_yes;
    control_services.background_set = refuse_background;
    check(read_bool("background_thread"));
    check_eq(write_bool("background_thread", false), EFAULT);
}

TEST(the_most_background_threads_have_limits) {
    start_heap();
    size_t most = read_size_t("max_background_threads");
    check_eq(write_size_t("max_background_threads", 0), EINVAL);
    check_eq(write_size_t("max_background_threads", most + 1), EINVAL);
    check_eq(read_size_t("max_background_threads"), most);
    check_eq(write_size_t("max_background_threads", 1), 0);
    check_eq(read_size_t("max_background_threads"), 1);
    check_eq(write_size_t("max_background_threads", most), 0);
}

/* ---------------------------------------------------------------- threads and caches */

TEST(a_thread_can_be_bound_to_an_arena_that_is_there) {
    start_heap_with("narenas:4");
    unsigned narenas = read_unsigned("arenas.narenas");
    check_eq(write_unsigned("thread.arena", narenas), EFAULT);
    check_eq(write_unsigned("thread.arena", 4096), EFAULT);
    check_eq(write_unsigned("thread.arena", UINT32_MAX), EFAULT);
    unsigned bound = read_unsigned("thread.arena");
    check(bound < narenas);
    check_eq(write_unsigned("thread.arena", bound), 0);
    check_eq(read_unsigned("thread.arena"), bound);
}

TEST(lists_of_cached_objects_are_understood_or_refused) {
    static const char *const wrong[] = {
        "",
        "16",
        "16-",
        "16-32",
        "16-32:",
        "16-32:x",
        "-32:1",
        "32-16:1",
        "16-32:1|",
        "|16-32:1",
        "16-32:1||16-32:1",
        "16-32:1,16-32:1",
        " 16-32:1",
        "16-32:1 ",
        "16--32:1",
        "16:32-1",
        "99999999999999999999-1:1",
    };
    start_heap();
    const char *name = "thread.tcache.ncached_max.write";
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const char *text = wrong[i];
        if (ctl_by_name(name, NULL, NULL, &text, sizeof text) != EINVAL) {
            test_say("    '", text, "'\n", NULL);
        }
        check_eq(ctl_by_name(name, NULL, NULL, &text, sizeof text), EINVAL);
    }
    static char longest[1001];
    size_t n = 0;
    while (n + 9 < 1000) {
        n += (size_t)sprintf(longest + n, "%s16-32:1", n > 0 ? "|" : "");
    }
    const char *text = longest;
    check_eq(ctl_by_name(name, NULL, NULL, &text, sizeof text), 0);
    memset(longest + n, '0', 1000 - n);
    check_eq(ctl_by_name(name, NULL, NULL, &text, sizeof text), EINVAL);
    text = NULL;
    check_eq(ctl_by_name(name, NULL, NULL, &text, sizeof text), EINVAL);
}

TEST(the_number_of_cached_objects_of_a_size_can_be_asked_for) {
    start_heap();
    const char *name = "thread.tcache.ncached_max.read_sizeclass";
    size_t size = 100, most = 0, length = sizeof most;
    check_eq(ctl_by_name(name, &most, &length, &size, sizeof size), 0);
    check_eq(most, thread_class_max(size_class_of(100)));
    size = SMALL_MAX + 1;
    check_eq(ctl_by_name(name, &most, &length, &size, sizeof size), EINVAL);
    check_eq(ctl_by_name(name, &most, &length, NULL, 0), EINVAL);
    check_eq(ctl_by_name(name, &most, &length, &size, 4), EINVAL);
    size = 0;
    check_eq(ctl_by_name(name, &most, &length, &size, sizeof size), 0);
}

TEST(caches_that_are_not_there_are_refused) {
    start_heap();
    check_eq(write_unsigned("tcache.flush", 4000), EFAULT);
    check_eq(write_unsigned("tcache.destroy", 4000), EFAULT);
    check_eq(write_unsigned("tcache.destroy", UINT32_MAX), EFAULT);
    unsigned id = 12345;
    size_t length = sizeof id;
    check_eq(ctl_by_name("tcache.create", &id, &length, &id, sizeof id), EPERM);
    check_eq(id, 12345);
}

/* ---------------------------------------------------------------- arenas */

TEST(constants_are_those_of_the_size_classes) {
    start_heap();
    check_eq(read_unsigned("arenas.nbins"), BIN_CLASSES);
    check_eq(read_unsigned("arenas.nlextents"), LEXTENT_CLASSES);
    check_eq(read_size_t("arenas.quantum"), 16);
    check_eq(read_size_t("arenas.page"), os_facts.page_bytes);
    check_eq(read_size_t("arenas.hugepage"), 2 << 20);
    check(read_unsigned("arenas.nhbins") <= BIN_CLASSES);
    size_t last = 0;
    for (unsigned i = 0; i < BIN_CLASSES; i++) {
        char name[64];
        snprintf(name, sizeof name, "arenas.bin.%u.size", i);
        size_t size = read_size_t(name);
        check(size > last);
        check_eq(tally_usable_size(tally_malloc(size)), size);
        snprintf(name, sizeof name, "arenas.bin.%u.nregs", i);
        uint32_t nregs = read_uint32_t(name);
        snprintf(name, sizeof name, "arenas.bin.%u.slab_size", i);
        check(nregs * size <= read_size_t(name));
        check((nregs + 1) * size > read_size_t(name));
        last = size;
    }
    check_eq(last, SMALL_MAX);
    check(read_size_t("arenas.lextent.0.size") > last);
}

TEST(all_arenas_have_two_indices) {
    start_heap_with("narenas:2");
    check_eq(read_unsigned("arenas.narenas"), 2);
    check(read_bool("arena.0.initialized"));
    check(read_bool("arena.4096.initialized"));
    check(read_bool("arena.2.initialized"));
    check(!read_bool("arena.4097.initialized"));
    check_eq(act("arena.3.initialized"), ENOENT);
    check_eq(act("stats.arenas.4097.pactive"), ENOENT);
    check_eq(act("arena.4096.purge"), 0);
    check_eq(act("arena.2.purge"), 0);
    check_eq(act("arena.4096.decay"), 0);
    check_eq(act("arena.4096.reset"), EFAULT);
    check_eq(act("arena.4096.destroy"), EFAULT);
    check_eq(act("arena.4097.purge"), EFAULT);
    check_eq(write_ssize_t("arena.4096.dirty_decay_ms", 0), EFAULT);
    check_eq(act("arena.4096.muzzy_decay_ms"), EFAULT);
    check_eq(act("arena.4096.name"), EINVAL);
    check_eq(act("arena.4096.extent_hooks"), EFAULT);
    check_str(read_text("stats.arenas.4096.dss"), "N/A");
    check_str(read_text("stats.arenas.2.dss"), "N/A");
    check_eq(read_ssize_t("stats.arenas.4096.dirty_decay_ms"), -1);
}

TEST(decay_times_have_limits) {
    start_heap();
    ssize_t before = read_ssize_t("arenas.muzzy_decay_ms");
    check_eq(write_ssize_t("arenas.muzzy_decay_ms", -2), EFAULT);
    check_eq(write_ssize_t("arenas.muzzy_decay_ms", INT64_MAX), EFAULT);
    check_eq(read_ssize_t("arenas.muzzy_decay_ms"), before);
    check_eq(write_ssize_t("arenas.muzzy_decay_ms", -1), 0);
    check_eq(read_ssize_t("arenas.muzzy_decay_ms"), -1);
    check_eq(write_ssize_t("arenas.muzzy_decay_ms", 0), 0);
    check_eq(read_ssize_t("arenas.muzzy_decay_ms"), 0);
    check_eq(write_ssize_t("arena.0.dirty_decay_ms", -2), EFAULT);
    check_eq(write_ssize_t("arena.0.dirty_decay_ms", INT64_MAX), EFAULT);
    check_eq(write_ssize_t("arena.0.dirty_decay_ms", 0), 0);
}

TEST(settings_without_effect_are_kept) {
    start_heap_with("narenas:2");
    const char *word = "primary", *initial = read_text("arena.0.dss");
    check_eq(ctl_by_name("arena.1.dss", NULL, NULL, &word, sizeof word), 0);
    check_str(read_text("arena.1.dss"), "primary");
    check_str(read_text("stats.arenas.1.dss"), "primary");
    check_str(read_text("arena.0.dss"), initial);
    word = strcmp(initial, "disabled") == 0 ? "secondary" : "disabled";
    check_eq(ctl_by_name("arena.4096.dss", NULL, NULL, &word, sizeof word), 0);
    check_str(read_text("arena.0.dss"), word);
    check_str(read_text("arena.1.dss"), "primary");
    word = "second";
    check_eq(ctl_by_name("arena.1.dss", NULL, NULL, &word, sizeof word), EINVAL);
    word = NULL;
    check_eq(ctl_by_name("arena.1.dss", NULL, NULL, &word, sizeof word), EINVAL);
    check_str(read_text("arena.1.dss"), "primary");
    check_eq(write_size_t("arena.0.oversize_threshold", 123456), 0);
    check_eq(read_size_t("arena.0.oversize_threshold"), 123456);
    check_eq(write_size_t("arena.0.oversize_threshold", 0), 0);
    check_eq(read_size_t("arena.0.oversize_threshold"), 0);
}

TEST(the_step_of_growth_is_rounded_down) {
    static const struct {
        size_t pages, rounded;
    } cases[] = {{1, 1},   {7, 7},   {8, 8},   {9, 8},     {10, 10},
                 {11, 10}, {16, 16}, {19, 16}, {1000, 896}};
    start_heap();
    size_t page = os_facts.page_bytes;
    check_eq(write_size_t("arena.0.retain_grow_limit", page - 1), EFAULT);
    check_eq(write_size_t("arena.0.retain_grow_limit", SIZE_MAX), 0);
    check_eq(read_size_t("arena.0.retain_grow_limit"), (size_t)7 << 60);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_eq(write_size_t("arena.0.retain_grow_limit", cases[i].pages * page + 5), 0);
        check_eq(read_size_t("arena.0.retain_grow_limit"), cases[i].rounded * page);
    }
}

TEST(names_of_arenas_go_through_a_buffer) {
    start_heap();
    char buffer[ARENA_NAME_BYTES];
    memset(buffer, 'x', sizeof buffer);
    char *old = buffer;
    const char *name = "";
    size_t length = sizeof old;
    check_eq(ctl_by_name("arena.0.name", &old, &length, NULL, 0), 0);
    check(old == buffer && memchr(buffer, '\0', sizeof buffer) != NULL);
    length = 4;
    memset(buffer, 'x', sizeof buffer);
    check_eq(ctl_by_name("arena.0.name", &old, &length, &name, sizeof name), EINVAL);
    length = sizeof old;
    check_eq(ctl_by_name("arena.0.name", &old, &length, &name, 4), EINVAL);
    name = NULL;
    check_eq(ctl_by_name("arena.0.name", &old, &length, &name, sizeof name), EINVAL);
    old = NULL;
    name = "new";
    check_eq(ctl_by_name("arena.0.name", &old, &length, &name, sizeof name), EINVAL);
    check_eq(buffer[0], 'x');
}

TEST(an_address_that_is_not_of_the_heap_has_no_arena) {
    start_heap();
    unsigned arena = 12345;
    size_t length = sizeof arena;
    void *address = &arena;
    check_eq(ctl_by_name("arenas.lookup", &arena, &length, &address, sizeof address), EINVAL);
    check_eq(ctl_by_name("arenas.lookup", &arena, &length, &address, 4), EINVAL);
    check_eq(ctl_by_name("arenas.lookup", &arena, &length, NULL, 0), EINVAL);
    check_eq(act("arenas.lookup"), EINVAL);
    check_eq(arena, 12345);
}

TEST(an_arena_is_not_made_where_its_index_has_no_place) {
    start_heap();
    unsigned arenas = arena_limit(), arena;
    size_t length = sizeof arena, hooks = 0;
    check_eq(ctl_by_name("arenas.create", &arena, &length, &hooks, 4), EINVAL);
    length = 8;
    check_eq(ctl_by_name("arenas.create", &hooks, &length, NULL, 0), EINVAL);
    check_eq(length, 0);
    check_eq(arena_limit(), arenas);
}

static unsigned make(struct extent_hooks *hooks) {
    unsigned arena;
    size_t length = sizeof arena;
    check_eq(ctl_by_name("arenas.create", &arena, &length, hooks != NULL ? &hooks : NULL,
                         hooks != NULL ? sizeof hooks : 0),
             0);
    return arena;
}

static const char *name_of(unsigned arena, const char *leaf) {
    static char name[64];
    snprintf(name, sizeof name, "arena.%u.%s", arena, leaf);
    return name;
}

TEST(an_arena_is_made_named_used_and_destroyed) {
    start_heap_with("narenas:2");
    check_eq(write_ssize_t("arenas.dirty_decay_ms", 7000), 0);
    check_eq(read_unsigned("arenas.narenas"), 2);
    unsigned arena = make(NULL);
    check_eq(arena, 2);
    check_eq(read_unsigned("arenas.narenas"), 3);
    check(!read_bool("arena.2.initialized"));
    check_eq(act("stats.arenas.2.pactive"), ENOENT);
    check_eq(write_uint64_t("epoch", 1), 0);
    check(read_bool("arena.2.initialized"));
    check_eq(read_ssize_t("arena.2.dirty_decay_ms"), 7000);
    check_eq(read_size_t("stats.arenas.2.pactive"), 0);

    char buffer[ARENA_NAME_BYTES], *old = buffer;
    const char *name = "a name that is longer than thirty-one characters";
    size_t length = sizeof old;
    check_eq(ctl_by_name("arena.2.name", &old, &length, &name, sizeof name), 0);
    check_str(buffer, "manual_2");
    check_eq(ctl_by_name("arena.2.name", &old, &length, NULL, 0), 0);
    check_eq(strlen(buffer), ARENA_NAME_BYTES - 1);
    check(strncmp(buffer, name, ARENA_NAME_BYTES - 1) == 0);

    void *object = NULL;
    check_eq(alloc_batch((struct batch){&object, 1, 100, 3 << 20 | 0x100}, 0), 1);
    unsigned found = 99;
    length = sizeof found;
    check_eq(ctl_by_name("arenas.lookup", &found, &length, &object, sizeof object), 0);
    check_eq(found, 2);
    check_eq(query(object).bin_nregs, size_classes[size_class_of(100)].total);
    check_eq(query(object).bin_nfree, size_classes[size_class_of(100)].total - 1);
    check_eq(write_uint64_t("epoch", 1), 0);
    check(read_size_t("stats.arenas.2.pactive") > 0);
    check_eq(read_size_t("stats.arenas.2.bins.6.curregs"), 1);
    check_eq(act("arena.2.reset"), 0);

    check_eq(write_unsigned("thread.arena", 2), 0);
    check_eq(act("arena.2.destroy"), EFAULT);
    check_eq(write_unsigned("thread.arena", 0), 0);
    check_eq(act("arena.2.destroy"), 0);
    check(read_bool("arena.4097.initialized"));
    check(!read_bool("arena.2.initialized"));
    check_eq(act("stats.arenas.2.pactive"), ENOENT);
    check_eq(act("stats.arenas.4097.pactive"), 0);
    check_eq(act("arena.2.reset"), EFAULT);
    check_eq(act("arena.2.purge"), 0);
    check_eq(write_unsigned("thread.arena", 2), EFAULT);
    check_eq(read_unsigned("arenas.narenas"), 3);
    check_eq(make(NULL), 2);
    heap_verify();
}

static unsigned hook_calls;

static void *count_and_alloc(struct extent_hooks *hooks, void *new_addr, size_t size,
                             size_t alignment, bool *zero, bool *commit, unsigned arena) {
    (void)hooks;
    hook_calls++;
    struct extent_hooks *usual = arena_hooks(0);
    return usual->alloc(usual, new_addr, size, alignment, zero, commit, arena);
}

TEST(an_arena_can_be_made_with_hooks) {
    start_heap();
    static struct extent_hooks mine, none;
    mine.alloc = count_and_alloc;
    struct extent_hooks *hooks = &none;
    unsigned arena = 0;
    size_t length = sizeof arena;
    check_eq(ctl_by_name("arenas.create", &arena, &length, &hooks, sizeof hooks), EINVAL);
    check_eq(ctl_by_name("arena.0.extent_hooks", NULL, NULL, &hooks, sizeof hooks), EINVAL);
    hooks = NULL;
    check_eq(ctl_by_name("arena.0.extent_hooks", NULL, NULL, &hooks, sizeof hooks), EINVAL);
    arena = make(&mine);
    length = sizeof hooks;
    check_eq(ctl_by_name(name_of(arena, "extent_hooks"), &hooks, &length, NULL, 0), 0);
    check(hooks == &mine);
    void *object = NULL;
    int flags = (int)((arena + 1) << 20 | 0x100);
    check_eq(alloc_batch((struct batch){&object, 1, 100, flags}, 0), 1);
    check(hook_calls > 0);
    check_eq(query(object).slab.nregs, size_classes[size_class_of(100)].total);
    struct {
        struct extent_hooks *hooks;
        bool metadata_use_hooks;
    } config = {&mine, true};
    check_eq(sizeof config, 16);
    unsigned other;
    length = sizeof other;
    check_eq(ctl_by_name("experimental.arenas_create_ext", &other, &length, &config, 8), EINVAL);
    length = sizeof other;
    check_eq(ctl_by_name("experimental.arenas_create_ext", &other, &length, &config, sizeof config),
             0);
    check_eq(other, arena + 1);
    check_eq(act(name_of(arena, "destroy")), 0);
}

TEST(caches_have_numbers) {
    start_heap();
    unsigned ids[3];
    for (unsigned i = 0; i < 3; i++) {
        size_t length = sizeof ids[i];
        check_eq(ctl_by_name("tcache.create", &ids[i], &length, NULL, 0), 0);
        check_eq(ids[i], i);
    }
    check_eq(write_unsigned("tcache.flush", 1), 0);
    check_eq(write_unsigned("tcache.destroy", 1), 0);
    check_eq(write_unsigned("tcache.destroy", 1), EFAULT);
    check_eq(write_unsigned("tcache.flush", 1), EFAULT);
    size_t length = sizeof ids[1];
    check_eq(ctl_by_name("tcache.create", &ids[1], &length, NULL, 0), 0);
    check_eq(ids[1], 1);
}

TEST(a_thread_without_a_cache_has_nothing_to_flush) {
    start_heap();
    check(read_bool("thread.tcache.enabled"));
    check_eq(act("thread.tcache.flush"), 0);
    check_eq(write_bool("thread.tcache.enabled", false), 0);
    check(!read_bool("thread.tcache.enabled"));
    check_eq(act("thread.tcache.flush"), EFAULT);
    const char *list = "16-32:1";
    check_eq(ctl_by_name("thread.tcache.ncached_max.write", NULL, NULL, &list, sizeof list),
             ENOENT);
    check_eq(act("thread.idle"), 0);
    check_eq(write_bool("thread.tcache.enabled", true), 0);
    check(read_bool("thread.tcache.enabled"));
    check_eq(ctl_by_name("thread.tcache.ncached_max.write", NULL, NULL, &list, sizeof list), 0);
    check_eq(write_size_t("thread.tcache.max", 1 << 30), 0);
    check_eq(read_size_t("thread.tcache.max"), SMALL_MAX);
    check_eq(write_size_t("thread.tcache.max", 4097), 0);
    check_eq(read_size_t("thread.tcache.max"), size_classes[size_class_of(4097)].size);
}

TEST(live_counters_follow_every_call) {
    start_heap();
    uint64_t *allocated, *deallocated;
    size_t length = sizeof allocated;
    check_eq(ctl_by_name("thread.allocatedp", &allocated, &length, NULL, 0), 0);
    check_eq(ctl_by_name("thread.deallocatedp", &deallocated, &length, NULL, 0), 0);
    check_eq(*allocated, read_uint64_t("thread.allocated"));
    uint64_t before = *allocated, freed = *deallocated;
    tally_free(tally_malloc(112));
    check_eq(*allocated, before + 112);
    check_eq(*deallocated, freed + 112);
    check_eq(read_uint64_t("thread.deallocated"), freed + 112);
    check_eq(act("thread.peak.reset"), 0);
    void *object = tally_malloc(1 << 20);
    tally_free(object);
    check(read_uint64_t("thread.peak.read") >= 1 << 20);
}

/* ---------------------------------------------------------------- experimental */

TEST(the_fill_of_a_slab_can_be_asked_for) {
    start_heap_with("narenas:1,all_slow:true");
    char *first = tally_malloc(1000);
    struct bin_fill fill = query(first);
    const struct size_class *sc = &size_classes[size_class_of(1000)];
    check_eq(fill.slab.nregs, sc->total);
    check_eq(fill.slab.size, sc->slab_mask + 1);
    check_eq(fill.bin_nregs, sc->total);
    check(fill.slab.nfree < sc->total);
    check_eq(fill.bin_nfree, fill.slab.nfree);
    check_eq((uintptr_t)first & ~(uintptr_t)sc->slab_mask, fill.slabcur);
    char *second = tally_malloc(1000);
    check_eq(query(second).slab.nfree, fill.slab.nfree - 1);
    check_eq(query(second + 10).slab.nfree, fill.slab.nfree - 1);
    tally_free(second);
    tally_free(first);
}

TEST(large_and_foreign_addresses_have_a_fill_too) {
    start_heap();
    void *large = tally_malloc(1 << 20);
    struct bin_fill fill = query(large);
    check(fill.slab.nfree == 0 && fill.slab.nregs == 1 && fill.slab.size == 1 << 20);
    check(fill.slabcur == NULL && fill.bin_nfree == 0 && fill.bin_nregs == 0);
    struct bin_fill zeros;
    memset(&zeros, 0, sizeof zeros);
    fill = query(&fill);
    check(memcmp(&fill, &zeros, sizeof fill) == 0);
    fill = query(NULL);
    check(memcmp(&fill, &zeros, sizeof fill) == 0);
    void *addresses[3] = {large, &fill, large};
    struct fill fills[3];
    size_t length = sizeof fills;
    const char *name = "experimental.utilization.batch_query";
    check_eq(ctl_by_name(name, fills, &length, addresses, sizeof addresses), 0);
    check_eq(fills[0].size, 1 << 20);
    check_eq(fills[1].size, 0);
    check_eq(fills[2].nregs, 1);
    check_eq(ctl_by_name(name, fills, &length, addresses, sizeof addresses - 1), EINVAL);
    check_eq(ctl_by_name(name, fills, &length, addresses, 8), EINVAL);
    check_eq(ctl_by_name(name, fills, &length, addresses, 0), EINVAL);
    check_eq(ctl_by_name(name, fills, NULL, addresses, sizeof addresses), EINVAL);
    length--;
    check_eq(ctl_by_name(name, fills, &length, addresses, sizeof addresses), EINVAL);
    tally_free(large);
}

TEST(wrong_lengths_of_a_query_are_refused) {
    start_heap();
    const char *name = "experimental.utilization.query";
    struct bin_fill fill;
    void *address = &fill;
    for (size_t length = 0; length < 64; length++) {
        size_t given = length;
        int error = ctl_by_name(name, &fill, &given, &address, sizeof address);
        check_eq(error, length == sizeof fill ? 0 : EINVAL);
        check_eq(given, length);
    }
    size_t length = sizeof fill;
    check_eq(ctl_by_name(name, &fill, &length, &address, 4), EINVAL);
    check_eq(ctl_by_name(name, &fill, &length, NULL, 0), EINVAL);
    check_eq(ctl_by_name(name, NULL, NULL, &address, sizeof address), EINVAL);
}

TEST(many_objects_come_at_once) {
    start_heap();
    void *objects[100] = {NULL};
    check_eq(alloc_batch((struct batch){objects, 100, 100, 0x40 | 8}, 0), 100);
    for (size_t i = 0; i < 100; i++) {
        check((uintptr_t)objects[i] % 256 == 0);
        check(((char *)objects[i])[99] == 0);
        check(tally_usable_size(objects[i]) >= 100);
        memset(objects[i], 1, 100);
        tally_free(objects[i]);
    }
    check_eq(alloc_batch((struct batch){objects, 0, 100, 0}, 0), 0);
    check_eq(alloc_batch((struct batch){NULL, 0, 100, 0}, 0), 0);
    check_eq(alloc_batch((struct batch){NULL, 1, 100, 0}, EINVAL), 0);
    check_eq(alloc_batch((struct batch){objects, 100, SIZE_MAX, 0}, 0), 0);
    check_eq(alloc_batch((struct batch){objects, 100, 1, 63}, 0), 0);
    check_eq(alloc_batch((struct batch){objects, 100, 1, 4000 << 8}, 0), 0);
    heap_verify();
}

TEST(a_batch_without_a_place_for_the_number_makes_nothing) {
    start_heap();
    void *objects[4] = {NULL};
    struct batch batch = {objects, 4, 100, 0};
    size_t filled = 9, length = 4;
    const char *name = "experimental.batch_alloc";
    check_eq(ctl_by_name(name, &filled, &length, &batch, sizeof batch), EINVAL);
    check_eq(length, 0);
    check_eq(ctl_by_name(name, NULL, NULL, &batch, sizeof batch), EINVAL);
    length = sizeof filled;
    check_eq(ctl_by_name(name, &filled, &length, &batch, sizeof batch - 4), EINVAL);
    check_eq(filled, 9);
    check(objects[0] == NULL);
}

TEST(active_bytes_are_known_without_an_epoch) {
    start_heap();
    size_t before = read_size_t("approximate_stats.active");
    void *object = tally_malloc(4 << 20);
    check_eq(read_size_t("approximate_stats.active"), before + (4 << 20));
    tally_free(object);
}

TEST(zero_sized_reallocs_are_told_at_once) {
    start_heap();
    size_t before = read_size_t("stats.zero_reallocs");
    heap_zero_reallocs += 3;
    check_eq(read_size_t("stats.zero_reallocs"), before + 3);
}

static void *read_often(void *unused) {
    for (unsigned i = 0; i < 2000 / SLOWER; i++) {
        void *object = tally_malloc(i);
        check_eq(act("stats.arenas.0.bins.3.mutex.num_ops"), 0);
        check_eq(write_size_t("arena.0.oversize_threshold", i), 0);
        if (i % 50 == 0) {
            check_eq(write_uint64_t("epoch", 1), 0);
        }
        tally_free(object);
    }
    return unused;
}

TEST(threads_may_ask_at_once) {
    start_heap(); /* The first question is asked by all of them. */
    run_threads(8, read_often, NULL);
    heap_verify();
}
