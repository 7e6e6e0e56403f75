/* SPDX-License-Identifier: MIT
 *
 * sym_worker.c - the process around the parsers.
 *
 * Files with symbols come from anywhere, and libelf, libdw and libstdc++ were not written for
 * hostile ones.  So they run in a child with 4 GiB of addresses and 300 seconds of CPU.  It first
 * reads all the files it needs into memory; then it gives up everything but computing and writing
 * to one pipe (confine.c), and only then looks at symbols and debug information.  In particular
 * libdw cannot open the files whose names it meets.
 */
#define _GNU_SOURCE /* pipe2 */
#include "names/sym_worker.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/cli.h"
#include "common/confine.h"
#include "names/demangle.h"
#include "names/sym_cache.h"
#include "names/sym_index.h"

enum { RESULT = CONFINE_RESULT, CACHE }; /* the descriptors it keeps */

static const uint64_t address_bytes = (uint64_t)4 << 30;

/* The offsets that the cached image does not have; from must_alloc. */
static uint64_t *missing_from(const struct sym_job *job, const void *cached, size_t *count) {
    uint64_t *missing = must_alloc(job->count * sizeof missing[0] + 1);
    *count = 0;
    for (size_t i = 0; i < job->count; i++) {
        if (cached == NULL || sym_image_find(cached, job->offsets[i]) == NULL) {
            missing[(*count)++] = job->offsets[i];
        }
    }
    return missing;
}

static void copy_cached(struct sym_builder *builder, const void *cached) {
    const struct sym_header *header = sym_image_header(cached);
    for (uint32_t i = 0; i < header->place_count; i++) {
        sym_builder_copy(builder, cached, &sym_image_places(cached)[i]);
    }
    builder->header.flags |= header->flags & (SYM_HAS_FILE | SYM_HAS_DWARF);
}

static void send_image(struct sym_builder *builder) {
    size_t length;
    const uint8_t *image = sym_builder_finish(builder, &length);
    _exit(write_all(RESULT, image, length) ? 0 : 1);
}

/* Reads the files, gives up its rights, then only computes. */
static void resolve(const struct sym_job *job, struct sym_builder *builder, void *cached) {
    struct sym_files files;
    size_t length, count;
    sym_files_open(&files, &job->module, job->options);
    const char *build_id = job->module.build_id;
    if (build_id[0] == '\0') {
        const struct sym_file *module = &files.module;
        build_id = module->build_id[0] != '\0' ? module->build_id : module->identity;
        cached = sym_cache_read(job->cache < 0 ? -1 : CACHE, build_id, &length);
    }
    bool has_cxx = !job->no_cxx_names && demangle_open();
    confine_finish(0);
    uint64_t *missing = missing_from(job, cached, &count);
    if (cached != NULL) {
        copy_cached(builder, cached);
    }
    struct sym_header *header = &builder->header;
    bool has_file = files.module.elf != NULL || files.debug.elf != NULL;
    header->build_id = sym_builder_text(builder, build_id);
    header->flags |= (has_file ? SYM_HAS_FILE : 0U) | (count > 0 ? SYM_IS_NEW : 0U) |
                     (has_cxx ? 0U : SYM_NO_CXX_NAMES) |
                     (files.no_debuginfod ? SYM_NO_DEBUGINFOD : 0U);
    if (!has_file && files.other_path != NULL) {
        header->other_path = sym_builder_text(builder, files.other_path);
        header->other_id = sym_builder_text(builder, files.other_id);
    }
    sym_index_resolve(&files, missing, count, builder, job->done);
}

__attribute__((noreturn)) static void work(const struct sym_job *job) {
    struct sym_builder builder;
    size_t length, count = job->count;
    void *cached = sym_cache_read(job->cache < 0 ? -1 : CACHE, job->module.build_id, &length);
    sym_builder_init(&builder);
    if (cached != NULL) {
        free(missing_from(job, cached, &count));
    }
    if (count == 0) {
        confine_finish(0);
        copy_cached(&builder, cached);
    } else {
        resolve(job, &builder, cached);
    }
    send_image(&builder);
    abort();
}

pid_t sym_worker_start(const struct sym_job *job, int *pipe_end) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        const int kept[] = {ends[1], job->cache};
        confine_start(kept, 2, address_bytes);
        work(job);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return -1;
    }
    *pipe_end = ends[0];
    return pid;
}
