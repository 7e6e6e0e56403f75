/* SPDX-License-Identifier: MIT
 *
 * misuse.h - what the programs of this folder share. Each program has one mistake in it, in the
 * function misuse(), and announces the sentence it expects with expect() just before it makes
 * the mistake.
 *
 * Started without arguments, a program drives itself: it starts itself again for six sizes, in
 * an empty heap and in one with 10,000 live objects, with the fast paths and with all calls
 * slow, and for each variant that it has. Every such run must be ended by SIGABRT and must have
 * written to standard error one of the announced sentences and nothing else. A run that ends for
 * another reason is a failure: a crash is not a catch. To see one with your own eyes:
 *
 *     build/test/misuse_free_twice 100 crowded 0
 *
 * Nothing here allocates except misuse() and the crowd, so the heap is in the state that the
 * program made.
 */
#ifndef TALLY_TEST_MISUSE_H
#define TALLY_TEST_MISUSE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* A program with several forms of its mistake defines VARIANTS before it includes this file. */
#ifndef VARIANTS
#define VARIANTS 1
#endif

enum {
    NOT_APPLICABLE = 79,
    SURVIVED = 70,
    CROWD = 10000,
    RUN_SECONDS = 300,
    TEXT_BYTES = 4096,
    SMALL_MAX = 32768
};

/* The mistake. Returns only if it was not noticed. */
static void misuse(size_t size, int variant);

/* Keeps the compiler from knowing where a pointer comes from. */
static inline void *launder(void *p) {
    __asm__ volatile("" : "+r"(p) : : "memory");
    return p;
}

static inline void write_text(int fd, const char *text, size_t length) {
    while (length > 0) {
        ssize_t n = write(fd, text, length);
        if (n <= 0) {
            _exit(1);
        }
        text += n;
        length -= (size_t)n;
    }
}

