/* SPDX-License-Identifier: MIT
 *
 * run_plan.c - turns the options of `tally run` into keys of the library, and finds out before the program
 * runs whether the library and a place for the file are there.
 */
#include "run/run_plan.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Prints a sentence: there is no plan. */
#define FAIL(plan, ...) ((plan)->failure = complain(__VA_ARGS__), false)

enum { LG_RATE_DEV = 16, LG_RATE_PROD = 19, LG_RATE_MOST = 40 };

/* ---------------------------------------------------------------- keys */

static bool append(char *text, size_t capacity, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool append(char *text, size_t capacity, const char *format, ...) {
    size_t at = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text + at, capacity - at, format, arguments);
    va_end(arguments);
    return length >= 0 && (size_t)length < capacity - at;
}

static bool add_key(struct run_plan *plan, const char *key, const char *value) {
    return append(plan->conf, sizeof plan->conf, "%s%s:%s", plan->conf[0] != '\0' ? "," : "", key,
                  value);
}

static bool add_number(struct run_plan *plan, const char *key, uint64_t number) {
    char value[24];
    snprintf(value, sizeof value, "%llu", (unsigned long long)number);
    return add_key(plan, key, value);
}

/* The nearest power of two. */
static unsigned lg_nearest(uint64_t bytes) {
    unsigned lg = 63 - (unsigned)__builtin_clzll(bytes | 1);
    return lg < LG_RATE_MOST && bytes > (UINT64_C(3) << lg) / 2 ? lg + 1 : lg;
}

static bool plan_rate(struct run_plan *plan) {
    uint64_t bytes;
    unsigned lg;
    if (strcmp(plan->wishes->rate, "dev") == 0) {
        lg = LG_RATE_DEV;
    } else if (strcmp(plan->wishes->rate, "prod") == 0) {
        lg = LG_RATE_PROD;
    } else if (strcmp(plan->wishes->rate, "exact") == 0) {
        lg = 0;
    } else if (parse_size(plan->wishes->rate, &bytes) && bytes > 0 && bytes >> LG_RATE_MOST == 0) {
        lg = lg_nearest(bytes);
        if (bytes != UINT64_C(1) << lg) {
            note("the rate is rounded to %s", size_text((int64_t)(UINT64_C(1) << lg)));
        }
    } else {
        return FAIL(plan, EXIT_USAGE, "--rate is prod, dev, exact or a size up to 1 TiB, not '%s'",
                    safe_text(plan->wishes->rate));
    }
    return add_number(plan, "lg_prof_sample", lg);
}

/* One WHEN of --dump-at as a key of the library. */
static bool plan_dump(struct run_plan *plan, const char *when) {
    uint64_t bytes;
    char *end;
    const char *value = strchr(when, '=');
    value = value != NULL ? value + 1 : "";
    if (strcmp(when, "exit") == 0) {
        return true; /* There always is one. */
    }
    if (when[0] == '+' && parse_size(when + 1, &bytes) && bytes > 0) {
        return add_number(plan, "prof_live_step", bytes);
    }
    if (strncmp(when, "heap=", 5) == 0 && parse_size(value, &bytes) && bytes > 0) {
        return add_number(plan, "prof_live_threshold", bytes);
    }
    if (strncmp(when, "signal=", 7) == 0) {
        unsigned long number = strtoul(value, &end, 10);
        if (*end == '\0' && number >= 1 && number <= 64) {
            return add_number(plan, "prof_signal", number);
        }
    }
    if (strncmp(when, "rss=", 4) == 0 && value[0] != '\0' && value[strlen(value) - 1] == '%') {
        double share = strtod(value, &end);
        if (end[0] == '%' && end[1] == '\0' && share > 0 && share <= 100) {
            char text[24];
            snprintf(text, sizeof text, "%.4f", share / 100);
            return add_key(plan, "prof_memory_share", text);
        }
    } else if (strncmp(when, "rss=", 4) == 0 && parse_size(value, &bytes) && bytes > 0) {
        return add_number(plan, "run_rss", bytes);
    }
    return FAIL(plan, EXIT_USAGE,
                "--dump-at is rss=90%%, rss=SIZE, heap=SIZE, +SIZE, exit or signal=N, not '%s'",
                safe_text(when));
}

