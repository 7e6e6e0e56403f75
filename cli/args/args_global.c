/* SPDX-License-Identifier: MIT
 *
 * args_global.c - the options that every command takes, and what they change.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "args/args.h"
#include "common/cli.h"
#include "common/glyph.h"

enum color { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER };

unsigned args_wants_version;

static struct {
    unsigned quiet, verbose, color;
    bool no_pager, is_ascii;
    uint64_t memory_limit;
    const char *config;
} options;

const struct arg_option args_global_options[] = {
    {"quiet", 'q', ARG_COUNT, NULL, NULL, false, &options.quiet,
     "Print only warnings and results; twice: only results"},
    {"verbose", 'v', ARG_COUNT, NULL, NULL, false, &options.verbose,
     "Say more, such as where the names of each file came from"},
    {"color", 0, ARG_CHOICE, "WHEN", "auto|always|never", false, &options.color,
     "Use colours: on a terminal unless NO_COLOR is set, always, or never"},
    {"ascii", 0, ARG_SWITCH, NULL, NULL, false, &options.is_ascii,
     "Draw with plain characters; the default if the locale has no others"},
    {"no-pager", 0, ARG_SWITCH, NULL, NULL, false, &options.no_pager,
     "long output is not shown in a pager"},
    {"config", 0, ARG_TEXT, "FILE", NULL, false, &options.config,
     "Read options from this file before those of the command line; must precede the command's "
     "name"},
    {"memory-limit", 0, ARG_SIZE, "SIZE", NULL, false, &options.memory_limit,
     "Most memory for reading files and naming addresses; 4G unless given"},
    {"salvage", 0, ARG_SWITCH, NULL, NULL, false, &cli_salvage,
     "Continue reading a recording after a damaged part"},
    {"help", 'h', ARG_COUNT, NULL, NULL, false, &args_wants_help, "Explain the command"},
    {"version", 'V', ARG_COUNT, NULL, NULL, false, &args_wants_version, "Print the version"},
    {0},
};

const struct command args_tally = {
    .name = "",
    .summary = "where memory goes",
    .usage = "[GLOBAL OPTION...] COMMAND [OPTION...] [ARG...]",
    .text = "Runs programs under the allocator libtally, looks into and steers running ones, and "
            "reports where their memory goes.\n"
            "\n"
            "    tally run ./server --port 8080\n"
            "    tally stats server\n"
            "    tally report --top server.4711.tally\n"
            "\n"
            "Long options may be shortened while they stay unique, and -- ends options. Options in "
            "TALLY_OPTS are read before those of the command line.\n",
    .stops_at_word = true,
    .words = {0, SIZE_MAX},
};

bool args_has_color(int fd) {
    const char *no_color = getenv("NO_COLOR"), *terminal = getenv("TERM");
    if (options.color != COLOR_AUTO) {
        return options.color == COLOR_ALWAYS;
    }
    return isatty(fd) && (no_color == NULL || no_color[0] == '\0') &&
           (terminal == NULL || strcmp(terminal, "dumb") != 0);
}

/* Lines that begin with # are comments. */
static void blank_comments(char *text) {
    for (char *line = text; line != NULL && *line != '\0';) {
        char *end = strchr(line, '\n');
        if (line[strspn(line, " \t")] == '#') {
            memset(line, ' ', end != NULL ? (size_t)(end - line) : strlen(line));
        }
        line = end != NULL ? end + 1 : NULL;
    }
}

bool args_parse_config(const struct command *command) {
    enum { MOST = 1 << 16 };
    if (options.config == NULL) {
        return true;
    }
    char *text = must_alloc(MOST + 1);
    FILE *file = fopen(options.config, "re");
    size_t length = file != NULL ? fread(text, 1, MOST + 1, file) : 0;
    bool is_read = file != NULL && !ferror(file) && length <= MOST;
    if (!is_read) {
        complain(EXIT_USAGE, "option --config: %s: %s", safe_text(options.config),
                 length > MOST ? "it is too long" : strerror(errno));
    }
    if (file != NULL) {
        fclose(file);
    }
    text[is_read ? length : 0] = '\0';
    blank_comments(text);
    const char *path = options.config;
    options.config = NULL; /* a --config from here on would be too late */
    bool is_good = is_read && args_parse_variable(command, path, text);
    free(text);
    return is_good;
}

bool args_has_late_config(void) {
    return options.config != NULL;
}

/* The program under `tally run` must not inherit a limit of ours. */
void args_settle(const struct command *command) {
    cli_loudness = 2 - (int)options.quiet + (int)options.verbose;
    cli_loudness = cli_loudness < 0 ? 0 : cli_loudness > 3 ? 3 : cli_loudness;
    cli_has_color = args_has_color(STDOUT_FILENO);
    glyph_is_ascii = options.is_ascii || glyph_locale_is_plain();
    cli_has_pager = !options.no_pager && isatty(STDOUT_FILENO);
    if (options.memory_limit > 0) {
        cli_memory_limit = options.memory_limit;
        struct rlimit limit = {options.memory_limit, options.memory_limit};
        if (strcmp(command->name, "run") != 0 && setrlimit(RLIMIT_AS, &limit) != 0) {
            warn("the memory limit could not be set");
        }
    }
}