__attribute__((format(printf, 2, 3))) static inline void print(int fd, const char *format, ...) {
    char line[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    write_text(fd, line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
}

/* Announces a sentence that the library may say next, without the name in front. Where the heap
 * may rightly see the mistake in two ways, a program announces both. */
#define expect(...)                                                                                \
    do {                                                                                           \
        print(STDOUT_FILENO, "tally: ");                                                           \
        print(STDOUT_FILENO, __VA_ARGS__);                                                         \
        print(STDOUT_FILENO, "\n");                                                                \
    } while (0)

/* The same for a sentence of which only the beginning is known. */
#define expect_part(...)                                                                           \
    do {                                                                                           \
        print(STDOUT_FILENO, "tally: ");                                                           \
        print(STDOUT_FILENO, __VA_ARGS__);                                                         \
        print(STDOUT_FILENO, "...\n");                                                             \
    } while (0)

#define FAULT "the processor ends it\n"

/* Announces that the processor may end the process instead, at the access itself. */
static inline void expect_fault(void) {
    print(STDOUT_FILENO, FAULT);
}

/* A small block stays known after it was freed. The pages of a large one go back to the heap or
 * to the kernel, and nothing remembers that an object was there. */
static inline void expect_double_free(const char *function, void *p, size_t usable) {
    if (usable <= SMALL_MAX) {
        expect("%s(%p): the %zu-byte object is already free", function, p, usable);
    }
    expect("%s(%p): no object is here: this memory of the heap is free", function, p);
    if (usable > SMALL_MAX) {
        expect("%s(%p): not memory of this heap", function, p);
    }
}

static inline void expect_interior(const char *function, char *p, size_t offset, size_t usable) {
    expect("%s(%p): not the start of an object: %zu bytes into the %zu-byte object at %p", function,
           (void *)(p + offset), offset, usable, (void *)p);
}

/* What malloc_usable_size says of a block of this size. */
static inline size_t usable_size_of(size_t size) {
    void *p = malloc(size);
    size_t usable = malloc_usable_size(p);
    free(p);
    return usable;
}

/* Ends a run whose size has no such mistake, for example an offset past the end of the object. */
__attribute__((noreturn)) static inline void not_applicable(void) {
    _exit(NOT_APPLICABLE);
}

/* A function by its name, for those that libc's headers do not declare. */
static inline void *function_named(const char *name) {
    void *function = dlsym(RTLD_DEFAULT, name);
    if (function == NULL) {
        print(STDERR_FILENO, "%s is not defined\n", name);
        _exit(1);
    }
    return function;
}

static void *crowd[CROWD];

/* Live objects of many sizes with holes between them, and some of the size in question. */
static inline void gather_crowd(size_t size) {
    for (size_t i = 0; i < CROWD; i++) {
        size_t step = i * 37 % 2000 + 1;
        crowd[i] = malloc(i % 4 == 0 && (size < 10000 || i % 1000 == 0) ? size : step);
    }
    for (size_t i = 0; i < CROWD; i += 3) {
        free(crowd[i]);
        crowd[i] = malloc(i * 41 % 3000 + 1);
    }
    for (size_t i = 1; i < CROWD; i += 50) {
        free(crowd[i]);
        crowd[i] = NULL;
    }
}

static inline bool library_is_mapped(void) {
    static char text[1 << 16];
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t n;
    while (used < sizeof text - 1 && (n = read(fd, text + used, sizeof text - 1 - used)) > 0) {
        used += (size_t)n;
    }
    close(fd);
    return strstr(text, "libtally.so") != NULL;
}

static inline int run_once(char **argv) {
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    alarm(RUN_SECONDS);
    if (!library_is_mapped()) {
        print(STDERR_FILENO, "libtally.so is not loaded: link it or preload it\n");
        return 1;
    }
    size_t size = strtoul(argv[1], NULL, 10);
    if (strcmp(argv[2], "crowded") == 0) {
        gather_crowd(size);
    }
    misuse(size, (int)strtol(argv[3], NULL, 10));
    return SURVIVED;
}

/* What one run said and how it ended. */
struct run {
    char announced[TEXT_BYTES], said[TEXT_BYTES];
    int status;
};

/* Starts this program again. The environment is empty but for what the loader needs and the
 * configuration. */
static inline pid_t start_run(char **arguments, char *configuration, int output, int errors) {
    pid_t pid = fork();
    if (pid == 0) {
        char preload[TEXT_BYTES];
        char *environment[] = {configuration, NULL, NULL};
        if (getenv("LD_PRELOAD") != NULL) {
            snprintf(preload, sizeof preload, "LD_PRELOAD=%s", getenv("LD_PRELOAD"));
            environment[1] = preload;
        }
        dup2(output, STDOUT_FILENO);
        dup2(errors, STDERR_FILENO);
        execve("/proc/self/exe", arguments, environment);
        _exit(127);
    }
    return pid;
}

/* Reads two descriptors to their ends; the texts are short. */
static inline void read_both(int output, int errors, struct run *run) {
    struct pollfd files[2] = {{output, POLLIN, 0}, {errors, POLLIN, 0}};
    char *texts[2] = {run->announced, run->said};
    size_t used[2] = {0, 0};
    while (files[0].fd >= 0 || files[1].fd >= 0) {
        poll(files, 2, -1);
        for (size_t i = 0; i < 2; i++) {
            if (files[i].fd < 0 || files[i].revents == 0) {
                continue;
            }
            ssize_t n = read(files[i].fd, texts[i] + used[i], TEXT_BYTES - 1 - used[i]);
            if (n <= 0) {
                close(files[i].fd);
                files[i].fd = -1;
            } else {
                used[i] += (size_t)n;
            }
        }
    }
    run->announced[used[0]] = '\0';
    run->said[used[1]] = '\0';
}

static inline void do_run(char **arguments, char *configuration, struct run *run) {
    int output[2];
    int errors[2];
    if (pipe2(output, O_CLOEXEC) != 0 || pipe2(errors, O_CLOEXEC) != 0) {
        perror("pipe2");
        exit(1);
    }
    pid_t pid = start_run(arguments, configuration, output[1], errors[1]);
    close(output[1]);
    close(errors[1]);
    read_both(output[0], errors[0], run);
    if (pid < 0 || waitpid(pid, &run->status, 0) != pid) {
        run->status = 1 << 8;
    }
}

static inline bool one_line(const char *text) {
    return strchr(text, '\n') == text + strlen(text) - 1;
}

/* True when what was said is exactly one of the announced lines. */
static inline bool said_as_announced(const struct run *run) {
    size_t length = strlen(run->said);
    const char *line = run->announced;
    while (length > 0 && *line != '\0') {
        size_t line_length = strcspn(line, "\n") + 1;
        bool part = line_length > 4 && memcmp(line + line_length - 4, "...", 3) == 0;
        if (line_length == length && memcmp(line, run->said, length) == 0) {
            return true;
        }
        if (part && one_line(run->said) && strncmp(line, run->said, line_length - 4) == 0) {
            return true;
        }
        line += line_length;
    }
    return false;
}

enum verdict { CAUGHT, FAILED, SKIPPED };

static inline enum verdict judge(const struct run *run, char **arguments,
                                 const char *configuration) {
    bool exited = WIFEXITED(run->status);
    if (exited && WEXITSTATUS(run->status) == NOT_APPLICABLE) {
        return SKIPPED;
    }
    if (WIFSIGNALED(run->status) && WTERMSIG(run->status) == SIGABRT && said_as_announced(run)) {
        return CAUGHT;
    }
    if (WIFSIGNALED(run->status) && WTERMSIG(run->status) == SIGSEGV && run->said[0] == '\0' &&
        strstr(run->announced, FAULT) != NULL) {
        return CAUGHT;
    }
    print(STDOUT_FILENO, "FAIL %s %s %s, %s: ", arguments[1], arguments[2], arguments[3],
          configuration);
    if (exited && WEXITSTATUS(run->status) == SURVIVED) {
        print(STDOUT_FILENO, "the mistake was not noticed\n");
    } else if (exited) {
        print(STDOUT_FILENO, "exit status %d\n", WEXITSTATUS(run->status));
    } else {
        print(STDOUT_FILENO, "signal %d\n", WTERMSIG(run->status));
    }
    print(STDOUT_FILENO, "expected %s\nsaid     %s\n", run->announced, run->said);
    return FAILED;
}

static inline int drive(char *name) {
    static struct run run;
    char *sizes[] = {"8", "100", "1000", "5000", "40000", "3145728"};
    char *heaps[] = {"alone", "crowded"};
    char *configurations[] = {"TALLY_CONF=", "TALLY_CONF=all_slow:true"};
    unsigned count[3] = {0, 0, 0};
    for (size_t i = 0; i < 6 * 2 * 2 * VARIANTS; i++) {
        char variant[16];
        char *configuration = configurations[i / 12 % 2];
        char *arguments[] = {name, sizes[i % 6], heaps[i / 6 % 2], variant, NULL};
        snprintf(variant, sizeof variant, "%zu", i / 24);
        do_run(arguments, configuration, &run);
        count[judge(&run, arguments, configuration)]++;
    }
    print(STDOUT_FILENO, "%u caught, %u failed, %u not applicable\n", count[CAUGHT], count[FAILED],
          count[SKIPPED]);
    return count[FAILED] == 0 && count[CAUGHT] > 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc == 1) {
        return drive(argv[0]);
    }
    if (argc != 4) {
        print(STDERR_FILENO, "usage: %s [SIZE alone|crowded VARIANT]\n", argv[0]);
        return 2;
    }
    return run_once(argv);
}

#endif
