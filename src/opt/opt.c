/* SPDX-License-Identifier: MIT
 *
 * opt.c - the table of options, and one configuration text: key:value pairs separated by commas.
 *
 * May run inside the first allocation of the process, so it uses no memory but the stack and the
 * fields of `opt`.  What cannot be understood is reported in one line and skipped.
 *
 * Read next   options.def, the table of all options; opt_sources.c, where texts come from.
 */
#include "opt/opt.h"

#include <stddef.h>
#include <string.h>

#include "base/fmt.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/nearest.h"
#include "opt/opt_sources.h"

struct options opt;

/* ---------------------------------------------------------------- keys that set other options */

enum { HUGE_PAGE = 2 << 20, RATIO_ONE = 1 << 16 };

static uint64_t share_of_huge_page(uint64_t ratio) {
    return max_size(ratio * HUGE_PAGE / RATIO_ONE, 4096);
}

/* False if that had no effect. */
static bool set_others(enum opt_sets sets, uint64_t number) {
    switch (sets) {
    case OPT_SETS_TCACHE_MAX:
        opt.tcache_max = UINT64_C(1) << number;
        return true;
    case OPT_SETS_DECAY:
        opt.dirty_decay_ms = (int64_t)number < 0 ? -1 : (int64_t)number * 1000;
        return true;
    case OPT_SETS_NO_DECAY:
        if ((int64_t)number == -1) {
            opt.dirty_decay_ms = -1;
        }
        return (int64_t)number == -1;
    case OPT_SETS_HUGIFICATION:
        opt.hpa_hugification_threshold = share_of_huge_page(number);
        return true;
    case OPT_SETS_PURGE:
        opt.hpa_purge_threshold = share_of_huge_page(number);
        return true;
    case OPT_SETS_WHAT_IS: /* the second word */
        return number == 1;
    default:
        return false;
    }
}

/* ---------------------------------------------------------------- the table */

#define OPTION(key, kind, first, from, to, beyond, does, as, text)                                 \
    {.name = #key,                                                                                 \
     .help = HELP(text),                                                                           \
     .type = OPT_TYPE_##kind,                                                                      \
     .limits = OPT_##beyond,                                                                       \
     .effect = OPT_##does,                                                                         \
     .leaf = VALUE_##as,                                                                           \
     .initial = (uint64_t)(first),                                                                 \
     .least = (uint64_t)(from),                                                                    \
     .most = (uint64_t)(to),                                                                       \
     .field = offsetof(struct options, key),                                                       \
     .is_kept = true},
#define WORD(value, word) [value] = word,
#define CHOICE(key, first, does, as, text, list)                                                   \
    {.name = #key,                                                                                 \
     .help = HELP(text),                                                                           \
     .type = OPT_TYPE_WORD,                                                                        \
     .effect = OPT_##does,                                                                         \
     .leaf = VALUE_##as,                                                                           \
     .initial = (first),                                                                           \
     .words = {list},                                                                              \
     .field = offsetof(struct options, key),                                                       \
     .is_kept = true},
#define TEXT(key, kind, size, first, from, to, does, as, text)                                     \
    {.name = #key,                                                                                 \
     .help = HELP(text),                                                                           \
     .type = OPT_TYPE_##kind,                                                                      \
     .limits = OPT_CLIP,                                                                           \
     .effect = OPT_##does,                                                                         \
     .leaf = VALUE_##as,                                                                           \
     .least = (from),                                                                              \
     .most = (to),                                                                                 \
     .initial_text = (first),                                                                      \
     .bytes = (size),                                                                              \
     .field = offsetof(struct options, key),                                                       \
     .is_kept = true},
