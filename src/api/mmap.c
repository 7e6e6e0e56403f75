/* SPDX-License-Identifier: MIT
 *
 * mmap.c - mmap, munmap, mremap and sbrk as the program calls them.
 *
 * Without the options prof_mmap and prof_mmap_log each function is the system call and the test of
 * a word.  The word is 0 until the options are known, so a call that comes before the start of the
 * allocator does not start it.  What libc maps for itself (stacks of threads, libraries, buffers)
 * does not come here, nor does what the allocator maps.
 *
 * libc declares these names with attributes and with its own type for offsets, so they are aliases
 * of functions with other names.
 *
 * Threads     A call that interrupts the allocator, in a signal handler, is the system call alone.
 * Errors      errno is set as libc does, and otherwise left alone.
 */
#include <errno.h>
#include <stdarg.h>

#include "api/life.h"
#include "api/names.h"
#include "base/log.h"
#include "base/os.h"
#include "prof/prof.h"

#if TALLY_OVERRIDE

/* Enters if there is more to do than the system call. */
static inline bool begin(void) {
    return UNLIKELY(mapping_mode != 0) && life_enter();
}

static bool logs(void) {
    return mapping_mode & MAPPING_LOG;
}

/* The result as libc returns it. */
static intptr_t give(intptr_t answer) {
    if (os_is_error(answer)) {
        errno = (int)-answer;
        return -1;
    }
    return answer;
}

static COLD void note_map(const struct os_map_call *call, intptr_t answer) {
    int saved = errno;
    if (!os_is_error(answer)) {
        mapping_added((uintptr_t)answer, call->bytes);
    }
    if (logs()) {
        log_line("mmap(start=%p, len=%lu, prot=0x%x, flags=0x%x, fd=%d, offset=0x%lx) = %p",
                 call->start, (unsigned long)call->bytes, (unsigned)call->protection,
                 (unsigned)call->flags, call->fd, (unsigned long)call->offset,
                 (void *)(os_is_error(answer) ? -1 : answer));
    }
    life_leave();
    errno = saved;
}

static void *program_maps(void *start, size_t bytes, int protection, int flags, int fd,
                          int64_t offset) {
    struct os_map_call call = {start, bytes, protection, flags, fd, offset};
    intptr_t answer = os_map_for_program(&call);
    if (begin()) {
        note_map(&call, answer);
    }
    return (void *)give(answer);
}

static COLD intptr_t unmap_noted(void *start, size_t bytes) {
    int saved = errno;
    intptr_t answer = mapping_unmap(start, bytes);
    if (logs()) {
        log_line("munmap(start=%p, len=%lu) = %d", start, (unsigned long)bytes,
                 answer == 0 ? 0 : -1);
    }
    life_leave();
    errno = saved;
    return answer;
}

static int program_unmaps(void *start, size_t bytes) {
    return (int)give(begin() ? unmap_noted(start, bytes) : os_unmap(start, bytes));
}

static COLD intptr_t remap_noted(const struct os_remap_call *call) {
    int saved = errno;
    intptr_t answer = mapping_remap(call);
    if (logs()) {
        log_line("mremap(old_addr=%p, old_size=%lu, new_size=%lu, flags=0x%x, new_addr=%p) = %p",
                 call->old, (unsigned long)call->old_bytes, (unsigned long)call->bytes,
                 (unsigned)call->flags, call->start, (void *)(os_is_error(answer) ? -1 : answer));
    }
    life_leave();
    errno = saved;
    return answer;
}

static void *program_remaps(void *old, size_t old_bytes, size_t bytes, int flags, ...) {
    struct os_remap_call call = {old, old_bytes, bytes, flags, NULL};
    if (flags & OS_REMAP_HAS_ADDRESS) {
        va_list list;
        va_start(list, flags);
        call.start = va_arg(list, void *);
        va_end(list);
    }
    return (void *)give(begin() ? remap_noted(&call) : os_remap_for_program(&call));
}

/* If the call fails, errno is what libc has set. */
static COLD void *break_noted(intptr_t increment) {
    int saved = errno;
    void *before = mapping_break(increment);
    saved = before == (void *)-1 ? errno : saved;
    if (logs()) {
        log_line("sbrk(inc=%ld) = %p", (long)increment, before);
    }
    life_leave();
    errno = saved;
    return before;
}

static void *program_moves_break(intptr_t increment) {
    return begin() ? break_noted(increment) : os_break_for_program(increment);
}

extern __typeof__(program_maps) mmap SAME_AS(program_maps);
extern __typeof__(program_maps) mmap64 SAME_AS(program_maps);
extern __typeof__(program_unmaps) munmap SAME_AS(program_unmaps);
extern __typeof__(program_remaps) mremap SAME_AS(program_remaps);
extern __typeof__(program_moves_break) sbrk SAME_AS(program_moves_break);

#endif