bool run_is_cpu_hz(uint64_t hz) {
    if (hz < 1 || hz > RUN_CPU_HZ_MOST) {
        return decline("--cpu=HZ is 1 to %d samples a second, not %llu", RUN_CPU_HZ_MOST,
                       (unsigned long long)hz);
    }
    return true;
}

static bool plan_cpu(struct run_plan *plan) {
    uint64_t hz = plan->wishes->cpu_hz;
    if (hz == RUN_NO_CPU) {
        return true;
    }
    plan->failure = EXIT_USAGE;
    return run_is_cpu_hz(hz) && add_number(plan, "run_cpu_hz", hz);
}

static bool plan_children(struct run_plan *plan) {
    const char *children = plan->wishes->children;
    if (children == NULL || strcmp(children, "none") == 0) {
        return true;
    }
    if (strchr(children, ',') != NULL || strlen(children) > 255) {
        return FAIL(plan, EXIT_USAGE, "--children is all, none or one pattern without a comma");
    }
    return add_key(plan, "run_children", strcmp(children, "all") == 0 ? "*" : children);
}

/* ---------------------------------------------------------------- the file */

/* Characters that are fit for a generated file name. */
static void copy_clean(char *to, const char *from, size_t most) {
    size_t at = 0;
    for (; from[at] != '\0' && at < most; at++) {
        to[at] =
            strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", from[at])
                ? from[at]
                : '_';
    }
    to[at] = '\0';
}

/* Where the file will be: absolute, since the program may go elsewhere. */
static bool plan_stem(struct run_plan *plan, const char *program) {
    enum { NAME_MOST = 64 };
    const char *output = plan->wishes->output;
    char name[NAME_MOST + 1];
    plan->has_process = output == NULL;
    plan->stem[0] = '\0';
    if ((output == NULL || output[0] != '/') &&
        (getcwd(plan->stem, sizeof plan->stem - 2) == NULL ||
         !append(plan->stem, sizeof plan->stem, "/"))) {
        return FAIL(plan, EXIT_OWN_FAILURE,
                    "the current directory has no name: use -o /somewhere/x.tally");
    }
    if (output == NULL) {
        copy_clean(name, base_name(program), NAME_MOST);
        return append(plan->stem, sizeof plan->stem, "%s", name);
    }
    if (!ends_with(output, ".tally")) {
        return FAIL(plan, EXIT_USAGE,
                    "-o takes a name that ends in .tally; `tally export` makes other formats"
                    " from it");
    }
    return append(plan->stem, sizeof plan->stem, "%.*s", (int)(strlen(output) - 6), output);
}

void run_plan_name(const struct run_plan *plan, pid_t pid, unsigned number,
                   char path[RUN_PATH_BYTES]) {
    char process[32] = "", image[32] = "";
    if (plan->has_process) {
        snprintf(process, sizeof process, ".%d", (int)pid);
    }
    if (number > 1) {
        snprintf(image, sizeof image, ".%u", number);
    }
    snprintf(path, RUN_PATH_BYTES, "%.4000s%s%s.tally", plan->stem, process, image);
}

/* Can a file be made there?  Better reported before the program runs than after. */
static bool check_place(struct run_plan *plan) {
    char path[RUN_PATH_BYTES];
    if (strlen(plan->stem) > RUN_PATH_BYTES - 100) {
        return FAIL(plan, EXIT_OWN_FAILURE, "the name of the file is too long");
    }
    if (strchr(plan->stem, ',') != NULL) {
        return FAIL(plan, EXIT_OWN_FAILURE,
                    "%s: a path with a comma cannot be given to the library",
                    safe_text(plan->stem));
    }
    if (!plan->has_process) {
        run_plan_name(plan, 0, 1, path);
        if (access(path, F_OK) == 0) {
            return FAIL(plan, EXIT_OWN_FAILURE, "%s exists already", safe_text(path));
        }
    }
    snprintf(path, sizeof path, "%s", plan->stem);
    strrchr(path, '/')[1] = '\0';
    if (access(path, W_OK | X_OK) != 0) {
        return FAIL(plan, EXIT_OWN_FAILURE, "cannot write into %s: %s; say where with -o",
                    safe_text(path), strerror(errno));
    }
    return true;
}