#define KEY(key, kind, from, to, beyond, does, others, text, ...)                                  \
    {.name = #key,                                                                                 \
     .help = HELP(text),                                                                           \
     .type = OPT_TYPE_##kind,                                                                      \
     .limits = OPT_##beyond,                                                                       \
     .effect = OPT_##does,                                                                         \
     .least = (uint64_t)(from),                                                                    \
     .most = (uint64_t)(to),                                                                       \
     .words = {__VA_ARGS__},                                                                       \
     .sets = OPT_SETS_##others},
static const struct opt_row rows[] = {
#include "opt/options.def"
};
#undef WORD

static bool keeps_text(const struct opt_row *row) {
    return row->bytes != 0;
}

void *opt_field(const struct opt_row *row) {
    return row->is_kept ? (char *)&opt + row->field : NULL;
}

static struct {
    unsigned mistakes;
    bool echoes;
    bool is_used; /* a text may have been written */
} g;

/* Texts are zero at the start of the process, and their pages are not touched for nothing. */
static void set_default(const struct opt_row *row, bool is_fresh) {
    void *field = opt_field(row);
    if (keeps_text(row)) {
        if (!is_fresh) {
            memset(field, 0, row->bytes);
        }
        memcpy(field, row->initial_text, strlen(row->initial_text));
    } else if (field != NULL) {
        *(uint64_t *)field = row->initial;
    }
}

/* ---------------------------------------------------------------- pieces of text */

/* A piece of the configuration text. */
struct piece {
    const char *start;
    size_t length;
};

void opt_quote(char *out, size_t capacity, const char *text, size_t length) {
    size_t n = min_size(length, capacity - 1);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        out[i] = c >= ' ' && c < 127 ? (char)c : '?';
    }
    out[n] = '\0';
}

/* Warnings quote user text; a long one is cut here, not in the middle of our sentence. */
struct quoted {
    char text[80];
};

static struct quoted quote(struct piece piece) {
    struct quoted out;
    opt_quote(out.text, sizeof(out.text), piece.start, piece.length);
    return out;
}

static bool piece_equals(struct piece piece, const char *text) {
    return strlen(text) == piece.length && memcmp(text, piece.start, piece.length) == 0;
}

static bool begins_with(struct piece piece, const char *text) {
    size_t length = strlen(text);
    return piece.length >= length && memcmp(text, piece.start, length) == 0;
}

/* The text up to one of the stop characters, or all of it. */
static struct piece take_until(const char *text, const char *end, const char *stops) {
    size_t n = 0;
    while (text + n < end && strchr(stops, text[n]) == NULL) {
        n++;
    }
    return (struct piece){text, n};
}

/* ---------------------------------------------------------------- values */

/* As in C, a leading 0 means octal. */
static bool parse_octal(struct piece digits, uint64_t *number) {
    uint64_t sum = 0;
    for (size_t i = 0; i < digits.length; i++) {
        char c = digits.start[i];
        if (c < '0' || c > '7' || sum >> 61 != 0) {
            return false;
        }
        sum = sum * 8 + (uint64_t)(c - '0');
    }
    *number = sum;
    return true;
}

static bool parse_magnitude(struct piece value, uint64_t *number) {
    bool octal =
        value.length > 1 && value.start[0] == '0' && value.start[1] >= '0' && value.start[1] <= '9';
    return octal ? parse_octal(value, number) : fmt_parse_number(value.start, value.length, number);
}

/* Blanks and a sign may stand before a number. */
static bool parse_integer(struct piece value, bool *negative, uint64_t *number) {
    while (value.length > 0 && (value.start[0] == ' ' || value.start[0] == '\t')) {
        value = (struct piece){value.start + 1, value.length - 1};
    }
    *negative = value.length > 0 && value.start[0] == '-';
    if (*negative || (value.length > 0 && value.start[0] == '+')) {
        value = (struct piece){value.start + 1, value.length - 1};
    }
    return parse_magnitude(value, number);
}

static bool parse_unsigned(const struct opt_row *row, struct piece value, uint64_t *number) {
    bool negative;
    if (!parse_integer(value, &negative, number) || (negative && *number != 0)) {
        return false;
    }
    bool fits = *number >= row->least && *number <= row->most;
    if (!fits && row->limits != OPT_REFUSE) {
        *number = *number < row->least ? row->least : row->most;
    }
    return fits || row->limits != OPT_REFUSE;
}

static bool parse_signed(const struct opt_row *row, struct piece value, uint64_t *number) {
    bool negative;
    if (!parse_integer(value, &negative, number) || *number > INT64_MAX) {
        return false;
    }
    int64_t least = (int64_t)row->least;
    int64_t most = (int64_t)row->most;
    int64_t found = negative ? -(int64_t)*number : (int64_t)*number;
    bool fits = found >= least && found <= most;
    if (!fits) {
        found = found < least ? least : most;
    }
    *number = (uint64_t)found;
    return fits || row->limits != OPT_REFUSE;
}

