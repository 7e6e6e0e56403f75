/* SPDX-License-Identifier: MIT
 *
 * test_usdt.c - the probes of otel_memory, as an agent sees them.
 *
 * The agent is the test: it reads the notes in the file of the library, stops a child, counts itself in at
 * the semaphores in the child's memory and writes a breakpoint over each nop, as the kernel would do for
 * an agent that attaches.  Each stop then is a sample, with its arguments where the note says.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <jemalloc/jemalloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <tally/tally.h>
#include <unistd.h>

#include "test.h"

TEST_SETUP(require_tally);

enum { STAPSDT_TYPE = 3, NOP = 0x90, BREAKPOINT = 0xcc, LG_SAMPLE = 12 };
enum { OBJECTS = 20000, OBJECT_BYTES = 1000 }; /* of the child; usable size 1024 */

struct probe {
    uintptr_t location, semaphore; /* in this process and its children */
    char arguments[64];
};

/* ---------------------------------------------------------------- notes */

static const char *map_file(const char *path) {
    struct stat facts;
    int fd = open(path, O_RDONLY);
    check(fd >= 0 && fstat(fd, &facts) == 0);
    void *file = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    check(file != MAP_FAILED);
    close(fd);
    return file;
}

static const Elf64_Shdr *find_section(const char *file, const char *name) {
    const Elf64_Ehdr *header = (const void *)file;
    const Elf64_Shdr *sections = (const void *)(file + header->e_shoff);
    const char *names = file + sections[header->e_shstrndx].sh_offset;
    for (unsigned i = 0; i < header->e_shnum; i++) {
        if (strcmp(names + sections[i].sh_name, name) == 0) {
            return &sections[i];
        }
    }
    test_fail(__FILE__, __LINE__, name);
}

/* The one probe of this name. */
static struct probe find_probe(const char *wanted) {
    struct probe probe = {0};
    Dl_info library;
    check(dladdr((void *)tally_version, &library) != 0);
    uintptr_t bias = (uintptr_t)library.dli_fbase;
    const char *file = map_file(library.dli_fname);
    const Elf64_Shdr *notes = find_section(file, ".note.stapsdt");
    const Elf64_Shdr *semaphores = find_section(file, ".probes");
    uintptr_t base = find_section(file, ".stapsdt.base")->sh_addr;
    for (size_t at = 0; at < notes->sh_size;) {
        const Elf64_Nhdr *note = (const void *)(file + notes->sh_offset + at);
        const char *owner = (const char *)(note + 1);
        const uint64_t *places = (const void *)(owner + (note->n_namesz + 3) / 4 * 4);
        const char *provider = (const char *)(places + 3);
        const char *name = provider + strlen(provider) + 1;
        const char *arguments = name + strlen(name) + 1;
        check_str(owner, "stapsdt");
        check_eq(note->n_type, STAPSDT_TYPE);
        check_eq(places[1], base);
        if (strcmp(provider, "otel_memory") == 0 && strcmp(name, wanted) == 0) {
            check_eq(probe.location, 0);
            check(places[2] - semaphores->sh_addr < semaphores->sh_size);
            check(semaphores->sh_type == SHT_PROGBITS && semaphores->sh_flags & SHF_WRITE);
            probe.location = bias + places[0];
            probe.semaphore = bias + places[2];
            snprintf(probe.arguments, sizeof probe.arguments, "%s", arguments);
        }
        at += sizeof *note + (note->n_namesz + 3) / 4 * 4 + (note->n_descsz + 3) / 4 * 4;
    }
    check(probe.location != 0);
    return probe;
}

static unsigned semaphore_value(const struct probe *probe) {
    return *(volatile uint16_t *)probe->semaphore;
}

TEST(there_is_a_note_for_each_probe) {
    struct probe allocated = find_probe("alloc");
    struct probe freed = find_probe("free");
    check(allocated.location != freed.location && allocated.semaphore != freed.semaphore);
    check_eq(semaphore_value(&allocated), 0);
    check_eq(semaphore_value(&freed), 0);
#if defined(__x86_64__)
    check_eq(*(unsigned char *)allocated.location, NOP);
    check_eq(*(unsigned char *)freed.location, NOP);
    check_str(allocated.arguments, "8@%rdi 8@%rsi 8@%rdx");
    check_str(freed.arguments, "8@%rdi");
#else
    check_str(allocated.arguments, "8@x0 8@x1 8@x2");
    check_str(freed.arguments, "8@x0");
#endif
}

