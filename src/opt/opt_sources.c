/* SPDX-License-Identifier: MIT
 *
 * opt_sources.c - where configuration comes from, and which source wins.
 *
 *      build string  <  malloc_conf  <  link /etc/malloc.conf  <  variables of other allocators
 *          <  MALLOC_CONF  <  JE_MALLOC_CONF  <  TALLY_CONF  <  malloc_conf_2_conf_harder
 *
 * Each source is read twice: first for confirm_conf alone, which decides what is printed about all
 * of them.  The environment may be overwritten by the program later (some write their title there),
 * so what can be asked for afterwards is copied.
 *
 * Read next   opt.c, which reads one text.
 */
#include "opt/opt_sources.h"

#include <string.h>

#include "base/bits.h"
#include "base/fmt.h"
#include "base/log.h"
#include "opt/opt.h"
#include "opt/opt_gperftools.h"
#include "opt/opt_heapcheck.h"
#include "base/os.h"

#ifndef TALLY_MALLOC_CONF
#define TALLY_MALLOC_CONF ""
#endif

enum {
    LINK_BYTES = 4096,
    COPY_BYTES = 4096,
    LG_PAGE = 12,
    ARENAS_BY_DEFAULT = 256, /* at most */
    MOST_BACKGROUND_THREADS = 4095,
};

/* One source: what it is called in a warning, and in the list that confirm_conf prints. */
static const struct {
    const char *name;
    const char *description;
} sources[OPT_SOURCES] = {
    [OPT_FROM_BUILD] = {"the build", "string specified at build time"},
    [OPT_FROM_PROGRAM] = {"malloc_conf", "string pointed to by the global variable malloc_conf"},
    [OPT_FROM_LINK] = {"/etc/malloc.conf",
                       "\"name\" of the file referenced by the symbolic link named "
                       "/etc/malloc.conf"},
    [OPT_FROM_MALLOC_CONF] = {"MALLOC_CONF", "value of the environment variable MALLOC_CONF"},
    [OPT_FROM_JE_MALLOC_CONF] = {"JE_MALLOC_CONF",
                                 "value of the environment variable JE_MALLOC_CONF"},
    [OPT_FROM_TALLY_CONF] = {"TALLY_CONF", "value of the environment variable TALLY_CONF"},
    [OPT_FROM_PROGRAM_HARDER] = {"malloc_conf_2_conf_harder",
                                 "string pointed to by the global variable "
                                 "malloc_conf_2_conf_harder"},
};

enum alias_meaning {
    ALIAS_SWITCH,
    ALIAS_NUMBER,
    ALIAS_SHARE,
    ALIAS_QUIET,
    ALIAS_NOTHING,
    /* By the rules of gperftools: */
    ALIAS_HEAP_PROFILE,
    ALIAS_COUNT, /* not below 0 */
    ALIAS_POWER, /* its logarithm */
    ALIAS_TRUTH, /* a switch */
    ALIAS_CPU_PROFILE,
    ALIAS_FREQUENCY,
    ALIAS_WALL,
    ALIAS_SIGNAL,
    ALIAS_HEAP_CHECK,
};

#define ALIAS(variable, option, meaning, help) {#variable, #option, ALIAS_##meaning, help},
static const struct opt_alias aliases[] = {
#include "opt/options.def"
};

static struct {
    const char *texts[OPT_SOURCES];
    char link[LINK_BYTES];
    char copies[OPT_FROM_TALLY_CONF - OPT_FROM_MALLOC_CONF + 1][COPY_BYTES];
} g SPARSE;

/* ---------------------------------------------------------------- other allocators */

static bool parse_number(const char *text, int64_t *number) {
    bool negative = text[0] == '-';
    uint64_t found;
    if (!fmt_parse_number(text + negative, strlen(text + negative), &found) || found > INT64_MAX) {
        return false;
    }
    *number = negative ? -(int64_t)found : (int64_t)found;
    return true;
}

/* mimalloc's rule: nothing, 1, true, yes, on; 0, false, no, off; a decimal number. */
static bool parse_switch_or_number(const char *text, int64_t *number) {
    static const char *const words[] = {"", "true", "yes", "on", "false", "no", "off"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t n = 0;
        while (words[i][n] != '\0' && (text[n] | 0x20) == words[i][n]) {
            n++;
        }
        if (words[i][n] == '\0' && text[n] == '\0') {
            *number = i < 4;
            return true;
        }
    }
    return parse_number(text, number);
}