/* d or d.d, in units of 1/65536, rounded down. */
static bool parse_ratio(const struct opt_row *row, struct piece value, uint64_t *number) {
    struct piece whole = take_until(value.start, value.start + value.length, ".");
    uint64_t fraction = 0;
    uint64_t scale = 1;
    for (size_t i = whole.length + 1; i < value.length; i++) {
        char c = value.start[i];
        if (c < '0' || c > '9') {
            return false;
        }
        if (scale < UINT64_C(10000000000)) { /* digits beyond are too small to matter */
            fraction = fraction * 10 + (uint64_t)(c - '0');
            scale *= 10;
        }
    }
    if (value.length == whole.length + 1 || whole.length == 0) {
        return false;
    }
    for (size_t i = 0; i < whole.length; i++) {
        if (whole.start[i] < '0' || whole.start[i] > '9') {
            return false;
        }
    }
    if (!fmt_parse_number(whole.start, whole.length, number) || *number > UINT16_MAX) {
        return false;
    }
    *number = *number * RATIO_ONE + fraction * RATIO_ONE / scale;
    return *number >= row->least && *number <= row->most;
}

static bool parse_word(const struct opt_row *row, struct piece value, uint64_t *number) {
    for (*number = 0; row->words[*number][0] != '\0'; ++*number) {
        if (piece_equals(value, row->words[*number])) {
            return true;
        }
    }
    return false;
}

bool opt_next_range(const char **list, const char *end, struct opt_range *range) {
    struct piece from = take_until(*list, end, "-|");
    if (*list == end || from.start + from.length == end || from.start[from.length] != '-') {
        return false;
    }
    struct piece to = take_until(from.start + from.length + 1, end, ":|");
    if (to.start + to.length == end || to.start[to.length] != ':') {
        return false;
    }
    struct piece value = take_until(to.start + to.length + 1, end, "|");
    const char *rest = value.start + value.length;
    /* A bar must be followed by another range. */
    if (!parse_magnitude(from, &range->from) || !parse_magnitude(to, &range->to) ||
        !parse_magnitude(value, &range->value) || range->from > range->to || rest + 1 == end) {
        return false;
    }
    *list = rest == end ? end : rest + 1;
    return true;
}

static bool parse_list(const struct opt_row *row, struct piece value) {
    const char *at = value.start;
    const char *end = value.start + value.length;
    struct opt_range range;
    bool fits = value.length > 0;
    while (fits && opt_next_range(&at, end, &range)) {
        fits = row->limits == OPT_CLIP || (range.value >= row->least && range.value <= row->most);
    }
    return fits && at == end;
}

static bool parse_value(const struct opt_row *row, struct piece value, uint64_t *number) {
    *number = 0;
    switch (row->type) {
    case OPT_TYPE_SWITCH:
        *number = piece_equals(value, "true");
        return *number || piece_equals(value, "false");
    case OPT_TYPE_UNSIGNED_OR_DEFAULT:
        *number = row->initial;
        return piece_equals(value, "default") || parse_unsigned(row, value, number);
    case OPT_TYPE_UNSIGNED:
        return parse_unsigned(row, value, number);
    case OPT_TYPE_SIGNED:
        return parse_signed(row, value, number);
    case OPT_TYPE_RATIO_OR_MINUS:
        *number = UINT32_MAX;
        return piece_equals(value, "-1") || parse_ratio(row, value, number);
    case OPT_TYPE_RATIO:
        return parse_ratio(row, value, number);
    case OPT_TYPE_WORD:
        return parse_word(row, value, number);
    case OPT_TYPE_LIST_OR_DEFAULT:
        return piece_equals(value, "default") || parse_list(row, value);
    case OPT_TYPE_LIST:
        return parse_list(row, value) && (row->bytes == 0 || value.length < row->bytes);
    case OPT_TYPE_TEXT:
        return row->bytes == 0 || value.length < row->bytes;
    case OPT_TYPE_LETTERS:
        break;
    }
    return true;
}

/* ---------------------------------------------------------------- storing */

static void store_letters(char *field, struct piece value) {
    size_t n = 0;
    for (size_t i = 0; i < value.length; i++) {
        char c = value.start[i];
        if (c != '\0' && strchr("Jgmdablxeh", c) != NULL && memchr(field, c, n) == NULL) {
            field[n++] = c;
        }
    }
}

