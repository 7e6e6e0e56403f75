/* SPDX-License-Identifier: MIT
 *
 * test_secret.c - the number that free leaves in word 1 of an object tells nothing else.
 *
 * The number is made from the random bytes that the kernel gives every process. libc makes the
 * stack protector's canary and the key that hides its pointers of the same bytes, and a program
 * that reads freed memory must not learn those. A copy would show at once; one behind a constant
 * shows as a difference that stays the same from process to process. Therefore the program is
 * started twice and tells both times what it sees.
 *
 * Only bytes 1 to 6 are compared: libc clears one end of the canary, and the library sets some bits
 * at the ends of its number.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

TEST_SETUP(require_tally);

enum { RUNS = 2, OBJECT_BYTES = 64 };

static const uint64_t MIDDLE = UINT64_C(0x00ffffffffffff00);

/* What one process sees; written through a pipe. */
struct sight {
    uint64_t freed;     /* word 1 of a freed object */
    uint64_t random[2]; /* the kernel's bytes */
    uint64_t canary;    /* 0 where we do not know how to read it */
};

static uint64_t read_canary(void) {
    uint64_t canary = 0;
#if defined(__x86_64__)
    __asm__("mov %%fs:0x28, %0" : "=r"(canary));
#endif
    return canary;
}

static uint64_t read_freed_word(void) {
    uint64_t *p = test_launder(malloc(OBJECT_BYTES));
    volatile uint64_t *again = test_launder(p);
    if (p == NULL) {
        return 0;
    }
    free(p);
    return again[1]; /* The object is in a cache or in its slab, and mapped. */
}

__attribute__((constructor)) static void begin(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--look") == 0) {
        struct sight sight = {.freed = read_freed_word(), .canary = read_canary()};
        const void *random = (const void *)(uintptr_t)getauxval(AT_RANDOM);
        if (random != NULL) {
            memcpy(sight.random, random, sizeof sight.random);
        }
        _exit(write(STDOUT_FILENO, &sight, sizeof sight) == sizeof sight ? 0 : 1);
    }
}

static struct sight look(void) {
    struct sight sight;
    int ends[2];
    int status = -1;
    check_eq(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execl("/proc/self/exe", "test_secret", "--look", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    check_eq(read(ends[0], &sight, sizeof sight), sizeof sight);
    close(ends[0]);
    check_eq(waitpid(pid, &status, 0), pid);
    check_eq(status, 0);
    return sight;
}

/* Fails when the freed words are the others, or the others behind one constant, in either order of
 * the bytes. */
static void check_tells_nothing(const uint64_t freed[RUNS], const uint64_t other[RUNS]) {
    uint64_t plain[RUNS];
    uint64_t swapped[RUNS];
    check((other[0] & MIDDLE) != (other[1] & MIDDLE)); /* Else this compares nothing. */
    for (int i = 0; i < RUNS; i++) {
        plain[i] = (freed[i] ^ other[i]) & MIDDLE;
        swapped[i] = (freed[i] ^ __builtin_bswap64(other[i])) & MIDDLE;
        check(plain[i] != 0 && swapped[i] != 0);
    }
    check(plain[0] != plain[1]);
    check(swapped[0] != swapped[1]);
}

TEST(a_freed_object_carries_another_number_in_every_process) {
    uint64_t first = look().freed;
    check(first != 0);
    check((first & MIDDLE) != (look().freed & MIDDLE));
}

TEST(a_freed_object_does_not_tell_the_random_bytes_of_the_kernel) {
    struct sight a = look();
    struct sight b = look();
    if (a.random[0] == 0 && a.random[1] == 0) {
        skip("the kernel gives no random bytes");
    }
    for (int i = 0; i < 2; i++) {
        check_tells_nothing((uint64_t[]){a.freed, b.freed}, (uint64_t[]){a.random[i], b.random[i]});
    }
}

TEST(a_freed_object_does_not_tell_the_canary_of_the_stack_protector) {
#if !defined(__x86_64__)
    skip("where the canary is, is known for x86-64 only");
#else
    struct sight a = look();
    struct sight b = look();
    check_tells_nothing((uint64_t[]){a.freed, b.freed}, (uint64_t[]){a.canary, b.canary});
#endif
}