static bool parse_alias(const struct opt_alias *alias, const char *text, int64_t *number) {
    return alias->meaning == ALIAS_SHARE ? parse_number(text, number)
                                         : parse_switch_or_number(text, number);
}

/* What the value means as a pair of ours; empty where there is no option for it. */
static void translate(const struct opt_alias *alias, int64_t number, char *pair, size_t capacity) {
    pair[0] = '\0';
    if (alias->meaning == ALIAS_SWITCH) {
        fmt_text(pair, capacity, "%s:%s", alias->option, number != 0 ? "true" : "false");
    } else if (alias->meaning == ALIAS_NUMBER) {
        fmt_text(pair, capacity, "%s:%ld", alias->option, (long)number);
    } else if (alias->meaning == ALIAS_SHARE) {
        const int64_t most = 1 << 30;
        int64_t share = number / (int64_t)os_facts.cpus;
        fmt_text(pair, capacity, "%s:%ld", alias->option, (long)(share > most ? most : share));
    }
}

/* The rule of gperftools surprises users who write "on". */
static void read_truth(const struct opt_alias *alias, const char *text, const char *quoted) {
    char pair[120];
    bool truth = opt_gperftools_switch(text);
    if (!truth && strchr("0nNfF", text[0]) == NULL) {
        log_line("%s=%s means false, as in gperftools", alias->variable, quoted);
    }
    fmt_text(pair, sizeof(pair), "%s:%s", alias->option, truth ? "true" : "false");
    opt_parse(pair, alias->variable);
}

/* The variables of the CPU profiler; false for others. */
static bool read_cpu(const struct opt_alias *alias, const char *text) {
    char pair[120] = "";
    uint64_t number = 0;
    switch (alias->meaning) {
    case ALIAS_CPU_PROFILE:
        opt_gperftools_cpu_profile(text);
        return true;
    case ALIAS_WALL:
        opt_parse("cpu_clock:wall", alias->variable);
        return true;
    case ALIAS_FREQUENCY:
        if (fmt_parse_number(text, strlen(text), &number) && number > 0) {
            fmt_text(pair, sizeof(pair), "%s:%lu", alias->option, (unsigned long)number);
        }
        break;
    case ALIAS_SIGNAL:
        fmt_text(pair, sizeof(pair), "%s:%lu", alias->option,
                 (unsigned long)opt_gperftools_any_base(text));
        break;
    default:
        return false;
    }
    if (pair[0] != '\0') {
        opt_parse(pair, alias->variable);
    }
    return true;
}

/* False for variables of other families. */
static bool read_gperftools(const struct opt_alias *alias, const char *text, const char *quoted) {
    char pair[120];
    int64_t number = opt_gperftools_number(text);
    number = number > 0 ? number : 0;
    switch (alias->meaning) {
    case ALIAS_HEAP_PROFILE:
        opt_gperftools_profile(text);
        return true;
    case ALIAS_COUNT:
        fmt_text(pair, sizeof(pair), "%s:%ld", alias->option, (long)number);
        opt_parse(pair, alias->variable);
        return true;
    case ALIAS_POWER:
        fmt_text(pair, sizeof(pair), "%s:%u", alias->option, bits_nearest_log2((uint64_t)number));
        opt_parse(pair, alias->variable);
        return true;
    case ALIAS_TRUTH:
        read_truth(alias, text, quoted);
        return true;
    case ALIAS_HEAP_CHECK:
        opt_heapcheck_read(alias->variable, text);
        return true;
    default:
        return alias->meaning == ALIAS_QUIET || read_cpu(alias, text);
    }
}

static void read_alias(const struct opt_alias *alias, const char *text) {
    char quoted[80];
    opt_quote(quoted, sizeof(quoted), text, strlen(text));
    char pair[120];
    int64_t number;
    if (read_gperftools(alias, text, quoted)) {
        return;
    }
    if (!parse_alias(alias, text, &number)) {
        log_line("invalid value '%s' of %s is ignored", quoted, alias->variable);
        opt_add_mistake();
        return;
    }
    translate(alias, number, pair, sizeof(pair));
    if (pair[0] != '\0') {
        opt_parse(pair, alias->variable);
    } else if (alias->meaning == ALIAS_NOTHING) {
        log_line("variable %s=%s has no effect", alias->variable, quoted);
    }
}

static void read_aliases(void) {
    for (size_t i = 0; i < opt_alias_count() && !os_facts.secure; i++) {
        const char *text = os_environment(aliases[i].variable);
        if (text != NULL) {
            read_alias(&aliases[i], text);
        }
    }
}