/* control:off is final, whichever source says it. */
static bool is_final(const void *field) {
    return field == &opt.control && opt.control == CONTROL_OFF;
}

static void store(const struct opt_row *row, struct piece value, uint64_t number) {
    void *field = opt_field(row);
    if (is_final(field)) {
        return;
    }
    if (!keeps_text(row)) {
        *(uint64_t *)field = number;
        return;
    }
    memset(field, 0, row->bytes);
    opt_note_text();
    if (row->type == OPT_TYPE_LETTERS) {
        store_letters(field, value);
    } else {
        memcpy(field, value.start, value.length);
    }
}

/* ---------------------------------------------------------------- one pair */

/* Keys that come and go between versions: a mistake in them is never a reason to end. */
static bool may_come_and_go(struct piece key) {
    return begins_with(key, "experimental_") || piece_equals(key, "hpa_sec_bytes_after_flush") ||
           piece_equals(key, "hpa_sec_batch_fill_extra");
}

static const struct opt_row *find_row(struct piece key) {
    for (size_t i = 0; i < opt_count(); i++) {
        if (piece_equals(key, rows[i].name)) {
            return &rows[i];
        }
    }
    return NULL;
}

static void refuse(const struct opt_row *row, struct piece value, const char *source) {
    char words[160] = "";
    size_t n = 0;
    for (size_t i = 0; row->type == OPT_TYPE_WORD && row->words[i][0] != '\0'; i++) {
        n += fmt_text(words + n, sizeof(words) - n, "%s%s", i == 0 ? "; it is one of " : "|",
                      row->words[i]);
    }
    log_line("invalid value '%s' for option '%s' in %s is ignored%s", quote(value).text, row->name,
             source, words);
}

/* Acts on a pair that is accepted. */
static void take(const struct opt_row *row, struct piece value, uint64_t number,
                 const char *source) {
    bool has_effect = row->effect != OPT_OBSOLETE;
    if (row->sets != OPT_SETS_NONE) {
        has_effect = set_others(row->sets, number);
    } else if (row->is_kept) {
        store(row, value, number);
    }
    if (!has_effect) {
        log_line("option '%s:%s' in %s has no effect", row->name, quote(value).text, source);
    } else if (g.echoes) {
        log_line("-- Set conf value: %s:%s%s", row->name, quote(value).text,
                 row->effect == OPT_IGNORED ? " (without effect)" : "");
    }
    if (row->limits == OPT_CLIP_ALOUD && number == row->most) {
        uint64_t said;
        bool negative;
        if (parse_integer(value, &negative, &said) && said > number) {
            log_line("value '%s' for option '%s' in %s is reduced to %lu", quote(value).text,
                     row->name, source, number);
        }
    }
}

/* The option that differs in less than a quarter of its letters; NULL if there is none. */
static const char *find_nearest(struct piece key) {
    const char *nearest = NULL;
    size_t least = key.length / 4 + 1;
    for (size_t i = 0; i < opt_count() && key.length <= NEAREST_MOST; i++) {
        const char *name = rows[i].name;
        size_t steps = nearest_distance(key.start, key.length, name, strlen(name));
        if (steps < least) {
            least = steps;
            nearest = name;
        }
    }
    return nearest;
}

/* `value.start` is the end of the key where no colon follows it. */
static void say_unknown(struct piece key, struct piece value, const char *source) {
    bool alone = value.start == key.start + key.length;
    const char *nearest = find_nearest(key);
    log_line("unknown option '%s%s%s' in %s is ignored%s%s%s", quote(key).text, alone ? "" : ":",
             quote(value).text, source, nearest != NULL ? "; did you mean '" : "",
             nearest != NULL ? nearest : "", nearest != NULL ? "'?" : "");
}

static void apply(struct piece key, struct piece value, const char *source) {
    const struct opt_row *row = find_row(key);
    uint64_t number;
    if (row != NULL && parse_value(row, value, &number)) {
        take(row, value, number, source);
        return;
    }
    if (row != NULL) {
        refuse(row, value, source);
    } else {
        say_unknown(key, value, source);
    }
    g.mistakes += !may_come_and_go(key);
}

