/* SPDX-License-Identifier: MIT
 *
 * args_help.c - the tables as help for a terminal and as man pages.
 *
 * The text of a command has paragraphs, which are wrapped, and examples, which begin with blanks
 * and stay as they are.  Man pages are mdoc(7): one for each command and one for all of them.
 */
#include <stdio.h>
#include <string.h>

#include "args/args.h"
#include "common/cli.h"

enum { COLUMNS = 80, HELP_COLUMN = 26 };

static const char man_date[] = "November 16, 2026";

/* Options as text. */

/* "--[no-]source", "--every=DUR", "--cpu[=HZ]". */
static void print_long(const struct arg_option *option, char *text, size_t bytes) {
    bool is_switch = option->kind == ARG_SWITCH;
    bool is_no = strncmp(option->name, "no-", 3) == 0;
    bool is_word = option->kind == ARG_CHOICE || option->kind == ARG_TEXT;
    const char *value = is_word && option->choices != NULL ? option->choices : option->value;
    if (is_switch) {
        snprintf(text, bytes, "--[no-]%s", is_no ? option->name + 3 : option->name);
    } else if (value == NULL) {
        snprintf(text, bytes, "--%s", option->name);
    } else {
        snprintf(text, bytes, option->value_is_optional ? "--%s[=%s]" : "--%s=%s", option->name,
                 value);
    }
}

/* Whether this option is off unless given, although its name shows it with [no-]. */
static bool is_named_no(const struct arg_option *option) {
    return option->kind == ARG_SWITCH && strncmp(option->name, "no-", 3) == 0;
}

/* Words from `column` on, later lines indented. */
static void wrap(const char *text, size_t length, int indent, int column) {
    size_t at = 0;
    while (at < length) {
        while (at < length && (text[at] == ' ' || text[at] == '\n')) {
            at++;
        }
        size_t end = at;
        while (end < length && text[end] != ' ' && text[end] != '\n') {
            end++;
        }
        if (end == at) {
            break;
        }
        if (column > indent && column + 1 + (int)(end - at) > COLUMNS) {
            printf("\n%*s", indent, "");
            column = indent;
        }
        column += printf("%s%.*s", column > indent ? " " : "", (int)(end - at), text + at);
        at = end;
    }
    printf("\n");
}

static void print_option(const struct arg_option *option) {
    char name[512], letter[8] = "    ", help[512];
    print_long(option, name, sizeof name);
    if (option->letter != '\0') {
        snprintf(letter, sizeof letter, "-%c, ", option->letter);
    }
    int column = printf("  %s%s", letter, name);
    if (column > HELP_COLUMN - 2) {
        printf("\n");
        column = 0;
    }
    printf("%*s", HELP_COLUMN - column, "");
    snprintf(help, sizeof help, "%s%s", is_named_no(option) ? "With no-: " : "", option->help);
    wrap(help, strlen(help), HELP_COLUMN, HELP_COLUMN);
}

static void print_table(const struct arg_option *option,
                        void (*print)(const struct arg_option *option)) {
    for (; option->name != NULL; option++) {
        print(option);
    }
}

/* Texts. */

/* One piece of a text: an example line or a paragraph. */
struct piece {
    const char *text;
    size_t length;
    bool is_example;
};

static bool next_piece(const char **text, struct piece *piece) {
    const char *at = *text + strspn(*text, "\n");
    if (*at == '\0') {
        return false;
    }
    piece->text = at;
    piece->is_example = *at == ' ';
    while (*at != '\0' && !(*at == '\n' && (piece->is_example || at[1] == '\n' || at[1] == ' '))) {
        at++;
    }
    piece->length = (size_t)(at - piece->text);
    *text = at;
    return true;
}

static void print_text(const char *text) {
    struct piece piece;
    bool was_example = false;
    while (next_piece(&text, &piece)) {
        if (!piece.is_example || !was_example) {
            printf("\n");
        }
        if (piece.is_example) {
            printf("%.*s\n", (int)piece.length, piece.text);
        } else {
            wrap(piece.text, piece.length, 0, 0);
        }
        was_example = piece.is_example;
    }
}

static void print_commands(void) {
    printf("\nCommands:\n");
    for (size_t i = 0; commands[i] != NULL; i++) {
        printf("  %-12s", commands[i]->name);
        wrap(commands[i]->summary, strlen(commands[i]->summary), 14, 14);
    }
}

void args_print_help(const struct command *command) {
    if (command == NULL || command == &args_tally) {
        printf("Usage: tally %s\n", args_tally.usage);
        print_text(args_tally.text);
        print_commands();
        printf("\nOptions of every command:\n");
        print_table(args_global_options, print_option);
        printf("\ntally COMMAND --help explains one of them.\n");
        return;
    }
    printf("Usage: tally %s %s\n", command->name, command->usage);
    print_text(command->text);
    if (command->options != NULL && command->options[0] != NULL) {
        printf("\nOptions:\n");
    }
    for (size_t t = 0; command->options != NULL && command->options[t] != NULL; t++) {
        print_table(command->options[t], print_option);
    }
    printf("\ntally --help lists the options of every command.\n");
}

/* Man pages. */

/* Text of an mdoc page: nothing in it is a macro or an escape. */
static void print_mdoc(const char *text, size_t length) {
    if (length > 0 && (text[0] == '.' || text[0] == '\'')) {
        fputs("\\&", stdout);
    }
    for (size_t i = 0; i < length; i++) {
        switch (text[i]) {
        case '\\':
            fputs("\\e", stdout);
            break;
        case '-':
            fputs("\\-", stdout);
            break;
        case '\n':
            fputc(' ', stdout);
            break;
        default:
            fputc(text[i], stdout);
        }
    }
    fputc('\n', stdout);
}

