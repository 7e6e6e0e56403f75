/* SPDX-License-Identifier: MIT
 *
 * test_os_linux.c - the contracts of os.h, asked of the real kernel.
 *
 * Whether memory can be read or written is asked by system calls that would copy from or to it: they
 * answer EFAULT where an access would end the process.
 */
#define _GNU_SOURCE /* CPU_COUNT */
#include "base/os.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/os_socket.h"
#include "unit.h"

enum { MANY_PAGES = 64 };

static int pipe_ends[2];

static void prepare(void) {
    os_init();
    check(pipe(pipe_ends) == 0);
}
TEST_SETUP(prepare);

static bool can_read(const void *address) {
    char byte;
    bool can = syscall(SYS_write, pipe_ends[1], address, 1) == 1;
    return can && read(pipe_ends[0], &byte, 1) == 1;
}

/* Writes a zero. */
static bool can_write(void *address) {
    char byte = 0;
    check(write(pipe_ends[1], &byte, 1) == 1);
    bool can = syscall(SYS_read, pipe_ends[0], address, 1) == 1;
    return can || read(pipe_ends[0], &byte, 1) != 1;
}

static bool all_zero(const char *start, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        if (start[i] != 0) {
            return false;
        }
    }
    return true;
}

TEST(facts_are_those_of_the_process) {
    cpu_set_t cpus;
    check(sched_getaffinity(0, sizeof cpus, &cpus) == 0);
    check_eq(os_facts.page_bytes, sysconf(_SC_PAGESIZE));
    check_eq(os_facts.cpus, CPU_COUNT(&cpus));
    check(!os_facts.secure);
    uint64_t random = os_facts.random;
    os_init();
    check_eq(os_facts.random, random);
}

TEST(limited_address_space_is_noticed) {
    struct rlimit limit;
    check(getrlimit(RLIMIT_AS, &limit) == 0);
    check_eq(os_facts.address_space_limited, limit.rlim_cur != RLIM_INFINITY);
    limit_address_space((rlim_t)1 << 46);
    os_init();
    check(os_facts.address_space_limited);
}

TEST(one_cpu_is_counted_as_one) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    check(sched_setaffinity(0, sizeof one, &one) == 0);
    os_init();
    check_eq(os_facts.cpus, 1);
}

TEST(environment_finds_whole_names_only) {
    setenv("TALLY_UNIT", "value=with=signs", 1);
    setenv("TALLY_EMPTY", "", 1);
    check_str(os_environment("TALLY_UNIT"), "value=with=signs");
    check_str(os_environment("TALLY_EMPTY"), "");
    check(os_environment("TALLY_UNI") == NULL);
    check(os_environment("TALLY_UNIT=") == NULL);
    check(os_environment("TALLY_UNITS") == NULL);
    unsetenv("TALLY_UNIT");
    check(os_environment("TALLY_UNIT") == NULL);
}

TEST(mapped_memory_is_zeroed_aligned_and_writable) {
    size_t bytes = MANY_PAGES * os_facts.page_bytes;
    char *start = os_map(bytes);
    check(start != NULL);
    check_eq((uintptr_t)start % os_facts.page_bytes, 0);
    check(all_zero(start, bytes));
    memset(start, 0x5a, bytes);
    check_eq(os_unmap(start, bytes), 0);
    check(!can_read(start) && !can_read(start + bytes - 1));
}

TEST(impossible_size_is_refused) {
    size_t impossible = (size_t)1 << 62;
    errno = 4321;
    check(os_map(impossible) == NULL);
    check(os_reserve(NULL, impossible) == NULL);
    check(os_reserve_readable(impossible) == NULL);
    check_eq(errno, 4321);
}

TEST(reserved_addresses_are_unusable_until_committed) {
    size_t page = os_facts.page_bytes;
    char *start = os_reserve(NULL, MANY_PAGES * page);
    check(start != NULL);
    check(!can_read(start) && !can_write(start));
    check_eq(os_commit(start + page, 2 * page), 0);
    check(!can_read(start));
    check(all_zero(start + page, 2 * page));
    check(can_write(start + page) && can_write(start + 3 * page - 1));
    check(!can_read(start + 3 * page));
}

