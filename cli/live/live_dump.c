/* SPDX-License-Identifier: MIT
 *
 * live_dump.c - takes a profile from a running process and names it here, out of the process.
 */
#define _GNU_SOURCE /* memfd_create */
#include "live/live_dump.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "args/args.h"
#include "read/read_worker.h"

enum exit_code live_dump_raw(const struct target *target, enum live_kind kind, const char *format,
                             int fd, struct reply *reply) {
    /* Longer than the library ever takes; a stopped process does not answer at all. */
    bool is_stopped = strchr("Tt", target_state(target->pid)) != NULL;
    uint64_t wait_ns = is_stopped ? UINT64_C(1000000000) : UINT64_C(65000000000);
    static const char *const kinds[] = {
        [LIVE_HEAP] = "heap", [LIVE_PEAK] = "peak", [LIVE_ALLOCS] = "heap", [LIVE_CPU] = "cpu"};
    struct wire_writer request;
    wire_begin(&request, "dump");
    wire_add(&request, "kind", kinds[kind]);
    wire_add(&request, "format", format);
    return request_send(target, &request, fd, wait_ns, reply);
}

/* A process can send what it likes. */
static struct profile *read_profile(int fd, char why[READ_WHY_BYTES]) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct read_run *run = read_confined(path, "pprof", why);
    if (run == NULL) {
        return NULL;
    }
    struct profile *profile = run->moments[0].profile;
    run->moments[0].profile = NULL; /* it no longer belongs to the run */
    read_run_free(run);
    return profile;
}

enum exit_code live_dump_take(const struct target *target, enum live_kind kind,
                              struct profile **profile, struct symbolize_result *names) {
    char why[READ_WHY_BYTES] = "it is empty";
    struct reply reply;
    int fd = memfd_create("tally-dump", MFD_CLOEXEC);
    if (fd < 0) {
        return complain(EXIT_OWN_FAILURE, "no place for the output: %s", strerror(errno));
    }
    enum exit_code code = live_dump_raw(target, kind, "pprof", fd, &reply);
    *profile = code == EXIT_DONE ? read_profile(fd, why) : NULL;
    close(fd);
    if (code != EXIT_DONE) {
        return code;
    }
    if (*profile == NULL) {
        return complain(EXIT_BAD_INPUT, "the profile of process %ld is not readable: %s",
                        target->pid, safe_text(why));
    }
    uint32_t allocated = profile_find_type(*profile, "alloc_space");
    if (kind == LIVE_ALLOCS && allocated != PROFILE_NONE) {
        (*profile)->default_type = allocated;
    }
    struct symbolize_options options = args_symbolize;
    options.pid = target->pid;
    *names = symbolize(*profile, &options);
    return EXIT_DONE;
}

struct profile *live_dump_argument(const char *word, enum live_kind kind, int *status) {
    struct target target;
    struct profile *profile = NULL;
    struct symbolize_result names;
    *status = target_open_to_ask(word + strcspn(word, ":") + 1, &target);
    if (*status != EXIT_DONE) {
        return NULL;
    }
    *status = live_dump_take(&target, kind, &profile, &names);
    target_close(&target);
    return *status == EXIT_DONE ? profile : NULL;
}
