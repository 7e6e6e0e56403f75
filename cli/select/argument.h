/* SPDX-License-Identifier: MIT
 *
 * argument.h - a command-line word that names a profile: a file or a process, and a moment of it.
 */
#pragma once

#include "read/read.h"

/*
 * Reads FILE, FILE@TIME, FILE#N, pid:TARGET, pid:TARGET@peak or - ; returns the moment it names as
 * a profile of its own, of memory or of the processor's time.  NULL after a sentence, with the exit
 * status in *status.
 */
struct profile *read_argument(const char *word, bool wants_cpu, int *status);

/* The same, but the whole run, which the caller frees, and the moment that was meant; PROFILE_NONE
 * where it has none.  A NULL format is guessed. */
struct read_choice {
    const char *format;
    bool wants_cpu; /* of a recorded run or a process; other files hold what they hold */
    uint32_t moment;
    bool is_cpu;   /* the moment is one of run->cpu */
    bool is_peak;  /* not the moment, but what read_peak() has */
    bool is_given; /* the word says which moment */
};
struct read_run *read_argument_run(const char *word, struct read_choice *choice, int *status);
/* The profile that was meant; it belongs to the run.  NULL after a sentence about the word. */
struct profile *read_chosen(struct read_run *run, const struct read_choice *choice,
                            const char *word, int *status);
