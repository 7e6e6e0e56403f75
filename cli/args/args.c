/* SPDX-License-Identifier: MIT
 *
 * args.c - reads the words of a command line with the table of the command.
 *
 * A word that begins with -- is looked up among the command's options and the global ones, whole or as
 * the unique beginning of a name, for switches also with no- in front.  Letters may be joined: -qq, -n5.
 * Everything else is an argument and stays, in order.
 *
 * Read next   args_help.c and args_completion.c, which print the same tables.
 */
#include "args/args.h"

#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "common/cli.h"

enum { NAME_MOST = NEAREST_MOST, WORDS_MOST = 4096 };

unsigned args_wants_help;

/* One option as it was typed. */
struct match {
    const struct arg_option *option;
    bool is_negated;
};

/* The words of a command line while they are read. */
struct reading {
    const struct command *command;
    int count, at; /* of the words; the next one */
    char **words;
    int kept;           /* words[0..kept) are arguments */
    bool is_tolerant;   /* a variable: options of other commands are skipped */
    const char *source; /* "" or "in TALLY_OPTS: " */
};

/* Nearest words. */

/* The closest word so far. */
struct nearest {
    const char *word;
    char name[NAME_MOST + 1];
    size_t distance;
};

/* Words that differ in more than a third of their letters have nothing to do with each other. */
static struct nearest nearest_begin(const char *word) {
    return (struct nearest){.word = word, .distance = strlen(word) / 3 + 2};
}

static void nearest_try(struct nearest *nearest, const char *name, size_t length) {
    char copy[NAME_MOST + 1];
    if (length > NAME_MOST) {
        return;
    }
    memcpy(copy, name, length);
    copy[length] = '\0';
    size_t steps = nearest_distance(nearest->word, strlen(nearest->word), copy, length);
    if (steps < nearest->distance && steps < length) {
        nearest->distance = steps;
        strcpy(nearest->name, copy);
    }
}

const char *args_nearest(const char *word, const char *list) {
    static struct nearest nearest;
    nearest = nearest_begin(word);
    for (const char *name = list; *name != '\0'; name += *name == '|') {
        size_t length = strcspn(name, "|");
        nearest_try(&nearest, name, length);
        name += length;
    }
    return nearest.name[0] != '\0' ? nearest.name : NULL;
}

const struct command *args_find_command(const char *name) {
    struct nearest nearest = nearest_begin(name);
    for (size_t i = 0; commands[i] != NULL; i++) {
        if (strcmp(commands[i]->name, name) == 0) {
            return commands[i];
        }
        nearest_try(&nearest, commands[i]->name, strlen(commands[i]->name));
    }
    if (nearest.name[0] != '\0') {
        complain(EXIT_USAGE, "unknown command '%s'; did you mean '%s'?", safe_text(name),
                 nearest.name);
    } else {
        complain(EXIT_USAGE, "unknown command '%s'; tally --help lists them", safe_text(name));
    }
    return NULL;
}

/* Looking options up. */

/* Calls back for every option of the command and every global one until a call says to stop. */
static bool each_option(const struct command *command,
                        bool (*visit)(const struct arg_option *option, void *context),
                        void *context) {
    for (size_t t = 0; command->options != NULL && command->options[t] != NULL; t++) {
        for (const struct arg_option *option = command->options[t]; option->name; option++) {
            if (visit(option, context)) {
                return true;
            }
        }
    }
    for (const struct arg_option *option = args_global_options; option->name; option++) {
        if (visit(option, context)) {
            return true;
        }
    }
    return false;
}

static bool is_switch(const struct arg_option *option) {
    return option->kind == ARG_SWITCH || option->kind == ARG_OFF;
}

static bool takes_value(const struct arg_option *option) {
    return !is_switch(option) && option->kind != ARG_COUNT;
}

struct long_search {
    const char *typed;
    size_t length;
    struct match matches[2];
    unsigned found;
    struct nearest nearest;
};

static bool add_match(struct long_search *search, const struct arg_option *option, bool is_negated,
                      bool is_whole) {
    bool is_known = search->found > 0 && strcmp(search->matches[0].option->name, option->name) == 0;
    if (is_whole) {
        search->found = 0;
    }
    if ((is_whole || !is_known) && search->found < 2) {
        search->matches[search->found++] = (struct match){option, is_negated};
    }
    return is_whole;
}

