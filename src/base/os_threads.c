/* SPDX-License-Identifier: MIT
 *
 * os_threads.c - the other threads of this process, and a copy of it, on Linux.
 */
#define _GNU_SOURCE /* registers in signal contexts */
#include "base/os_threads.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

#include "base/fmt.h"
#include "base/os_call.h"

enum { KERNEL_SIGNAL_BYTES = 8 }; /* of a set of signals */

uint32_t os_thread_id(void) {
    return (uint32_t)raw_call(SYS_gettid, 0, 0, 0, 0, 0, 0);
}

uintptr_t os_thread_pointer(void) {
    uintptr_t pointer;
#if defined(__x86_64__)
    __asm__("movq %%fs:0, %0" : "=r"(pointer));
#else
    __asm__("mrs %0, tpidr_el0" : "=r"(pointer));
#endif
    return pointer;
}

/* By the conventions for thread-local storage: the second word where the thread pointer leads, or the first. */
uintptr_t os_thread_vector(uintptr_t pointer) {
#if defined(__x86_64__)
    return ((const uintptr_t *)pointer)[1];
#else
    return ((const uintptr_t *)pointer)[0];
#endif
}

/* In glibc's struct pthread the number stands two words before the list of robust mutexes, which the kernel
 * knows the address of. */
size_t os_thread_number_offset(void) {
    uintptr_t head = 0, pointer = os_thread_pointer();
    size_t bytes = 0;
    enum { BEFORE_HEAD = 16, PTHREAD_MOST = 4096 };
    raw_call(SYS_get_robust_list, 0, (long)&head, (long)&bytes, 0, 0, 0);
    if (head <= pointer + BEFORE_HEAD || head > pointer + PTHREAD_MOST) {
        return 0;
    }
    size_t offset = head - BEFORE_HEAD - pointer;
    return *(const uint32_t *)(pointer + offset) == os_thread_id() ? offset : 0;
}

uintptr_t os_alternate_stack(void) {
    stack_t stack = {.ss_flags = SS_DISABLE};
    raw_call(SYS_sigaltstack, 0, (long)&stack, 0, 0, 0, 0);
    return stack.ss_flags & SS_DISABLE ? 0 : (uintptr_t)stack.ss_sp;
}

/* ---------------------------------------------------------------- which there are */

/* As the kernel writes it. */
struct entry {
    uint64_t inode, offset;
    uint16_t bytes;
    uint8_t type;
    char name[];
};

static uint32_t parse_number(const char *text) {
    uint32_t number = 0;
    for (; *text >= '0' && *text <= '9'; text++) {
        number = number * 10 + (uint32_t)(*text - '0');
    }
    return number;
}

int os_walk_threads(bool (*visit)(uint32_t thread, void *context), void *context) {
    _Alignas(8) char entries[4096];
    int folder = (int)raw_call(SYS_openat, AT_FDCWD, (long)"/proc/self/task",
                               O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, 0, 0);
    if (folder < 0) {
        return folder;
    }
    long length;
    bool goes_on = true;
    while (goes_on && (length = raw_call(SYS_getdents64, folder, (long)entries, sizeof(entries), 0,
                                         0, 0)) > 0) {
        for (long at = 0; goes_on && at < length;) {
            const struct entry *entry = (const struct entry *)(const void *)(entries + at);
            uint32_t thread = parse_number(entry->name);
            goes_on = thread == 0 || visit(thread, context);
            at += entry->bytes;
        }
    }
    os_close(folder);
    return goes_on && length < 0 ? (int)length : 0;
}

/* What stands behind a key at the beginning of a line. */
static const char *find_value(const char *text, const char *key) {
    size_t length = strlen(key);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0) {
            line += length;
            return line + strspn(line, " \t");
        }
        if (*line == '\0') {
            break;
        }
    }
    return NULL;
}

static uint64_t parse_hex(const char *text) {
    uint64_t value = 0;
    for (;; text++) {
        bool is_digit = *text >= '0' && *text <= '9';
        if (!is_digit && !(*text >= 'a' && *text <= 'f')) {
            return value;
        }
        value = value << 4 | (uint64_t)(is_digit ? *text - '0' : *text - 'a' + 10);
    }
}

/* What is wanted of the lines that a piece of the text has. */
static void take_lines(const char *text, int signal, struct os_thread_look *look) {
    const char *state = find_value(text, "State:");
    const char *blocked = find_value(text, "SigBlk:");
    const char *waits = find_value(text, "voluntary_ctxt_switches:");
    const char *losses = find_value(text, "nonvoluntary_ctxt_switches:");
    if (state != NULL) {
        look->is_gone = *state == 'Z' || *state == 'X';
        look->is_asleep = *state != 'R';
    }
    if (blocked != NULL) {
        look->blocks_signals = parse_hex(blocked) >> (signal - 1) & 1;
    }
    look->has_run |= (waits != NULL && *waits > '0') || (losses != NULL && *losses > '0');
}

/* The text has a line of any length, for groups; the lines of interest are short.  Where it says nothing about
 * signals, the worst is assumed. */
