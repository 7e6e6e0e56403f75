/* SPDX-License-Identifier: MIT
 *
 * test_stats_page.c - the page of counters as another process would find it, and that its words are true.
 *
 * The numbers S-15 to S-19 are those of docs/manual/control.md.
 */
#define _GNU_SOURCE
#include "contract/stats_page.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <tally/tally.h>

#include "base/os.h"
#include "control/control.h"
#include "heap/counts.h"
#include "heap/fast.h"
#include "heap/heap.h"
#include "unit.h"

enum { PAGE_BYTES = 4096, OBJECTS = 200000 };

/* The clock, and what a test adds to it or makes it stand at. */
static uint64_t later_ms, still_ms;
uint64_t __real_os_now_ms(void);
uint64_t __wrap_os_now_ms(void);
uint64_t __wrap_os_now_ms(void) {
    return still_ms != 0 ? still_ms : __real_os_now_ms() + later_ms;
}

/* What a look at the fine clock seems to take; 0: as long as it takes. */
static uint64_t ns_per_look;
uint64_t __real_os_now_ns(void);
uint64_t __wrap_os_now_ns(void);
uint64_t __wrap_os_now_ns(void) {
    static uint64_t ns;
    ns = ns == 0 ? __real_os_now_ns() : ns;
    return ns_per_look == 0 ? __real_os_now_ns() : (ns += ns_per_look);
}

/* What a reader finds, as of the last look. */
static struct {
    int fd; /* the number in the process; -1: none */
    ino_t inode;
    union {
        struct stats_page page;
        char bytes[STATS_PAGE_BYTES];
    };
} found;

static int number_of(const char *name) {
    return name[0] >= '0' && name[0] <= '9' ? atoi(name) : -1;
}

/* Looks for the page of a process as the command does: by the name of its descriptor and its own mark.
 * Returns how many descriptors have the name. */
static unsigned look(pid_t pid) {
    char path[64], link[64] = "", file_name[128];
    unsigned count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *directory = opendir(path);
    check(directory != NULL);
    found.fd = -1;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        int number = number_of(entry->d_name);
        snprintf(file_name, sizeof file_name, "%s/%d", path, number);
        memset(link, 0, sizeof link);
        if (number < 0 || readlink(file_name, link, sizeof link - 1) < 0 ||
            strncmp(link, "/memfd:" STATS_PAGE_NAME, strlen("/memfd:" STATS_PAGE_NAME)) != 0) {
            continue;
        }
        count++;
        int file = open(file_name, O_RDONLY);
        struct stat facts;
        check(file >= 0 && fstat(file, &facts) == 0);
        check_eq(facts.st_size, STATS_PAGE_BYTES);
        check_eq(read(file, found.bytes, sizeof found.bytes), STATS_PAGE_BYTES);
        found.fd = number;
        found.inode = facts.st_ino;
        close(file);
    }
    closedir(directory);
    return count;
}

static void renew_and_look(void) {
    thread_mark_inside(true);
    stats_page_renew();
    thread_mark_inside(false);
    check_eq(look(getpid()), 1);
    check_eq(found.page.sequence % 2, 0);
}

TEST(a_reader_finds_the_page_by_its_name) {
    start_heap();
    check_eq(look(getpid()), 1);
    check_eq(found.page.magic, STATS_PAGE_MAGIC);
    check_eq(found.page.bytes, sizeof(struct stats_page));
    check_eq(found.page.pid, getpid());
    check_str(found.page.version, TALLY_VERSION);
    check_str(found.page.socket_path, "");
    check_eq(found.page.control, 0);
    check(found.page.start_ns <= found.page.refresh_ns && found.page.refresh_ns <= os_now_ns());
}

/* S-16 */
TEST(its_descriptor_is_high_and_closed_on_exec) {
    struct rlimit limit;
    check_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max < 1024 ? limit.rlim_max : 1024;
    if (limit.rlim_cur <= 512 || setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        skip("the limit for descriptors is too low for one of 512");
    }
    start_heap();
    check_eq(look(getpid()), 1);
    check(found.fd >= 512);
    check(fcntl(found.fd, F_GETFD) & FD_CLOEXEC);
}

