/* SPDX-License-Identifier: MIT
 *
 * os_linux.c - the kernel as the library sees it, on Linux.
 *
 * System calls are issued by hand (os_call.h).  The exceptions, getauxval and sched_getcpu, only read
 * memory that the loader or the kernel prepared.
 *
 * Read next   os.h for the contracts.
 */
#define _GNU_SOURCE /* sched_getcpu */
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/fs.h>
#include <linux/futex.h>
#include <linux/stat.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>

#include "base/fmt.h"
#include "base/log.h"
#include "base/hash.h"
#include "base/os_call.h"
#include "base/os_confined.h"
#include "base/os_shared.h"

struct os_facts os_facts;

/* ---------------------------------------------------------------- start-up facts */

extern char **environ __attribute__((weak));
extern void *__libc_stack_end __attribute__((weak));

/*
 * The environment as the kernel laid it on the first stack: argc, argv..., 0, envp..., 0.  It is
 * there before libc assigns `environ`, and our first call may come from the loader itself.
 */
static char **find_environment(void) {
    if (&environ != NULL && environ != NULL) {
        return environ;
    }
    if (&__libc_stack_end == NULL || __libc_stack_end == NULL) {
        return NULL;
    }
    long argc = *(long *)__libc_stack_end;
    char **argv = (char **)__libc_stack_end + 1;
    return argc >= 0 && argc < 1 << 20 && argv[argc] == NULL ? argv + argc + 1 : NULL;
}

const char *os_environment(const char *name) {
    char **entry = find_environment();
    for (; entry != NULL && *entry != NULL; entry++) {
        const char *text = *entry;
        size_t i = 0;
        while (name[i] != '\0' && text[i] == name[i]) {
            i++;
        }
        if (name[i] == '\0' && text[i] == '=') {
            return text + i + 1;
        }
    }
    return NULL;
}

static bool has_same_name(const char *a, const char *b) {
    size_t i = 0;
    while (a[i] == b[i] && a[i] != '\0' && a[i] != '=') {
        i++;
    }
    return a[i] == '=' && b[i] == '=';
}

/* A new array, since the old one belongs to libc or the kernel; setenv copies it again if it must.  The
 * entry lies behind it: a shell may write into what it finds in its environment. */
void os_add_environment(const char *entry) {
    if (&environ == NULL || environ == NULL) {
        return;
    }
    size_t count = 0;
    while (environ[count] != NULL) {
        count++;
    }
    size_t length = strlen(entry) + 1;
    char **copy = os_map((count + 2) * sizeof(copy[0]) + length);
    if (copy != NULL) {
        size_t kept = 0;
        for (size_t i = 0; i < count; i++) {
            if (!has_same_name(environ[i], entry)) {
                copy[kept++] = environ[i];
            }
        }
        copy[kept] = memcpy(copy + count + 2, entry, length);
        environ = copy;
    }
}

int os_read_link(const char *path, char *text, size_t bytes) {
    return (int)raw_call(SYS_readlinkat, AT_FDCWD, (long)path, (long)text, (long)bytes, 0, 0);
}

static uint32_t count_cpus(void) {
    uint64_t mask[128] = {0};
    long bytes = raw_call(SYS_sched_getaffinity, 0, sizeof(mask), (long)mask, 0, 0, 0);
    uint32_t cpus = 0;
    for (long i = 0; i < bytes / 8; i++) {
        for (uint64_t rest = mask[i]; rest != 0; rest &= rest - 1) {
            cpus++;
        }
    }
    return cpus > 0 ? cpus : 1;
}

bool os_address_space_is_limited(void) {
    struct rlimit limit = {0};
    long failed = raw_call(SYS_prlimit64, 0, RLIMIT_AS, 0, (long)&limit, 0, 0);
    return failed == 0 && limit.rlim_cur != RLIM_INFINITY;
}

/*
 * 64 bits out of the 128 the kernel gives every process.  libc uses one half for the stack
 * protector and the other for pointers; what comes out here tells neither, since each hides behind
 * the other.
 */
static uint64_t mix_random(const unsigned char *bytes) {
    uint64_t half[2] = {0};
    for (int i = 0; bytes != NULL && i < 16; i++) {
        half[i / 8] = half[i / 8] << 8 | bytes[i];
    }
    uint64_t mixed = hash_word(half[0]);
    mixed ^= (half[1] << 29 | half[1] >> 35) * UINT64_C(0xbf58476d1ce4e5b9);
    return (mixed ^ mixed >> 31) * UINT64_C(0x94d049bb133111eb);
}

