/* SPDX-License-Identifier: MIT
 *
 * program_fake_target.c - a process that looks to the command as one with the library does, with figures
 * that are always the same.
 *
 *      program_fake_target FOLDER [off|read|write] [torn|foreign|old|pageless]
 *
 * It has a page of statistics that tells 64 MiB of heap, and unless control is off it answers at
 * FOLDER/PID.sock as src/control/verbs.c would: dumps are a line of text, what can be set are the times of
 * dirty pages and background_thread, and whatever is written is denied with "read".  "torn": the page is in the middle of a change; "foreign": it has another
 * process id; "old": it ends behind `live`; "pageless": nobody can see it.  The word "ready" on standard output ends the preparations.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "contract/stats_page.h"
#include "contract/wire.h"

enum { MIB = 1 << 20, HEAP_BYTES = 64 * MIB };

static struct stats_page *page;
static unsigned rights;

/* What can be set. */
static struct {
    const char *name;
    bool is_switch;
    char value[64];
} settings[] = {
    {"arena.4096.dirty_decay_ms", false, "10000"},
    {"arenas.dirty_decay_ms", false, "10000"},
    {"background_thread", true, "false"},
};

static void *must_map(int flags, int fd, size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return memory;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Touched memory with neighbours that nobody may touch, so that the kernel joins it with nothing. */
static char *make_heap(void) {
    size_t guard = 1 << 16;
    char *memory = must_map(MAP_PRIVATE | MAP_ANONYMOUS, -1, HEAP_BYTES + 2 * guard);
    mprotect(memory, guard, PROT_NONE);
    mprotect(memory + guard + HEAP_BYTES, guard, PROT_NONE);
    memset(memory + guard, 1, HEAP_BYTES);
    return memory + guard;
}

static void fill_words(void) {
    page->requested = 40 * MIB;
    page->live = 42 * MIB;
    page->live_objects = 123456;
    page->slab_free = 8 * MIB;
    page->worst_size_1 = 112;
    page->worst_free_1 = 5 * MIB;
    page->worst_size_2 = 3072;
    page->worst_free_2 = 1 * MIB;
    page->large_rest = 1 * MIB;
    page->cached = 3 * MIB;
    page->dirty = 12 * MIB;
    page->metadata = 2 * MIB; /* 68 MiB in all: four were never touched */
    page->mapped = 128 * MIB;
    page->allocated_total = UINT64_C(1000) * MIB;
    page->freed_total = UINT64_C(960) * MIB;
    page->nmalloc = 3000000;
    page->nfree = 2876544;
    page->threads = 4;
    page->profile_rate = 512 << 10;
    page->profile_samples = 77;
    page->purged_total = 5 * MIB;
    page->control = rights;
}

static void make_page(const char *kind) {
    char *heap = make_heap();
    int fd = memfd_create(STATS_PAGE_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, STATS_PAGE_BYTES) != 0) {
        perror("memfd_create");
        exit(1);
    }
    bool is_private = strcmp(kind, "pageless") == 0;
    page = must_map(is_private ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, is_private ? -1 : fd,
                    STATS_PAGE_BYTES);
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    if (is_private) {
        close(fd);
    }
    page->magic = STATS_PAGE_MAGIC;
    page->bytes = strcmp(kind, "old") == 0 ? offsetof(struct stats_page, live_objects)
                                           : sizeof(struct stats_page);
    page->pid = (uint32_t)getpid() + (strcmp(kind, "foreign") == 0);
    page->sequence = strcmp(kind, "torn") == 0;
    page->start_ns = now_ns() - UINT64_C(100) * 1000000000;
    page->refresh_ns = page->start_ns + UINT64_C(100) * 1000000000;
    strcpy(page->version, "0.0-fake");
    fill_words();
    struct stats_page_range range = {(uint64_t)(uintptr_t)heap,
                                     (uint64_t)(uintptr_t)heap + HEAP_BYTES};
    memcpy((char *)page + STATS_PAGE_RANGES_AT, &range, sizeof range);
    page->ranges = 1;
}

static int listen_at(const char *folder) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/%d.sock", folder, getpid());
    strcpy(page->socket_path, address.sun_path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(fd, WIRE_CLIENTS) != 0) {
        perror(address.sun_path);
        exit(1);
    }
    return fd;
}

static size_t receive(int client, char *bytes, int *passed) {
    struct iovec part = {bytes, WIRE_MOST_BYTES};
    char rights_bytes[CMSG_SPACE(sizeof(int))];
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = rights_bytes,
                             .msg_controllen = sizeof rights_bytes};
    ssize_t got = recvmsg(client, &message, 0);
    struct cmsghdr *header = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    *passed = -1;
    if (header != NULL && header->cmsg_type == SCM_RIGHTS) {
        memcpy(passed, CMSG_DATA(header), sizeof *passed);
    }
    return got > 0 ? (size_t)got : 0;
}

static bool is_value(bool is_switch, const char *text) {
    if (is_switch) {
        return strcmp(text, "true") == 0 || strcmp(text, "false") == 0;
    }
    text += text[0] == '-';
    return text[0] != '\0' && text[strspn(text, "0123456789")] == '\0';
}