/* ---------------------------------------------------------------- the child */

/* At a rate that has enough samples for sums to be close. */
const char *malloc_conf = "lg_prof_sample:12";

static void *objects[OBJECTS];

static bool profiler_is_active(void) {
    bool active = true;
    size_t length = sizeof active;
    check_eq(mallctl("prof.active", &active, &length, NULL, 0), 0);
    return active;
}

static void allocate(void) {
    for (unsigned i = 0; i < OBJECTS; i++) {
        objects[i] = malloc(OBJECT_BYTES);
        check(objects[i] != NULL);
    }
}

static void release(void) {
    for (unsigned i = 0; i < OBJECTS; i++) {
        free(objects[i]);
    }
}

/* Threads notice agents at their next slow call: a large object makes one. */
static void notice(void) {
    free(test_launder(malloc(1 << 20)));
    free(test_launder(malloc(1 << 20)));
}

#if defined(__x86_64__)

/* What the child does between its stops; the agent acts at each. */
static void be_watched(void) {
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
        _exit(0);
    }
    allocate();
    release();
    raise(SIGSTOP); /* the agent attaches */
    notice();
    check(!profiler_is_active());
    raise(SIGSTOP);
    allocate();
    raise(SIGSTOP);
    release();
    void *large = realloc(malloc(8 << 20), 16 << 20);
    check(large != NULL);
    raise(SIGSTOP); /* the agent detaches */
    free(large);
    notice();
    raise(SIGSTOP);
    allocate();
    release();
    raise(SIGSTOP);
    _exit(0);
}

/* ---------------------------------------------------------------- the agent */

struct agent {
    pid_t child;
    int memory;
    struct probe allocated, freed;
    unsigned allocs, frees;
    uint64_t weight;
    struct {
        uintptr_t object;
        bool is_live;
    } seen[4 * OBJECTS];
    unsigned nseen;
};

static void poke(const struct agent *agent, uintptr_t address, const void *bytes, size_t count) {
    check_eq(pwrite(agent->memory, bytes, count, (off_t)address), count);
}

static void count_in(const struct agent *agent, uint16_t listeners) {
    poke(agent, agent->allocated.semaphore, &listeners, sizeof listeners);
    poke(agent, agent->freed.semaphore, &listeners, sizeof listeners);
}

static void note_alloc(struct agent *agent, uintptr_t object, uint64_t size, uint64_t weight) {
    agent->allocs++;
    agent->weight += weight;
    check(weight > 0 && weight % (1 << LG_SAMPLE) == 0);
    check(size == OBJECT_BYTES || size >= 1 << 20);
    check(size < 1 << 20 || (weight >= size && weight <= size + (4 << LG_SAMPLE)));
    check(agent->nseen < sizeof agent->seen / sizeof agent->seen[0]);
    agent->seen[agent->nseen].object = object;
    agent->seen[agent->nseen++].is_live = true;
}

/* Each free is of an object that was told. */
static void note_free(struct agent *agent, uintptr_t object) {
    agent->frees++;
    for (unsigned i = agent->nseen; i-- > 0;) {
        if (agent->seen[i].object == object) {
            check(agent->seen[i].is_live);
            agent->seen[i].is_live = false;
            return;
        }
    }
    test_fail(__FILE__, __LINE__, "an object is freed that was not told");
}

/* The nop is one byte, and so is the breakpoint: there is nothing to make up for. */
static void note_stop(struct agent *agent) {
    struct user_regs_struct registers;
    check_eq(ptrace(PTRACE_GETREGS, agent->child, NULL, &registers), 0);
    if (registers.rip == agent->allocated.location + 1) {
        note_alloc(agent, registers.rdi, registers.rsi, registers.rdx);
    } else {
        check_eq(registers.rip, agent->freed.location + 1);
        note_free(agent, registers.rdi);
    }
}

