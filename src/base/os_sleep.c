/* SPDX-License-Identifier: MIT
 *
 * os_sleep.c - threads that sleep, on Linux: /proc, membarrier, and frames of signal handlers.
 */
#include "base/os_sleep.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/fmt.h"
#include "base/os_call.h"
#include "base/os_timer.h"

/* ---------------------------------------------------------------- looking */

/* The number at the beginning of a text, which is moved behind it and the white space that
 * follows.  False if there is none. */
static bool take_number(const char **text, uint64_t *value) {
    size_t length = strcspn(*text, " \t\n");
    if (length == 0 || !fmt_parse_number(*text, length, value)) {
        return false;
    }
    *text += length;
    *text += strspn(*text, " \t");
    return true;
}

/* What stands behind a key at the beginning of a line, if it is a number and all of the line. */
static bool find_number(const char *text, const char *key, uint64_t *value) {
    size_t length = strlen(key);
    while (text != NULL && strncmp(text, key, length) != 0) {
        text = strchr(text, '\n');
        text = text != NULL ? text + 1 : NULL;
    }
    if (text == NULL) {
        return false;
    }
    text += length;
    text += strspn(text, " \t");
    return take_number(&text, value) && *text == '\n';
}

/* A file of a thread as a string; false if it cannot be read as a whole. */
static bool read_of_thread(uint32_t thread, const char *file, char *text, size_t capacity) {
    char path[64];
    fmt_text(path, sizeof(path), "/proc/self/task/%u/%s", thread, file);
    int length = os_read_file(path, text, capacity);
    return length > 0 && (size_t)length < capacity - 1;
}

/* The caller of these waits while a child runs with its memory and its thread-local data. */
static bool lends_itself(uint64_t call) {
#if defined(SYS_vfork)
    if (call == SYS_vfork) {
        return true;
    }
#endif
    return call == SYS_clone || call == SYS_clone3;
}

/* "running", or a call with six arguments, the stack pointer and the program counter; the number is
 * negative for a thread that waits without having called, for a page say. */
static bool parse_call(const char *text, struct os_sleep *sleep) {
    enum { ARGUMENTS = 6 };
    uint64_t ignored, sp = 0, pc = 0;
    bool is_whole = take_number(&text, &sleep->call);
    for (unsigned i = 0; i < ARGUMENTS && is_whole; i++) {
        is_whole = take_number(&text, &ignored);
    }
    is_whole = is_whole && take_number(&text, &sp) && take_number(&text, &pc);
    sleep->sp = sp;
    sleep->pc = pc;
    return is_whole && sp != 0 && !lends_itself(sleep->call);
}

/*
 * The kernel writes the first file only for a thread that is off its processor, and counts when it
 * leaves one.  The count is read last: were it read first, a thread could wake after that and sleep
 * elsewhere before it is seen.  A thread with two numbers is of an inner namespace: then /proc means
 * other threads by the numbers that we know them by.
 */
bool os_look_at_sleep(uint32_t thread, struct os_sleep *sleep) {
    enum { MOST = 4096 };
    char text[MOST];
    uint64_t number, voluntary, forced;
    if (!read_of_thread(thread, "syscall", text, sizeof(text)) || !parse_call(text, sleep) ||
        !read_of_thread(thread, "status", text, sizeof(text)) ||
        !find_number(text, "NSpid:", &number) || number != thread ||
        !find_number(text, "voluntary_ctxt_switches:", &voluntary) ||
        !find_number(text, "nonvoluntary_ctxt_switches:", &forced)) {
        return false;
    }
    sleep->switches = voluntary + forced;
    return true;
}

/* ---------------------------------------------------------------- barrier */

static long barrier(int command) {
    return raw_call(SYS_membarrier, command, 0, 0, 0, 0, 0);
}

bool os_fence_threads(void) {
    long error = barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    if (error == -EPERM) { /* The process has not said yet that it will use it. */
        (void)barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
        error = barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    }
    return error == 0;
}

/* ---------------------------------------------------------------- frames of handlers */

/*
 * Before a handler runs, the kernel puts the registers of what it interrupts onto the stack, in an
 * order that is fixed for ever.  Two neighbours in it are told from all other words:
 *
 *      x86-64    flags, of which bit 1 is always set and bit 9 (interrupts) in all programs; then
 *                the segments cs, 0, 0 and ss.  Kernels that have the barrier above store ss.
 *      aarch64   the head of the record of floating point registers, magic number and length, which
 *                tells by itself
 */
static bool are_of_frame(uint64_t first, uint64_t second) {
#if defined(__x86_64__)
    enum { FLAGS_SET = 0x202, LG_FLAGS = 22, OF_PROGRAM = 3, LG_SS = 48 };
    bool are_flags = (first & FLAGS_SET) == FLAGS_SET && first >> LG_FLAGS == 0;
    bool are_segments = (second & UINT64_C(0x0000ffffffff0000)) == 0 &&
                        (second & OF_PROGRAM) == OF_PROGRAM &&
                        (second >> LG_SS & OF_PROGRAM) == OF_PROGRAM;
    return are_flags && are_segments;
#elif defined(__aarch64__)
    (void)first;
    return second == UINT64_C(0x0000021046508001);
#else
    (void)first;
    (void)second;
    return true;
#endif
}

bool os_stack_has_handler(uintptr_t sp, uintptr_t end) {
    enum { PIECE = 4096, MOST = 256 << 10 };
    uint64_t words[PIECE / sizeof(uint64_t)], before = 0;
    uintptr_t start = align_down(sp, sizeof(uint64_t));
    uintptr_t limit = end > start && end - start < MOST ? end : start + MOST;
    for (uintptr_t at = start; at < limit;) {
        /* At most to the end of a page: it can be read or not. */
        size_t bytes = min_size(PIECE - at % PIECE, limit - at);
        if (!os_copy(words, at, bytes, os_facts.confined)) {
            return at == start;
        }
        for (size_t i = 0; i < bytes / sizeof(uint64_t); i++) {
            if (are_of_frame(before, words[i])) {
                return true;
            }
            before = words[i];
        }
        at += bytes;
    }
    return limit != end;
}
