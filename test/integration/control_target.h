/* SPDX-License-Identifier: MIT
 *
 * control_target.h - a process with a control socket, and a client of it, for test_control_*.c.
 *
 * The test program starts itself again as the target, with the library linked.  The target does what
 * single letters on its standard input say, and answers each by a line on its standard output.
 *
 *      start("control:write");                 the target runs; its socket lies in a folder of its own
 *      order('a');                             it has allocated
 *      int fd = reach();                       connected to its socket
 *      check(begins(ask(fd, "hello"), "ok"));  asked, and answered
 *      check_eq(end_target(), 0);
 */
#ifndef TALLY_TEST_CONTROL_TARGET_H
#define TALLY_TEST_CONTROL_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "contract/stats_page.h"

enum { NOBODY = 65534, MOST_BYTES = 8192 };

/* ---------------------------------------------------------------- the target, from outside */

/* The target that was started last. */
extern struct target {
    pid_t pid;
    int input, output, errors;
    char folder[64]; /* is removed with the target, unless it is "" */
    char *root;      /* TALLY_ROOT=..., or NULL */
} target;

/* Where a target runs: as this program does, in namespaces of mounts and processes of its own, or behind a
 * filter of system calls. */
enum target_kind { PLAIN, IN_NAMESPACES, CONFINED };
enum {
    NO_NAMESPACES = 99
}; /* the status of a child that the kernel did not let have what it needs */

/* Starts a target with these options, and weaker ones in MALLOC_CONF. */
void start_as(enum target_kind kind, const char *conf, const char *weaker);

/* Starts a plain one, with its socket in a folder that only this test knows. */
void start(const char *conf);

/* Sends the letter and returns the line that answers it; control_target.c has the letters. */
const char *order(char letter);

/* What the target has written to its standard error since the last time. */
const char *errors_of_target(void);

/* Ends the target; its status as waitpid(2) tells it. */
int end_target(void);

/* The page that look() has found. */
extern union found {
    struct stats_page page;
    char bytes[STATS_PAGE_BYTES];
} found;

/* Reads the page of a process, by the name of its descriptor; how many descriptors have the name. */
unsigned look(pid_t pid);

/* How many descriptors of the process begin so; the last one is read into `found` if wanted. */
unsigned count_descriptors(pid_t pid, const char *beginning, bool reads);

unsigned count_threads(pid_t pid);

/* The beginning of a file, as a string. */
void read_text(const char *path, char *text, size_t bytes);

void wait_a_little(void);

/* ---------------------------------------------------------------- the client */

/* Connects to a path below the target's root, as the command does; -1 and errno when that cannot be. */
int connect_below(const char *root, const char *path);

/* Connects to the socket that the page of the target names; -1 when it names none. */
int reach(void);

/* What came back, "" for the end, in a static buffer. */
const char *receive(int fd);

void send_bytes(int fd, const void *bytes, size_t length, const int *passed, size_t count);

/* Sends the request with its head and these descriptors; the answer without its own head. */
const char *ask_with(int fd, const char *request, const int *passed, size_t count);

const char *ask(int fd, const char *request);

/* What the request writes to the file that it is given; the answer must begin as expected. */
const char *output_of(int fd, const char *request, const char *expected);

bool begins(const char *text, const char *beginning);

/* Eight requests a second are served. */
void rest_a_second(void);

int temporary_file(int flags);

#endif
