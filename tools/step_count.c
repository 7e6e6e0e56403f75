/* SPDX-License-Identifier: MIT
 *
 * step_count.c - how many instructions do malloc and free execute when everything goes well?
 *
 *      step_count [--trace] [--size BYTES] LIBRARY.so
 *
 * Starts itself again with the library preloaded.  That child warms the thread's cache up, then
 * calls malloc and free through the addresses the loader gives for these names, and the parent
 * single-steps it: from the first instruction of the exported symbol to its `ret`, included.  So
 * what is counted is what a program executes, without its call and its PLT stub, whatever the
 * compiler inlined or moved.  Works for any allocator; "-" counts libc's own.
 *
 * Prints `malloc N` and `free N`, the count seen most often in a few calls that differ only in the
 * slot of the cache they hit.  With --trace also one line per instruction of one such call,
 * `step malloc 0x1234`, as an offset in the library, for tools/fast_path.py to disassemble.
 *
 * Exit status: 0, 1 when the child misbehaves, 2 for wrong arguments, 77 where it cannot work.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CALLS = 16, MOST_STEPS = 4096, EXIT_UNSUPPORTED = 77 };

/* What the child tells its parent, in shared memory that both inherit by descriptor. */
struct target {
    uintptr_t entry[2]; /* where malloc and free begin */
    uintptr_t base[2];  /* where the libraries that hold them are loaded */
    size_t bytes;
};

enum function { MALLOC, FREE, FUNCTIONS };
static const char *const names[FUNCTIONS] = {"malloc", "free"};

/* The instructions of one call. */
struct path {
    unsigned steps;
    uintptr_t at[MOST_STEPS];
};

static _Noreturn void die(const char *what) {
    fprintf(stderr, "step_count: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* The child. */

static void find_symbol(struct target *target, enum function function) {
    void *address = dlsym(RTLD_DEFAULT, names[function]);
    Dl_info info;
    if (address == NULL || dladdr(address, &info) == 0) {
        die(names[function]);
    }
    target->entry[function] = (uintptr_t)address;
    target->base[function] = (uintptr_t)info.dli_fbase;
}

/*
 * Leaves the cache neither full nor empty, and some blocks alive, because an allocator does more
 * work when the first block of a page is taken or the last one comes back.
 */
static void warm_up(void *(*allocate)(size_t), void (*release)(void *), size_t bytes) {
    enum { LIVE = 8, BLOCKS = 24, ROUNDS = 200 };
    void *blocks[BLOCKS] = {NULL};
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            if (blocks[i] == NULL && (blocks[i] = allocate(bytes)) == NULL) {
                die("malloc");
            }
        }
        for (int i = LIVE; i < BLOCKS; i++) {
            release(blocks[i]);
            blocks[i] = NULL;
        }
    }
}

/* The parent wakes up at the stop and steps from there. */
static int run_target(int fd) {
    struct target *target = mmap(NULL, sizeof *target, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (target == MAP_FAILED) {
        die("mmap");
    }
    find_symbol(target, MALLOC);
    find_symbol(target, FREE);
    void *(*allocate)(size_t) = (void *(*)(size_t))target->entry[MALLOC];
    void (*release)(void *) = (void (*)(void *))target->entry[FREE];

    warm_up(allocate, release, target->bytes);
    raise(SIGSTOP);
    for (int i = 0; i < CALLS; i++) {
        char *block = allocate(target->bytes);
        *(volatile char *)block = 1;
        release(block);
    }
    return 0;
}

static void start_target(const char *library, int fd, char *self) {
    char fd_text[16];
    snprintf(fd_text, sizeof fd_text, "%d", fd);
    if (strcmp(library, "-") != 0) {
        setenv("LD_PRELOAD", library, 1);
    }
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
        fprintf(stderr, "step_count: ptrace is not allowed here\n");
        _exit(EXIT_UNSUPPORTED);
    }
    execl("/proc/self/exe", self, "--target", fd_text, (char *)NULL);
    die("exec");
}

/* The parent. */

#if defined(__x86_64__)
static bool read_position(pid_t pid, uintptr_t *pc, uintptr_t *sp, uintptr_t *return_address) {
    struct user_regs_struct regs;
    if (ptrace(PTRACE_GETREGS, pid, NULL, &regs) != 0) {
        return false;
    }
    *pc = regs.rip;
    *sp = regs.rsp;
    *return_address = 0;
    errno = 0;
    *return_address = (uintptr_t)ptrace(PTRACE_PEEKDATA, pid, (void *)regs.rsp, NULL);
    return errno == 0;
}
enum { RETURN_POPS = 8, SUPPORTED = 1 };
#elif defined(__aarch64__)
static bool read_position(pid_t pid, uintptr_t *pc, uintptr_t *sp, uintptr_t *return_address) {
    struct user_regs_struct regs;
    struct iovec io = {&regs, sizeof regs};
    if (ptrace(PTRACE_GETREGSET, pid, (void *)NT_PRSTATUS, &io) != 0) {
        return false;
    }
    *pc = regs.pc;
    *sp = regs.sp;
    *return_address = regs.regs[30];
    return true;
}
enum { RETURN_POPS = 0, SUPPORTED = 1 };
#else
static bool read_position(pid_t pid, uintptr_t *pc, uintptr_t *sp, uintptr_t *return_address) {
    (void)pid, (void)pc, (void)sp, (void)return_address;
    return false;
}
enum { RETURN_POPS = 0, SUPPORTED = 0 };
#endif