TEST(reservation_stands_at_its_hint_when_that_is_free) {
    size_t bytes = MANY_PAGES * os_facts.page_bytes;
    char *start = os_reserve(NULL, 2 * bytes);
    check(start != NULL && os_unmap(start + bytes, bytes) == 0);
    check_eq(os_reserve(start + bytes, bytes), start + bytes);
    char *elsewhere = os_reserve(start, bytes); /* Taken: it must not replace what is there. */
    check(elsewhere != NULL && elsewhere != start);
}

TEST(readable_reservation_reads_as_zeros_and_refuses_writes) {
    size_t page = os_facts.page_bytes;
    char *start = os_reserve_readable(MANY_PAGES * page);
    check(start != NULL);
    check(all_zero(start, MANY_PAGES * page));
    check(can_read(start) && !can_write(start));
    check_eq(os_commit(start, page), 0);
    check(can_write(start) && !can_write(start + page));
}

TEST(purged_memory_reads_as_zeros_and_stays_usable) {
    size_t page = os_facts.page_bytes;
    char *start = os_map(3 * page);
    check(start != NULL);
    memset(start, 0x5a, 3 * page);
    check_eq(os_purge(start + page, page), 0);
    check_eq(start[page - 1], 0x5a);
    check(all_zero(start + page, page));
    check_eq(start[2 * page], 0x5a);
    check(can_write(start + page));
}

TEST(purging_many_pages_gives_zeros_every_time) {
    size_t bytes = MANY_PAGES * os_facts.page_bytes;
    char *start = os_map(bytes);
    check(start != NULL);
    for (int round = 0; round < 3; round++) {
        memset(start, 0x5a, bytes);
        check_eq(os_purge(start, bytes), 0);
        check(all_zero(start, bytes));
    }
}

/* What it holds afterwards is not known: each page is as it was, or zeros. */
TEST(memory_that_is_offered_stays_usable) {
    size_t bytes = MANY_PAGES * os_facts.page_bytes;
    char *start = os_map(bytes);
    check(start != NULL);
    memset(start, 0x5a, bytes);
    check_eq(os_purge_lazily(start, bytes), 0);
    for (size_t i = 0; i < bytes; i += os_facts.page_bytes) {
        check(start[i] == 0x5a || start[i] == 0);
        start[i] = 1;
        check_eq(start[i], 1);
    }
    errno = 4321;
    check_eq(os_purge_lazily(start + 1, os_facts.page_bytes), -EINVAL);
    check_eq(os_unmap(start, bytes), 0);
    check_eq(os_purge_lazily(start, bytes), -ENOMEM);
    check_eq(errno, 4321);
}

/* Has the kernel answer madvise with success without doing anything, as some emulators do. */
static bool make_purging_a_lie(void) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO), /* with error number 0 */
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(purging_is_refused_where_it_would_not_give_zeros) {
    size_t page = os_facts.page_bytes;
    char *start = os_map(page);
    check(start != NULL);
    memset(start, 0x5a, page);
    if (!make_purging_a_lie()) {
        skip("the kernel lets no process filter its system calls");
    }
    check_eq(os_purge(start, page), -ENOTSUP);
    check_eq(os_purge(start, page), -ENOTSUP);
    check_eq(start[0], 0x5a);
}

TEST(refusals_are_negative_error_numbers_and_leave_errno_alone) {
    size_t page = os_facts.page_bytes;
    char *start = os_map(2 * page);
    check(start != NULL && os_unmap(start, 2 * page) == 0);
    errno = 4321;
    check_eq(os_commit(start, page), -ENOMEM);
    check_eq(os_purge(start, page), -ENOMEM);
    check_eq(os_purge(start + 1, page), -EINVAL);
    check_eq(os_unmap(start + 1, page), -EINVAL);
    check_eq(errno, 4321);
}

static _Atomic uint32_t word = 1;

static void *wait_for_two(void *unused) {
    (void)unused;
    uint32_t now;
    while ((now = atomic_load(&word)) != 2) {
        os_wait(&word, now);
    }
    return NULL;
}

TEST(sleeper_wakes_when_the_word_has_changed) {
    os_wait(&word, 0); /* Not equal: must return at once, or the test runs into its time limit. */
    pthread_t thread;
    check(pthread_create(&thread, NULL, wait_for_two, NULL) == 0);
    usleep(2000);
    atomic_store(&word, 2);
    os_wake(&word);
    check(pthread_join(thread, NULL) == 0);
}

/* Two ranges of one mapping, the first filled. */
static char *map_two(size_t bytes) {
    char *two = os_map(2 * bytes);
    check(two != NULL);
    memset(two, 0x5a, bytes);
    memset(two + bytes, 0x77, bytes);
    return two;
}