TEST(its_descriptor_is_lower_where_the_limit_wants_that) {
    struct rlimit limit = {64, 64};
    check_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    start_heap();
    check_eq(look(getpid()), 1);
    check(found.fd >= 32 && found.fd < 64);
}

TEST(without_descriptors_there_is_none_and_the_heap_works) {
    struct rlimit limit;
    check_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = 0;
    check_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    start_heap();
    tally_free(tally_malloc(100000));
    check_eq(attention_get() & ATTENTION_STATS, 0);
    limit.rlim_cur = before; /* A sanitizer that looks for leaks reads files. */
    check_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(a_limit_for_the_size_of_files_means_that_there_is_none) {
    struct rlimit limit = {100, 100};
    check_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    start_heap(); /* SIGXFSZ would end us */
    check_eq(look(getpid()), 0);
}

/* S-16 */
TEST(nobody_can_write_to_it_or_change_its_size) {
    start_heap();
    check_eq(look(getpid()), 1);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", found.fd);
    int file = open(path, O_RDWR);
    check(file >= 0);
    check_eq(ftruncate(file, 0), -1);
    check_eq(errno, EPERM);
    check_eq(ftruncate(file, 2 * STATS_PAGE_BYTES), -1);
    check_eq(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE_BYTES), -1);
    check_eq(write(file, "x", 1), -1);
    check_eq(errno, EPERM);
    check(mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) == MAP_FAILED);
    check_eq(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE), -1);
    void *view = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, file, 0);
    check(view != MAP_FAILED && ((struct stats_page *)view)->magic == STATS_PAGE_MAGIC);
    check_eq(mprotect(view, PAGE_BYTES, PROT_READ | PROT_WRITE), -1);
}

/* S-15 */
TEST(the_option_turns_it_off) {
    start_heap_with("stats_page:false");
    check_eq(look(getpid()), 0);
    check_eq(attention_get() & ATTENTION_STATS, 0);
}

/* S-18 */
TEST(a_program_that_closes_the_descriptor_loses_only_the_page) {
    start_heap();
    check_eq(look(getpid()), 1);
    close(found.fd);
    thread_mark_inside(true);
    stats_page_renew();
    thread_mark_inside(false);
    check_eq(look(getpid()), 0);
    tally_free(tally_malloc(100000));
}

/* S-18 */
TEST(nothing_is_written_to_a_file_in_the_place_of_the_descriptor) {
    start_heap();
    check_eq(look(getpid()), 1);
    char name[] = "/tmp/tally-unit-XXXXXX";
    int file = mkstemp(name);
    unlink(name);
    check_eq(dup2(file, found.fd), found.fd);
    thread_mark_inside(true);
    stats_page_renew();
    stats_page_forked();
    stats_page_renew(); /* which also looks whether it may close it */
    thread_mark_inside(false);
    struct stat facts;
    check_eq(fstat(file, &facts), 0);
    check_eq(facts.st_size, 0);
    check_eq(fcntl(found.fd, F_GETFD) >= 0, 1);
    check_eq(look(getpid()), 1); /* another one, of its own */
}

/* ---------------------------------------------------------------- words */

static uint64_t heap_resident(void) {
    static unsigned char present[1 << 18];
    uint64_t pages = 0;
    const struct stats_page_range *range = (const void *)(found.bytes + STATS_PAGE_RANGES_AT);
    check(found.page.ranges > 0 && found.page.ranges <= STATS_PAGE_MOST_RANGES);
    for (uint64_t i = 0; i < found.page.ranges; i++, range++) {
        size_t count = (size_t)(range->end - range->start) / PAGE_BYTES;
        check(count <= sizeof present);
        check_eq(mincore((void *)(uintptr_t)range->start, count * PAGE_BYTES, present), 0);
        for (size_t p = 0; p < count; p++) {
            pages += present[p] & 1;
        }
    }
    return pages * PAGE_BYTES;
}

static uint64_t heap_told(void) {
    const struct stats_page *p = &found.page;
    return p->live + p->slab_free + p->cached + p->large_rest + p->dirty + p->metadata;
}

static void *objects[OBJECTS];

