/* SPDX-License-Identifier: MIT
 *
 * args_completion.c - the tables as completions for bash, zsh and fish.
 *
 * The usage line says what a word can be: TARGET is a process with the library, PROFILE and FILE
 * are files, PROGRAM is a program, COMMAND one of ours, and lower-case words separated by bars
 * stand for themselves.  The same goes for the value of an option.
 */
#include <stdio.h>
#include <string.h>

#include "args/args.h"

enum word_kind {
    WORD_NONE,
    WORD_FILE,
    WORD_FOLDER,
    WORD_TARGET,
    WORD_PROGRAM,
    WORD_COMMAND,
    WORD_CHOICE
};

static enum word_kind kind_of_words(const char *usage) {
    static const struct {
        const char *part;
        enum word_kind kind;
    } rows[] = {
        {"PROGRAM", WORD_PROGRAM}, {"TARGET", WORD_TARGET},   {"PROFILE", WORD_FILE},
        {"FILE", WORD_FILE},       {"COMMAND", WORD_COMMAND}, {"BASE", WORD_FILE},
        {"|", WORD_CHOICE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strstr(usage, rows[i].part) != NULL) {
            return rows[i].kind;
        }
    }
    return WORD_NONE;
}

static enum word_kind kind_of_value(const struct arg_option *option) {
    if (option->choices != NULL) {
        return WORD_CHOICE;
    }
    if (option->value == NULL || strcmp(option->value, "DIR") == 0) {
        return option->value == NULL ? WORD_NONE : WORD_FOLDER;
    }
    bool is_file = strcmp(option->value, "FILE") == 0 || strcmp(option->value, "OUT") == 0 ||
                   strcmp(option->value, "PROFILE") == 0;
    return is_file ? WORD_FILE : WORD_NONE;
}

/* Whether a usage line consists of choices only. */
static const char *choices_of_words(const struct command *command) {
    return kind_of_words(command->usage) == WORD_CHOICE ? command->usage : "";
}

static bool takes_value(const struct arg_option *option) {
    return option->value != NULL || option->choices != NULL;
}

static bool can_be_negated(const struct arg_option *option) {
    return option->kind == ARG_SWITCH;
}

/* The name that turns a switch off. */
static void print_negated(const struct arg_option *option) {
    bool is_no = strncmp(option->name, "no-", 3) == 0;
    printf("%s%s", is_no ? "" : "no-", is_no ? option->name + 3 : option->name);
}

static void print_words(const char *list) {
    for (; *list != '\0'; list++) {
        putchar(*list == '|' ? ' ' : *list);
    }
}

/* Help inside of single quotes; `special` are characters that get a backslash. */
static void print_quoted(const char *text, const char *special) {
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            fputs("'\\''", stdout);
        } else {
            printf("%s%c", strchr(special, *text) != NULL ? "\\" : "", *text);
        }
    }
}

/* Calls back for every option of the command; without one, for the global ones. */
static void each_option(const struct command *command,
                        void (*visit)(const struct command *command,
                                      const struct arg_option *option)) {
    static const struct arg_option *const global[] = {args_global_options, NULL};
    const struct arg_option *const *tables = command != NULL ? command->options : global;
    for (size_t t = 0; tables != NULL && tables[t] != NULL; t++) {
        for (const struct arg_option *option = tables[t]; option->name != NULL; option++) {
            visit(command, option);
        }
    }
}

static void print_command_names(void) {
    for (size_t i = 0; commands[i] != NULL; i++) {
        printf("%s%s", i > 0 ? " " : "", commands[i]->name);
    }
}

/* What a shell does for a kind of word: texts before and after the possible words, if known. */
struct action {
    const char *before, *behind;
};

static void print_action(const struct action *actions, enum word_kind kind, const char *choices) {
    fputs(actions[kind].before, stdout);
    if (kind == WORD_COMMAND) {
        print_command_names();
    } else if (kind == WORD_CHOICE) {
        print_words(choices);
    }
    fputs(actions[kind].behind, stdout);
}

/* Bash. */

static void print_bash_option(const struct command *command, const struct arg_option *option) {
    (void)command;
    printf(" --%s%s", option->name, takes_value(option) && !option->value_is_optional ? "=" : "");
    if (can_be_negated(option)) {
        printf(" --");
        print_negated(option);
    }
    if (option->letter != '\0') {
        printf(" -%c", option->letter);
    }
}