TEST(moved_memory_is_at_its_new_place_and_zeros_are_at_the_old) {
    for (size_t bytes = os_facts.page_bytes; bytes <= 8 << 20; bytes *= 8) {
        char *two = map_two(bytes);
        int error = os_move(two + bytes, two, bytes);
        if (error == -ENOTSUP) {
            skip("this kernel does not move memory and keep its addresses");
        }
        check_eq(error, 0);
        check(all_zero(two, bytes));
        for (size_t i = 0; i < bytes; i++) {
            check(two[bytes + i] == 0x5a);
        }
        check_eq(os_renew(two + bytes, bytes), 0);
        check(all_zero(two, 2 * bytes));
        memset(two, 1, 2 * bytes);
        check_eq(os_unmap(two, 2 * bytes), 0);
    }
}

/* From now on mremap of this many bytes fails, or of any length if that is 0. */
static void refuse_mremap(uint32_t bytes, int error) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | (bytes != 0 ? BPF_JEQ : BPF_JGE) | BPF_K, bytes, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        skip("this kernel does not filter system calls");
    }
}

TEST(refused_move_leaves_the_source_alone_and_the_destination_usable) {
    size_t bytes = 16 * os_facts.page_bytes;
    char *two = map_two(bytes);
    if (os_move(two + bytes, two, os_facts.page_bytes) == -ENOTSUP) {
        skip("this kernel does not move memory and keep its addresses");
    }
    memset(two, 0x5a, bytes);
    refuse_mremap((uint32_t)bytes, ENOMEM);
    check_eq(os_move(two + bytes, two, bytes), -ENOMEM);
    for (size_t i = 0; i < bytes; i++) {
        check(two[i] == 0x5a);
    }
    memset(two + bytes, 1, bytes);
    check_eq(os_move(two + bytes, two, bytes / 2), 0); /* others are moved as before */
}

TEST(locked_memory_is_not_moved) {
    size_t bytes = 4 << 20;
    char *two = map_two(bytes);
    if (SANITIZED) {
        skip("sanitizers make mlock do nothing");
    }
    if (mlock(two, bytes) != 0) {
        skip("this process may not lock its memory");
    }
    int error = os_move(two + bytes, two, bytes);
    check(error == -EPERM || error == -ENOTSUP);
    check(two[0] == 0x5a && two[bytes - 1] == 0x5a);
}

/* mremap answers as old kernels and some emulators do. */
TEST(move_that_the_kernel_does_not_know_is_not_tried_again) {
    char *two = map_two(os_facts.page_bytes);
    refuse_mremap(0, EINVAL);
    for (unsigned i = 0; i < 3; i++) {
        check_eq(os_move(two + os_facts.page_bytes, two, os_facts.page_bytes), -ENOTSUP);
        check(two[0] == 0x5a && two[os_facts.page_bytes] == 0x77);
    }
}

TEST(current_cpu_is_one_of_the_machine) {
    check(os_current_cpu() < (uint32_t)sysconf(_SC_NPROCESSORS_CONF));
}

TEST(time_never_runs_backwards) {
    uint64_t last = os_now_ms();
    for (unsigned i = 0; i < 10000; i++) {
        uint64_t now = os_now_ms();
        check(now >= last);
        last = now;
    }
    usleep(50000);
    check(os_now_ms() > last);
}

static void *read_slowly(void *total) {
    static char piece[777];
    ssize_t n;
    while ((n = read(pipe_ends[0], piece, sizeof piece)) > 0) {
        *(size_t *)total += (size_t)n;
    }
    return NULL;
}

TEST(write_writes_all_of_a_text_longer_than_a_pipe) {
    static char text[300000];
    size_t total = 0;
    pthread_t reader;
    memset(text, 'x', sizeof text);
    check(pthread_create(&reader, NULL, read_slowly, &total) == 0);
    os_write(pipe_ends[1], text, sizeof text);
    close(pipe_ends[1]);
    check(pthread_join(reader, NULL) == 0);
    check_eq(total, sizeof text);
}

TEST(write_to_nowhere_is_silent) {
    errno = 4321;
    os_write(-1, "text", 4);
    check_eq(errno, 4321);
}