/* Small ones of all sizes, and some large ones, all written to. */
static uint64_t fill(void) {
    uint64_t usable = 0, random = 1;
    for (size_t i = 0; i < OBJECTS; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t size = 16 + (random >> 33) % 800;
        if (i % 500 == 0) {
            size = (size_t)16384 * (1 + (random >> 33) % 20);
        }
        objects[i] = tally_malloc(size);
        check(objects[i] != NULL);
        memset(objects[i], 1, size);
        usable += tally_usable_size(objects[i]);
    }
    return usable;
}

static uint64_t difference(uint64_t a, uint64_t b) {
    return a > b ? a - b : b - a;
}

static void check_adds_up(void) {
    renew_and_look();
    uint64_t resident = heap_resident();
    if (difference(heap_told(), resident) > resident / 100 + 16 * PAGE_BYTES) {
        char a[24], b[24];
        test_say("    told ", test_decimal(a, (long long)heap_told()), ", resident ",
                 test_decimal(b, (long long)resident), "\n", NULL);
    }
    check(difference(heap_told(), resident) <= resident / 100 + 16 * PAGE_BYTES);
}

TEST(its_words_add_up_to_the_memory_of_the_heap) {
    if (SANITIZED) {
        skip("a sanitizer keeps its own memory beside");
    }
    start_heap_with("thp:never,dirty_decay_ms:-1");
    uint64_t usable = fill();
    check_adds_up();
    check_eq(found.page.live, usable);
    check_eq(found.page.requested, usable);
    check_eq(found.page.live_objects, OBJECTS);
    for (size_t i = 0; i < OBJECTS; i++) {
        if (i % 7 < 3) {
            usable -= tally_usable_size(objects[i]);
            tally_free(objects[i]);
            objects[i] = NULL;
        }
    }
    check_adds_up();
    check_eq(found.page.live, usable);
    check(found.page.dirty > 0 && found.page.slab_free > 0);
    check(found.page.worst_size_1 > 0 && found.page.worst_free_1 >= found.page.worst_free_2);
    check(found.page.worst_free_1 + found.page.worst_free_2 + found.page.worst_free_3 <=
          found.page.slab_free);
    tally_purge();
    check_adds_up();
    check_eq(found.page.live, usable);
    check_eq(found.page.dirty, 0);
    check(found.page.purged_total > 0);
}

/* Three objects of each class: most of their slabs has no memory yet. */
TEST(what_was_never_used_is_told_apart) {
    if (SANITIZED) {
        skip("a sanitizer keeps its own memory beside");
    }
    start_heap_with("thp:never");
    for (size_t size = 16; size <= 32768; size += size / 4 > 16 ? size / 4 : 16) {
        for (int i = 0; i < 3; i++) {
            memset(tally_malloc(size), 1, size);
        }
    }
    renew_and_look();
    check(found.page.untouched > 512 << 10);
    check(difference(heap_told(), heap_resident()) < found.page.untouched / 2);
    check_eq(found.page.live + found.page.cached + found.page.slab_free + found.page.large_rest +
                 found.page.untouched,
             heap_pages().used);
}

TEST(totals_only_grow_and_their_difference_is_what_lives) {
    start_heap();
    renew_and_look();
    struct stats_page before = found.page;
    uint64_t bytes = 0;
    for (int i = 0; i < 1000; i++) {
        objects[i] = tally_malloc(i % 10 == 0 ? 100000 : 100);
        bytes += tally_usable_size(objects[i]);
    }
    for (int i = 0; i < 400; i++) {
        tally_free(objects[i]);
    }
    renew_and_look();
    check_eq(found.page.nmalloc - before.nmalloc, 1000);
    check_eq(found.page.nfree - before.nfree, 400);
    check_eq(found.page.allocated_total - before.allocated_total, bytes);
    check_eq(found.page.allocated_total - found.page.freed_total, found.page.live);
    check_eq(found.page.nmalloc - found.page.nfree, found.page.live_objects);
    check(found.page.refresh_ns > before.refresh_ns && found.page.sum_ns > before.sum_ns);
}

