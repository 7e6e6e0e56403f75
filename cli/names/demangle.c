/* SPDX-License-Identifier: MIT
 *
 * demangle.c - decides which language a name is of; C++ is left to libstdc++.
 *
 * Every host with a C++ program has libstdc++, so it is opened instead of linked: the command works
 * without it.  Its demangler has no bounds for what it writes, and a name of a few hundred bytes
 * can ask for gigabytes, hence the timer: callers live in a worker process that may die.
 */
#include "names/demangle.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum { TIME_PER_NAME_US = 250000 };

static char *(*cxx_demangle)(const char *name, char *buffer, size_t *length, int *status);

bool demangle_open(void) {
    if (cxx_demangle == NULL) {
        void *library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);
        void *function = library == NULL ? NULL : dlsym(library, "__cxa_demangle");
        memcpy(&cxx_demangle, &function, sizeof function);
    }
    return cxx_demangle != NULL;
}

static void set_timer(suseconds_t us) {
    struct itimerval timer = {.it_value.tv_usec = us};
    setitimer(ITIMER_VIRTUAL, &timer, NULL);
}

static bool demangle_cxx(const char *name, char *out) {
    if (cxx_demangle == NULL) {
        return false;
    }
    int status = -1;
    set_timer(TIME_PER_NAME_US);
    char *text = cxx_demangle(name, NULL, NULL, &status);
    set_timer(0);
    bool fits = text != NULL && status == 0 && strlen(text) < DEMANGLE_OUT_BYTES;
    if (fits) {
        strcpy(out, text);
    }
    free(text);
    return fits;
}

bool demangle(const char *name, char out[DEMANGLE_OUT_BYTES]) {
    if (name[0] != '_' || strnlen(name, DEMANGLE_IN_MOST + 1) > DEMANGLE_IN_MOST) {
        return false;
    }
    if (demangle_rust(name, out)) {
        return true;
    }
    return name[1] == 'Z' && demangle_cxx(name, out);
}
