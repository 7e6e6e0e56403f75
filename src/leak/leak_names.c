/* SPDX-License-Identifier: MIT
 *
 * leak_names.c - asks the loader for names of functions and modules, and remembers the answers.
 *
 * The loader knows functions that a module exports; others have an offset, from which `tally` and addr2line
 * find function and line.  One question takes it a walk over all symbols of a module, and a thousand stacks
 * share most of their frames: hence the memory of what was asked before.
 *
 * A name of C++ is made readable by the program's own runtime, where it has one.
 */
#define _GNU_SOURCE /* dladdr */
#include "leak/leak_names.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/fmt.h"
#include "base/hash.h"
#include "base/os.h"

enum { SLOTS_LG = 12, SLOTS = 1 << SLOTS_LG };

/* An answer; addresses that share a slot replace each other. */
struct slot {
    uintptr_t address, offset;
    const char *function, *module; /* the loader's, which stay as long as the module does */
};

extern char *cxa_demangle(const char *name, char *buffer, size_t *length,
                          int *status) __asm__("__cxa_demangle") __attribute__((weak));

const char *leak_names_base(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static const char *path_of_program(struct leak_names *names, const char *name) {
    if (names->program[0] == '\0') {
        int length = os_read_link("/proc/self/exe", names->program, sizeof(names->program) - 1);
        names->program[length > 0 ? length : 0] = '\0';
    }
    return names->program[0] != '\0' ? names->program : name;
}

/* Only the program is told by its path: those of the maps have no end. */
static struct slot look_up_in_maps(struct leak_names *names, uintptr_t address) {
    struct slot slot = {.address = address};
    if (names->maps.count == 0) {
        maps_read(&names->maps);
    }
    size_t number = maps_find(&names->maps, address - 1);
    if (number == names->maps.program && number < names->maps.count) {
        const struct maps_module *module = maps_module(&names->maps, number);
        slot.module = path_of_program(names, NULL);
        slot.offset = address - 1 - module->start + module->offset;
    }
    return slot;
}

static struct slot look_up(struct leak_names *names, uintptr_t address) {
    Dl_info info;
    struct slot slot = {.address = address};
    if (dladdr((void *)(address - 1), &info) != 0 && info.dli_fname != NULL) {
        slot.offset = address - 1 - (uintptr_t)info.dli_fbase;
        slot.module =
            info.dli_fname[0] == '/' ? info.dli_fname : path_of_program(names, info.dli_fname);
        slot.function = info.dli_sname;
    }
    return slot.module != NULL ? slot : look_up_in_maps(names, address);
}

/* Without memory, every question is asked. */
static struct slot remember(struct leak_names *names, uintptr_t address) {
    size_t bytes = SLOTS * sizeof(struct slot);
    if (names->seen.length == 0 && pile_grow(&names->seen, bytes)) {
        memset(names->seen.bytes, 0, bytes);
        names->seen.length = bytes;
    }
    if (names->seen.length == 0) {
        return look_up(names, address);
    }
    struct slot *slots = (struct slot *)(void *)names->seen.bytes;
    struct slot *slot = &slots[hash_place(address, SLOTS_LG)];
    if (slot->address != address) {
        *slot = look_up(names, address);
    }
    return *slot;
}

static const char *make_readable(struct leak_names *names, const char *function) {
    int status = 0;
    if (function == NULL || strncmp(function, "_Z", 2) != 0 || cxa_demangle == NULL) {
        return function;
    }
    char *text = cxa_demangle(function, NULL, NULL, &status);
    if (text == NULL) {
        return function;
    }
    fmt_text(names->text, sizeof(names->text), "%s", text);
    free(text);
    return names->text;
}

struct leak_place leak_names_find(struct leak_names *names, uintptr_t address) {
    struct slot slot = remember(names, address);
    return (struct leak_place){make_readable(names, slot.function), slot.module, slot.offset};
}

bool leak_names_suppress(struct leak_names *names, const char *rules, uintptr_t address,
                         struct suppress_rule *rule) {
    struct leak_place place = leak_names_find(names, address);
    const char *const texts[] = {place.function, place.module};
    return suppress_find(rules, texts, 2, rule);
}

void leak_names_release(struct leak_names *names) {
    pile_release(&names->seen);
    maps_release(&names->maps);
}