TEST(beginning_of_a_file_is_read_as_a_string) {
    char text[8];
    char name[] = "/tmp/tally-unit-XXXXXX";
    int file = mkstemp(name);
    check(write(file, "0123456789", 10) == 10);
    check_eq(os_read_file(name, text, sizeof text), 7);
    check_str(text, "0123456");
    check_eq(ftruncate(file, 3), 0);
    check_eq(os_read_file(name, text, sizeof text), 3);
    check_str(text, "012");
    check_eq(ftruncate(file, 0), 0);
    check_eq(os_read_file(name, text, sizeof text), 0);
    check_str(text, "");
    unlink(name);
    close(file);
}

/* Behind what a program that closes low numbers and counts on getting them again may meet. */
TEST(files_have_high_numbers_where_the_limit_allows) {
    struct rlimit limit;
    check_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    rlim_t before = limit.rlim_cur;
    close(0);
    limit.rlim_cur = 1024 < limit.rlim_max ? 1024 : limit.rlim_max;
    check_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    int file = os_open("/proc/self/statm");
    check(file >= (limit.rlim_cur > 512 ? 512 : 10));
    check_eq(os_close(file), 0);
    limit.rlim_cur = 64;
    check_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    int last = dup(2), next;
    check_eq(last, 0);
    while ((next = dup(2)) >= 0) {
        last = next;
    }
    check_eq(os_open("/proc/self/statm"), -EMFILE);
    close(last);
    check_eq(os_open("/proc/self/statm"), last); /* The only one will do ... */
    close(0);
    check_eq(os_open("/proc/self/statm"), -EMFILE); /* ... but not 0, ... */
    check_eq(dup(2), 0);                            /* ... which is free again. */
    limit.rlim_cur = before; /* A sanitizer that looks for leaks reads files. */
    check_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(file_that_cannot_be_read_is_a_negative_error_number) {
    char text[8];
    errno = 0;
    check_eq(os_read_file("/no/such/file", text, sizeof text), -ENOENT);
    check_eq(os_read_file("/", text, sizeof text), -EISDIR);
    check_eq(errno, 0);
    int next = dup(0); /* no descriptor was left open */
    close(next);
    check_eq(os_read_file("/", text, sizeof text), -EISDIR);
    int again = dup(0);
    check_eq(again, next);
    close(again);
}

TEST(abort_ends_the_process) {
    check_dies(os_abort(), "", SIGABRT);
}

/* ---------------------------------------------------------------- files */

static void refuse_renameat2(int error) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        skip("this kernel does not filter system calls");
    }
}

static void check_rename_without(int error) {
    char folder[] = "/tmp/test_os_linux.XXXXXX";
    check(mkdtemp(folder) != NULL && chdir(folder) == 0);
    refuse_renameat2(error);
    for (unsigned i = 0; i < 2; i++) { /* The second finds the name taken. */
        int file = os_create("from");
        check(file >= 0);
        check_eq(os_write_all(file, "text", 4), 0);
        check_eq(os_close(file), 0);
        check_eq(os_rename("from", "to"), i == 0 ? 0 : -EEXIST);
        check_eq(os_exists("from"), i == 1);
    }
    char text[8];
    check_eq(os_read_file("to", text, sizeof text), 4);
    check_eq(os_remove("from"), 0);
    check_eq(os_remove("to"), 0);
    check_eq(rmdir(folder), 0);
}

TEST(files_are_renamed_where_the_kernel_cannot_refuse_a_taken_name) {
    check_rename_without(ENOSYS);
}

TEST(files_are_renamed_where_a_filter_forbids_what_it_does_not_know) {
    check_rename_without(EPERM);
}

static void fill_pipe(void) {
    char page[4096] = {0};
    check_eq(fcntl(pipe_ends[1], F_SETFL, O_NONBLOCK), 0);
    while (write(pipe_ends[1], page, sizeof page) > 0) {
    }
}

/* Time that has passed is no fault of whoever reads. */
TEST(late_output_is_written_where_there_is_room) {
    char page[4096] = {0};
    prepare();
    check_eq(os_write_before(pipe_ends[1], page, sizeof page, 0), 0);
    check_eq(read(pipe_ends[0], page, sizeof page), sizeof page);
    fill_pipe();
    check_eq(os_write_before(pipe_ends[1], page, sizeof page, 0), -ETIMEDOUT);
    check_eq(os_write_before(pipe_ends[1], page, sizeof page, os_now_ms() + 1), -ETIMEDOUT);
}