struct os_thread_look os_look_at_thread(uint32_t thread, int signal) {
    enum { LINE_MOST = 128 };
    struct os_thread_look look = {.blocks_signals = true};
    char path[64], text[2048];
    size_t kept = 0;
    fmt_text(path, sizeof(path), "/proc/self/task/%u/status", thread);
    int file = os_open(path);
    ssize_t got = file;
    while (file >= 0 && (got = os_read(file, text + kept, sizeof(text) - 1 - kept)) > 0) {
        size_t length = kept + (size_t)got;
        text[length] = '\0';
        take_lines(text, signal, &look);
        kept = min_size(length, LINE_MOST);
        memmove(text, text + length - kept, kept);
    }
    if (file >= 0) {
        os_close(file);
    }
    look.is_gone |= got == -ENOENT || got == -ESRCH || (got == 0 && kept == 0);
    look.is_unknown = got < 0 && !look.is_gone;
    return look;
}

/* ---------------------------------------------------------------- signals */

int os_signal_thread(uint32_t thread, int signal, uint64_t number) {
    siginfo_t info;
    memset(&info, 0, sizeof(info));
    info.si_signo = signal;
    info.si_code = SI_QUEUE;
    info.si_pid = (pid_t)os_process_id();
    info.si_value.sival_ptr = (void *)(uintptr_t)number;
    return (int)raw_call(SYS_rt_tgsigqueueinfo, os_process_id(), thread, signal, (long)&info, 0, 0);
}

bool os_signal_number(const void *info, uint64_t *number) {
    const siginfo_t *facts = info;
    *number = (uintptr_t)facts->si_value.sival_ptr;
    return facts->si_code == SI_QUEUE && facts->si_pid == (pid_t)os_process_id();
}

#if defined(__x86_64__)
/* What a leaf may use below the stack pointer. */
enum { BELOW_STACK = 128 };

static uintptr_t stack_pointer(const ucontext_t *context) {
    return (uintptr_t)context->uc_mcontext.gregs[REG_RSP] - BELOW_STACK;
}

/* The vector registers lie behind the context; how long they are is in the place the kernel has for it. */
static uintptr_t frame_end(const ucontext_t *context) {
    enum { LEGACY_BYTES = 512, MAGIC_AT = 464, MAGIC = 0x46505853, MOST_BYTES = 16 << 10 };
    uintptr_t end = (uintptr_t)(context + 1);
    const char *vectors = (const char *)context->uc_mcontext.fpregs;
    if (vectors != NULL) {
        uint32_t words[2];
        memcpy(words, vectors + MAGIC_AT, sizeof(words));
        size_t bytes = words[0] == MAGIC ? min_size(words[1], MOST_BYTES) : LEGACY_BYTES;
        end = max_size(end, (uintptr_t)vectors + bytes);
    }
    return end;
}
#else
static uintptr_t stack_pointer(const ucontext_t *context) {
    return (uintptr_t)context->uc_mcontext.sp;
}

static uintptr_t frame_end(const ucontext_t *context) {
    return (uintptr_t)(context + 1);
}
#endif

struct os_interrupted os_interrupted(const void *context) {
    return (struct os_interrupted){
        .sp = align_down(stack_pointer(context), sizeof(void *)),
        .frame = (uintptr_t)context,
        .end = frame_end(context),
    };
}

void os_block_signals(uint64_t *before) {
    uint64_t all = UINT64_MAX;
    *before = 0;
    raw_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)before, KERNEL_SIGNAL_BYTES, 0, 0);
}

void os_restore_signals(const uint64_t *before) {
    raw_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)before, 0, KERNEL_SIGNAL_BYTES, 0, 0);
}

void os_sleep_ns(uint64_t ns) {
    struct timespec time = {.tv_sec = (time_t)(ns / 1000000000),
                            .tv_nsec = (long)(ns % 1000000000)};
    raw_call(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, (long)&time, 0, 0, 0);
}

void os_wake_all(_Atomic uint32_t *word) {
    raw_call(SYS_futex, (long)word, FUTEX_WAKE_PRIVATE, INT_MAX, 0, 0, 0);
}

/* ---------------------------------------------------------------- a copy */

void *os_map_shared(size_t bytes) {
    long result = raw_call(SYS_mmap, 0, (long)bytes, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return os_is_error(result) ? NULL : (void *)result;
}

/* Nobody must wait for what a copy holds: the end of a pipe, a processor at real-time priority, memory.  What the
 * kernel refuses is left as it is. */
static void step_back(void) {
    struct sched_param parameters = {0};
    raw_call(SYS_close_range, 0, UINT_MAX, 0, 0, 0, 0);
    raw_call(SYS_sched_setscheduler, 0, SCHED_BATCH, (long)&parameters, 0, 0, 0);
    long file = raw_call(SYS_openat, AT_FDCWD, (long)"/proc/self/oom_score_adj",
                         O_WRONLY | O_CLOEXEC, 0, 0, 0);
    if (file >= 0) {
        raw_call(SYS_write, file, (long)"1000", 4, 0, 0, 0);
        os_close((int)file);
    }
}

int os_copy_process(void) {
    int copy = (int)raw_call(SYS_clone, CLONE_UNTRACED, 0, 0, 0, 0, 0);
    if (copy == 0) {
        raw_call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0, 0);
        raw_call(SYS_prctl, PR_SET_NAME, (long)"tally-leaks", 0, 0, 0, 0);
        step_back();
    }
    return copy;
}

void os_forbid_core(void) {
    raw_call(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0, 0);
}

bool os_copy_has_ended(int copy, int *status) {
    *status = -1;
    long answer = raw_call(SYS_wait4, copy, (long)status, WNOHANG | __WALL, 0, 0, 0);
    return answer != 0 && answer != -EINTR;
}

void os_kill_copy(int copy) {
    raw_call(SYS_kill, copy, SIGKILL, 0, 0, 0, 0);
}