static void print_mdoc_text(const char *text) {
    struct piece piece;
    bool was_example = false, is_first = true;
    while (next_piece(&text, &piece)) {
        if (piece.is_example && !was_example) {
            printf(".Bd -literal -offset indent\n");
        } else if (!piece.is_example && was_example) {
            printf(".Ed\n");
        }
        if (!piece.is_example && !is_first) {
            printf(".Pp\n");
        }
        size_t indent = piece.is_example ? strspn(piece.text, " ") : 0;
        print_mdoc(piece.text + indent, piece.length - indent);
        was_example = piece.is_example;
        is_first = false;
    }
    if (was_example) {
        printf(".Ed\n");
    }
}

static void print_mdoc_option(const struct arg_option *option) {
    char name[512];
    print_long(option, name, sizeof name);
    printf(".It ");
    if (option->letter != '\0') {
        printf("Fl %c , ", option->letter);
    }
    size_t length = strcspn(name, "[=");
    if (strncmp(name, "--[no-]", 7) == 0) {
        printf("Fl -%s , Fl -no-%s\n", name + 7, name + 7);
    } else if (name[length] == '\0') {
        printf("Fl -%s\n", name + 2);
    } else if (name[length] == '=') {
        printf("Fl -%.*s Ns = Ns Ar %s\n", (int)length - 2, name + 2, name + length + 1);
    } else {
        printf("Fl -%.*s Ns Op = Ns Ar %.*s\n", (int)length - 2, name + 2,
               (int)strcspn(name + length + 2, "]"), name + length + 2);
    }
    printf("%s", is_named_no(option) ? "With no\\-: " : "");
    print_mdoc(option->help, strlen(option->help));
}

static void print_mdoc_begin(const char *title, const char *name, const char *summary) {
    printf(".Dd %s\n.Dt %s 1\n.Os Linux\n.Sh NAME\n.Nm %s\n.Nd ", man_date, title, name);
    print_mdoc(summary, strlen(summary));
}

static void print_exit_status(void) {
    static const struct {
        const char *code, *meaning;
    } rows[] = {
        {"0", "Done, nothing found."},
        {"1", "A finding: leaks, a limit of check exceeded, differences."},
        {"2", "The command line was not understood."},
        {"3", "The target is not there, ambiguous, gone meanwhile, or without the library."},
        {"4", "Input is unreadable, damaged, or of an unknown format."},
        {"5", "Refused: another user, a missing right, a limit."},
        {"124", "The time limit was hit."},
        {"125", "The command itself failed."},
        {"126, 127", "The program is not executable, is not found."},
        {"128+N", "Under run: the program died by signal N."},
    };
    printf(".Sh EXIT STATUS\n.Bl -tag -width \"126, 127\" -compact\n");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        printf(".It %s\n%s\n", rows[i].code, rows[i].meaning);
    }
    printf(".El\n");
}

static void print_man_of_all(void) {
    print_mdoc_begin("TALLY", "tally", args_tally.summary);
    printf(".Sh SYNOPSIS\n.Nm\n");
    print_mdoc(args_tally.usage, strlen(args_tally.usage));
    printf(".Sh DESCRIPTION\n");
    print_mdoc_text(args_tally.text);
    printf(".Pp\nCommands, each with a page of its own:\n.Bl -tag -width completion\n");
    for (size_t i = 0; commands[i] != NULL; i++) {
        printf(".It Cm %s\n", commands[i]->name);
        print_mdoc(commands[i]->summary, strlen(commands[i]->summary));
    }
    printf(".El\n.Pp\nEvery command takes these options:\n.Bl -tag -width Ds\n");
    print_table(args_global_options, print_mdoc_option);
    printf(".El\n.Sh ENVIRONMENT\n.Bl -tag -width TALLY_OPTS\n"
           ".It Ev TALLY_OPTS\nOptions that are read before those of the command line.\n"
           ".It Ev TALLY_CONF\nOptions of the library in programs.\n"
           ".It Ev NO_COLOR\nIf set and not empty, output has no colours.\n.El\n");
    print_exit_status();
    printf(".Sh SEE ALSO\n");
    for (size_t i = 0; commands[i] != NULL; i++) {
        printf(".Xr tally-%s 1%s\n", commands[i]->name, commands[i + 1] != NULL ? " ," : "");
    }
}

void args_print_man(const struct command *command) {
    if (command == NULL || command == &args_tally) {
        print_man_of_all();
        return;
    }
    char title[64], name[64];
    snprintf(name, sizeof name, "tally-%s", command->name);
    for (size_t i = 0; i == 0 || title[i - 1] != '\0'; i++) {
        title[i] = name[i] >= 'a' && name[i] <= 'z' ? (char)(name[i] - 'a' + 'A') : name[i];
    }
    print_mdoc_begin(title, name, command->summary);
    printf(".Sh SYNOPSIS\n.Nm tally %s\n", command->name);
    print_mdoc(command->usage, strlen(command->usage));
    printf(".Sh DESCRIPTION\n");
    print_mdoc_text(command->text);
    if (command->options != NULL && command->options[0] != NULL) {
        printf(".Pp\nThe options are those of\n.Xr tally 1\nand these:\n.Bl -tag -width Ds\n");
        for (size_t t = 0; command->options[t] != NULL; t++) {
            print_table(command->options[t], print_mdoc_option);
        }
        printf(".El\n");
    }
    print_exit_status();
    printf(".Sh SEE ALSO\n.Xr tally 1\n");
}