static void find_fast_clock(void);

void os_init(void) {
    unsigned long page = getauxval(AT_PAGESZ);
    os_facts.page_bytes = page != 0 ? page : 4096;
    os_facts.random = mix_random((const unsigned char *)getauxval(AT_RANDOM));
    os_facts.secure = getauxval(AT_SECURE) != 0;
    os_facts.must_be_silent = !os_inode_of(2, &os_facts.error_device, &os_facts.error_inode);
    os_facts.no_new_privileges = raw_call(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0, 0) == 1;
    os_facts.confined = os_facts.no_new_privileges && os_ask_confined();
    os_facts.address_space_limited = os_address_space_is_limited();
    os_facts.cpus = count_cpus();
    find_fast_clock();
}

/* ---------------------------------------------------------------- memory */

/* Without MAP_NORESERVE: addresses that cannot be written are not charged anyway, and os_commit
 * must be, so that the kernel can refuse what it does not have. */
static void *map(void *hint, size_t bytes, int protection) {
    long result =
        raw_call(SYS_mmap, (long)hint, (long)bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return result < 0 && result > -4096 ? NULL : (void *)result;
}

#ifdef __SANITIZE_THREAD__
_Atomic unsigned os_unmappings;
#endif

void *os_map(size_t bytes) {
    void *start = map(NULL, bytes, PROT_READ | PROT_WRITE);
    os_order_map();
    return start;
}

void *os_reserve(void *hint, size_t bytes) {
    return map(hint, bytes, PROT_NONE);
}

/* Reservations are left out of core files: they would only make them slow to write and to read. */
void *os_reserve_readable(size_t bytes) {
    void *start = map(NULL, bytes, PROT_READ);
    if (start != NULL) {
        raw_call(SYS_madvise, (long)start, (long)bytes, MADV_DONTDUMP, 0, 0, 0);
    }
    return start;
}

int os_commit(void *start, size_t bytes) {
    return (int)raw_call(SYS_mprotect, (long)start, (long)bytes, PROT_READ | PROT_WRITE, 0, 0, 0);
}

int os_unmap(void *start, size_t bytes) {
    os_order_unmap();
    return (int)raw_call(SYS_munmap, (long)start, (long)bytes, 0, 0, 0, 0);
}

_Static_assert(OS_REMAP_KEEPS_OLD == MREMAP_DONTUNMAP &&
                   OS_REMAP_HAS_ADDRESS == (MREMAP_FIXED | MREMAP_DONTUNMAP),
               "as the kernel counts");

intptr_t os_map_for_program(const struct os_map_call *call) {
    return raw_call(SYS_mmap, (long)call->start, (long)call->bytes, call->protection, call->flags,
                    call->fd, call->offset);
}

intptr_t os_remap_for_program(const struct os_remap_call *call) {
    return raw_call(SYS_mremap, (long)call->old, (long)call->old_bytes, (long)call->bytes,
                    call->flags, (long)call->start, 0);
}

extern void *__sbrk(intptr_t increment) __attribute__((weak));

void *os_break_for_program(intptr_t increment) {
    if (&__sbrk != NULL) {
        return __sbrk(increment);
    }
    long before = raw_call(SYS_brk, 0, 0, 0, 0, 0, 0);
    if (increment != 0 &&
        raw_call(SYS_brk, before + increment, 0, 0, 0, 0, 0) != before + increment) {
        errno = ENOMEM;
        return (void *)-1;
    }
    return (void *)before;
}

void os_advise_huge(void *start, size_t bytes, bool huge) {
    int advice = huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
    raw_call(SYS_madvise, (long)start, (long)bytes, advice, 0, 0, 0);
}

int os_wipe_on_fork(void *start, size_t bytes) {
    return (int)raw_call(SYS_madvise, (long)start, (long)bytes, MADV_WIPEONFORK, 0, 0, 0);
}

static int advise(void *start, size_t bytes, int advice) {
    long result;
    do {
        result = raw_call(SYS_madvise, (long)start, (long)bytes, advice, 0, 0, 0);
    } while (result == -EAGAIN);
    return (int)result;
}

enum purge_truth { PURGE_UNTRIED, PURGE_WORKS, PURGE_LIES };

/* Some emulators accept the advice and do nothing; calloc would then hand out old data. */
static enum purge_truth try_purge(void) {
    volatile char *page = os_map(os_facts.page_bytes);
    if (page == NULL) {
        return PURGE_UNTRIED;
    }
    *page = 1;
    void *start = (void *)(uintptr_t)page;
    bool works = advise(start, os_facts.page_bytes, MADV_DONTNEED) == 0 && *page == 0;
    os_unmap(start, os_facts.page_bytes);
    return works ? PURGE_WORKS : PURGE_LIES;
}

int os_purge(void *start, size_t bytes) {
    static _Atomic int truth; /* Whoever comes first finds out; several find the same. */
    if (truth == PURGE_UNTRIED) {
        truth = try_purge();
    }
    return truth == PURGE_WORKS ? advise(start, bytes, MADV_DONTNEED) : -ENOTSUP;
}

int os_purge_lazily(void *start, size_t bytes) {
    int result = advise(start, bytes, MADV_FREE);
    return result == -EINVAL ? os_purge(start, bytes) : result;
}

/* ---------------------------------------------------------------- moving memory */

/*
 * A system call that replaces a mapping may take the old one away and then fail.  In the hole
 * another thread's mapping may appear, so it must not be touched unless it is known to be ours.
 * Hence a word is left at its start before the call, and read back through the kernel, which answers
 * also where nothing is mapped.
 */
enum { WITNESS = 0x7a11f00d };

static void leave_witness(void *start) {
    *(volatile uint32_t *)start = WITNESS;
}

static bool witness_is_there(void *start) {
    struct timespec at_once = {0};
    long result =
        raw_call(SYS_futex, (long)start, FUTEX_WAIT_PRIVATE, WITNESS, (long)&at_once, 0, 0);
    return result == -ETIMEDOUT ||
           result == -EINTR; /* It would have slept: the word is the same. */
}

/* After a refusal: the old mapping is still there, or new memory can be put in its place. */
static bool is_ours_still(void *start, size_t bytes) {
    if (witness_is_there(start)) {
        return true;
    }
    /* Without MAP_FIXED: old kernels know no way to ask for exactly these addresses, if free. */
    void *filled = map(start, bytes, PROT_READ | PROT_WRITE);
    if (filled != start && filled != NULL) {
        os_unmap(filled, bytes);
    }
    return filled == start;
}

/* The kernel would move locked memory and, on the way, unlock the whole mapping it was part of.  It
 * refuses this advice for locked memory, and otherwise it changes nothing that shows.  A huge page is
 * advised as a whole, or it would be split. */
static bool is_locked(void *start, size_t bytes) {
    enum { HUGE_BYTES = 2 << 20 };
    uintptr_t from = align_up((uintptr_t)start, HUGE_BYTES);
    size_t length = HUGE_BYTES;
    if (from + length > (uintptr_t)start + bytes) {
        from = (uintptr_t)start;
        length = os_facts.page_bytes;
    }
    return raw_call(SYS_madvise, (long)from, (long)length, MADV_COLD, 0, 0, 0) != 0;
}

static int move(void *to, void *from, size_t bytes) {
    long result = raw_call(SYS_mremap, (long)from, (long)bytes, (long)bytes,
                           MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, (long)to, 0);
    return result < 0 && result > -4096 ? (int)result : 0;
}

enum truth { UNTRIED, WORKS, NEVER_WORKS };

/* Kernels before 5.7 and some emulators cannot keep the source; others may claim they can. */
static enum truth try_move(void) {
    size_t page = os_facts.page_bytes;
    volatile char *pages = os_map(2 * page);
    if (pages == NULL) {
        return UNTRIED;
    }
    pages[0] = 1;
    leave_witness((void *)(uintptr_t)(pages + page));
    int error = move((void *)(uintptr_t)(pages + page), (void *)(uintptr_t)pages, page);
    bool works = error == 0 && pages[0] == 0 && pages[page] == 1;
    bool both = error == 0 || witness_is_there((void *)(uintptr_t)(pages + page));
    os_unmap((void *)(uintptr_t)pages, both ? 2 * page : page);
    if (works) {
        return WORKS;
    }
    return error == -ENOMEM ? UNTRIED : NEVER_WORKS;
}

/* A word of the first page that is not 0.  Kernels from 6.17 on move a range of several mappings one
 * by one and may stop half-way; if the word is 0 then, the contents are torn and we must not go on. */
static const volatile uint64_t *find_set_word(const void *start) {
    const volatile uint64_t *word = start;
    for (size_t i = 0; i < os_facts.page_bytes / sizeof(*word); i++) {
        if (word[i] != 0) {
            return &word[i];
        }
    }
    return NULL;
}

int os_move(void *to, void *from, size_t bytes) {
    static _Atomic int truth;
    if (truth == UNTRIED) {
        truth = try_move();
    }
    if (truth != WORKS) {
        return truth == UNTRIED ? -ENOMEM : -ENOTSUP;
    }
    if (is_locked(from, bytes)) {
        return -EPERM;
    }
    const volatile uint64_t *word = find_set_word(from);
    leave_witness(to);
    int error = move(to, from, bytes);
    if (error == 0 || is_ours_still(to, bytes)) {
        return error;
    }
    ensure(word == NULL || *word != 0);
    return -EADDRNOTAVAIL;
}

int os_renew(void *start, size_t bytes) {
    leave_witness(start);
    long result = raw_call(SYS_mmap, (long)start, (long)bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (result == (long)start) {
        return 0;
    }
    return is_ours_still(start, bytes) ? (int)result : -EADDRNOTAVAIL;
}

/* ---------------------------------------------------------------- threads */

void os_wait(_Atomic uint32_t *word, uint32_t expected) {
    raw_call(SYS_futex, (long)word, FUTEX_WAIT_PRIVATE, expected, 0, 0, 0);
}

void os_wait_ms(_Atomic uint32_t *word, uint32_t expected, uint64_t ms) {
    struct timespec time = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    raw_call(SYS_futex, (long)word, FUTEX_WAIT_PRIVATE, expected, (long)&time, 0, 0);
}

void os_wake(_Atomic uint32_t *word) {
    raw_call(SYS_futex, (long)word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}

/*
 * The kernel lends every process a function that reads the clock without a system call.  It is found by
 * its name in the small library the kernel maps; without (old kernels, valgrind), a system call is made.
 */
static int (*_Atomic fast_clock)(clockid_t clock, struct timespec *now);

typedef ElfW(Sym) elf_symbol;
typedef ElfW(Dyn) elf_dynamic;

/* The number of symbols in a table: only the hash table beside it knows. */
static const elf_symbol *find_symbol(const elf_symbol *symbols, uint32_t count, const char *names,
                                     const char *name) {
    for (uint32_t i = 0; i < count; i++) {
        if (symbols[i].st_value != 0 && strcmp(names + symbols[i].st_name, name) == 0) {
            return &symbols[i];
        }
    }
    return NULL;
}

/* Where a function of a mapped library is, given its headers and its dynamic section. */
static uintptr_t find_function(uintptr_t bias, const elf_dynamic *entry, const char *name) {
    const elf_symbol *symbols = NULL;
    const char *names = NULL;
    const uint32_t *hash = NULL;
    for (; entry->d_tag != DT_NULL; entry++) {
        uintptr_t value = bias + entry->d_un.d_ptr;
        symbols = entry->d_tag == DT_SYMTAB ? (const void *)value : symbols;
        names = entry->d_tag == DT_STRTAB ? (const void *)value : names;
        hash = entry->d_tag == DT_HASH ? (const void *)value : hash;
    }
    if (symbols == NULL || names == NULL || hash == NULL) {
        return 0;
    }
    const elf_symbol *symbol = find_symbol(symbols, hash[1], names, name);
    return symbol != NULL ? bias + symbol->st_value : 0;
}

static void find_fast_clock(void) {
#if defined(__x86_64__)
    static const char name[] = "__vdso_clock_gettime";
#else
    static const char name[] = "__kernel_clock_gettime";
#endif
    uintptr_t start = getauxval(AT_SYSINFO_EHDR);
    if (start == 0) {
        return;
    }
    const ElfW(Ehdr) *file = (const void *)start;
    const ElfW(Phdr) *headers = (const void *)(start + file->e_phoff);
    const ElfW(Phdr) *dynamic = NULL;
    uintptr_t bias = start;
    for (unsigned i = 0; i < file->e_phnum; i++) {
        if (headers[i].p_type == PT_LOAD && headers[i].p_offset == 0) {
            bias = start - headers[i].p_vaddr;
        } else if (headers[i].p_type == PT_DYNAMIC) {
            dynamic = &headers[i];
        }
    }
    if (dynamic != NULL) {
        fast_clock = (int (*)(clockid_t, struct timespec *))find_function(
            bias, (const void *)(bias + dynamic->p_vaddr), name);
    }
}

static void read_clock(clockid_t clock, struct timespec *now) {
    int (*read)(clockid_t, struct timespec *) =
        atomic_load_explicit(&fast_clock, memory_order_relaxed);
    if (UNLIKELY(read == NULL || read(clock, now) != 0)) {
        raw_call(SYS_clock_gettime, clock, (long)now, 0, 0, 0, 0);
    }
}

uint64_t os_now_ms(void) {
    struct timespec now = {0};
    read_clock(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t os_now_ns(void) {
    struct timespec now = {0};
    read_clock(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t os_wall_ns(void) {
    struct timespec now = {0};
    raw_call(SYS_clock_gettime, CLOCK_REALTIME, (long)&now, 0, 0, 0, 0);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint32_t os_process_id(void) {
    return (uint32_t)raw_call(SYS_getpid, 0, 0, 0, 0, 0, 0);
}

bool os_is_first_thread(void) {
    return raw_call(SYS_gettid, 0, 0, 0, 0, 0, 0) == raw_call(SYS_getpid, 0, 0, 0, 0, 0, 0);
}

void os_thread_name(char name[16]) {
    if (raw_call(SYS_prctl, PR_GET_NAME, (long)name, 0, 0, 0, 0) != 0) {
        name[0] = '\0';
    }
}

/* The kernel copies the new set before it finds that it does not know the operation. */
bool os_is_readable(uintptr_t address) {
    enum { NO_OPERATION = -1 };
    return raw_call(SYS_rt_sigprocmask, NO_OPERATION, (long)address, 0, sizeof(uint64_t), 0, 0) ==
           -EINVAL;
}

uintptr_t os_program_headers(void) {
    return getauxval(AT_PHDR);
}

uintptr_t os_first_stack_end(void) {
    return &__libc_stack_end != NULL ? (uintptr_t)__libc_stack_end : 0;
}

uint32_t os_current_cpu(void) {
    int cpu = sched_getcpu();
    return cpu > 0 ? (uint32_t)cpu : 0;
}

/* ---------------------------------------------------------------- last words */

/* A set of signals as the kernel keeps it. */
static uint64_t signal_bit(int number) {
    return UINT64_C(1) << (number - 1);
}

static int write_all(int fd, const char *text, size_t length) {
    while (length > 0) {
        long written = raw_call(SYS_write, fd, (long)text, (long)length, 0, 0, 0);
        if (written == -EINTR) {
            continue;
        }
        if (written <= 0) {
            return written < 0 ? (int)written : -EIO;
        }
        text += written;
        length -= (size_t)written;
    }
    return 0;
}

/*
 * A broken pipe or a file at its size limit raises a signal that would end the program for a write of
 * ours.  The signal is blocked, and taken back if it came; one that was pending before stays.
 */
int os_write_all(int fd, const void *bytes, size_t length) {
    uint64_t ours = signal_bit(SIGPIPE) | signal_bit(SIGXFSZ);
    uint64_t before = 0;
    uint64_t pending = 0;
    struct timespec at_once = {0};
    raw_call(SYS_rt_sigprocmask, SIG_BLOCK, (long)&ours, (long)&before, sizeof(ours), 0, 0);
    raw_call(SYS_rt_sigpending, (long)&pending, sizeof(pending), 0, 0, 0, 0);
    int error = write_all(fd, bytes, length);
    uint64_t came = ours & ~pending;
    raw_call(SYS_rt_sigtimedwait, (long)&came, 0, (long)&at_once, sizeof(came), 0, 0);
    raw_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&before, 0, sizeof(before), 0, 0);
    return error;
}

void os_write(int fd, const char *text, size_t length) {
    os_write_all(fd, text, length);
}

/*
 * A program that closes low numbers and opens its own files, as daemons do, finds none of ours there.  A
 * thread of ours cannot have a table of descriptors of its own: it would keep open what the program closes,
 * its standard error among them.
 */
static int open_file(const char *path, long flags) {
    long file = raw_call(SYS_openat, AT_FDCWD, (long)path, flags | O_CLOEXEC, 0600, 0, 0);
    if (file < 0) {
        return (int)file;
    }
    int moved = os_copy_high((int)file);
    if (moved < 0 && file > 2) {
        return (int)file; /* the last that the limit allows */
    }
    raw_call(SYS_close, file, 0, 0, 0, 0, 0);
    return moved;
}

/* Files of the kernel come whole with one read. */
int os_read_file(const char *path, char *text, size_t capacity) {
    int file = open_file(path, O_RDONLY);
    if (file < 0) {
        return file;
    }
    long length = raw_call(SYS_read, file, (long)text, (long)(capacity - 1), 0, 0, 0);
    raw_call(SYS_close, file, 0, 0, 0, 0, 0);
    text[length > 0 ? length : 0] = '\0';
    return (int)length;
}

int os_open(const char *path) {
    return open_file(path, O_RDONLY);
}

int os_open_at_once(const char *path) {
    return open_file(path, O_RDONLY | O_NONBLOCK);
}

int os_create(const char *path) {
    int file = open_file(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
    if (file >= 0) { /* whatever the umask leaves of it */
        raw_call(SYS_fchmod, file, 0600, 0, 0, 0, 0);
    }
    return file;
}

int os_append(const char *path) {
    return open_file(path, O_WRONLY | O_APPEND | O_NOFOLLOW);
}

/* The disk is shared with others, so what only root may use counts as used.  Behind a filter of system calls the
 * kernel is not asked: this call is so rare that the filter may end the process for it. */
int os_check_room(int fd, uint64_t bytes) {
    struct statfs disk;
    enum { KEPT_FREE = 10 }; /* a tenth */
    if (os_is_confined() || raw_call(SYS_fstatfs, fd, (long)&disk, 0, 0, 0, 0) != 0 ||
        disk.f_blocks == 0 || disk.f_bsize <= 0) {
        return 0;
    }
    uint64_t block = (uint64_t)disk.f_bsize;
    uint64_t wanted = bytes / block + 1 + disk.f_blocks / KEPT_FREE;
    return disk.f_bavail < wanted ? -OS_LITTLE_ROOM : 0;
}

int os_identify(int fd, struct os_identity *identity) {
    struct statx found;
    int error =
        (int)raw_call(SYS_statx, fd, (long)"", AT_EMPTY_PATH, STATX_BASIC_STATS, (long)&found, 0);
    if (error == 0) {
        *identity = (struct os_identity){(uint64_t)found.stx_dev_major << 32 | found.stx_dev_minor,
                                         found.stx_ino, found.stx_size};
    }
    return error;
}

int os_truncate(int fd, uint64_t bytes) {
    return (int)raw_call(SYS_ftruncate, fd, (long)bytes, 0, 0, 0, 0);
}

/* An interrupted close has closed all the same. */
int os_close(int fd) {
    int error = (int)raw_call(SYS_close, fd, 0, 0, 0, 0, 0);
    return error == -EINTR ? 0 : error;
}

ssize_t os_read(int fd, void *bytes, size_t capacity) {
    long length;
    do {
        length = raw_call(SYS_read, fd, (long)bytes, (long)capacity, 0, 0, 0);
    } while (length == -EINTR);
    return length;
}

ssize_t os_read_at(int fd, void *bytes, size_t capacity, uint64_t offset) {
    long length;
    do {
        length = raw_call(SYS_pread64, fd, (long)bytes, (long)capacity, (long)offset, 0, 0);
    } while (length == -EINTR);
    return length;
}

/* Where the file system cannot refuse a name that is taken, an empty file takes it first. */
int os_rename(const char *from, const char *to) {
    int error =
        (int)raw_call(SYS_renameat2, AT_FDCWD, (long)from, AT_FDCWD, (long)to, RENAME_NOREPLACE, 0);
    if (error != -EINVAL && error != -ENOSYS && error != -EPERM) { /* a filter may say the last */
        return error;
    }
    int reserved = os_create(to);
    if (reserved < 0) {
        return reserved;
    }
    os_close(reserved);
    error = (int)raw_call(SYS_renameat, AT_FDCWD, (long)from, AT_FDCWD, (long)to, 0, 0);
    if (error != 0) {
        os_remove(to);
    }
    return error;
}

int os_remove(const char *path) {
    return (int)raw_call(SYS_unlinkat, AT_FDCWD, (long)path, 0, 0, 0, 0);
}

int os_replace(const char *from, const char *to) {
    return (int)raw_call(SYS_renameat, AT_FDCWD, (long)from, AT_FDCWD, (long)to, 0, 0);
}

static bool is_own(const struct statx *found) {
    return (found->stx_mode & S_IFMT) == S_IFREG && found->stx_nlink == 1 &&
           found->stx_uid == (uint32_t)raw_call(SYS_geteuid, 0, 0, 0, 0, 0, 0);
}

/* Other devices may do something as soon as they are opened. */
static bool is_null_device(const struct statx *found) {
    return (found->stx_mode & S_IFMT) == S_IFCHR && found->stx_rdev_major == 1 &&
           found->stx_rdev_minor == 3;
}

static int look_at_name(const char *path, struct statx *found) {
    return (int)raw_call(SYS_statx, AT_FDCWD, (long)path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS,
                         (long)found, 0);
}

bool os_is_own_file(const char *path) {
    struct statx found;
    return look_at_name(path, &found) == 0 && is_own(&found);
}

/* The N of /dev/fd/N, or -1 for names of other things. */
static int64_t descriptor_of_name(const char *path) {
    static const struct {
        const char *name;
        int descriptor;
    } names[] = {{"/dev/stdin", 0}, {"/dev/stdout", 1}, {"/dev/stderr", 2}};
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    uint64_t number;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(path, names[i].name) == 0) {
            return names[i].descriptor;
        }
    }
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        size_t length = strlen(folders[i]);
        if (strncmp(path, folders[i], length) == 0 &&
            fmt_parse_number(path + length, strlen(path + length), &number)) {
            return number <= INT32_MAX ? (int64_t)number : INT32_MAX;
        }
    }
    return -1;
}

static int copy_for_writing(int fd) {
    long flags = raw_call(SYS_fcntl, fd, F_GETFL, 0, 0, 0, 0);
    if (flags < 0) {
        return (int)flags;
    }
    bool may_write = (flags & O_ACCMODE) == O_WRONLY || (flags & O_ACCMODE) == O_RDWR;
    return may_write && !(flags & O_PATH) ? os_copy_high(fd) : -EBADF;
}

/* What the name led to a moment ago may be another thing now, so what was opened is looked at again.  A pipe that
 * has come meanwhile is not waited for. */
int os_open_given(const char *path, bool *is_file) {
    struct statx found;
    int64_t descriptor = descriptor_of_name(path);
    *is_file = false;
    if (descriptor >= 0) {
        return copy_for_writing((int)descriptor);
    }
    int error = look_at_name(path, &found);
    if (error != 0 || !(is_own(&found) || is_null_device(&found))) {
        return error != 0 ? error : -EEXIST;
    }
    int file = open_file(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (file < 0) {
        return file;
    }
    error =
        (int)raw_call(SYS_statx, file, (long)"", AT_EMPTY_PATH, STATX_BASIC_STATS, (long)&found, 0);
    *is_file = error == 0 && is_own(&found);
    if (error == 0 && !*is_file && !is_null_device(&found)) {
        error = -EEXIST;
    }
    if (error != 0) {
        os_close(file);
    }
    return error != 0 ? error : file;
}

bool os_exists(const char *path) {
    struct statx found;
    return raw_call(SYS_statx, AT_FDCWD, (long)path, AT_SYMLINK_NOFOLLOW, STATX_TYPE, (long)&found,
                    0) == 0;
}

int os_error(void) {
    return errno;
}

void os_set_error(int error) {
    errno = error;
}

_Noreturn void os_exit(int status) {
    for (;;) {
        raw_call(SYS_exit_group, status, 0, 0, 0, 0, 0);
    }
}

static void raise_abort(void) {
    long pid = raw_call(SYS_getpid, 0, 0, 0, 0, 0, 0);
    long tid = raw_call(SYS_gettid, 0, 0, 0, 0, 0, 0);
    raw_call(SYS_tgkill, pid, tid, SIGABRT, 0, 0, 0);
}

/* The kernel's own layout of a signal action; libc's differs and needs a restorer. */
struct kernel_action {
    void *handler;
    unsigned long flags;
    void *restorer;
    uint64_t mask;
};

void os_abort(void) {
    uint64_t abort_only = signal_bit(SIGABRT);
    raw_call(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&abort_only, 0, sizeof(abort_only), 0, 0);
    raise_abort();
    /* The program's handler returned, or the signal was ignored: insist. */
    struct kernel_action standard = {0};
    raw_call(SYS_rt_sigaction, SIGABRT, (long)&standard, 0, sizeof(abort_only), 0, 0);
    raise_abort();
    __builtin_trap();
}