static bool visit_long(const struct arg_option *option, void *context) {
    struct long_search *search = context;
    const char *name = option->name;
    nearest_try(&search->nearest, name, strlen(name));
    if (strncmp(name, search->typed, search->length) == 0 &&
        add_match(search, option, false, name[search->length] == '\0')) {
        return true;
    }
    if (!is_switch(option)) {
        return false;
    }
    bool is_no = strncmp(name, "no-", 3) == 0;
    bool typed_no = search->length > 3 && strncmp(search->typed, "no-", 3) == 0;
    if (is_no == typed_no) {
        return false;
    }
    const char *rest = is_no ? name + 3 : name;
    const char *typed = typed_no ? search->typed + 3 : search->typed;
    size_t length = typed_no ? search->length - 3 : search->length;
    return strncmp(rest, typed, length) == 0 &&
           add_match(search, option, true, rest[length] == '\0');
}

/* The option of a word without its dashes, up to `length`; false after a sentence. */
static bool find_long(const struct reading *reading, const struct command *command,
                      const char *typed, size_t length, struct match *match) {
    char name[NAME_MOST + 1] = "";
    if (length <= NAME_MOST) {
        memcpy(name, typed, length);
        name[length] = '\0';
    }
    struct long_search search = {.typed = typed, .length = length, .nearest = nearest_begin(name)};
    if (length > 0) {
        each_option(command, visit_long, &search);
    }
    *match = search.matches[0];
    if (search.found == 1 || (search.found == 0 && reading->is_tolerant)) {
        return search.found == 1;
    }
    if (search.found == 2) {
        complain(EXIT_USAGE, "%soption --%s could be --%s or --%s", reading->source, name,
                 search.matches[0].option->name, search.matches[1].option->name);
    } else if (search.nearest.name[0] != '\0') {
        complain(EXIT_USAGE, "%sunknown option --%s; did you mean --%s?", reading->source,
                 safe_text(name), search.nearest.name);
    } else {
        complain(EXIT_USAGE, "%sunknown option --%.*s; tally%s%s --help lists them",
                 reading->source, (int)length, safe_text(typed),
                 command->name[0] != '\0' ? " " : "", command->name);
    }
    return false;
}

struct letter_search {
    char letter;
    const struct arg_option *option;
};

static bool visit_letter(const struct arg_option *option, void *context) {
    struct letter_search *search = context;
    if (option->letter != search->letter) {
        return false;
    }
    search->option = option;
    return true;
}

static const struct arg_option *find_letter(const struct command *command, char letter) {
    struct letter_search search = {.letter = letter};
    return each_option(command, visit_letter, &search) ? search.option : NULL;
}

/* Values. */

static bool refuse(const struct reading *reading, const struct arg_option *option,
                   const char *value, const char *wanted) {
    return decline("%soption --%s: '%s' is no %s", reading->source, option->name, safe_text(value),
                   wanted);
}

/* The index of a word in "a|b|c"; -1 after a sentence. */
static int find_choice(const struct reading *reading, const struct arg_option *option,
                       const char *value) {
    int index = 0;
    size_t length = strlen(value);
    for (const char *name = option->choices; *name != '\0'; name += *name == '|', index++) {
        size_t name_length = strcspn(name, "|");
        if (name_length == length && memcmp(name, value, length) == 0) {
            return index;
        }
        name += name_length;
    }
    const char *nearest = args_nearest(value, option->choices);
    complain(EXIT_USAGE, "%soption --%s: '%s' is none of %s%s%s%s", reading->source, option->name,
             safe_text(value), option->choices, nearest != NULL ? "; did you mean '" : "",
             nearest != NULL ? nearest : "", nearest != NULL ? "'?" : "");
    return -1;
}

static bool store_choice(const struct reading *reading, const struct arg_option *option,
                         const char *value) {
    int index = find_choice(reading, option, value);
    if (index >= 0) {
        *(unsigned *)option->target = (unsigned)index;
    }
    return index >= 0;
}

static bool store_text(const struct reading *reading, const struct arg_option *option,
                       const char *value) {
    if (option->choices != NULL && find_choice(reading, option, value) < 0) {
        return false;
    }
    *(const char **)option->target = value;
    return true;
}

static bool store_small(const struct reading *reading, const struct arg_option *option,
                        const char *value) {
    uint64_t number = 0;
    if (!parse_count(value, &number) || number > UINT32_MAX) {
        return refuse(reading, option, value, "number up to 4294967295");
    }
    *(uint32_t *)option->target = (uint32_t)number;
    return true;
}