static void check_no_total_fell(const struct stats_page *before) {
    check(found.page.allocated_total >= before->allocated_total);
    check(found.page.freed_total >= before->freed_total);
    check(found.page.nmalloc >= before->nmalloc);
    check(found.page.nfree >= before->nfree);
}

TEST(totals_do_not_fall_while_the_heap_grows) {
    start_heap();
    for (int i = 0; i < 5000; i++) {
        objects[i] = tally_malloc(1000);
    }
    for (int i = 0; i < 5000; i++) {
        tally_free(objects[i]);
    }
    later_ms = 5000; /* The first second is another case. */
    renew_and_look();
    check(found.page.nfree >= 5000);
    struct stats_page before = found.page;
    unsigned renewed = 0;
    for (int i = 0; i < 5000; i++) {
        objects[i] = tally_malloc(1000);
        if (i % 100 == 0) {
            later_ms += 200;
            thread_mark_inside(true);
            stats_page_attend();
            thread_mark_inside(false);
            check_eq(look(getpid()), 1);
            renewed += found.page.refresh_ns != before.refresh_ns;
            check_no_total_fell(&before);
            before = found.page;
        }
    }
    check(renewed > 0);
}

static void allocate_in(unsigned arena) {
    bool zeroed;
    thread_mark_inside(true);
    for (int i = 0; i < 1000; i++) {
        struct place place = {(int)arena, PLACE_NO_CACHE};
        check(place_alloc(place, i % 10 == 0 ? 100000 : 100, 1, &zeroed) != NULL);
    }
    thread_mark_inside(false);
}

TEST(totals_do_not_fall_when_an_arena_is_destroyed) {
    start_heap();
    int arena = arena_create(NULL);
    check(arena > 0);
    allocate_in((unsigned)arena);
    renew_and_look();
    struct stats_page before = found.page;
    check(before.nmalloc >= 1000);
    check(arena_destroy((unsigned)arena));
    renew_and_look();
    check_no_total_fell(&before);
    check_eq(found.page.nfree - before.nfree, 1000);
    allocate_in(0);
    renew_and_look();
    check_eq(found.page.nmalloc - before.nmalloc, 1000);
}

