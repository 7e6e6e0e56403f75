/* SPDX-License-Identifier: MIT
 *
 * fuzz_export.c - the writers of `tally export`: whatever a profile holds, they end, and lose nothing.
 *
 * The first byte chooses the reader and how frames are named; every writer then gets the profile that the
 * reader made of the rest.  What is written as profile.proto and read again has the same totals, and the
 * numbers of folded stacks add up to what is not below zero.
 */
#include <string.h>

#include "args/args.h"
#include "common/cli.h"
#include "export/export.h"
#include "export/frame_table.h"
#include "fuzz.h"
#include "read/read.h"
#include "select/select.h"

static char *write_text(bool (*write)(const struct profile *, struct output *),
                        const struct profile *profile, size_t *length) {
    char *text = NULL;
    struct output output = {.file = open_memstream(&text, length)};
    fuzz_check(output.file != NULL);
    write(profile, &output);
    fuzz_check(fclose(output.file) == 0);
    return text;
}

static void check_proto(const struct profile *profile, const char *text, size_t length) {
    char why[READ_WHY_BYTES] = "";
    size_t unpacked = 0;
    uint8_t *bytes =
        read_inflate(READ_GZIP, (const uint8_t *)text, length, 1 << 26, &unpacked, why);
    fuzz_check(bytes != NULL);
    struct profile *again = read_proto(bytes, unpacked, why);
    fuzz_check(again != NULL && again->type_count == profile->type_count);
    for (uint32_t i = 0; i < profile->type_count; i++) {
        uint32_t type = profile_find_type(again, profile->types[i].name);
        bool is_only = profile_find_type(profile, profile->types[i].name) == i;
        if (type != PROFILE_NONE && is_only) { /* names that are no UTF-8 change */
            fuzz_check(profile_total(again, type) == profile_total(profile, i));
        }
    }
    profile_free(again);
    free(bytes);
}

static void check_folded(const struct profile *profile, const char *text) {
    int64_t expected = 0, sum = 0;
    for (uint32_t i = 0; i < profile->sample_count; i++) {
        int64_t value = profile_value(profile, i, profile->default_type);
        expected = profile_sum(expected, value > 0 ? value : 0);
    }
    for (const char *end = strchr(text, '\n'); end != NULL; end = strchr(end + 1, '\n')) {
        const char *number = end;
        while (number[-1] != ' ') {
            number--;
        }
        sum = profile_sum(sum, strtoll(number, NULL, 10));
    }
    fuzz_check(sum == expected);
}

static void check_writers(const struct profile *profile) {
    for (const struct export_format *one = export_formats; one->name != NULL; one++) {
        if (one->needs_graphviz) {
            continue;
        }
        size_t length = 0;
        char *text = write_text(one->write, profile, &length);
        if (one->write == export_pprof) {
            check_proto(profile, text, length);
        } else if (one->write == export_folded) {
            check_folded(profile, text);
        }
        free(text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct profile *(*const readers[])(const uint8_t *, size_t, char *) = {
        read_proto, read_jemalloc, read_gperftools, read_gperftools_cpu, read_folded,
    };
    enum { READERS = sizeof readers / sizeof readers[0] };
    char why[READ_WHY_BYTES] = "";
    cli_loudness = 0;
    if (size == 0) {
        return 0;
    }
    args_select.by = (enum select_by)(data[0] / READERS % (BY_MODULES + 1));
    struct profile *profile = readers[data[0] % READERS](data + 1, size - 1, why);
    if (profile != NULL && profile->type_count > 0) {
        check_writers(profile);
        export_anonymize(profile);
        check_writers(profile);
    }
    if (profile != NULL) {
        profile_free(profile);
    }
    return 0;
}
