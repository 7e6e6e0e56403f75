/* SPDX-License-Identifier: MIT
 *
 * fault_move.c - the kernel refuses to move pages, or to put new memory in their place, or loses the
 * addresses while it tries: what is in the block survives, and no unit is handed out that is not ours.
 *
 * The block consists of several pieces, and each call is refused in turn, once or from then on, until
 * a run no longer gets as far as its fault.
 */
#include <errno.h>
#include <sys/wait.h>

#include "base/os.h"
#include "heap/classmap.h"
#include "heap/heap.h"
#include "heap/large.h"
#include "heap/moved.h"
#include "os_fault.h"
#include "unit.h"

enum { MIB = 1 << 20, HALF_STEP = 192 << 10, STEPS = 5, MOST_RUNS = 100, KEPT_ERRNO = 4321 };

/* ---------------------------------------------------------------- a block that grows and moves */

static uint64_t *word_at(char *block, size_t at) {
    return (uint64_t *)(block + at);
}

static void mark(char *block, size_t from, size_t to) {
    for (size_t at = from; at < to; at += 4096) {
        *word_at(block, at) = at + 1;
    }
}

static void check_mark(char *block, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 4096) {
        check_eq(*word_at(block, at), at + 1);
    }
}

/* A block no growth in place can pass: tiny ones stand behind the other. */
static void wall_in(char *block, size_t bytes) {
    struct span *span = classmap_span((uintptr_t)block + bytes);
    while (span == NULL && classmap_chunk((uintptr_t)block + bytes) != NULL) {
        check(tally_malloc(40000) != NULL);
        span = classmap_span((uintptr_t)block + bytes);
    }
}

/* Grows in place if that can be, and then by moving. */
static char *grow(char *block, size_t *bytes) {
    size_t middle = *bytes + HALF_STEP, end = middle + HALF_STEP;
    char *grown = tally_realloc(block, middle);
    check(grown != NULL);
    mark(grown, *bytes, middle);
    wall_in(grown, middle);
    errno = 0;
    char *moved = tally_realloc(grown, end);
    check(moved != NULL); /* It may always be copied. */
    check_eq(errno, 0);
    check_mark(moved, middle);
    mark(moved, middle, end);
    *bytes = end;
    return moved;
}

static void work(void) {
    size_t bytes = 2 * MIB;
    char *block = tally_malloc(bytes);
    check(block != NULL);
    mark(block, 0, bytes);
    for (unsigned i = 0; i < STEPS; i++) {
        block = grow(block, &bytes);
        heap_verify();
    }
    check_mark(block, bytes);
    block = tally_realloc(block, 3 * MIB + 4096); /* shrinks */
    check_mark(block, 3 * MIB + 4096);
    heap_verify();
    errno = KEPT_ERRNO;
    tally_free(block);
    check_eq(errno, KEPT_ERRNO);
    heap_verify();
}

/* Memory is taken and written: a unit that is not ours would end the process, and one that is said to
 * read as zeros must. */
static void use_everything(void) {
    for (unsigned i = 0; i < 8; i++) {
        char *block = tally_calloc(1, 3 * MIB);
        check(block != NULL);
        for (size_t at = 0; at < 3 * MIB; at += 512) {
            check_eq(*word_at(block, at), 0);
        }
        memset(block, 0x55, 3 * MIB);
    }
}

/* ---------------------------------------------------------------- refused in turn */

enum { MET = 0, NOT_MET = 2 };

static void run(enum os_fault_call call, enum os_fault_extent extent, unsigned n) {
    alarm(TEST_SECONDS);
    start_heap_with("background_thread:false,narenas:1");
    os_fault_begin(call, extent, n);
    work();
    bool met = os_fault_end();
    /* Lost addresses are counted, and nothing else is. */
    bool may_lose = met && os_fault_move_error == -EADDRNOTAVAIL;
    check((large_lost_bytes() > 0) == may_lose);
    heap_trim();
    heap_verify();
    if (call == FAULT_os_move) {
        check_eq(moved_count(), 0);
    }
    use_everything();
    work();
    heap_verify();
    _exit(met ? MET : NOT_MET);
}

static void refuse_in_turn(enum os_fault_call call, enum os_fault_extent extent, unsigned least) {
    int status = MET << 8;
    unsigned n = 0;
    char number[24];
    while (status == MET << 8) {
        check(++n < MOST_RUNS);
        pid_t pid = fork();
        check(pid >= 0);
        if (pid == 0) {
            run(call, extent, n);
        }
        check_eq(waitpid(pid, &status, 0), pid);
        if (status != MET << 8 && status != NOT_MET << 8) {
            test_say("    ", os_fault_name(call), " call ", test_decimal(number, n), "\n", NULL);
        }
        check(status == MET << 8 || status == NOT_MET << 8);
    }
    test_say("    ", test_decimal(number, n - 1), " runs met the fault\n", NULL);
    check(n > least); /* A fault that nothing meets tests nothing. */
}

TEST(refused_move_is_a_copy) {
    refuse_in_turn(FAULT_os_move, FAULT_EXACTLY, STEPS);
    refuse_in_turn(FAULT_os_move, FAULT_FROM_ON, STEPS);
}

TEST(move_that_can_never_work_is_a_copy) {
    os_fault_move_error = -ENOTSUP;
    refuse_in_turn(FAULT_os_move, FAULT_FROM_ON, STEPS);
}

TEST(block_survives_the_loss_of_its_destination) {
    os_fault_move_error = -EADDRNOTAVAIL;
    refuse_in_turn(FAULT_os_move, FAULT_EXACTLY, STEPS);
    refuse_in_turn(FAULT_os_move, FAULT_FROM_ON, STEPS);
}

TEST(memory_that_cannot_be_renewed_is_used_as_it_is) {
    refuse_in_turn(FAULT_os_renew, FAULT_EXACTLY, STEPS - 1);
    refuse_in_turn(FAULT_os_renew, FAULT_FROM_ON, STEPS - 1);
}

TEST(memory_lost_while_it_was_renewed_is_not_used_again) {
    os_fault_move_error = -EADDRNOTAVAIL;
    refuse_in_turn(FAULT_os_renew, FAULT_EXACTLY, STEPS - 1);
    refuse_in_turn(FAULT_os_renew, FAULT_FROM_ON, STEPS - 1);
}
