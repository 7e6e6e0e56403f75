/* SPDX-License-Identifier: MIT
 *
 * opt_heapcheck.c - the variables of gperftools' heap checker and LeakSanitizer as our options.
 *
 *      HEAPCHECK    leak_check   leak_since_main   leak_threads, leak_globals
 *      minimal      exit         true              true
 *      normal       exit         false             true
 *      strict       strict       false             true
 *      draconian    strict       false             false
 *      as-is        by the three variables of its own
 *      local        local        false             true
 *
 * Each of them records every allocation, so that stacks, requested sizes and birth times are known.
 */
#include "opt/opt_heapcheck.h"

#include <string.h>

#include "base/fmt.h"
#include "base/log.h"
#include "opt/opt.h"
#include "opt/opt_gperftools.h"
#include "opt/opt_sources.h"
#include "base/os.h"

enum { MAX_OFFSET = 1024 };

static bool read_switch(const char *variable, bool otherwise) {
    const char *text = os_environment(variable);
    return text != NULL ? opt_gperftools_switch(text) : otherwise;
}

/* What all modes have in common; later variables may change it. */
static void turn_on(void) {
    opt.prof = 1;
    opt.lg_prof_sample = 0;
    opt.leak_text = LEAK_TEXT_GPERFTOOLS;
    opt.leak_say_none = 1;
    opt.leak_exit_code = 1;
    opt.leak_max_offset = MAX_OFFSET;
    memcpy(opt.leak_dump_dir, "/tmp", sizeof("/tmp"));
    opt_note_text();
}

static void read_mode(const char *mode) {
    static const struct {
        char name[12];
        uint8_t when;
        bool since_main, with_roots;
    } modes[] = {
        {"minimal", LEAK_CHECK_EXIT, true, true},   {"normal", LEAK_CHECK_EXIT, false, true},
        {"strict", LEAK_CHECK_STRICT, false, true}, {"draconian", LEAK_CHECK_STRICT, false, false},
        {"as-is", LEAK_CHECK_EXIT, false, true},    {"local", LEAK_CHECK_LOCAL, false, true},
    };
    if (mode[0] == '\0') {
        log_line("HEAPCHECK is empty: no leak check");
        return;
    }
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        if (strcmp(mode, modes[i].name) == 0) {
            turn_on();
            opt.leak_check = modes[i].when;
            opt.leak_since_main = modes[i].since_main;
            opt.leak_threads = opt.leak_globals = modes[i].with_roots;
            return;
        }
    }
    char quoted[40];
    opt_quote(quoted, sizeof(quoted), mode, strlen(mode));
    fatal("Unsupported heap_check flag: %s", quoted);
}

/* The three variables that mode as-is goes by. */
static void read_sensitivity(void) {
    const char *mode = os_environment("HEAPCHECK");
    if (mode != NULL && strcmp(mode, "as-is") == 0) {
        opt.leak_threads = read_switch("HEAP_CHECK_IGNORE_THREAD_LIVE", true);
        opt.leak_globals = read_switch("HEAP_CHECK_IGNORE_GLOBAL_LIVE", true);
        opt.leak_check = read_switch("HEAP_CHECK_AFTER_DESTRUCTORS", false) ? LEAK_CHECK_STRICT
                                                                            : LEAK_CHECK_EXIT;
    }
}

static void copy_path(char *to, size_t capacity, const char *variable, const char *path,
                      size_t length) {
    if (length >= capacity) {
        log_line("a path in %s is too long and is ignored", variable);
        opt_add_mistake();
        return;
    }
    memcpy(to, path, length);
    to[length] = '\0';
    opt_note_text();
}

/* One key=value of LSAN_OPTIONS; keys without a meaning here are ignored, as LSan ignores keys that
 * it does not know. */
static void read_lsan_pair(const char *key, size_t key_length, const char *value, size_t length) {
    static const struct {
        char key[20];
        char option[20];
    } numbers[] = {
        {"exitcode", "leak_exit_code"},
        {"max_leaks", "leak_max_reports"},
        {"report_objects", "leak_list_objects"},
    };
    static const char suppressions[] = "suppressions";
    char number[24];
    fmt_text(number, sizeof(number), "%s", length < sizeof(number) ? value : "");
    number[min_size(length, sizeof(number) - 1)] = '\0';
    if (key_length == strlen(suppressions) && strncmp(key, suppressions, key_length) == 0) {
        copy_path(opt.leak_suppressions, sizeof(opt.leak_suppressions), "LSAN_OPTIONS", value,
                  length);
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (key_length == strlen(numbers[i].key) && strncmp(key, numbers[i].key, key_length) == 0) {
            char pair[80];
            bool is_switch = strcmp(numbers[i].option, "leak_list_objects") == 0;
            bool is_on = strcmp(number, "1") == 0 || strcmp(number, "true") == 0;
            fmt_text(pair, sizeof(pair), "%s:%s", numbers[i].option,
                     !is_switch ? number
                     : is_on    ? "true"
                                : "false");
            opt_parse(pair, "LSAN_OPTIONS");
        }
    }
}

/* key=value, separated by colons, commas or blanks; a value may stand in quotes. */
static void read_lsan(const char *text) {
    while (*text != '\0') {
        text += strspn(text, ":, \t\n\r");
        const char *key = text;
        size_t key_length = strcspn(text, "=:, \t\n\r");
        text += key_length;
        if (*text != '=') {
            continue;
        }
        text++;
        const char *quotes = *text == '"' ? "\"" : *text == '\'' ? "'" : ":, \t\n\r";
        text += quotes[1] == '\0';
        size_t length = strcspn(text, quotes);
        read_lsan_pair(key, key_length, text, length);
        text += length;
        text += quotes[1] == '\0' && *text != '\0';
    }
}

void opt_heapcheck_read(const char *variable, const char *text) {
    if (strcmp(variable, "HEAPCHECK") == 0) {
        read_mode(text);
        read_sensitivity();
    } else if (strcmp(variable, "HEAP_CHECK_DUMP_DIRECTORY") == 0) {
        copy_path(opt.leak_dump_dir, sizeof(opt.leak_dump_dir), variable, text, strlen(text));
    } else if (strcmp(variable, "HEAP_CHECK_MAX_POINTER_OFFSET") == 0) {
        int64_t offset = opt_gperftools_number(text);
        opt.leak_max_offset = offset > 0 ? (uint64_t)offset : 0;
    } else if (strcmp(variable, "HEAP_CHECK_POINTER_SOURCE_ALIGNMENT") == 0) {
        int64_t step = opt_gperftools_number(text);
        opt.leak_step = step > 0 && step < 8 ? (uint64_t)step : 8;
    } else if (strcmp(variable, "PERFTOOLS_VERBOSE") == 0) {
        opt.leak_say_none &= opt_gperftools_number(text) >= 0;
    } else {
        read_lsan(text);
    }
}