/* ---------------------------------------------------------------- sources */

static const char *read_variable(enum opt_source source) {
    const char *text = os_facts.secure ? NULL : os_environment(sources[source].name);
    if (text == NULL || strlen(text) >= COPY_BYTES) {
        return text;
    }
    char *copy = g.copies[source - OPT_FROM_MALLOC_CONF];
    memcpy(copy, text, strlen(text) + 1);
    return copy;
}

static void find_texts(struct opt_program program) {
    g.texts[OPT_FROM_BUILD] = TALLY_MALLOC_CONF;
    g.texts[OPT_FROM_PROGRAM] = program.conf;
    g.texts[OPT_FROM_LINK] = NULL;
    int length = os_read_link(sources[OPT_FROM_LINK].name, g.link, sizeof(g.link) - 1);
    if (length >= 0) {
        g.link[length] = '\0';
        g.texts[OPT_FROM_LINK] = g.link;
    }
    for (enum opt_source s = OPT_FROM_MALLOC_CONF; s <= OPT_FROM_TALLY_CONF; s++) {
        g.texts[s] = read_variable(s);
    }
    g.texts[OPT_FROM_PROGRAM_HARDER] = program.conf_harder;
}

static bool wants_echo(void) {
    bool wanted = false;
    int64_t verbose;
    const char *variable = os_facts.secure ? NULL : os_environment("MIMALLOC_VERBOSE");
    for (unsigned s = 0; s < OPT_SOURCES; s++) {
        if (s == OPT_FROM_MALLOC_CONF && variable != NULL &&
            parse_switch_or_number(variable, &verbose)) {
            wanted = verbose != 0;
        }
        if (g.texts[s] != NULL) {
            opt_look_for_switch(g.texts[s], "confirm_conf", &wanted);
        }
    }
    return wanted;
}

static void read_source(enum opt_source source, bool echo) {
    const char *text = g.texts[source];
    if (text == NULL) {
        return;
    }
    if (echo) {
        char quoted[300];
        opt_quote(quoted, sizeof(quoted), text, strlen(text));
        log_line("malloc_conf #%u (%s): \"%s\"", (unsigned)source + 1, sources[source].description,
                 quoted);
    }
    opt_parse(text, sources[source].name);
}

static void read_all(void) {
    bool echo = wants_echo();
    opt_echo(echo);
    for (enum opt_source s = 0; s < OPT_SOURCES; s++) {
        if (s == OPT_FROM_MALLOC_CONF) {
            read_aliases();
        }
        read_source(s, echo);
    }
    opt_echo(false);
}

/* ---------------------------------------------------------------- what follows from all together */

static void settle_profiler(void) {
    if (opt.prof_leak_error && !opt.prof_final) {
        log_line("option 'prof_leak_error' needs 'prof_final'");
        opt_add_mistake();
    }
    opt.prof_leak |= opt.prof_leak_error;
    opt.prof |= opt.prof_leak;
    opt.prof_mmap |= opt.prof_mmap_only;
}

/* Without stacks a report could name nothing but sizes. */
static void settle_leaks(void) {
    if (opt.leak_check != LEAK_CHECK_OFF && !opt.prof) {
        opt.prof = 1;
        opt.lg_prof_sample = 0;
    }
}

static void settle(void) {
    if (opt.narenas == 0) {
        uint64_t wanted = os_facts.cpus * opt.narenas_ratio >> 16;
        opt.narenas = max_size(min_size(wanted, ARENAS_BY_DEFAULT), 1);
    }
    opt.all_slow |= opt.junk != JUNK_FALSE || opt.zero;
    if (opt.max_background_threads > MOST_BACKGROUND_THREADS) {
        opt.max_background_threads = 4;
    }
    if (opt.lg_san_uaf_align >= 0 && opt.lg_san_uaf_align < LG_PAGE) {
        opt.lg_san_uaf_align = LG_PAGE;
    }
    settle_profiler();
    settle_leaks();
}

void opt_init(struct opt_program program) {
    log_aborts = &opt.abort;
    opt_reset();
    find_texts(program);
    read_all();
    settle();
    if (opt.abort_conf && opt_mistakes() > 0) {
        fatal("abort_conf:true, and the configuration has mistakes (see above)");
    }
}

const char *opt_source_text(enum opt_source source) {
    return g.texts[source];
}

size_t opt_alias_count(void) {
    return sizeof(aliases) / sizeof(aliases[0]);
}

const struct opt_alias *opt_alias(size_t row) {
    return &aliases[row];
}
