/* SPDX-License-Identifier: MIT
 *
 * opt.h - the options of options.def as one struct, and how to read them by name.
 *
 * Threads     opt_init() runs alone, at the start; from then on everything here is only read.
 */
#pragma once

#include "base/value.h"

/* What the value of a key may be. */
enum opt_type {
    OPT_TYPE_SWITCH,   /* true or false */
    OPT_TYPE_UNSIGNED, /* a number: 8, 0x8, 010, 8k */
    OPT_TYPE_UNSIGNED_OR_DEFAULT,
    OPT_TYPE_SIGNED,
    OPT_TYPE_RATIO,          /* 0.25, kept as 16.16 bits */
    OPT_TYPE_RATIO_OR_MINUS, /* or -1, kept as 32 ones */
    OPT_TYPE_WORD,
    OPT_TYPE_TEXT,    /* anything but a comma */
    OPT_TYPE_LETTERS, /* those that malloc_stats_print understands; others are dropped */
    OPT_TYPE_LIST,    /* from-to:value|from-to:value */
    OPT_TYPE_LIST_OR_DEFAULT,
};

/* What happens to a number beyond its limits. */
enum opt_limits { OPT_REFUSE, OPT_CLIP, OPT_CLIP_ALOUD };

enum opt_effect {
    OPT_ACTS,
    OPT_IGNORED,  /* a key of jemalloc without meaning here: silently accepted, readable */
    OPT_OBSOLETE, /* a key of older versions: one line says that it has no effect */
};

/* What is set by a key whose own value is not kept. */
enum opt_sets {
    OPT_SETS_NONE,
    OPT_SETS_TCACHE_MAX,
    OPT_SETS_DECAY,
    OPT_SETS_NO_DECAY, /* by -1 */
    OPT_SETS_HUGIFICATION,
    OPT_SETS_PURGE,
    OPT_SETS_WHAT_IS, /* nothing: its second word is true anyway */
};

/* How each type of option is kept. */
#define KEPT_SWITCH uint64_t
#define KEPT_UNSIGNED uint64_t
#define KEPT_UNSIGNED_OR_DEFAULT uint64_t
#define KEPT_SIGNED int64_t
#define KEPT_RATIO uint64_t
#define KEPT_RATIO_OR_MINUS uint64_t
/* Texts come last: most processes leave their pages untouched. */
#define OPTION(name, type, initial, least, most, limits, effect, leaf, help) KEPT_##type name;
#define CHOICE(name, initial, effect, leaf, help, words) uint64_t name;
struct options {
#include "opt/options.def"
#define TEXT(name, type, bytes, initial, least, most, effect, leaf, help) char name[bytes];
#include "opt/options.def"
};

/* The values of each choice, in the order of their words: enum { THP_AUTO, THP_NEVER, ... }; ... */
#define WORD(value, word) value,
#define CHOICE(name, initial, effect, leaf, help, words) enum { words };
#include "opt/options.def"
#undef WORD

/* Fixed once the process has started. */
extern struct options opt HIDDEN;

/* Where configuration comes from, the weakest first. */
enum opt_source {
    OPT_FROM_BUILD,          /* TALLY_MALLOC_CONF of CMake */
    OPT_FROM_PROGRAM,        /* the program's variable malloc_conf */
    OPT_FROM_LINK,           /* what /etc/malloc.conf, a symbolic link, points at */
    OPT_FROM_MALLOC_CONF,    /* environment */
    OPT_FROM_JE_MALLOC_CONF, /* environment */
    OPT_FROM_TALLY_CONF,     /* environment */
    OPT_FROM_PROGRAM_HARDER, /* the program's variable malloc_conf_2_conf_harder */
    OPT_SOURCES,
};

/* The program's variables; NULL: absent. */
struct opt_program {
    const char *conf;
    const char *conf_harder;
};

/* Sets every option to its default, then reads all sources, a later one winning over those before;
 * in a set-uid process and the like, nothing from the environment.  A malformed or unknown entry is
 * one warning line and the rest still applies; but with abort_conf:true the process ends, after all
 * such entries have been named. */
void opt_init(struct opt_program program);

/* The text of a source, or NULL where it is absent.  For OPT_FROM_BUILD it is never NULL. */
const char *opt_source_text(enum opt_source source);

/* Applies one configuration text; `source` names it in warnings. */
void opt_parse(const char *text, const char *source);

/* One element of a list `from-to:value|...`. */
struct opt_range {
    uint64_t from, to, value;
};

/* Takes the next range off a list.  False at its end, and at a mistake, before the end. */
bool opt_next_range(const char **list, const char *end, struct opt_range *range);

/* A row of options.def, as it stands there.  It has no addresses: the loader would have to fill
 * them in, and every process would need its own copy of the table. */
struct opt_row {
    const char *help; /* NULL except in tools */
    char name[48];
    uint8_t type;   /* enum opt_type */
    uint8_t limits; /* enum opt_limits */
    uint8_t effect; /* enum opt_effect */
    uint8_t leaf;   /* enum value_type as which it can be read, opt.<name>; or none */
    uint64_t initial, least, most; /* of a number; bits of an int64_t where the type is signed */
    char words[5][16];             /* of a choice, up to an empty one */
    char initial_text[8];          /* of a text */
    uint16_t bytes;                /* of a text, with its end; 0: a number */
    bool is_kept;
    uint8_t sets;   /* enum opt_sets, where nothing is kept */
    uint16_t field; /* offset in `opt`, if it is kept */
};

/* Where its value is kept; NULL: nowhere. */
void *opt_field(const struct opt_row *row);

/* The rows of options.def in their order, for listing or reading all of them. */
size_t opt_count(void);

/* Shows whether two processes have the same options, and nothing else. */
uint64_t opt_digest(void);
const struct opt_row *opt_row(size_t row);
const char *opt_name(size_t row);
const char *opt_help(size_t row);
enum value_type opt_leaf(size_t row);
union value opt_read(size_t row);

/* The word that a choice is set to, by its field in `opt`. */
const char *opt_word(const uint64_t *choice);

/* The variables of other allocators that are understood, for the manual. */
struct opt_alias {
    const char *variable;
    const char *option; /* "" where there is none */
    int meaning;
    const char *help;
};
size_t opt_alias_count(void);
const struct opt_alias *opt_alias(size_t row);

/* Defaults: bytes allocated, or added to the highest live total, from one profile to the next. */
enum { GPERFTOOLS_ALLOC_INTERVAL = 1 << 30, GPERFTOOLS_LIVE_STEP = 100 << 20 };

/*
 * A program may be linked with gperftools as well.  Its libraries would act on the same variables
 * in their constructors: write the same files, want the same signals, and check a heap that nobody
 * uses.  So the variables are hidden once they have been read, and restored once those constructors
 * have run; where tally is preloaded, they run before ours.  Only the first thread may run.
 */
void opt_gperftools_hide(void);
void opt_gperftools_show(void);