/* Until the child stops by itself. */
static void watch(struct agent *agent) {
    int status = 0;
    agent->allocs = agent->frees = 0;
    agent->weight = 0;
    for (;;) {
        check_eq(ptrace(PTRACE_CONT, agent->child, NULL, NULL), 0);
        check_eq(waitpid(agent->child, &status, 0), agent->child);
        check(WIFSTOPPED(status));
        if (WSTOPSIG(status) != SIGTRAP) {
            check_eq(WSTOPSIG(status), SIGSTOP);
            return;
        }
        note_stop(agent);
    }
}

/* A child that has stopped for the first time, and that the agent has attached to. */
static struct agent *attach(void) {
    static struct agent agent;
    const unsigned char breakpoint = BREAKPOINT;
    char path[64];
    int status = 0;
    agent.allocated = find_probe("alloc");
    agent.freed = find_probe("free");
    agent.child = fork();
    if (agent.child == 0) {
        be_watched();
    }
    check_eq(waitpid(agent.child, &status, 0), agent.child);
    if (WIFEXITED(status)) {
        skip("a child may not be traced here");
    }
    check(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    snprintf(path, sizeof path, "/proc/%d/mem", (int)agent.child);
    agent.memory = open(path, O_RDWR);
    check(agent.memory >= 0);
    poke(&agent, agent.allocated.location, &breakpoint, 1);
    poke(&agent, agent.freed.location, &breakpoint, 1);
    count_in(&agent, 1);
    return &agent;
}

static void finish(struct agent *agent) {
    int status = 0;
    check_eq(ptrace(PTRACE_CONT, agent->child, NULL, NULL), 0);
    check_eq(waitpid(agent->child, &status, 0), agent->child);
    check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(an_agent_that_attaches_has_samples_until_it_detaches) {
    const double all_bytes = (double)OBJECTS * 1024;
    const double samples = all_bytes / (1 << LG_SAMPLE);
    struct agent *agent = attach();
    watch(agent); /* noticed */
    watch(agent);
    /* The sum of the weights is what was allocated, within 6 standard deviations. */
    double off = (double)agent->weight - all_bytes;
    check(agent->allocs > samples / 2 && agent->allocs < 2 * samples);
    check(off * off < 36 * samples * (1 << LG_SAMPLE) * (1 << LG_SAMPLE));
    check_eq(agent->frees, 0);
    unsigned allocs = agent->allocs;
    watch(agent);
    check_eq(agent->frees, allocs + 1); /* and the large one, before it grew */
    check_eq(agent->allocs, 2);
    count_in(agent, 0);
    watch(agent);
    watch(agent);
    check_eq(agent->allocs, 0);
    check_eq(agent->frees, 0);
    finish(agent);
}

/* Starts itself again, since the option is read once. */
TEST(usdt_off_leaves_the_sampler_alone) {
    if (getenv("TALLY_CONF") == NULL) {
        setenv("TALLY_CONF", "usdt:off", 1);
        execl("/proc/self/exe", "test_usdt", "usdt_off_leaves_the_sampler_alone", NULL);
        check(!"it cannot be started again");
    }
    struct agent *agent = attach();
    for (unsigned stop = 0; stop < 5; stop++) {
        watch(agent);
        check_eq(agent->allocs, 0);
        check_eq(agent->frees, 0);
        if (stop == 2) {
            count_in(agent, 0);
        }
    }
    finish(agent);
}
#endif

/* ---------------------------------------------------------------- without a tracer */

/* What stays after an agent has come and gone is what was there before. */
TEST(an_agent_comes_and_goes_in_a_program_that_profiles_itself) {
    struct probe allocated = find_probe("alloc");
    bool on = true;
    check_eq(mallctl("prof.active", NULL, NULL, &on, sizeof on), 0);
    for (uint16_t listeners = 0; listeners < 4; listeners++) {
        *(volatile uint16_t *)allocated.semaphore = listeners % 2;
        allocate();
        release();
        check(profiler_is_active());
    }
    *(volatile uint16_t *)allocated.semaphore = 0;
    notice();
    check(profiler_is_active());
    check_eq(semaphore_value(&allocated), 0);
}
