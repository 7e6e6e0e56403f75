/* SPDX-License-Identifier: MIT
 *
 * serve.h - one page over HTTP on a Unix socket, for `tally stats --serve`.
 *
 * Never a port: the socket has mode 0600, lies in a folder where nobody else can replace it, and
 * answers only processes of this user and root.
 */
#pragma once

#include "common/cli.h"

struct serve_page {
    const char *type;                        /* of HTTP: "text/plain; version=0.0.4" */
    bool (*print)(FILE *file, void *object); /* false: there is nothing to show any more */
    bool (*is_over)(void *object);
    void *object;
};

/* Serves until is_over, SIGINT, SIGTERM or SIGHUP, then removes the socket. */
enum exit_code serve(const char *path, const struct serve_page *page);
