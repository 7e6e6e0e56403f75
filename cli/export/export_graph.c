/* SPDX-License-Identifier: MIT
 *
 * export_graph.c - the call graph as a picture, drawn by graphviz' dot where it is installed.
 *
 * dot is looked for where systems put it, never along PATH; it gets an environment of our own, the graph
 * in a file without a name as its input, and our output as its output.
 */
#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "export/export.h"

static const char *const usual_folders[] = {"/usr/bin", "/usr/local/bin", "/bin", NULL};

char *export_find_dot(const char *const *folders) {
    for (folders = folders != NULL ? folders : usual_folders; *folders != NULL; folders++) {
        size_t bytes = strlen(*folders) + sizeof("/dot");
        char *path = must_alloc(bytes);
        snprintf(path, bytes, "%s/dot", *folders);
        if (access(path, X_OK) == 0) {
            return path;
        }
        free(path);
    }
    return NULL;
}

static bool wait_for(pid_t child, const char *program) {
    int status;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) {
            return decline("cannot wait for %s: %s", program, strerror(errno));
        }
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return decline("%s failed: it ended with %s %d", program,
                       WIFEXITED(status) ? "status" : "signal",
                       WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    }
    return true;
}

bool export_run_dot(const char *program, const char *kind, FILE *text, FILE *picture) {
    char option[16];
    snprintf(option, sizeof(option), "-T%s", kind);
    char name[] = "dot";
    char *words[] = {name, option, NULL};
    char path[] = "PATH=/usr/bin:/bin", locale[] = "LC_ALL=C.UTF-8";
    char *environment[] = {path, locale, NULL};
    if (fflush(text) != 0 || fflush(picture) != 0 || lseek(fileno(text), 0, SEEK_SET) != 0) {
        return decline("cannot hand the graph to %s: %s", program, strerror(errno));
    }
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions) != 0) {
        return false;
    }
    posix_spawn_file_actions_adddup2(&actions, fileno(text), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, fileno(picture), STDOUT_FILENO);
    pid_t child;
    int error = posix_spawn(&child, program, &actions, NULL, words, environment);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
        return decline("cannot run %s: %s", program, strerror(error));
    }
    return wait_for(child, program);
}

static bool draw(const struct profile *profile, struct output *output, const char *kind) {
    char *program = export_find_dot(NULL);
    if (program == NULL) {
        return decline("dot of graphviz is not installed, and it draws the call graph: "
                       "install graphviz, or write the text with `tally export dot`");
    }
    struct output text = {.file = tmpfile()};
    bool is_drawn = false;
    if (text.file == NULL) {
        complain(EXIT_OWN_FAILURE, "no temporary file: %s", strerror(errno));
    } else {
        is_drawn =
            export_dot(profile, &text) && export_run_dot(program, kind, text.file, output->file);
        fclose(text.file);
    }
    free(program);
    return is_drawn;
}

bool export_graph_svg(const struct profile *profile, struct output *output) {
    return draw(profile, output, "svg");
}

bool export_graph_pdf(const struct profile *profile, struct output *output) {
    return draw(profile, output, "pdf");
}

bool export_graph_png(const struct profile *profile, struct output *output) {
    return draw(profile, output, "png");
}
