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

#include "base/opt.h"
#include "base/os.h"
#include "fuzz.h"

enum { WARNING_BYTES = 1 << 16 };

/* Rows of numbers have limits; CHOICE rows have words, and their values count from 0. */
enum kind { U64, I64, BOOL, WORD };

struct limits {
    enum kind kind;
    const void *field;
    uint64_t least, most;
    const char *words;
};

#define OPTION(name, type, initial, least, most, help)                                             \
    {type, &opt.name, (uint64_t)(least), (uint64_t)(most), NULL},
#define CHOICE(name, words, initial, help) {WORD, &opt.name, 0, 0, words},
static const struct limits rows[] = {
#include "base/options.def"
};
#undef OPTION
#undef CHOICE

static uint64_t last_word(const char *words) {
    uint64_t bars = 0;
    for (; *words != '\0'; words++) {
        bars += *words == '|';
    }
    return bars;
}

static void check_limits(void) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct limits *row = &rows[i];
        uint64_t value;
        memcpy(&value, row->field, sizeof value);
        if (row->kind == I64) {
            fuzz_check((int64_t)value >= (int64_t)row->least);
            fuzz_check((int64_t)value <= (int64_t)row->most);
        } else {
            fuzz_check(value >= row->least);
            fuzz_check(value <= (row->kind == WORD ? last_word(row->words) : row->most));
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
        opt_init();
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
