/* SPDX-License-Identifier: MIT
 *
 * target.h - a running process with the library: who it is and what its page of statistics says.
 *
 * A TARGET on the command line is a process id, the name of exactly one program that has the
 * library, or the path of a control socket.  It is reached through /proc, where the kernel's rules
 * for ptrace bar other users' processes.  A pidfd, taken first, shows reuse of the id.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cli.h"
#include "contract/stats_page.h"

enum { TARGET_NAME_BYTES = 64 };

struct target {
    long pid;                     /* as we see it */
    long own_pid;                 /* as the process sees itself */
    char name[TARGET_NAME_BYTES]; /* what the kernel calls it, completed from its file */
    char file[TARGET_NAME_BYTES]; /* the last part of the program's path; either may be asked for */
    unsigned uid;
    int pidfd;          /* -1: the kernel has none */
    int page_fd;        /* -1: there is no page of statistics */
    const char *socket; /* a path as we see it where that is the word; NULL: the page names it */
};

/* EXIT_DONE, or a sentence and its code.  Without `needs_page` a process may lack the page. */
enum exit_code target_open(const char *word, bool needs_page, struct target *target);
/* The same for a request: the page says where the socket is, unless the word does. */
enum exit_code target_open_to_ask(const char *word, struct target *target);
void target_close(struct target *target);

/* False where the process has ended: what was read from /proc since may be another process's. */
bool target_is_alive(const struct target *target);

/* A copy of the page. */
struct target_page {
    struct stats_page words; /* 0 where the library does not know a word yet */
    struct stats_page_range ranges[STATS_PAGE_MOST_RANGES];
    size_t range_count;
    bool is_torn; /* the process was stopped in the middle of a change */
};

/* False, after a sentence, when there is none. */
bool target_read_page(const struct target *target, struct target_page *page);

/* Every process whose page can be read, in order of ids; with `with_pageless` also those that map
 * the library without a page.  Close each, then free() the array. */
size_t target_list(struct target **list, bool with_pageless);

/* "/proc/PID/NAME", in a static buffer. */
const char *target_proc_path(long pid, const char *name);

/* The number after "KEY:" in /proc/PID/status: the last one of its line; -1 when there is none. */
long target_status_number(long pid, const char *key);

/* The letter of a process's state: R S D T t Z; '?' when it is gone. */
char target_state(long pid);

/* When a process started, in the kernel's ticks; exec does not change it.  0 when it is gone. */
uint64_t target_start_time(long pid);

/* Whether the process maps libtally.so. */
bool target_maps_library(long pid);
