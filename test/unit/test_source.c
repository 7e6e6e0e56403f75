/* SPDX-License-Identifier: MIT
 *
 * test_source.c - which files a profile can have read, and which it cannot.
 */
#include "view/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

static char folder[64];

static const char *inside(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put_file(const char *name) {
    FILE *file = fopen(inside(name), "w");
    check(file != NULL && fputs("first\nsecond\n", file) >= 0 && fclose(file) == 0);
}

/* A tree with a folder to be in, and things beside it. */
static void make_files_in(const char *name) {
    static const char *const folders[] = {"tree", "tree/.git", "tree/sub", "tree/.ssh", "other"};
    static const char *const files[] = {"tree/a.c",     "tree/sub/b.rs", "tree/notes",
                                        "tree/key.pem", "tree/.env.c",   "tree/.ssh/key.c",
                                        "other/x.c"};
    strcpy(folder, name);
    check(mkdtemp(folder) != NULL);
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        check_eq(mkdir(inside(folders[i]), 0700), 0);
    }
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        put_file(files[i]);
    }
    check_eq(symlink("../other/x.c", inside("tree/link.c")), 0);
    check_eq(chdir(inside("tree/sub")), 0);
}

static void make_files(void) {
    make_files_in("/tmp/tally-source-XXXXXX");
}

static void remove_files(void) {
    char command[128];
    check_eq(chdir("/"), 0);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    check_eq(system(command), 0);
}

/* 'y': it was read, 'n': it is none, 'r': it was refused. */
static char try_to_read(const char *path) {
    struct source source = source_read(&(struct arg_list){0}, path);
    char result = source.text != NULL ? 'y' : source.is_refused ? 'r' : 'n';
    check_eq(source.count, result == 'y' ? 2 : 0);
    check(result != 'y' || strcmp(source.lines[1], "second") == 0);
    source_free(&source);
    return result;
}

TEST(sources_of_the_tree_are_read_and_nothing_else) {
    make_files();
    check_eq(try_to_read(inside("tree/a.c")), 'y');
    check_eq(try_to_read("b.rs"), 'y');
    check_eq(try_to_read("../a.c"), 'y');
    check_eq(try_to_read(inside("tree/gone.c")), 'n');
    check_eq(try_to_read(""), 'n');
    check_eq(try_to_read(inside("tree/notes")), 'r');
    check_eq(try_to_read(inside("tree/key.pem")), 'r');
    check_eq(try_to_read(inside("tree/.env.c")), 'r');
    check_eq(try_to_read(inside("tree/.ssh/key.c")), 'r');
    check_eq(try_to_read(inside("other/x.c")), 'r');
    check_eq(try_to_read(inside("tree/../other/x.c")), 'r');
    check_eq(try_to_read(inside("tree/link.c")), 'r');
    check_eq(try_to_read("/etc/passwd"), 'r');
    remove_files();
}

TEST(what_a_person_names_is_read) {
    make_files();
    char path[256];
    snprintf(path, sizeof path, "%s", inside("other"));
    const char *folders[] = {path};
    struct source source = source_read(&(struct arg_list){folders, 1}, "/build/x.c");
    check_eq(source.count, 2);
    source_free(&source);
    remove_files();
}

TEST(without_version_control_the_tree_is_the_current_folder) {
    make_files();
    check_eq(rmdir(inside("tree/.git")), 0);
    check_eq(try_to_read("b.rs"), 'y');
    check_eq(try_to_read("../a.c"), 'r');
    remove_files();
}

TEST(the_tree_may_lie_below_the_root) {
    if (geteuid() != 0) {
        skip("only root can make a folder there");
    }
    make_files_in("/tally-source-XXXXXX");
    check_eq(rmdir(inside("tree/.git")), 0);
    check_eq(mkdir(inside(".git"), 0700), 0);
    check_eq(try_to_read("../a.c"), 'y');
    check_eq(try_to_read(inside("other/x.c")), 'y');
    check_eq(try_to_read("/etc/passwd"), 'r');
    remove_files();
}
