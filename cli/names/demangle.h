/* SPDX-License-Identifier: MIT
 *
 * demangle.h - names of C++ and Rust as people write them.
 *
 * A name comes out of a file that anybody may have made, so everything is bounded: what is longer than
 * 4 KiB, would become longer than 64 KiB or nests deeper than 256 stays as it is.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
    DEMANGLE_IN_MOST = 4096,
    DEMANGLE_OUT_BYTES = 65536, /* with the NUL */
    DEMANGLE_DEPTH_MOST = 256,
};

/* Loads libstdc++, which has the demangler for C++.  False: there is none, and those names stay. */
bool demangle_open(void);

/* The whole name, parameters and all.  False, with `out` undefined, when it is not mangled or beyond the
 * bounds.  A name of C++ that is made to explode is ended by SIGVTALRM: call this in a process that may die. */
bool demangle(const char *name, char out[DEMANGLE_OUT_BYTES]);

/* Only Rust, both of its manglings; safe in any process. */
bool demangle_rust(const char *name, char out[DEMANGLE_OUT_BYTES]);

/* A demangled name without what nobody wants to read: std::basic_string<char, ...> is std::string, default
 * arguments of containers, ABI tags, clones, parameters and what is returned go.  Takes linear time.  Never
 * longer than the name. */
void demangle_shorten(const char *name, char out[DEMANGLE_OUT_BYTES]);
