/* SPDX-License-Identifier: MIT
 *
 * demangle.h - names of C++ and Rust as people write them.
 *
 * A name comes from a file that anybody may have made, so everything is bounded: a name longer than
 * 4 KiB, longer than 64 KiB when demangled, or nested deeper than 256 stays as it is.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
    DEMANGLE_IN_MOST = 4096,
    DEMANGLE_OUT_BYTES = 65536, /* with the NUL */
    DEMANGLE_DEPTH_MOST = 256,
};

/* Loads libstdc++, which demangles C++.  False: it is not there, and C++ names stay as they are. */
bool demangle_open(void);

/* The whole name, parameters and all.  False, with `out` undefined, when it is not mangled or
 * beyond the bounds.  SIGVTALRM ends the process at an exploding C++ name: let it be a worker. */
bool demangle(const char *name, char out[DEMANGLE_OUT_BYTES]);

/* Only Rust, both of its manglings; safe in any process. */
bool demangle_rust(const char *name, char out[DEMANGLE_OUT_BYTES]);

/* A demangled name without what nobody wants to read: std::basic_string<char, ...> becomes
 * std::string; default arguments of containers, ABI tags, clones, parameters and return types go.
 * Takes linear time.  Never longer than the name. */
void demangle_shorten(const char *name, char out[DEMANGLE_OUT_BYTES]);
