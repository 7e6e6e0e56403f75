/* SPDX-License-Identifier: MIT
 *
 * opt_start.h - options read from sources that the test chooses, for test_opt*.c.  What /etc/malloc.conf
 * says is the test's (--wrap).
 */
#ifndef TALLY_TEST_OPT_START_H
#define TALLY_TEST_OPT_START_H

#include <errno.h>

#include "base/os.h"
#include "opt/opt.h"
#include "unit.h"

/* What /etc/malloc.conf says here; NULL: there is none. */
static const char *link_text;

int __wrap_os_read_link(const char *path, char *text, size_t bytes);
int __wrap_os_read_link(const char *path, char *text, size_t bytes) {
    check_str(path, "/etc/malloc.conf");
    if (link_text == NULL) {
        return -ENOENT;
    }
    size_t length = strlen(link_text) < bytes ? strlen(link_text) : bytes;
    memcpy(text, link_text, length);
    return (int)length;
}

static inline void clear_environment(void) {
    static const char *const own[] = {"TALLY_CONF", "MALLOC_CONF", "JE_MALLOC_CONF"};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        unsetenv(own[i]);
    }
    for (size_t i = 0; i < opt_alias_count(); i++) {
        unsetenv(opt_alias(i)->variable);
    }
    os_init();
}

static inline struct options defaults(void) {
    clear_environment();
    opt_init((struct opt_program){0});
    return opt;
}

/* Starts from what is set and returns what was said. */
static inline const char *init(struct opt_program program) {
    os_init();
    struct capture capture = capture_begin();
    opt_init(program);
    return capture_end(capture);
}

static __attribute__((unused)) char huge[(1 << 20) + 64];

#endif