static void print_bash_value(const struct command *command, const struct arg_option *option) {
    enum word_kind kind = kind_of_value(option);
    if (kind == WORD_NONE) {
        return;
    }
    printf("        %s:--%s", command != NULL ? command->name : "*", option->name);
    if (option->letter != '\0') {
        printf(" | %s:-%c", command != NULL ? command->name : "*", option->letter);
    }
    printf(") ");
    if (kind == WORD_CHOICE) {
        printf("words='");
        print_words(option->choices);
        printf("'");
    } else {
        printf("kind=%s", kind == WORD_FOLDER ? "folder" : "file");
    }
    printf(" ;;\n");
}

static const char *const kind_names[] = {
    [WORD_NONE] = "none",     [WORD_FILE] = "file",       [WORD_FOLDER] = "folder",
    [WORD_TARGET] = "target", [WORD_PROGRAM] = "program", [WORD_COMMAND] = "command",
    [WORD_CHOICE] = "none",
};

static void print_bash(void) {
    printf(
        "# Completion of tally for bash, printed by `tally completion bash`.\n"
        "_tally() {\n"
        "    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
        "    local command= options= words= kind=none i\n"
        "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
        "        case ${COMP_WORDS[i]} in\n"
        "        -* | =) ;;\n"
        "        *) [ \"${COMP_WORDS[i - 1]}\" = = ] || { command=${COMP_WORDS[i]} && break; } ;;\n"
        "        esac\n"
        "    done\n"
        "    if [ \"$word\" = = ]; then\n"
        "        word=\n"
        "    elif [ \"$previous\" = = ]; then\n"
        "        previous=${COMP_WORDS[COMP_CWORD - 2]}\n"
        "    fi\n"
        "    case $command:$previous in\n");
    for (size_t i = 0; commands[i] != NULL; i++) {
        each_option(commands[i], print_bash_value);
    }
    each_option(NULL, print_bash_value);
    printf("    esac\n"
           "    if [ -z \"$words\" ] && [ $kind = none ]; then\n"
           "        case $command in\n"
           "        '') words='");
    print_command_names();
    printf("' ;;\n");
    for (size_t i = 0; commands[i] != NULL; i++) {
        printf("        %s)\n            options='", commands[i]->name);
        each_option(commands[i], print_bash_option);
        printf("'\n            kind=%s words='", kind_names[kind_of_words(commands[i]->usage)]);
        print_words(choices_of_words(commands[i]));
        printf("' ;;\n");
    }
    printf("        esac\n"
           "        options+='");
    each_option(NULL, print_bash_option);
    printf("'\n"
           "        case $word in -*) words=$options kind=none ;; esac\n"
           "    fi\n"
           "    case $kind in\n"
           "    target) words+=\" $(tally ps --format=names 2>/dev/null)\" ;;\n"
           "    command) words+='");
    print_command_names();
    printf("' ;;\n"
           "    esac\n"
           "    mapfile -t COMPREPLY < <(\n"
           "        case $kind in\n"
           "        file) compgen -f -- \"$word\" ;;\n"
           "        folder) compgen -d -- \"$word\" ;;\n"
           "        program) compgen -c -- \"$word\" && compgen -f -- \"$word\" ;;\n"
           "        esac\n"
           "        compgen -W \"$words\" -- \"$word\"\n"
           "    )\n"
           "    case ${COMPREPLY[0]} in *=) compopt -o nospace ;; esac\n"
           "    case $kind in file | folder | program) compopt -o filenames ;; esac\n"
           "}\n"
           "complete -F _tally tally\n");
}

/* Zsh. */

static const struct action zsh_actions[] = {
    [WORD_NONE] = {" ", ""},
    [WORD_FILE] = {"_files", ""},
    [WORD_FOLDER] = {"_files -/", ""},
    [WORD_TARGET] = {"_tally_targets", ""},
    [WORD_PROGRAM] = {"_command_names -e", ""},
    [WORD_COMMAND] = {"(", ")"},
    [WORD_CHOICE] = {"(", ")"},
};

static void print_zsh_spec(const struct arg_option *option, const char *dashes, const char *name,
                           const char *equals) {
    printf("        '*%s%s%s[", dashes, name, takes_value(option) ? equals : "");
    print_quoted(option->help, "[]:\\");
    printf("]");
    if (takes_value(option)) {
        printf("%s%s:", option->value_is_optional ? "::" : ":",
               option->value != NULL ? option->value : "WORD");
        print_action(zsh_actions, kind_of_value(option), option->choices);
    }
    printf("' \\\n");
}

