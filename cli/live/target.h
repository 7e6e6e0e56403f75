/* SPDX-License-Identifier: MIT
 *
 * target.h - a running process with the library: who it is and what its page of statistics says.
 *
 * A TARGET on the command line is a process id, the name of exactly one program that has the library, or
 * the path of a control socket.  The process is reached through /proc under the kernel's rules for
 * ptrace, so other users' are out of reach.  A pidfd, taken first, tells when the id was reused meanwhile.
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
    char name[TARGET_NAME_BYTES]; /* what the kernel calls it, whole where its file has the rest */
    char file[TARGET_NAME_BYTES]; /* the last part of the program's path; either may be asked for */
    unsigned uid;
    int pidfd;          /* -1: the kernel has none */
    int page_fd;        /* -1: there is no page of statistics */
    const char *socket; /* a path of ours when that was the word; NULL: the page says it */
};

/* EXIT_DONE, or a sentence and its code.  A process without a page is a target too where `needs_page` is
 * false. */
enum exit_code target_open(const char *word, bool needs_page, struct target *target);
/* The same for whoever has a request: the page says where the socket is, unless the word does. */
enum exit_code target_open_to_ask(const char *word, struct target *target);
void target_close(struct target *target);

/* False where the process ended: everything read from /proc meanwhile may be another's. */
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

/* Every process whose page can be read, in order of ids, and those that map the library without a page where
 * `with_pageless`; free() the array after closing each. */
size_t target_list(struct target **list, bool with_pageless);

/* "/proc/PID/NAME", in a static buffer. */
const char *target_proc_path(long pid, const char *name);

/* The number behind "KEY:" in /proc/PID/status: the last one of its line; -1 when there is none. */
long target_status_number(long pid, const char *key);

/* The letter of its state: R S D T t Z; '?' when it is gone. */
char target_state(long pid);

/* When it started, in the kernel's ticks, which stays the same over exec; 0 when it is gone. */
uint64_t target_start_time(long pid);

/* Whether a mapping of libtally.so is there. */
bool target_maps_library(long pid);
