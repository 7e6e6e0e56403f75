/* SPDX-License-Identifier: MIT
 *
 * program_symbols.c - addr2line -fi by way of the symboliser, for comparisons.
 *
 *      program_symbols FILE [OPTION...] <addresses
 *
 * Reads addresses as the linker counts them, hexadecimal, one per line, makes a profile that has each of
 * them in a mapping of FILE, as a loader would map it, and prints what symbolize() makes of it in the form
 * of `addr2line -fi`: address, then a line with the name and one with file:line for each frame.
 *
 *      --as PATH  --build-id ID  --debug-path DIR  --sysroot DIR  --pid N  --names short|full
 *      --cache  --debuginfod
 *      --every N  instead of the input: every Nth byte of the segments with code
 *      --most N   of them
 */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "names/symbolize.h"

enum { PAGE = 4096, SEGMENTS_MOST = 16, LINE_BYTES = 64 };
static const uint64_t BIAS = UINT64_C(0x7f0000000000);

struct segment {
    uint64_t first, last;
    uint32_t mapping;
};

static struct {
    const char *file, *as, *build_id;
    unsigned long every, most;
    uint64_t bias;
    struct segment segments[SEGMENTS_MOST];
    size_t segment_count;
    struct symbolize_options options;
} g = {.build_id = "", .most = ~0UL, .options.no_cache = true, .options.names = NAMES_RAW};

static void read_options(int count, char **words) {
    g.file = g.as = words[1];
    for (int i = 2; i < count; i += 2) {
        const char *word = words[i], *value = i + 1 < count ? words[i + 1] : "";
        if (strcmp(word, "--as") == 0) {
            g.as = value;
        } else if (strcmp(word, "--build-id") == 0) {
            g.build_id = value;
        } else if (strcmp(word, "--debug-path") == 0) {
            g.options.debug_path = value;
        } else if (strcmp(word, "--sysroot") == 0) {
            g.options.sysroot = value;
        } else if (strcmp(word, "--pid") == 0) {
            g.options.pid = atol(value);
        } else if (strcmp(word, "--every") == 0) {
            g.every = strtoul(value, NULL, 0);
        } else if (strcmp(word, "--most") == 0) {
            g.most = strtoul(value, NULL, 0);
        } else if (strcmp(word, "--names") == 0) {
            g.options.names = strcmp(value, "full") == 0 ? NAMES_FULL : NAMES_SHORT;
        } else if (strcmp(word, "--cache") == 0) {
            g.options.no_cache = false;
            i--;
        } else if (strcmp(word, "--debuginfod") == 0) {
            g.options.use_debuginfod = true;
            i--;
        } else {
            fprintf(stderr, "unknown option %s\n", word);
            exit(2);
        }
    }
}

/* One mapping per segment with code, rounded to pages. */
static void add_mappings(struct profile *profile) {
    FILE *file = fopen(g.file, "rb");
    Elf64_Ehdr header;
    if (file == NULL || fread(&header, sizeof header, 1, file) != 1) {
        fprintf(stderr, "cannot read %s\n", g.file);
        exit(2);
    }
    g.bias = header.e_type == ET_DYN ? BIAS : 0;
    for (unsigned i = 0; i < header.e_phnum && g.segment_count < SEGMENTS_MOST; i++) {
        Elf64_Phdr segment;
        fseek(file, (long)(header.e_phoff + i * sizeof segment), SEEK_SET);
        if (fread(&segment, sizeof segment, 1, file) != 1 || segment.p_type != PT_LOAD ||
            (segment.p_flags & PF_X) == 0) {
            continue;
        }
        uint64_t cut = segment.p_vaddr % PAGE, end = segment.p_vaddr + segment.p_memsz;
        uint32_t mapping = profile_add_mapping(
            profile, (struct profile_mapping){.start = g.bias + segment.p_vaddr - cut,
                                              .limit = g.bias + (end + PAGE - 1) / PAGE * PAGE,
                                              .offset = segment.p_offset - cut,
                                              .path = g.as,
                                              .build_id = g.build_id});
        g.segments[g.segment_count++] = (struct segment){segment.p_vaddr, end, mapping};
    }
    fclose(file);
}

static void add_address(struct profile *profile, uint64_t address) {
    for (size_t i = 0; i < g.segment_count; i++) {
        if (address >= g.segments[i].first && address < g.segments[i].last) {
            profile_add_location(profile, address + g.bias, g.segments[i].mapping, NULL, 0);
            return;
        }
    }
}

static void add_addresses(struct profile *profile) {
    char line[LINE_BYTES];
    for (size_t i = 0; g.every > 0 && i < g.segment_count; i++) {
        for (uint64_t at = g.segments[i].first; at < g.segments[i].last; at += g.every) {
            if (g.most-- > 0) {
                add_address(profile, at);
            }
        }
    }
    while (g.every == 0 && fgets(line, sizeof line, stdin) != NULL) {
        add_address(profile, strtoull(line, NULL, 16));
    }
}

static void print_location(const struct profile *profile, const struct profile_location *location) {
    printf("0x%016llx\n", (unsigned long long)(location->address - g.bias));
    if (location->line_count == 0) {
        puts("??\n??:0");
    }
    for (uint32_t i = 0; i < location->line_count; i++) {
        const struct profile_line *line = &profile->lines[location->lines + i];
        const struct profile_function *function = &profile->functions[line->function];
        printf("%s\n%s:%u\n", function->name, function->file[0] == '\0' ? "??" : function->file,
               line->number);
    }
}

int main(int count, char **words) {
    if (count < 2) {
        return 2;
    }
    read_options(count, words);
    struct profile *profile = profile_new();
    add_mappings(profile);
    add_addresses(profile);
    struct symbolize_result result = symbolize(profile, &g.options);
    for (uint32_t i = 0; i < profile->location_count; i++) {
        print_location(profile, &profile->locations[i]);
    }
    fprintf(stderr, "addresses %u named %u lines %u modules %u missing %u other %u\n",
            result.addresses, result.named, result.with_line, result.modules,
            result.modules_missing, result.modules_of_other_build);
    profile_free(profile);
    return 0;
}
