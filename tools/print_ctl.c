/* SPDX-License-Identifier: MIT
 *
 * print_ctl.c - docs/manual/ctl.md, printed from the tables of the library.
 *
 * Linked with the library's objects, so what it prints is what mallctl answers; ctl_names.def, which
 * was written from jemalloc's documentation, is what the count is made against.
 * test/integration/test_manual_ctl.sh compares the committed page with it, and writes it anew when
 * called with --update.
 */
#include <stdio.h>
#include <string.h>

#include <tally/tally.h>

#include "control/ctl.h"
#include "control/ctl_set.h"

#define NAME(path, type, use) path,
static const char *const document[] = {
#include "ctl_names.def"
};
#undef NAME

static const char *access_text(enum ctl_access access) {
    switch (access) {
    case CTL_READ:
    case CTL_OWN_READ:
        return "r-";
    case CTL_BOTH:
    case CTL_OWN_BOTH:
        return "rw";
    case CTL_WRITE:
    case CTL_GIVE:
    case CTL_OWN_WRITE:
        return "-w";
    case CTL_RUN:
        break;
    }
    return "\\--";
}

/* One space after a sentence; a bar would end the cell. */
static void print_help(const char *help) {
    for (; *help != '\0'; help++) {
        if (!(help[0] == ' ' && help[1] == ' ')) {
            printf(*help == '|' ? "\\%c" : "%c", *help);
        }
    }
}

static void print_row(const char *path, enum value_type type, enum ctl_access access,
                      const char *help) {
    printf("| `%s` | `%s` | %s | ", path, ctl_type_name(type), access_text(access));
    print_help(help);
    printf(" |\n");
}

/* The family the path ends in, or -1. */
static int last_family(const char *path, size_t *start) {
    const char *dot = strrchr(path, '.');
    *start = dot != NULL ? (size_t)(dot + 1 - path) : 0;
    return ctl_family_find(path + *start, strlen(path + *start));
}

static void print_rows(const struct ctl_row *row) {
    size_t start;
    int family = last_family(row->path, &start);
    if (family < 0) {
        print_row(row->path, row->type, row->access, row->help);
        return;
    }
    for (size_t i = 0; i < ctl_family_count(family); i++) {
        struct ctl_member member = ctl_family_member(family, i);
        if (member.name != NULL) {
            char path[160];
            snprintf(path, sizeof path, "%.*s%s", (int)start, row->path, member.name);
            print_row(path, member.type, row->access, member.help);
        }
    }
}

static bool begins_with(const char *path, const char *word) {
    size_t n = strlen(word);
    return strncmp(path, word, n) == 0 && (path[n] == '.' || path[n] == '\0');
}

/* Rows whose path begins with one of the words. */
static void print_section(const char *title, const char *const *words) {
    printf("## %s\n\n| name | type | access | meaning |\n|---|---|---|---|\n", title);
    for (size_t i = 0; i < ctl_row_count(); i++) {
        for (const char *const *word = words; *word != NULL; word++) {
            if (begins_with(ctl_rows[i].path, *word) && ctl_rows[i].function != ctl_not_offered) {
                print_rows(&ctl_rows[i]);
            }
        }
    }
    printf("\n");
}

static void print_names(const char *placeholder) {
    int family = ctl_family_find(placeholder, strlen(placeholder));
    printf("`%s` is one of", placeholder);
    for (size_t i = 0; i < ctl_family_count(family); i++) {
        printf("%s `%s`", i == 0 ? "" : ",", ctl_family_member(family, i).name);
    }
    printf(".\n");
}

static void print_count(void) {
    size_t names = sizeof document / sizeof document[0], answered = 0;
    for (size_t i = 0; i < names; i++) {
        const struct ctl_row *row = ctl_find(document[i]);
        answered += row != NULL && row->function != ctl_not_offered;
    }
    printf("## How many\n\nNames in jemalloc's documentation, each index counted once: %zu."
           " Answered: %zu. Not answered:\n\n| name | reason |\n|---|---|\n",
           names, answered);
    for (size_t i = 0; i < ctl_row_count(); i++) {
        if (ctl_rows[i].function == ctl_not_offered) {
            printf("| `%s` | ", ctl_rows[i].path);
            print_help(ctl_rows[i].help);
            printf(" |\n");
        }
    }
    for (size_t i = 0; i < names; i++) {
        if (ctl_find(document[i]) == NULL) {
            printf("| `%s` | missing |\n", document[i]);
        }
    }
}

/* Behind "from outside: ", where a sentence has it. */
static const char *reason_of(const char *sentence) {
    const char *colon = strstr(sentence, ": ");
    return colon != NULL ? colon + 2 : sentence;
}

static bool can_be_written(const struct ctl_row *row) {
    return row->access != CTL_READ && row->access != CTL_OWN_READ &&
           row->function != ctl_not_offered;
}

