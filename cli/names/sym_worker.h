/* SPDX-License-Identifier: MIT
 *
 * sym_worker.h - a process that finds the names of one module and may die while it does.
 */
#pragma once

#include <stdatomic.h>
#include <sys/types.h>

#include "names/sym_file.h"

struct sym_job {
    struct sym_module module;
    const uint64_t *offsets; /* sorted, different */
    size_t count;
    const struct symbolize_options *options;
    int cache;              /* the folder; -1 */
    bool no_cxx_names;      /* C++ names were too much for the last worker */
    _Atomic uint32_t *done; /* in memory that both share */
};

/* Starts a worker, which sends an image through *pipe and closes it.  -1: it could not start. */
pid_t sym_worker_start(const struct sym_job *job, int *pipe);