static bool plan_file(struct run_plan *plan, const char *program) {
    char escaped[2 * RUN_PATH_BYTES];
    size_t at = 0;
    if (!plan_stem(plan, program) || !check_place(plan)) {
        return false;
    }
    for (const char *from = plan->stem; *from != '\0'; from++) {
        if (*from == '%') {
            escaped[at++] = '%';
        }
        escaped[at++] = *from;
    }
    snprintf(escaped + at, sizeof escaped - at, "%s.tally", plan->has_process ? ".%p" : "");
    return add_key(plan, "run_file", escaped);
}

/* Beside the command, in the lib beside its folder, or where TALLY_LIBRARY says. */
static bool find_library(struct run_plan *plan) {
    static const char *const places[] = {"libtally.so", "libtally.so.0", "../lib/libtally.so.0",
                                         "../lib/libtally.so",
                                         "../lib/" TALLY_TRIPLET "/libtally.so.0"};
    const char *given = getenv("TALLY_LIBRARY");
    char own[RUN_PATH_BYTES];
    char found[RUN_PATH_BYTES] = "";
    if (given != NULL && given[0] != '\0') {
        if (realpath(given, found) == NULL) {
            return FAIL(plan, EXIT_OWN_FAILURE, "TALLY_LIBRARY=%s: %s", safe_text(given),
                        strerror(errno));
        }
    } else {
        ssize_t length = readlink("/proc/self/exe", own, sizeof own - 64);
        own[length > 0 ? length : 0] = '\0';
        char *name = strrchr(own, '/');
        for (size_t i = 0; name != NULL && found[0] == '\0' && i < sizeof places / sizeof places[0];
             i++) {
            strcpy(name + 1, places[i]);
            if (access(own, R_OK) != 0 || realpath(own, found) == NULL) {
                found[0] = '\0';
            }
        }
    }
    if (found[0] == '\0') {
        return FAIL(plan, EXIT_OWN_FAILURE,
                    "libtally.so is neither beside this command nor in ../lib: set"
                    " TALLY_LIBRARY to its path");
    }
    if (strpbrk(found, " :") != NULL) {
        return FAIL(plan, EXIT_OWN_FAILURE, "%s: the loader takes no path with a blank or a colon",
                    safe_text(found));
    }
    strcpy(plan->library, found);
    return true;
}

/* The library looks, records what it found, and neither prints it nor changes how the program ends. */
static bool plan_leaks(struct run_plan *plan) {
    const struct run_wishes *wishes = plan->wishes;
    if (wishes->leak_exit_code > 255) {
        return FAIL(plan, EXIT_USAGE, "--exit-code-on-leak is a number from 0 to 255");
    }
    return (!wishes->leaks && wishes->leak_exit_code == 0) ||
           (add_key(plan, "prof", "true") && add_key(plan, "leak_check", "exit") &&
            add_key(plan, "leak_text", "none") && add_key(plan, "leak_exit_code", "0"));
}

bool run_plan_make(struct run_plan *plan, const struct run_wishes *wishes, const char *program) {
    static const char *const rights[] = {"write", "read", "off"};
    *plan = (struct run_plan){.wishes = wishes, .failure = EXIT_OWN_FAILURE};
    bool done = find_library(plan) && plan_rate(plan) && plan_file(plan, program) &&
                plan_children(plan) && plan_leaks(plan) &&
                add_key(plan, "control", rights[plan->wishes->control]);
    for (size_t i = 0; done && i < plan->wishes->dump_at.count; i++) {
        done = plan_dump(plan, plan->wishes->dump_at.texts[i]);
    }
    if (done && plan->wishes->every_ns != 0) {
        uint64_t ms = plan->wishes->every_ns / 1000000;
        done = add_number(plan, "run_every_ms", ms > 0 ? ms : 1);
    }
    if (done && plan->wishes->every_bytes != 0) {
        done = add_number(plan, "prof_alloc_interval", plan->wishes->every_bytes);
    }
    if (done && plan->wishes->depth != 0) {
        done = add_number(plan, "prof_bt_max", plan->wishes->depth);
    }
    return done && plan_cpu(plan);
}