/* Every piece alone: what lies around it is nobody's. */
static void *give_apart(struct extent_hooks *hooks, void *wanted, size_t size, size_t alignment,
                        bool *zero, bool *commit, unsigned arena) {
    (void)hooks, (void)wanted, (void)zero, (void)commit, (void)arena;
    char *wide = mmap(NULL, size + 3 * alignment, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    check(wide != MAP_FAILED);
    return (void *)align_up((uintptr_t)wide + alignment, alignment);
}

TEST(ranges_that_find_no_room_are_added_up) {
    enum { PIECES = STATS_PAGE_MOST_RANGES + 20, BYTES = 3 << 20 };
    static struct extent_hooks hooks = {.alloc = give_apart};
    start_heap();
    int arena = arena_create(&hooks);
    check(arena > 0);
    renew_and_look();
    check_eq(found.page.untold, 0);
    bool zeroed;
    thread_mark_inside(true);
    for (int i = 0; i < PIECES; i++) {
        check(place_alloc((struct place){arena, PLACE_NO_CACHE}, BYTES, 1, &zeroed) != NULL);
    }
    thread_mark_inside(false);
    renew_and_look();
    check_eq(found.page.ranges, STATS_PAGE_MOST_RANGES);
    check(found.page.untold >= (uint64_t)20 * BYTES);
    check(found.page.untold <= found.page.mapped);
}

TEST(requested_leaves_out_the_rounding_that_the_profiler_knows) {
    start_heap();
    check_eq(tally_profile_start(1), 0); /* every object */
    renew_and_look();
    uint64_t slack = found.page.live - found.page.requested;
    check_eq(found.page.profile_rate, 1);
    for (int i = 0; i < 1000; i++) {
        objects[i] = tally_malloc(100); /* 112 */
    }
    renew_and_look();
    check_eq(found.page.profile_samples >= 1000, 1);
    check(difference(found.page.live - found.page.requested - slack, 12000) <= 100);
    tally_profile_stop();
    renew_and_look();
    check_eq(found.page.profile_rate, 0);
}

TEST(it_tells_the_hard_limit_and_the_threads) {
    start_heap();
    tally_set_limits(0, 1 << 30);
    for (int i = 0; i < 1000; i++) {
        objects[i] = tally_malloc(100);
    }
    renew_and_look();
    check_eq(found.page.limit_hard, 1 << 30);
    check_eq(found.page.threads, 1);
}

TEST(slow_calls_renew_it) {
    start_heap();
    check_eq(look(getpid()), 1);
    uint64_t before = found.page.refresh_ns;
    uint64_t end_ms = os_now_ms() + 60000;
    do {
        for (int i = 0; i < 2000; i++) {
            objects[i] = tally_malloc(1000);
        }
        for (int i = 0; i < 2000; i++) {
            tally_free(objects[i]);
        }
        check_eq(look(getpid()), 1);
    } while (found.page.refresh_ns == before && os_now_ms() < end_ms);
    check(found.page.refresh_ns > before);
    check(found.page.nmalloc > 0);
}

/* The clock stands still, so time is no reason to renew it; and no other call follows. */
TEST(a_heap_that_grows_by_much_tells_it_at_once) {
    start_heap();
    tally_free(tally_malloc(8 << 20));
    still_ms = __real_os_now_ms();
    renew_and_look();
    uint64_t before = found.page.mapped;
    void *large = tally_malloc(64 << 20);
    check_eq(look(getpid()), 1);
    check(found.page.mapped >= before + (48 << 20));
    check(found.page.live >= 64 << 20);
    tally_free(large);
}

/* What the program's last call left, with a clock that stands still. */
static void check_shown(uint64_t live) {
    check_eq(look(getpid()), 1);
    check(found.page.behind <= 4 << 20);
    check(difference(found.page.live, live) <= found.page.behind + (1 << 20));
}

static uint64_t fill_and_stop_the_clock(void) {
    start_heap();
    ns_per_look = 1;
    uint64_t usable = fill();
    still_ms = __real_os_now_ms();
    renew_and_look();
    check(found.page.live > 32 << 20);
    check_eq(found.page.behind, 0);
    return usable;
}

TEST(a_program_that_frees_everything_and_stops_is_shown_without_it) {
    (void)fill_and_stop_the_clock();
    for (size_t i = 0; i < OBJECTS; i++) {
        tally_free(objects[i]);
    }
    check_shown(0);
}

/* Pages stay in use, since each holds something that lives. */
TEST(so_is_one_that_frees_every_other_object) {
    uint64_t usable = fill_and_stop_the_clock();
    for (size_t i = 0; i < OBJECTS; i += 2) {
        usable -= tally_usable_size(objects[i]);
        tally_free(objects[i]);
    }
    check_shown(usable);
}

/* Looking takes long, and time does not pass: the last steps are not shown. */
TEST(a_page_that_could_not_be_renewed_in_time_says_so) {
    (void)fill_and_stop_the_clock();
    ns_per_look = 100000;
    for (size_t i = 0; i < OBJECTS; i++) {
        tally_free(objects[i]);
    }
    check_eq(look(getpid()), 1);
    check(found.page.live > 4 << 20);
    check_eq(found.page.behind, UINT64_MAX);
    still_ms += 60000;
    tally_free(
        tally_malloc(8 << 20)); /* which reads the clock, after as many calls as there were */
    check_shown(0);
}

/* ---------------------------------------------------------------- forks */

/* What a child looks like to itself: one page, its own. */
static void check_own_page(ino_t of_parent) {
    tally_free(tally_malloc(100000));
    check_eq(look(getpid()), 1);
    check_eq(found.page.pid, getpid());
    check(found.inode != of_parent);
    for (int i = 0; i < 1000; i++) {
        objects[i] = tally_malloc(100);
    }
    renew_and_look();
    check(found.page.live_objects >= 1000);
}

/* S-19 */
TEST(a_child_has_a_page_of_its_own_and_leaves_its_parents_alone) {
    start_heap();
    renew_and_look();
    struct stats_page before = found.page;
    ino_t inode = found.inode;
    check_child(check_own_page(inode));
    check_eq(look(getpid()), 1);
    check_eq(found.inode, inode);
    check_eq(found.page.sequence, before.sequence);
    check_eq(found.page.live, before.live);
}

/* S-19 */
TEST(the_same_for_a_child_that_no_handler_sees) {
    if (SANITIZED) {
        skip("a sanitizer needs its own fork");
    }
    start_heap();
    renew_and_look();
    struct stats_page before = found.page;
    int status = -1;
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        check_own_page(found.inode);
        _exit(0);
    }
    check_eq(waitpid(pid, &status, 0), pid);
    check_eq(status, 0);
    check_eq(look(getpid()), 1);
    check_eq(found.page.sequence, before.sequence);
}