static void print_outside(void) {
    const char *comma = "";
    printf("## From outside\n\n`tally set NAME=VALUE TARGET` sets what can be written: switches by"
           " `true` and `false`,\nnumbers, words, and `run` for what is neither read nor written."
           " These names:\n");
    for (size_t i = 0; i < ctl_row_count(); i++) {
        if (can_be_written(&ctl_rows[i]) && ctl_set_refusal_of(&ctl_rows[i]) == NULL) {
            printf("%s\n`%s`", comma, ctl_rows[i].path);
            comma = ",";
        }
    }
    printf(".\n\n| not from outside | because |\n|---|---|\n");
    for (size_t i = 0; i < ctl_row_count(); i++) {
        const char *refusal = ctl_set_refusal_of(&ctl_rows[i]);
        if (can_be_written(&ctl_rows[i]) && refusal != NULL) {
            printf("| `%s` | %s |\n", ctl_rows[i].path, reason_of(refusal));
        }
    }
    printf("\n");
}

static const char introduction[] =
    "<!-- From src/control/ctl.def, by test/integration/test_manual_ctl.sh --update. -->\n"
    "\n"
    "# mallctl\n"
    "\n"
    "```c\n"
    "uint64_t epoch = 1;\n"
    "size_t allocated, length = sizeof(allocated);\n"
    "mallctl(\"epoch\", NULL, NULL, &epoch, sizeof(epoch));\n"
    "mallctl(\"stats.allocated\", &allocated, &length, NULL, 0);\n"
    "```\n"
    "\n"
    "`mallctl` reads and writes by name, `mallctlbymib` by numbers that `mallctlnametomib` makes "
    "of\n"
    "a name; names, types and codes are those of jemalloc 5.3.1. Access: `r-` read, `rw` both, "
    "`-w`\n"
    "write, `--` neither: the call does something.\n"
    "\n"
    "- `<i>` and `<j>` are decimal numbers; of a component only the leading digits count. In a "
    "mib\n"
    "  they stand as they are and may be overwritten. For `arena` and `arenas`, 4096 means all\n"
    "  arenas together, and so does the number of arenas; 4097 means those that were destroyed.\n"
    "- A name may stop early in `mallctlnametomib`, never in a read or write. A capacity smaller\n"
    "  than the name is no error, and what is beyond is not looked at.\n"
    "- The old value is given first, then the new one is taken; `epoch` alone gives the new one.\n"
    "- `stats.*`, `arena.<i>.initialized` and `arenas.narenas` come from a copy that is made at "
    "the\n"
    "  first call, when `epoch` is written and when statistics are printed. Making it stops "
    "nobody.\n"
    "- Figures of one arena: free pages belong to the page heap that all automatic arenas share "
    "and\n"
    "  are told under arena 0.\n"
    "\n"
    "| code | when |\n"
    "|---|---|\n"
    "| ENOENT | no such name, or one that stops early or goes on; an index out of its range; what "
    "is"
    " not there now: a source of options that was absent, profiling that was never armed |\n"
    "| EPERM | writing what is only read, reading what is only written, any pointer where there is"
    " nothing to read or write |\n"
    "| EINVAL | a wrong length; a value or a place for it is missing. Of an old value as much as"
    " fits is copied, and `*oldlenp` says how much; where something would be made, nothing is, and"
    " `*oldlenp` is 0 |\n"
    "| EFAULT | what was asked for cannot be done: an arena that is not there, a time below -1 |\n"
    "| EAGAIN | no memory, or the call comes from a signal handler that interrupted the allocator"
    " |\n"
    "\n"
    "A call that fails changes nothing.\n"
    "\n";

int main(void) {
    tally_free(tally_malloc(1)); /* starts the library */
    fputs(introduction, stdout);
    static const char *const root[] = {"version", "epoch", "background_thread",
                                       "max_background_threads", NULL};
    static const char *const thread[] = {"thread", "tcache", NULL};
    static const char *const arena[] = {"arena", "arenas", NULL};
    static const char *const config[] = {"config", NULL};
    static const char *const options[] = {"opt", NULL};
    static const char *const prof[] = {"prof", NULL};
    static const char *const stats[] = {"stats", "approximate_stats", NULL};
    static const char *const experimental[] = {"experimental", NULL};
    print_section("The process", root);
    print_section("Threads and caches", thread);
    print_section("Arenas", arena);
    print_section("Statistics", stats);
    print_names("<lock>");
    print_names("<arena_lock>");
    printf("\n");
    print_section("Profiling", prof);
    print_section("Without a promise", experimental);
    print_section("How the library was built", config);
    print_section("Options", options);
    print_outside();
    print_count();
    return fflush(stdout) != 0;
}