static void print_zsh_option(const struct command *command, const struct arg_option *option) {
    (void)command;
    print_zsh_spec(option, "--", option->name, option->value_is_optional ? "=-" : "=");
    if (option->letter != '\0') {
        char name[] = {option->letter, '\0'};
        print_zsh_spec(option, "-", name, "+");
    }
    if (can_be_negated(option)) {
        printf("        '*--");
        print_negated(option);
        printf("[not: ");
        print_quoted(option->help, "[]:\\");
        printf("]' \\\n");
    }
}

static void print_zsh(void) {
    printf("#compdef tally\n"
           "# Completion of tally for zsh, printed by `tally completion zsh`.\n"
           "_tally_targets() {\n"
           "    compadd -- ${(f)\"$(tally ps --format=names 2>/dev/null)\"}\n"
           "}\n"
           "_tally() {\n"
           "    local command=$words[2]\n"
           "    if ((CURRENT == 2)); then\n"
           "        local -a list=(\n");
    for (size_t i = 0; commands[i] != NULL; i++) {
        printf("            '%s:", commands[i]->name);
        print_quoted(commands[i]->summary, ":\\");
        printf("'\n");
    }
    printf("        )\n"
           "        _describe command list\n"
           "        _arguments \\\n");
    each_option(NULL, print_zsh_option);
    printf("        && return\n"
           "        return\n"
           "    fi\n"
           "    shift words\n"
           "    ((CURRENT--))\n"
           "    case $command in\n");
    for (size_t i = 0; commands[i] != NULL; i++) {
        printf("    %s) _arguments \\\n", commands[i]->name);
        each_option(commands[i], print_zsh_option);
        each_option(NULL, print_zsh_option);
        enum word_kind kind = kind_of_words(commands[i]->usage);
        if (kind == WORD_PROGRAM) {
            printf("        '1:program:_command_names -e' '*::arguments: _normal' ;;\n");
            continue;
        }
        printf("        '*:word:");
        print_action(zsh_actions, kind, choices_of_words(commands[i]));
        printf("' ;;\n");
    }
    printf("    esac\n"
           "}\n"
           "_tally \"$@\"\n");
}

/* Fish. */

static const struct action fish_actions[] = {
    [WORD_NONE] = {"", ""},
    [WORD_FILE] = {" -F", ""},
    [WORD_FOLDER] = {" -F", ""},
    [WORD_TARGET] = {" -xa '(tally ps --format=names 2>/dev/null)'", ""},
    [WORD_PROGRAM] = {" -xa '(__fish_complete_subcommand)'", ""},
    [WORD_COMMAND] = {" -xa '", "'"},
    [WORD_CHOICE] = {" -xa '", "'"},
};

/* A line about the command, or about all of them. */
static void print_fish_begin(const struct command *command) {
    printf("complete -c tally");
    if (command != NULL) {
        printf(" -n '__fish_seen_subcommand_from %s'", command->name);
    }
}

static void print_fish_option(const struct command *command, const struct arg_option *option) {
    print_fish_begin(command);
    if (option->letter != '\0') {
        printf(" -s %c", option->letter);
    }
    printf(" -l %s", option->name);
    if (takes_value(option)) {
        printf("%s", option->value_is_optional ? "" : " -r");
        print_action(fish_actions, kind_of_value(option), option->choices);
    }
    printf(" -d '");
    print_quoted(option->help, "\\");
    printf("'\n");
    if (can_be_negated(option)) {
        print_fish_begin(command);
        printf(" -l ");
        print_negated(option);
        printf("\n");
    }
}

static void print_fish(void) {
    printf("# Completion of tally for fish, printed by `tally completion fish`.\n"
           "complete -c tally -f\n");
    for (size_t i = 0; commands[i] != NULL; i++) {
        printf("complete -c tally -n __fish_use_subcommand -a %s -d '", commands[i]->name);
        print_quoted(commands[i]->summary, "\\");
        printf("'\n");
    }
    each_option(NULL, print_fish_option);
    for (size_t i = 0; commands[i] != NULL; i++) {
        enum word_kind kind = kind_of_words(commands[i]->usage);
        if (kind != WORD_NONE) {
            print_fish_begin(commands[i]);
            print_action(fish_actions, kind, choices_of_words(commands[i]));
            printf("\n");
        }
        each_option(commands[i], print_fish_option);
    }
}

bool args_print_completion(const char *shell) {
    static const struct {
        const char *shell;
        void (*print)(void);
    } rows[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].shell, shell) == 0) {
            rows[i].print();
            return true;
        }
    }
    return false;
}
