/* SPDX-License-Identifier: MIT
 *
 * wire.h - messages on the control socket, shared with the command.
 *
 *      request   "tally1" SP length SP verb *( SP key "=" value ) LF
 *      reply     "tally1" SP length SP ( "ok" *( SP key "=" value ) | "err" SP code SP text ) LF
 *
 * One message of SOCK_SEQPACKET each; length is the number of its bytes in decimal; printable ASCII, other
 * bytes of values and blanks %-encoded.  Output of a verb goes into the one descriptor that came with the
 * request.
 *
 *      read   hello   stats   dump kind=heap|peak format=pprof|jemalloc|gperftools   maps
 *                             dump kind=cpu format=pprof|gperftools-cpu
 *      write  start kind=heap rate=   start kind=cpu hz=   stop kind=   reset kind=   (heap or cpu; both)
 *             set key= value=   purge   mark text=   leak-check max_pause_ms= quick=
 *
 * Both sides read strictly: what this page does not allow is no message.  A verb and a key are of a-z, 0-9,
 * _, . and -, and begin with a letter; no key comes twice; %00 is nowhere; a number has no leading zero.
 * Reading and writing need nothing but memory of the caller's, so the command can use them as well.
 *
 * Threads     All functions may be called from any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
    WIRE_MOST_BYTES = 4096,
    WIRE_MOST_FIELDS = 16,
    WIRE_CLIENTS = 4,
    WIRE_REQUESTS_PER_SECOND = 8,
    WIRE_LEAK_CHECK_S = 680 /* that a leak-check may take, with its second look (leak.h) */
};

enum wire_code {
    WIRE_SYNTAX = 1,
    WIRE_UNKNOWN = 2,
    WIRE_DENIED = 3,
    WIRE_BUSY = 4,
    WIRE_LIMIT = 5,
    WIRE_UNAVAILABLE = 6,
    WIRE_IO = 7,
    WIRE_DEADLINE = 8,
};

struct wire_field {
    const char *key;
    const char *value; /* decoded */
};

/* A message that was read.  The strings lie in the text it was read from. */
struct wire_message {
    const char *verb; /* of a reply: "ok" or "err" */
    unsigned code;    /* of an error; otherwise 0 */
    const char *text; /* of an error; otherwise "" */
    unsigned count;
    struct wire_field fields[WIRE_MOST_FIELDS];
};

/* Reads `length` bytes as a request or as a reply, and changes them on the way.  False for anything else. */
bool wire_read_request(char *bytes, size_t length, struct wire_message *message);
bool wire_read_reply(char *bytes, size_t length, struct wire_message *message);

/* The value of a key, or NULL. */
const char *wire_find(const struct wire_message *message, const char *key);

/* A message on the way.  Once something does not fit, nothing more is added, and its length is 0. */
struct wire_writer {
    size_t length;
    bool is_full;
    char bytes[WIRE_MOST_BYTES];
};

/* Begins with a verb, or with "ok". */
void wire_begin(struct wire_writer *writer, const char *verb);
void wire_add(struct wire_writer *writer, const char *key, const char *value);
void wire_add_number(struct wire_writer *writer, const char *key, unsigned long long number);

/* Makes it whole: how many bytes are to be sent, 0 when it does not fit. */
size_t wire_end(struct wire_writer *writer);

/* The same for an error, from beginning to end.  What is not printable in the text becomes '?'. */
size_t wire_error(struct wire_writer *writer, enum wire_code code, const char *text);
