/* SPDX-License-Identifier: MIT
 *
 * args.h - commands and options as tables; parsing, help, man pages and completions use them.
 *
 *      tally [GLOBAL] COMMAND [OPTION...] [ARG...]
 *
 * Options may follow arguments, except where `stops_at_word` says that the first word begins
 * another program's command line.  Long options may be shortened while unique, every switch has a
 * --no- form, and -- ends the options anywhere.  A misspelt word gets a suggestion.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum arg_kind {
    ARG_SWITCH,   /* bool */
    ARG_TEXT,     /* const char * */
    ARG_NUMBER,   /* uint64_t */
    ARG_SIZE,     /* uint64_t, bytes */
    ARG_DURATION, /* uint64_t, nanoseconds */
    ARG_SHARE,    /* double, 0 to 1, written 10% */
    ARG_CHOICE,   /* unsigned, index in `choices` */
    ARG_LIST,     /* struct arg_list: may be given many times */
    ARG_OFF,      /* bool that the option clears: --flat undoes --cum */
    ARG_COUNT,    /* unsigned: the number of times it is given */
    ARG_SMALL,    /* uint32_t */
    ARG_SIZES,    /* uint64_t[2], bytes, written MIN:MAX where either may be missing */
    ARG_TIMES,    /* uint64_t[2], nanoseconds, likewise */
};

struct arg_list {
    const char **texts;
    size_t count;
};

/* One option: the single home of its name, its help and the place of its value. */
struct arg_option {
    const char *name; /* long, without dashes */
    char letter;      /* 0: none */
    enum arg_kind kind;
    const char *value; /* what help calls the value: "SIZE"; NULL for switches */
    /* "text|json|prometheus" for ARG_CHOICE; ARG_TEXT may have choices, too.  For other kinds, the
     * value that stands in where an optional one is not given. */
    const char *choices;
    bool value_is_optional; /* --cpu and --cpu=HZ */
    void *target;
    const char *help; /* one sentence without a full stop */
};

struct command {
    const char *name;
    const char *summary; /* one line of `tally --help` */
    const char *usage;   /* after the name: "[OPTION...] [--] PROGRAM [ARG...]" */
    const char *text;    /* help and man page: paragraphs are parted by an empty line and wrapped;
                            lines that begin with blanks are examples and stay as they are */
    /* Tables, each ended by a row without a name; NULL ends them. */
    const struct arg_option *const *options;
    bool stops_at_word;
    size_t words[2];                     /* number of arguments: at least and at most */
    int (*run)(int count, char **words); /* an exit code */
};

/* Every command, in the order of help; ended by NULL.  command/commands.c. */
extern const struct command *const commands[];

/* The options that every command takes, before or after its name.  args_global.c. */
extern const struct arg_option args_global_options[];
extern const struct command args_tally; /* `tally` itself: its words begin with a command */

/* Reads the options into their targets; the other words, in order, stay in words[0..*count).  False
 * after a sentence.  Stops at -h or --help, which sets args_wants_help. */
bool args_parse(const struct command *command, int *count, char **words);
extern unsigned args_wants_help, args_wants_version;

/* Sets colours, loudness and limits to what the global options say. */
void args_settle(const struct command *command);
bool args_has_color(int fd); /* by --color, NO_COLOR and whether fd is a terminal */

/* Like args_parse for a variable: options only; those that only other commands have are skipped. */
bool args_parse_variable(const struct command *command, const char *name, const char *text);

/* Like args_parse for the file of --config, if there is one; then whether one was named since. */
bool args_parse_config(const struct command *command);
bool args_has_late_config(void);

const struct command *args_find_command(const char *name); /* NULL after a sentence */

/* The word of an "a|b|c" list that is closest to a misspelt one; NULL: none is close.  Static. */
const char *args_nearest(const char *word, const char *list);

/* To stdout. */
void args_print_help(const struct command *command); /* NULL: for everything */
void args_print_man(const struct command *command);  /* mdoc */
bool args_print_completion(const char *shell);       /* bash, zsh or fish; false: unknown */