/* MIN:MAX; a missing one is left as it was. */
static bool store_range(const struct reading *reading, const struct arg_option *option,
                        const char *value, bool (*parse)(const char *text, uint64_t *number),
                        const char *kind) {
    uint64_t *limits = option->target;
    char first[NAME_MOST];
    const char *colon = strchr(value, ':');
    size_t length = colon != NULL ? (size_t)(colon - value) : sizeof first;
    if (length >= sizeof first) {
        return refuse(reading, option, value, kind);
    }
    memcpy(first, value, length);
    first[length] = '\0';
    if ((first[0] != '\0' && !parse(first, &limits[0])) ||
        (colon[1] != '\0' && !parse(colon + 1, &limits[1]))) {
        return refuse(reading, option, value, kind);
    }
    return true;
}

static bool add_to_list(const struct arg_option *option, const char *value) {
    struct arg_list *list = option->target;
    list->texts = must_grow(list->texts, (list->count + 1) * sizeof *list->texts);
    list->texts[list->count++] = value;
    return true;
}

static bool store_value(const struct reading *reading, const struct arg_option *option,
                        const char *value) {
    switch (option->kind) {
    case ARG_TEXT:
        return store_text(reading, option, value);
    case ARG_CHOICE:
        return store_choice(reading, option, value);
    case ARG_LIST:
        return add_to_list(option, value);
    case ARG_SMALL:
        return store_small(reading, option, value);
    case ARG_SIZES:
        return store_range(reading, option, value, parse_size,
                           "range of sizes (like 16:4K, :1M, 64K:)");
    case ARG_TIMES:
        return store_range(reading, option, value, parse_duration,
                           "range of times (like 1s:1m, :10ms, 1m:)");
    case ARG_NUMBER:
        return parse_count(value, option->target) || refuse(reading, option, value, "number");
    case ARG_SIZE:
        return parse_size(value, option->target) ||
               refuse(reading, option, value, "size (like 512, 64K, 1.5GiB)");
    case ARG_DURATION:
        return parse_duration(value, option->target) ||
               refuse(reading, option, value, "duration (like 10ms, 5s, 2m, 1h)");
    case ARG_SHARE:
        return parse_share(value, option->target) ||
               refuse(reading, option, value, "share (like 10% or 0.1)");
    default:
        return false;
    }
}

static void turn(struct match match) {
    if (match.option->kind == ARG_COUNT) {
        *(unsigned *)match.option->target += 1;
    } else {
        *(bool *)match.option->target = (match.option->kind == ARG_SWITCH) != match.is_negated;
    }
}

/* Takes the value after = or from the next word, and stores it. */
static bool take_value(struct reading *reading, struct match match, const char *value) {
    const struct arg_option *option = match.option;
    if (!takes_value(option)) {
        if (value != NULL) {
            return decline("%soption --%s takes no value", reading->source, option->name);
        }
        turn(match);
        return true;
    }
    if (value == NULL && option->value_is_optional) {
        bool has_usual = option->kind != ARG_TEXT && option->choices != NULL;
        return !has_usual || store_value(reading, option, option->choices);
    }
    if (value == NULL && reading->at < reading->count) {
        value = reading->words[reading->at++];
    }
    if (value == NULL) {
        return decline("%soption --%s needs a value: --%s=%s", reading->source, option->name,
                       option->name, option->value);
    }
    return store_value(reading, option, value);
}

/* Words. */

/* Skips an option that only another command has, with its value.  False: no command has it. */
static bool pass_over(struct reading *reading, const char *typed, size_t length) {
    for (size_t i = 0; commands[i] != NULL; i++) {
        struct match match;
        if (find_long(reading, commands[i], typed, length, &match)) {
            bool is_next = typed[length] == '\0' && takes_value(match.option) &&
                           !match.option->value_is_optional;
            reading->at += is_next && reading->at < reading->count;
            return true;
        }
    }
    return decline("%sunknown option --%s", reading->source, safe_text(typed));
}

static bool read_long(struct reading *reading, const char *typed) {
    size_t length = strcspn(typed, "=");
    struct match match;
    if (!find_long(reading, reading->command, typed, length, &match)) {
        return reading->is_tolerant && pass_over(reading, typed, length);
    }
    return take_value(reading, match, typed[length] == '=' ? typed + length + 1 : NULL);
}

