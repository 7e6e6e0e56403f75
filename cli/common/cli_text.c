/* SPDX-License-Identifier: MIT
 *
 * cli_text.c - numbers as text, and names that cannot steer a terminal.
 *
 * Texts come from a ring of static buffers, so that a printf may hold several of them and nobody frees.
 */
#include <math.h>
#include <string.h>

#include "common/cli.h"
#include "common/glyph.h"

enum {
    RING_TEXTS = 8,
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

const char *size_text(int64_t bytes) {
    static const char units[] = "KMGTPE";
    char *text = next_text();
    double value = fabs((double)bytes);
    if (value < 1024) {
        snprintf(text, RING_BYTES, "%lld B", (long long)bytes);
        return text;
    }
    size_t unit = 0;
    value /= 1024;
    while (value >= 1023.95 && unit + 1 < sizeof units - 1) {
        value /= 1024;
        unit++;
    }
    bool is_round = unit == 0 && (bytes % 1024 == 0 || value >= 99.95);
    snprintf(text, RING_BYTES, "%s%.*f %ciB", bytes < 0 ? "-" : "", is_round ? 0 : 1, value,
             units[unit]);
    return text;
}

const char *count_text(int64_t count) {
    static const char units[] = "kMGTPE";
    char *text = next_text();
    double value = fabs((double)count);
    if (value < 1000) {
        snprintf(text, RING_BYTES, "%lld", (long long)count);
        return text;
    }
    size_t unit = 0;
    value /= 1000;
    while (value >= 999.5 && unit + 1 < sizeof units - 1) {
        value /= 1000;
        unit++;
    }
    snprintf(text, RING_BYTES, "%s%.*f %c", count < 0 ? "-" : "", value < 99.95, value,
             units[unit]);
    return text;
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
    char *text = next_text();
    uint64_t seconds = ns / 1000000000;
    double exact = (double)ns / 1e9;
    if (ns < 1000000) {
        snprintf(text, RING_BYTES, "%.0f us", exact * 1e6);
    } else if (exact < 0.9995) {
        snprintf(text, RING_BYTES, "%.0f ms", exact * 1e3);
    } else if (seconds < 120) {
        snprintf(text, RING_BYTES, "%.1f s", exact);
    } else if (seconds < 7200) {
        snprintf(text, RING_BYTES, "%u m %u s", (unsigned)(seconds / 60), (unsigned)(seconds % 60));
    } else if (seconds < 172800) {
        snprintf(text, RING_BYTES, "%u h %u m", (unsigned)(seconds / 3600),
                 (unsigned)(seconds / 60 % 60));
    } else {
        snprintf(text, RING_BYTES, "%llu d %u h", (unsigned long long)(seconds / 86400),
                 (unsigned)(seconds / 3600 % 24));
    }
    return text;
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

const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}
