/* SPDX-License-Identifier: MIT
 *
 * fuzz_demangle.c - names of all kinds: whatever the bytes are, the result is bounded text.
 *
 * Rust's names are read by our own code and are run here with and without their prefix, so that every
 * input reaches the parser.  The short form takes any text and never makes it longer.  The demangler of
 * libstdc++ is not ours and stays out.
 */
#include <string.h>

#include "names/demangle.h"
#include "fuzz.h"

static void check_rust(const char *name) {
    static char out[DEMANGLE_OUT_BYTES], shorter[DEMANGLE_OUT_BYTES];
    if (demangle_rust(name, out)) {
        fuzz_check(strnlen(out, sizeof out) < sizeof out);
        demangle_shorten(out, shorter);
        fuzz_check(strlen(shorter) <= strlen(out));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char name[DEMANGLE_OUT_BYTES + 8], out[DEMANGLE_OUT_BYTES];
    if (size >= DEMANGLE_OUT_BYTES) {
        return 0;
    }
    memcpy(name + 3, data, size);
    name[3 + size] = '\0';
    check_rust(name + 3);
    memcpy(name, "_ZN", 3);
    check_rust(name);
    memcpy(name + 1, "_R", 2);
    check_rust(name + 1);
    demangle_shorten(name + 3, out);
    fuzz_check(strlen(out) <= strlen(name + 3));
    return 0;
}
