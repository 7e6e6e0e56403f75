/* SPDX-License-Identifier: MIT
 *
 * print_options.c - the tables of docs/manual/options.md, printed from options.def.
 *
 * Linked with the library's objects, so what it prints is what the library does.
 * test/integration/test_manual_options.sh compares the committed page with it, and writes it anew
 * when called with --update.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "control/ctl.h"
#include "opt/opt.h"

static void print_number(const struct opt_row *row, uint64_t value) {
    if (row->type == OPT_TYPE_RATIO || row->type == OPT_TYPE_RATIO_OR_MINUS) {
        printf("%g", (double)value / 65536);
    } else if (row->type == OPT_TYPE_SIGNED && value == INT64_MAX) {
        printf("2^63-1");
    } else if (row->type == OPT_TYPE_SIGNED) {
        printf("%" PRId64, (int64_t)value);
    } else if (value == UINT64_MAX) {
        printf("2^64-1");
    } else if (value >= 1 << 30 && value % (1 << 30) == 0) {
        printf("%" PRIu64 "g", value >> 30);
    } else if (value >= 1 << 20 && value % (1 << 20) == 0) {
        printf("%" PRIu64 "m", value >> 20);
    } else if (value >= 1 << 10 && value % (1 << 10) == 0) {
        printf("%" PRIu64 "k", value >> 10);
    } else {
        printf("%" PRIu64, value);
    }
}

static void print_words(const struct opt_row *row) {
    for (size_t i = 0; row->words[i][0] != '\0'; i++) {
        printf("%s%s", i == 0 ? "" : ", ", row->words[i]);
    }
}

static void print_values(const struct opt_row *row) {
    switch (row->type) {
    case OPT_TYPE_SWITCH:
        printf("false, true");
        return;
    case OPT_TYPE_WORD:
        print_words(row);
        return;
    case OPT_TYPE_TEXT:
        printf("text");
        return;
    case OPT_TYPE_LETTERS:
        printf("letters");
        return;
    case OPT_TYPE_LIST:
    case OPT_TYPE_LIST_OR_DEFAULT:
        printf("%slist; values ", row->type == OPT_TYPE_LIST_OR_DEFAULT ? "default, or a " : "");
        break;
    case OPT_TYPE_UNSIGNED_OR_DEFAULT:
        printf("default, ");
        break;
    case OPT_TYPE_RATIO_OR_MINUS:
        printf("-1, ");
        break;
    default:
        break;
    }
    print_number(row, row->least);
    printf(" .. ");
    print_number(row, row->most);
    printf("%s", row->limits == OPT_REFUSE ? "" : ", clipped");
}

static void print_default(const struct opt_row *row) {
    if (row->bytes != 0) {
        printf("%s", row->initial_text[0] != '\0' ? row->initial_text : "(empty)");
    } else if (!row->is_kept) {
        printf(" ");
    } else if (row->type == OPT_TYPE_SWITCH) {
        printf("%s", row->initial != 0 ? "true" : "false");
    } else if (row->type == OPT_TYPE_WORD) {
        printf("%s", row->words[row->initial]);
    } else {
        print_number(row, row->initial);
    }
}

static bool is_name(const char *word, size_t length) {
    for (size_t i = 0; i < opt_count(); i++) {
        if (strlen(opt_name(i)) == length && memcmp(opt_name(i), word, length) == 0) {
            return memchr(word, '_', length) != NULL;
        }
    }
    return false;
}

/* One space after a sentence; a bar would end the cell; names of options are code. */
static void print_help(const char *help) {
    while (*help != '\0') {
        size_t n = strspn(help, "abcdefghijklmnopqrstuvwxyz_0123456789");
        if (n > 0) {
            printf(is_name(help, n) ? "`%.*s`" : "%.*s", (int)n, help);
            help += n;
        } else {
            printf(*help == '|' ? "\\%c" : "%c", *help);
            help += help[0] == ' ' && help[1] == ' ' ? 2 : 1;
        }
    }
}

static bool is_obsolete(const struct opt_row *row) {
    return !row->is_kept && row->effect != OPT_IGNORED;
}

static void print_row(const struct opt_row *row) {
    printf("| `%s` | ", row->name);
    print_default(row);
    printf(" | ");
    print_values(row);
    printf(row->leaf == VALUE_NONE ? " | none | " : " | `%s` | ", ctl_type_name(row->leaf));
    print_help(row->help);
    printf(" |\n");
}

static void print_table(enum opt_effect effect) {
    printf("| option | default | values | `opt.` leaf | what it does |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < opt_count(); i++) {
        if (opt_row(i)->effect == effect && !is_obsolete(opt_row(i))) {
            print_row(opt_row(i));
        }
    }
    printf("\n");
}

static void print_obsolete(void) {
    printf("| key | values | what it does |\n|---|---|---|\n");
    for (size_t i = 0; i < opt_count(); i++) {
        const struct opt_row *row = opt_row(i);
        if (is_obsolete(row)) {
            printf("| `%s` | ", row->name);
            print_values(row);
            printf(" | ");
            print_help(row->help);
            printf("%s |\n", row->sets == OPT_SETS_NONE ? " Has no effect." : "");
        }
    }
    printf("\n");
}

static void print_aliases(void) {
    printf("| variable | option | |\n|---|---|---|\n");
    for (size_t i = 0; i < opt_alias_count(); i++) {
        const struct opt_alias *alias = opt_alias(i);
        bool known = alias->option[0] != '\0';
        printf("| `%s` | %s%s%s | ", alias->variable, known ? "`" : "",
               known ? alias->option : "none", known ? "`" : "");
        print_help(alias->help);
        printf(" |\n");
    }
    printf("\n");
}

int main(void) {
    printf("### Options that act\n\n");
    print_table(OPT_ACTS);
    printf(
        "### Options of jemalloc without effect\n\n"
        "They are accepted and can be read, and that is all: tally works in another way, or does\n"
        "not have yet what they are about. A wrong value is a mistake all the same.\n\n");
    print_table(OPT_IGNORED);
    printf("### Keys of older versions of jemalloc\n\n"
           "Understood where there is a meaning. Where there is none, one line says so.\n\n");
    print_obsolete();
    printf("### Variables of other allocators\n\n"
           "Values as in mimalloc: a number, or true, yes, on, false, no, off, in any case; "
           "nothing is 1.\n"
           "Those of gperftools, from `HEAPPROFILE` on, by its rules: a decimal number, with "
           "whatever\n"
           "behind it ignored; a switch is on if its value is empty or begins with t, T, y, Y or "
           "1.\n\n");
    print_aliases();
    return fflush(stdout) != 0;
}
