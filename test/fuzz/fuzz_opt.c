/* SPDX-License-Identifier: MIT
 *
 * fuzz_opt.c - configuration texts of all kinds: whatever the text is, options stay within limits.
 *
 * opt_parse() reads what an environment variable says, inside the first allocation of a process.
 * It must end, touch nothing but the options, and leave each of them at a value its row allows; a
 * second reading of the same text changes nothing.  Warnings it writes are thrown away, after a
 * look: each is one line that starts with the library's name.
 */
#define _GNU_SOURCE /* pipe2 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "opt/opt.h"
#include "base/os.h"
#include "fuzz.h"

enum { WARNING_BYTES = 1 << 16 };

static void check_row(const struct opt_row *row) {
    if (row->bytes != 0) {
        fuzz_check(strnlen(opt_field(row), row->bytes) < row->bytes);
        return;
    }
    uint64_t value;
    memcpy(&value, opt_field(row), sizeof value);
    if (row->type == OPT_TYPE_SIGNED) {
        fuzz_check((int64_t)value >= (int64_t)row->least);
        fuzz_check((int64_t)value <= (int64_t)row->most);
    } else if (row->type == OPT_TYPE_WORD) {
        fuzz_check(value < sizeof row->words / sizeof row->words[0] &&
                   row->words[value][0] != '\0');
    } else {
        fuzz_check(value >= row->least && value <= row->most);
    }
}

/* Each option is within its limits and can be read. */
static void check_limits(void) {
    for (size_t i = 0; i < opt_count(); i++) {
        if (opt_field(opt_row(i)) != NULL) {
            check_row(opt_row(i));
        }
        if (opt_leaf(i) == VALUE_STRING) {
            fuzz_check(strlen(opt_read(i).string) <= 4096);
        }
    }
}

/* Descriptor 2 while the text is read: a pipe that never blocks; what does not fit is dropped. */
static int captured[2];

static void capture_begin(int *saved) {
    if (captured[1] == 0) {
        fuzz_check(pipe2(captured, O_NONBLOCK | O_CLOEXEC) == 0);
    }
    *saved = dup(2);
    fuzz_check(*saved >= 0 && dup2(captured[1], 2) == 2);
}

static void check_warnings(void) {
    static char text[WARNING_BYTES + 1];
    size_t length = 0;
    ssize_t n;
    while (length < WARNING_BYTES &&
           (n = read(captured[0], text + length, WARNING_BYTES - length)) > 0) {
        length += (size_t)n;
    }
    text[length] = '\0';
    for (const char *line = text; *line != '\0';) {
        fuzz_check(strncmp(line, "tally: ", 7) == 0);
        const char *end = strchr(line, '\n');
        if (end == NULL) {
            fuzz_check(length > WARNING_BYTES / 2); /* Only a text that did not fit ends early. */
            break;
        }
        for (const char *c = line; c < end; c++) {
            fuzz_check(*c >= ' ' && *c < 127); /* Nothing that a terminal would act on. */
        }
        line = end + 1;
    }
}

static void parse(const char *text) {
    int saved;
    capture_begin(&saved);
    opt_parse(text, "TALLY_CONF");
    dup2(saved, 2);
    close(saved);
    check_warnings();
    check_limits();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int is_ready;
    if (!is_ready) {
        os_init();
        opt_init((struct opt_program){0});
        is_ready = 1;
    }
    if (size > 4096) {
        return 0;
    }
    char *text = malloc(size + 1);
    fuzz_check(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    struct options before = opt;
    parse(text);
    struct options once = opt;
    parse(text);
    fuzz_check(memcmp(&opt, &once, sizeof opt) == 0);
    opt = before;
    free(text);
    return 0;
}