/* One instruction.  False when the child has ended. */
static bool step(pid_t pid) {
    int status;
    if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0 || waitpid(pid, &status, 0) != pid) {
        die("step");
    }
    if (WIFSTOPPED(status) && WSTOPSIG(status) != SIGTRAP) {
        fprintf(stderr, "step_count: the child stopped by signal %d\n", WSTOPSIG(status));
        exit(1);
    }
    return WIFSTOPPED(status);
}

/*
 * The child stands on the first instruction of a function; go on until it is back in its caller.
 * The stack pointer tells a return from a recursive call that happens to pass the same address.
 */
static void follow_call(pid_t pid, struct path *path) {
    uintptr_t pc, sp, back, first_sp, ignored;
    if (!read_position(pid, &pc, &first_sp, &back)) {
        die("registers");
    }
    path->steps = 0;
    do {
        if (path->steps < MOST_STEPS) {
            path->at[path->steps] = pc;
        }
        path->steps++;
        if (!step(pid) || !read_position(pid, &pc, &sp, &ignored)) {
            die("the child ended inside a call");
        }
    } while (pc != back || sp != first_sp + RETURN_POPS);
}

/* Step through everything the child does after its stop; keep what belongs to the two functions. */
static void follow_target(pid_t pid, const struct target *target,
                          struct path paths[FUNCTIONS][CALLS], int seen[FUNCTIONS]) {
    while (seen[MALLOC] < CALLS || seen[FREE] < CALLS) {
        uintptr_t pc, sp, back;
        if (!step(pid) || !read_position(pid, &pc, &sp, &back)) {
            die("the child ended early");
        }
        for (int f = 0; f < FUNCTIONS; f++) {
            if (pc == target->entry[f] && seen[f] < CALLS) {
                follow_call(pid, &paths[f][seen[f]++]);
                break;
            }
        }
    }
}

/* The call whose length is most common; of equally common ones the shortest. */
static const struct path *usual_path(const struct path *paths) {
    const struct path *usual = NULL;
    int most = 0;
    for (int i = 0; i < CALLS; i++) {
        int same = 0;
        for (int k = 0; k < CALLS; k++) {
            same += paths[k].steps == paths[i].steps;
        }
        if (same > most || (same == most && paths[i].steps < usual->steps)) {
            usual = &paths[i];
            most = same;
        }
    }
    return usual;
}

static void print_paths(const struct target *target, struct path paths[FUNCTIONS][CALLS],
                        bool trace) {
    for (int f = 0; f < FUNCTIONS; f++) {
        const struct path *usual = usual_path(paths[f]);
        printf("%s %u\n", names[f], usual->steps);
        for (unsigned i = 0; trace && i < usual->steps && i < MOST_STEPS; i++) {
            printf("step %s 0x%lx\n", names[f], (unsigned long)(usual->at[i] - target->base[f]));
        }
    }
}

static int count_steps(const char *library, size_t bytes, bool trace, char *self) {
    static struct path paths[FUNCTIONS][CALLS];
    int seen[FUNCTIONS] = {0, 0};
    int fd = memfd_create("step_count", 0);
    if (fd < 0 || ftruncate(fd, sizeof(struct target)) != 0) {
        die("memfd");
    }
    struct target *target = mmap(NULL, sizeof *target, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (target == MAP_FAILED) {
        die("mmap");
    }
    target->bytes = bytes;
    pid_t pid = fork();
    if (pid == 0) {
        start_target(library, fd, self);
    }
    int status = 0;
    /* The first stop is the exec's, the second the child's own. */
    for (int stop = 0; stop < 2; stop++) {
        if (waitpid(pid, &status, 0) != pid) {
            die("wait");
        }
        if (!WIFSTOPPED(status)) {
            exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
        }
        if (stop == 0) {
            ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)PTRACE_O_EXITKILL);
            ptrace(PTRACE_CONT, pid, NULL, NULL);
        } else if (WSTOPSIG(status) != SIGSTOP) {
            fprintf(stderr, "step_count: the child died of signal %d\n", WSTOPSIG(status));
            exit(1);
        }
    }
    follow_target(pid, target, paths, seen);
    print_paths(target, paths, trace);
    return 0;
}

static int usage(void) {
    fputs("Usage: step_count [--trace] [--size BYTES] LIBRARY.so|-\n", stderr);
    return 2;
}

int main(int argc, char **argv) {
    bool trace = false;
    size_t bytes = 48;
    const char *library = NULL;
    if (argc == 3 && strcmp(argv[1], "--target") == 0) {
        return run_target(atoi(argv[2]));
    }
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--trace") == 0) {
            trace = true;
        } else if (strcmp(argv[i], "--size") == 0 && i + 1 < argc) {
            bytes = strtoul(argv[++i], NULL, 0);
        } else if (library == NULL && (argv[i][0] != '-' || argv[i][1] == '\0')) {
            library = argv[i];
        } else {
            return usage();
        }
    }
    if (library == NULL) {
        return usage();
    }
    if (!SUPPORTED) {
        fprintf(stderr, "step_count: this processor is not known here\n");
        return EXIT_UNSUPPORTED;
    }
    return count_steps(library, bytes, trace, argv[0]);
}
