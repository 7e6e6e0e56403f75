/* SPDX-License-Identifier: MIT
 *
 * cli.c - for all commands: messages, memory, progress.
 *
 * Threads     The command has one.
 */
#include "common/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ALIKE_MOST = 5, ALIKE_KINDS = 32 };

int cli_loudness = 2;
bool cli_has_color;
bool cli_has_pager = true;
bool cli_salvage;
uint64_t cli_memory_limit = (uint64_t)4 << 30;

static struct {
    struct alike {
        const char *format;
        unsigned count;
    } alike[ALIKE_KINDS];
    uint64_t progress_began, progress_drawn;
    bool has_bar;
} g;

static void say(const char *kind, const char *format, va_list arguments) {
    progress_end();
    fflush(stdout);
    fprintf(stderr, "tally: %s", kind);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
}

enum exit_code complain(enum exit_code code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    say("", format, arguments);
    va_end(arguments);
    return code;
}

bool decline(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    say("", format, arguments);
    va_end(arguments);
    return false;
}

/* How many times this was said before; 0 for everything new once the table is full. */
static unsigned count_alike(const char *format) {
    for (size_t i = 0; i < ALIKE_KINDS; i++) {
        if (g.alike[i].format == NULL) {
            g.alike[i].format = format;
        }
        if (g.alike[i].format == format) {
            return g.alike[i].count++;
        }
    }
    return 0;
}

void warn(const char *format, ...) {
    if (cli_loudness < 1 || count_alike(format) >= ALIKE_MOST) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    say("warning: ", format, arguments);
    va_end(arguments);
}

void note(const char *format, ...) {
    if (cli_loudness < 2) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    say("", format, arguments);
    va_end(arguments);
}

void detail(const char *format, ...) {
    if (cli_loudness < 3) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    say("", format, arguments);
    va_end(arguments);
}

bool cli_finish(void) {
    progress_end();
    for (size_t i = 0; i < ALIKE_KINDS && g.alike[i].format != NULL; i++) {
        if (cli_loudness >= 1 && g.alike[i].count > ALIKE_MOST) {
            fprintf(stderr, "tally: %u more warnings like \"%.40s...\"\n",
                    g.alike[i].count - ALIKE_MOST, g.alike[i].format);
        }
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        return decline("cannot write the output: %s", strerror(errno));
    }
    return true;
}

int read_small(const char *path, char *text, size_t bytes) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, bytes - 1);
    if (fd >= 0) {
        close(fd);
    }
    text[got > 0 ? got : 0] = '\0';
    return (int)got;
}

bool read_at(int fd, void *bytes, size_t length, uint64_t offset) {
    for (size_t done = 0; done < length;) {
        ssize_t got = pread(fd, (char *)bytes + done, length - done, (off_t)(offset + done));
        if (got <= 0) {
            return false;
        }
        done += (size_t)got;
    }
    return true;
}

bool write_all(int fd, const void *bytes, size_t length) {
    for (size_t done = 0; done < length;) {
        ssize_t put = write(fd, (const char *)bytes + done, length - done);
        if (put <= 0) {
            return false;
        }
        done += (size_t)put;
    }
    return true;
}

void *must_grow(void *memory, size_t bytes) {
    void *grown = realloc(memory, bytes > 0 ? bytes : 1);
    if (grown == NULL) {
        exit(complain(EXIT_OWN_FAILURE, "no memory for another %zu bytes; see --memory-limit",
                      bytes));
    }
    return grown;
}

void *must_have_room(void *array, uint32_t count, uint32_t *room, size_t item_bytes) {
    enum { LEAST = 64 };
    if (count < *room) {
        return array;
    }
    if (*room > UINT32_MAX / 2) {
        exit(complain(EXIT_OWN_FAILURE, "no array has more than %u items", *room));
    }
    *room = *room > 0 ? 2 * *room : LEAST;
    return must_grow(array, *room * item_bytes);
}

void *must_alloc(size_t bytes) {
    return must_grow(NULL, bytes);
}

void *must_zeroed(size_t bytes) {
    return memset(must_alloc(bytes), 0, bytes);
}

char *must_copy(const char *text) {
    return strcpy(must_alloc(strlen(text) + 1), text);
}

/* Progress. */

uint64_t cli_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void cli_wait_until(uint64_t ns) {
    struct timespec until = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
}

void progress(const char *what, uint64_t done, uint64_t all) {
    enum { CELLS = 20, WAIT_NS = 500000000, BETWEEN_NS = 100000000 };
    uint64_t now = cli_now_ns();
    if (g.progress_began == 0) {
        g.progress_began = now;
    }
    uint64_t since = now - g.progress_began;
    if (since < WAIT_NS || now - g.progress_drawn < BETWEEN_NS || cli_loudness < 2 ||
        !isatty(STDERR_FILENO)) {
        return;
    }
    g.progress_drawn = now;
    g.has_bar = true;
    double share = all > 0 && done < all ? (double)done / (double)all : 1;
    int cells = (int)(share * CELLS);
    fprintf(stderr, "\r\033[K%s  %3.0f %% [%.*s%*s]  %s/%s", safe_text(what), share * 100, cells,
            "####################", CELLS - cells, "", grouped_text((int64_t)done),
            grouped_text((int64_t)all));
    if (done > 0 && share < 1) {
        fprintf(stderr, "  %s left", duration_text((uint64_t)((double)since / share) - since));
    }
    fflush(stderr);
}

void progress_end(void) {
    if (g.has_bar) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    g.has_bar = false;
    g.progress_began = 0;
}