/* Takes the next pair off a text and returns what follows it. */
static const char *next_pair(const char *text, const char *end, struct piece *key,
                             struct piece *value) {
    *key = take_until(text, end, ":,");
    const char *after = text + key->length;
    *value = (struct piece){after, 0};
    if (*after == ':') {
        *value = take_until(after + 1, end, ",");
        after = value->start + value->length;
    }
    return *after == ',' ? after + 1 : after;
}

void opt_parse(const char *text, const char *source) {
    const char *end = text + strlen(text);
    while (text < end) {
        struct piece key;
        struct piece value;
        text = next_pair(text, end, &key, &value);
        if (key.length > 0 || value.length > 0) {
            apply(key, value, source);
        }
    }
}

/* ---------------------------------------------------------------- for opt_sources.c */

void opt_reset(void) {
    g.mistakes = 0;
    g.echoes = false;
    for (size_t i = 0; i < opt_count(); i++) {
        set_default(&rows[i], !g.is_used);
    }
    g.is_used = false;
}

void opt_note_text(void) {
    g.is_used = true;
}

static uint64_t mix(uint64_t sum, uint64_t word) {
    sum = hash_word(sum ^ word);
    return sum ^ sum >> 29;
}

/* The default of a text counts as nothing, so that texts need not be read where none was set. */
static uint64_t mix_text(uint64_t sum, const char *text, const char *initial) {
    if (!g.is_used || strcmp(text, initial) == 0) {
        return mix(sum, 0);
    }
    for (; *text != '\0'; text++) {
        sum = mix(sum, (unsigned char)*text);
    }
    return mix(sum, UINT64_MAX);
}

uint64_t opt_digest(void) {
    uint64_t sum = HASH_TEXT;
    for (size_t i = 0; i < opt_count(); i++) {
        const void *field = opt_field(&rows[i]);
        if (keeps_text(&rows[i])) {
            sum = mix_text(sum, field, rows[i].initial_text);
        } else if (field != NULL) {
            sum = mix(sum, *(const uint64_t *)field);
        }
    }
    return sum;
}

void opt_echo(bool echoes) {
    g.echoes = echoes;
}

void opt_add_mistake(void) {
    g.mistakes++;
}

unsigned opt_mistakes(void) {
    return g.mistakes;
}

void opt_look_for_switch(const char *text, const char *name, bool *value) {
    const char *end = text + strlen(text);
    while (text < end) {
        struct piece key;
        struct piece word;
        text = next_pair(text, end, &key, &word);
        if (piece_equals(key, name) &&
            (piece_equals(word, "true") || piece_equals(word, "false"))) {
            *value = piece_equals(word, "true");
        }
    }
}

/* ---------------------------------------------------------------- reading */

size_t opt_count(void) {
    return sizeof(rows) / sizeof(rows[0]);
}

const struct opt_row *opt_row(size_t row) {
    return &rows[row];
}

const char *opt_name(size_t row) {
    return rows[row].name;
}

const char *opt_help(size_t row) {
    return rows[row].help;
}

enum value_type opt_leaf(size_t row) {
    return rows[row].leaf;
}

const char *opt_word(const uint64_t *choice) {
    size_t row = 0;
    while (opt_field(&rows[row]) != choice) {
        row++;
    }
    return rows[row].words[*choice];
}

union value opt_read(size_t index) {
    const struct opt_row *row = &rows[index];
    union value value = {.uint64 = 0};
    if (row->leaf == VALUE_NONE) {
        return value;
    }
    if (keeps_text(row)) {
        value.string = opt_field(row);
        return value;
    }
    uint64_t kept = *(const uint64_t *)opt_field(row);
    switch (row->leaf) {
    case VALUE_BOOL: /* the first word of a choice means no */
        value.boolean = kept != 0;
        break;
    case VALUE_STRING:
        value.string = row->words[kept];
        break;
    case VALUE_UNSIGNED:
        value.number = (unsigned)kept;
        break;
    case VALUE_SIZE:
        value.size = kept;
        break;
    case VALUE_SSIZE:
        value.ssize = (ssize_t)kept;
        break;
    case VALUE_INT64:
        value.int64 = (int64_t)kept;
        break;
    case VALUE_UINT64:
        value.uint64 = kept;
        break;
    case VALUE_UINT32:
        value.uint32 = (uint32_t)kept;
        break;
    default:
        break;
    }
    return value;
}