/* Whether another command has the letter; the word and its value are skipped. */
static bool pass_over_letter(struct reading *reading, const char *letters) {
    for (size_t i = 0; commands[i] != NULL; i++) {
        const struct arg_option *option = find_letter(commands[i], *letters);
        if (option != NULL) {
            reading->at +=
                takes_value(option) && letters[1] == '\0' && reading->at < reading->count;
            return true;
        }
    }
    return false;
}

static bool read_letters(struct reading *reading, const char *letters) {
    for (; *letters != '\0'; letters++) {
        const struct arg_option *option = find_letter(reading->command, *letters);
        if (option == NULL && reading->is_tolerant && pass_over_letter(reading, letters)) {
            return true;
        }
        if (option == NULL) {
            char shown[2] = {*letters, '\0'};
            const char *name = reading->command->name;
            return decline("%sunknown option -%s; tally%s%s --help lists them", reading->source,
                           safe_text(shown), name[0] != '\0' ? " " : "", name);
        }
        bool has_rest = takes_value(option) && letters[1] != '\0';
        const char *value = has_rest ? letters + 1 + (letters[1] == '=') : NULL;
        if (!take_value(reading, (struct match){option, false}, value)) {
            return false;
        }
        if (has_rest) {
            return true;
        }
    }
    return true;
}

static void keep_rest(struct reading *reading) {
    while (reading->at < reading->count) {
        reading->words[reading->kept++] = reading->words[reading->at++];
    }
}

static bool read_words(struct reading *reading) {
    while (reading->at < reading->count && args_wants_help == 0) {
        char *word = reading->words[reading->at++];
        if (strcmp(word, "--") == 0) {
            keep_rest(reading);
        } else if (word[0] != '-' || word[1] == '\0') {
            reading->words[reading->kept++] = word;
            if (reading->command->stops_at_word) {
                keep_rest(reading);
            }
        } else if (!(word[1] == '-' ? read_long(reading, word + 2)
                                    : read_letters(reading, word + 1))) {
            return false;
        }
    }
    keep_rest(reading);
    return true;
}

static bool check_word_count(const struct command *command, int count, char **words) {
    if ((size_t)count < command->words[0]) {
        return decline("usage: tally %s %s", command->name, command->usage);
    }
    if ((size_t)count > command->words[1]) {
        return decline("'%s' is one word too many; usage: tally %s %s",
                       safe_text(words[command->words[1]]), command->name, command->usage);
    }
    return true;
}

bool args_parse(const struct command *command, int *count, char **words) {
    struct reading reading = {.command = command, .count = *count, .words = words, .source = ""};
    if (!read_words(&reading)) {
        return false;
    }
    if (reading.kept < *count) {
        words[reading.kept] = NULL; /* they may become another program's command line */
    }
    *count = reading.kept;
    return args_wants_help > 0 || check_word_count(command, *count, words);
}

/* Cuts at blanks; quotes hold blanks together.  Values stay in the copy, which lives on. */
static int split(char *text, char **words) {
    int count = 0;
    while (*(text += strspn(text, " \t\n")) != '\0' && count < WORDS_MOST) {
        char *out = text, quote = '\0';
        words[count++] = text;
        for (; *text != '\0' && (quote != '\0' || strchr(" \t\n", *text) == NULL); text++) {
            if (*text == quote) {
                quote = '\0';
            } else if (quote == '\0' && (*text == '\'' || *text == '"')) {
                quote = *text;
            } else {
                *out++ = *text;
            }
        }
        text += *text != '\0';
        *out = '\0';
    }
    return count;
}

/* Texts that values of options point into. */
static struct kept {
    struct kept *next;
    char text[];
} * kept;

static char *keep(const char *text) {
    struct kept *fresh = must_alloc(sizeof *fresh + strlen(text) + 1);
    fresh->next = kept;
    kept = fresh;
    return strcpy(fresh->text, text);
}

bool args_parse_variable(const struct command *command, const char *name, const char *text) {
    char source[NAME_MOST];
    static char *words[WORDS_MOST];
    char *copy = keep(text);
    snprintf(source, sizeof source, "in %s: ", name);
    struct reading reading = {
        .command = command, .words = words, .is_tolerant = true, .source = source};
    reading.count = split(copy, words);
    if (!read_words(&reading)) {
        return false;
    }
    if (reading.kept > 0) {
        return decline("%sonly options belong there, '%s' is none", source, safe_text(words[0]));
    }
    return true;
}