static size_t set_option(const struct wire_message *request, struct wire_writer *writer) {
    const char *key = wire_find(request, "key"), *value = wire_find(request, "value");
    if (key == NULL || value == NULL) {
        return wire_error(writer, WIRE_SYNTAX, "set needs key and value");
    }
    size_t i = 0, count = sizeof settings / sizeof settings[0];
    while (i < count && strcmp(key, settings[i].name) != 0) {
        i++;
    }
    if (i == count) {
        return wire_error(writer, WIRE_DENIED, "there is no such name");
    }
    if (!is_value(settings[i].is_switch, value)) {
        return wire_error(writer, WIRE_SYNTAX,
                          settings[i].is_switch ? "the value is true or false"
                                                : "the value is a number, or -1");
    }
    wire_begin(writer, "ok");
    wire_add(writer, "old", settings[i].value);
    snprintf(settings[i].value, sizeof settings[i].value, "%s", value);
    return wire_end(writer);
}

static size_t dump(const struct wire_message *request, struct wire_writer *writer, int passed) {
    if (passed < 0) {
        return wire_error(writer, WIRE_SYNTAX, "no descriptor");
    }
    dprintf(passed, "a profile of kind %s and format %s\n", wire_find(request, "kind"),
            wire_find(request, "format"));
    wire_begin(writer, "ok");
    return wire_end(writer);
}

/* A profile of time that always has the same samples. */
static size_t answer_about_time(const struct wire_message *request, struct wire_writer *writer) {
    static bool is_on;
    bool starts = strcmp(request->verb, "start") == 0;
    if (is_on == starts) {
        return wire_error(writer, starts ? WIRE_BUSY : WIRE_UNAVAILABLE,
                          starts ? "it is recorded already" : "it is not recorded");
    }
    is_on = starts;
    page->cpu_hz = starts ? (uint64_t)atoll(wire_find(request, "hz")) : 0;
    wire_begin(writer, "ok");
    if (starts) {
        wire_add(writer, "hz", wire_find(request, "hz"));
    } else {
        wire_add_number(writer, "samples", 5871);
        wire_add_number(writer, "lost", 2);
    }
    return wire_end(writer);
}

static size_t answer(const struct wire_message *request, struct wire_writer *writer, int passed) {
    const char *verb = request->verb;
    if (strcmp(verb, "dump") == 0) {
        return dump(request, writer, passed);
    }
    if (rights < 2) {
        return wire_error(writer, WIRE_DENIED, "control is read");
    }
    if (strcmp(verb, "set") == 0) {
        return set_option(request, writer);
    }
    const char *kind = wire_find(request, "kind");
    if (kind != NULL && strcmp(kind, "cpu") == 0) {
        return answer_about_time(request, writer);
    }
    if (strcmp(verb, "start") == 0) {
        const char *rate = wire_find(request, "rate");
        page->profile_rate = rate != NULL ? (uint64_t)atoll(rate) : page->profile_rate;
    } else if (strcmp(verb, "stop") == 0) {
        page->profile_rate = 0;
    } else if (strcmp(verb, "purge") == 0) {
        wire_begin(writer, "ok");
        wire_add_number(writer, "bytes", page->dirty);
        page->purged_total += page->dirty;
        page->dirty = 0;
        return wire_end(writer);
    } else if (strcmp(verb, "reset") == 0) {
        return wire_error(writer, WIRE_BUSY, "a dump is under way");
    } else {
        return wire_error(writer, WIRE_UNKNOWN, "no such verb");
    }
    wire_begin(writer, "ok");
    return wire_end(writer);
}

static void serve(int listener) {
    for (;;) {
        char bytes[WIRE_MOST_BYTES];
        struct wire_message request;
        struct wire_writer writer;
        int passed = -1, client = accept(listener, NULL, NULL);
        size_t got = client >= 0 ? receive(client, bytes, &passed) : 0;
        if (got > 0) {
            size_t length = wire_read_request(bytes, got, &request)
                                ? answer(&request, &writer, passed)
                                : wire_error(&writer, WIRE_SYNTAX, "not a request");
            send(client, writer.bytes, length, MSG_NOSIGNAL);
        }
        close(passed);
        close(client);
    }
}

int main(int argc, char **argv) {
    static const char *const names[] = {"off", "read", "write"};
    const char *wanted = argc > 2 ? argv[2] : "write", *kind = argc > 3 ? argv[3] : "";
    for (unsigned i = 0; i < 3; i++) {
        rights = strcmp(wanted, names[i]) == 0 ? i : rights;
    }
    if (argc < 2) {
        fprintf(stderr, "usage: %s FOLDER [off|read|write] [torn|foreign|old|pageless]\n", argv[0]);
        return 2;
    }
    make_page(kind);
    int listener = rights > 0 ? listen_at(argv[1]) : -1;
    puts("ready");
    fflush(stdout);
    if (listener >= 0) {
        serve(listener);
    }
    for (;;) {
        pause();
    }
}
