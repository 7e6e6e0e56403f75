/* SPDX-License-Identifier: MIT
 *
 * opt.c - reads configuration text: key:value pairs separated by commas.
 *
 * May run inside the first allocation of the process, so it uses no memory but the stack and never
 * ends the program: what cannot be understood is said in one line and skipped.
 *
 * Read next   options.def, the table of all options.
 */
#include "base/opt.h"

#include "base/fmt.h"
#include "base/log.h"
#include "base/os.h"

enum option_type { U64, I64, BOOL, WORD };

struct row {
    const char *name;
    enum option_type type;
    uint64_t initial;
    uint64_t least;
    uint64_t most;
    void *field;       /* 64 bits, whatever the type */
    const char *words; /* WORD: what may be said, separated by |; the value is the place of it */
};

struct options opt;

#define OPTION(name, type, initial, least, most, help)                                             \
    {#name, type, (uint64_t)(initial), (uint64_t)(least), (uint64_t)(most), &opt.name, NULL},
#define CHOICE(name, words, initial, help) {#name, WORD, initial, 0, 0, &opt.name, words},
static const struct row rows[] = {
#include "base/options.def"
};
#undef OPTION
#undef CHOICE

/* A piece of the configuration text. */
struct piece {
    const char *start;
    size_t length;
};

/* Warnings quote user text; a long one is cut here, not in the middle of our sentence. */
struct quoted {
    char text[80];
};

static struct quoted quote(struct piece piece) {
    struct quoted out;
    size_t n = min_size(piece.length, sizeof(out.text) - 1);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)piece.start[i];
        out.text[i] = c >= ' ' && c < 127 ? (char)c : '?';
    }
    out.text[n] = '\0';
    return out;
}

static bool piece_equals(struct piece piece, const char *text) {
    size_t i = 0;
    while (i < piece.length && text[i] != '\0' && text[i] == piece.start[i]) {
        i++;
    }
    return i == piece.length && text[i] == '\0';
}

static const struct row *find_row(struct piece key) {
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (piece_equals(key, rows[i].name)) {
            return &rows[i];
        }
    }
    return NULL;
}

/* The text up to the first of the two stop characters. */
static struct piece take_until(const char *text, char stop, char other_stop) {
    size_t n = 0;
    while (text[n] != '\0' && text[n] != stop && text[n] != other_stop) {
        n++;
    }
    return (struct piece){text, n};
}

static bool parse_word(const char *words, struct piece value, uint64_t *number) {
    *number = 0;
    for (;;) {
        struct piece word = take_until(words, '|', '|');
        if (word.length == value.length &&
            __builtin_memcmp(word.start, value.start, word.length) == 0) {
            return true;
        }
        if (word.start[word.length] == '\0') {
            return false;
        }
        words = word.start + word.length + 1;
        ++*number;
    }
}

static bool parse_value(const struct row *row, struct piece value, uint64_t *number) {
    if (row->type == BOOL) {
        *number = piece_equals(value, "true");
        return *number || piece_equals(value, "false");
    }
    if (row->type == WORD) {
        return parse_word(row->words, value, number);
    }
    bool negative = row->type == I64 && value.length > 0 && value.start[0] == '-';
    if (!fmt_parse_number(value.start + negative, value.length - negative, number)) {
        return false;
    }
    if (row->type == I64) {
        if (*number > INT64_MAX) {
            return false;
        }
        int64_t value_signed = negative ? -(int64_t)*number : (int64_t)*number;
        *number = (uint64_t)value_signed;
        return value_signed >= (int64_t)row->least && value_signed <= (int64_t)row->most;
    }
    return *number >= row->least && *number <= row->most;
}

static void apply(struct piece key, struct piece value, const char *source) {
    const struct row *row = find_row(key);
    uint64_t number;
    if (row == NULL) {
        log_warning("unknown option '%s' in %s is ignored", quote(key).text, source);
    } else if (!parse_value(row, value, &number)) {
        log_warning("invalid value '%s' for option '%s' in %s is ignored%s%s", quote(value).text,
                    row->name, source, row->type == WORD ? "; it is one of " : "",
                    row->type == WORD ? row->words : "");
    } else {
        *(uint64_t *)row->field = number;
    }
}

void opt_parse(const char *text, const char *source) {
    while (*text != '\0') {
        struct piece key = take_until(text, ':', ',');
        const char *after = text + key.length;
        struct piece value = {after, 0};
        if (*after == ':') {
            value = take_until(after + 1, ',', ',');
            after = value.start + value.length;
        }
        if (key.length > 0 || value.length > 0) {
            apply(key, value, source);
        }
        text = *after == ',' ? after + 1 : after;
    }
}

void opt_init(void) {
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        *(uint64_t *)rows[i].field = rows[i].initial;
    }
    static const char *const sources[] = {"MALLOC_CONF", "TALLY_CONF"};
    for (size_t i = 0; i < 2 && !os_facts.secure; i++) {
        const char *text = os_environment(sources[i]);
        if (text != NULL) {
            opt_parse(text, sources[i]);
        }
    }
}