/* ---------------------------------------------------------------- readers */

static _Atomic bool has_ended;

static void *allocate_until_end(void *unused) {
    void *mine[500];
    while (!has_ended) {
        for (int i = 0; i < 500; i++) {
            mine[i] = tally_malloc(64 + (size_t)i);
        }
        thread_mark_inside(true);
        stats_page_renew();
        thread_mark_inside(false);
        for (int i = 0; i < 500; i++) {
            tally_free(mine[i]);
        }
    }
    return unused;
}

/* In every copy that the sequence calls whole, words that follow from others do so, and totals do not fall.
 * What was freed may be more than the others tell: they are of moments that lie close together. */
TEST(a_copy_with_an_even_sequence_is_whole) {
    start_heap();
    check_eq(look(getpid()), 1);
    struct stats_page *page = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, found.fd, 0);
    check(page != MAP_FAILED);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        check_eq(pthread_create(&threads[i], NULL, allocate_until_end, NULL), 0);
    }
    unsigned whole = 0;
    uint64_t last = 0, last_freed = 0;
    for (int i = 0; whole < 20000 / SLOWER && i < 100000000; i++) {
        uint32_t before = atomic_load_explicit(&page->sequence, memory_order_acquire);
        uint64_t total = __atomic_load_n(&page->allocated_total, __ATOMIC_RELAXED);
        uint64_t freed = __atomic_load_n(&page->freed_total, __ATOMIC_RELAXED);
        uint64_t live = __atomic_load_n(&page->live, __ATOMIC_RELAXED);
        uint64_t requested = __atomic_load_n(&page->requested, __ATOMIC_RELAXED);
        uint64_t sum_ns = __atomic_load_n(&page->sum_ns, __ATOMIC_ACQUIRE);
        if (before % 2 == 0 &&
            atomic_load_explicit(&page->sequence, memory_order_relaxed) == before) {
            check_eq(requested, live);
            check(freed <= total && freed + live >= total);
            check(sum_ns >= last && freed >= last_freed);
            last = sum_ns;
            last_freed = freed;
            whole++;
        }
    }
    has_ended = true;
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    check(whole > 0);
}

/* ---------------------------------------------------------------- the socket */

static void *renew_until_end(void *unused) {
    while (!has_ended) {
        thread_mark_inside(true);
        stats_page_renew();
        thread_mark_inside(false);
    }
    return unused;
}

/* However often others renew the page. */
TEST(the_path_of_the_socket_is_told_and_whole) {
    static const char *const paths[] = {"/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/1.sock",
                                        "/b/2.sock", ""};
    start_heap();
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        check_eq(pthread_create(&threads[i], NULL, renew_until_end, NULL), 0);
    }
    check_eq(look(getpid()), 1);
    struct stats_page *page = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, found.fd, 0);
    check(page != MAP_FAILED);
    for (unsigned i = 0; i < 3000 / SLOWER; i++) {
        thread_mark_inside(true);
        stats_page_tell_socket(paths[i % 3], i % 3);
        thread_mark_inside(false);
        uint32_t sequence;
        do { /* as a reader does */
            sequence = atomic_load_explicit(&page->sequence, memory_order_acquire);
            memcpy(found.bytes, page, sizeof *page);
        } while (sequence % 2 != 0 ||
                 atomic_load_explicit(&page->sequence, memory_order_acquire) != sequence);
        check_str(found.page.socket_path, paths[i % 3]);
        check_eq(found.page.control, i % 3);
    }
    has_ended = true;
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
}
