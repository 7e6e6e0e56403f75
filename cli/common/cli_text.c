/* SPDX-License-Identifier: MIT
 *
 * cli_text.c - numbers as text, and names that cannot steer a terminal.
 *
 * Texts come from a ring of static buffers, so that a printf may hold several; none is freed.
 */
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "common/cli.h"
#include "common/glyph.h"

enum {
    RING_TEXTS = 16,
    SAFE_MOST_BYTES = 4096, /* of a name; each byte becomes at most four */
    RING_BYTES = 4 * SAFE_MOST_BYTES + 16,
};

static struct {
    char ring[RING_TEXTS][RING_BYTES];
    unsigned ring_next;
} g;

static char *next_text(void) {
    return g.ring[g.ring_next++ % RING_TEXTS];
}

const char *ring_text(const char *format, ...) {
    char *text = next_text();
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, RING_BYTES, format, arguments);
    va_end(arguments);
    return text;
}

/* Divides by `step`, again while the result has too many digits; returns the times, 1 to 6. */
static unsigned scale(double *value, double step, double most) {
    unsigned times = 0;
    do {
        *value /= step;
        times++;
    } while (*value >= most && times < 6);
    return times;
}

const char *size_text(int64_t bytes) {
    double value = fabs((double)bytes);
    if (value < 1024) {
        return ring_text("%lld B", (long long)bytes);
    }
    unsigned unit = scale(&value, 1024, 1023.95);
    bool is_round = unit == 1 && (bytes % 1024 == 0 || value >= 99.95);
    return ring_text("%s%.*f %ciB", bytes < 0 ? "-" : "", is_round ? 0 : 1, value, " KMGTPE"[unit]);
}

const char *count_text(int64_t count) {
    double value = fabs((double)count);
    if (value < 1000) {
        return ring_text("%lld", (long long)count);
    }
    unsigned unit = scale(&value, 1000, 999.5);
    return ring_text("%s%.*f %c", count < 0 ? "-" : "", value < 99.95, value, " kMGTPE"[unit]);
}

const char *grouped_text(int64_t count) {
    char digits[24];
    char *text = next_text(), *out = text;
    int length = snprintf(digits, sizeof digits, "%lld", (long long)count);
    for (int i = 0; i < length; i++) {
        if (i > 0 && digits[i - 1] != '-' && (length - i) % 3 == 0) {
            *out++ = ',';
        }
        *out++ = digits[i];
    }
    *out = '\0';
    return text;
}

const char *duration_text(uint64_t ns) {
    unsigned long long seconds = ns / 1000000000;
    double exact = (double)ns / 1e9;
    return ns < 1000000       ? ring_text("%.0f us", exact * 1e6)
           : exact < 0.9995   ? ring_text("%.0f ms", exact * 1e3)
           : seconds < 120    ? ring_text("%.1f s", exact)
           : seconds < 7200   ? ring_text("%llu m %llu s", seconds / 60, seconds % 60)
           : seconds < 172800 ? ring_text("%llu h %llu m", seconds / 3600, seconds / 60 % 60)
                              : ring_text("%llu d %llu h", seconds / 86400, seconds / 3600 % 24);
}

/* Hostile names. */

size_t cli_character(const char *text, uint32_t *code) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *bytes = (const unsigned char *)text;
    size_t length = bytes[0] == 0      ? 0
                    : bytes[0] < 0x80  ? 1
                    : bytes[0] < 0xc2  ? 0
                    : bytes[0] < 0xe0  ? 2
                    : bytes[0] < 0xf0  ? 3
                    : bytes[0] <= 0xf4 ? 4
                                       : 0;
    uint32_t value = length == 1 ? bytes[0] : bytes[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80) { /* the end of the text, too */
            return 0;
        }
        value = value << 6 | (bytes[i] & 0x3f);
    }
    bool is_surrogate = 0xd800 <= value && value <= 0xdfff;
    if (length == 0 || value < least[length] || is_surrogate || value > 0x10ffff) {
        return 0;
    }
    *code = value;
    return length;
}

bool cli_is_unseen(uint32_t c) {
    static const struct {
        uint32_t first, last;
    } ranges[] = {
        {0, 0x1f},        {0x7f, 0x9f},     {0xad, 0xad},     {0x61c, 0x61c},
        {0x180e, 0x180e}, {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},
        {0xfe00, 0xfe0f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe0fff},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (ranges[i].first <= c && c <= ranges[i].last) {
            return true;
        }
    }
    return false;
}

const char *safe_text(const char *name) {
    char *text = next_text(), *out = text;
    size_t length = strnlen(name, SAFE_MOST_BYTES + 1), at = 0;
    bool is_cut = length > SAFE_MOST_BYTES;
    length -= is_cut;
    while (at < length) {
        uint32_t character = 0;
        size_t used = cli_character(name + at, &character);
        used = used <= length - at ? used : 0; /* cut in the middle of one */
        size_t room = (size_t)(text + RING_BYTES - out);
        if (used == 0) {
            out += snprintf(out, room, glyph_is_ascii ? "?" : "\xef\xbf\xbd");
        } else if (cli_is_unseen(character)) {
            out += snprintf(out, room, used == 1 ? "\\x%02x" : "\\u%04x", character);
        } else {
            memcpy(out, name + at, used);
            out += used;
        }
        at += used + (used == 0);
    }
    strcpy(out, is_cut ? glyph(GLYPH_MORE) : "");
    return text;
}

void cli_print_quoted(FILE *file, const char *name) {
    fputc('"', file);
    for (const char *text = safe_text(name); *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') {
            fputc('\\', file);
        }
        fputc(*text, file);
    }
    fputc('"', file);
}

bool begins_with(const char *text, const char *part) {
    return strncmp(text, part, strlen(part)) == 0;
}

bool ends_with(const char *text, const char *part) {
    size_t length = strlen(text), tail = strlen(part);
    return length > tail && strcmp(text + length - tail, part) == 0;
}

const char *cli_style(FILE *out, enum cli_style style) {
    static const char *const codes[] = {[STYLE_PLAIN] = "\033[0m",
                                        [STYLE_BOLD] = "\033[1m",
                                        [STYLE_GOOD] = "\033[32m",
                                        [STYLE_WARN] = "\033[33m",
                                        [STYLE_BAD] = "\033[31m"};
    return cli_has_color && out == stdout ? codes[style] : "";
}

unsigned text_columns(const char *text) {
    unsigned columns = 0;
    for (; *text != '\0'; text++) {
        if (*text == '\033') { /* a style, up to its m; names have no such character */
            text += strcspn(text, "m");
            text -= *text == '\0';
        } else {
            columns += ((unsigned char)*text & 0xc0) != 0x80;
        }
    }
    return columns;
}

const char *path_from_here(const char *path) {
    char folder[4096];
    size_t length = getcwd(folder, sizeof folder) != NULL ? strlen(folder) : 0;
    bool is_below = length > 0 && strncmp(path, folder, length) == 0 && path[length] == '/';
    return is_below ? path + length + 1 : path;
}

const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}
