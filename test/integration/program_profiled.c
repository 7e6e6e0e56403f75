/* SPDX-License-Identifier: MIT
 *
 * program_profiled.c - a program for test_profile_control.sh.  What it does is its arguments, one after
 * the other; it holds 1 MiB of memory from its start.
 *
 *      grow N      allocates N MiB more, 1 KiB at a time
 *      drop        frees all of that
 *      raise N     sends itself signal N
 *      idle N      sleeps until N files are in the directory it was started in, for 20 seconds at most
 *      fork        goes on in a child
 *      ctl N V     writes true or false to a switch of mallctl, or calls one without value ("-")
 *      start P     HeapProfilerStart
 *      dump P      HeapProfilerDump
 *      stop        HeapProfilerStop
 *      text        prints the first line of GetHeapProfile
 *      profile P   tally_profile_start(1), tally_profile_dump
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <gperftools/heap-profiler.h>
#include <jemalloc/jemalloc.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tally/tally.h>
#include <unistd.h>

enum { MIB = 1 << 20, KIB = 1 << 10, PATIENCE_MS = 300000 };

static char **held; /* a list through the first word of each */

static void grow(long mib) {
    for (long i = 0; i < mib * KIB; i++) {
        char **block = malloc(KIB);
        if (block == NULL) {
            exit(3);
        }
        *block = (char *)held;
        held = block;
    }
}

static void drop(void) {
    while (held != NULL) {
        char **next = (char **)*held;
        free(held);
        held = next;
    }
}

static int count_files(void) {
    DIR *folder = opendir(".");
    int files = 0;
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        files += entry->d_name[0] != '.';
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return files;
}

/* The looks themselves allocate, so a program without a thread of tally's would not be idle: they come
 * from a child. */
static bool files_are(int wanted) {
    int status = 0;
    pid_t child = vfork();
    if (child == 0) {
        execl("/proc/self/exe", "program_profiled", "count", NULL);
        _exit(99);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) >= wanted;
}

static void idle(int wanted) {
    for (int ms = 0; !files_are(wanted); ms += 20) {
        if (ms >= PATIENCE_MS) {
            fprintf(stderr, "there are not %d files after %d ms\n", wanted, ms);
            exit(4);
        }
        usleep(20000);
    }
}

static void write_ctl(const char *name, const char *value) {
    bool on = strcmp(value, "true") == 0;
    int error = value[0] == '-' ? mallctl(name, NULL, NULL, NULL, 0)
                                : mallctl(name, NULL, NULL, &on, sizeof on);
    if (error != 0) {
        printf("%s: %d\n", name, error);
    }
}

static void print_text(void) {
    char *text = GetHeapProfile();
    printf("%.*s\n", (int)strcspn(text, "\n"), text);
    free(text);
}

static void go_on_in_child(void) {
    pid_t child = fork();
    if (child != 0) {
        int status = 0;
        waitpid(child, &status, 0);
        exit(WEXITSTATUS(status));
    }
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "count") == 0) {
        _exit(count_files());
    }
    char *volatile first = malloc(MIB);
    memset(first, 1, MIB);
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(word, "grow") == 0) {
            grow(atol(next)), i++;
        } else if (strcmp(word, "drop") == 0) {
            drop();
        } else if (strcmp(word, "raise") == 0) {
            raise(atoi(next)), i++;
        } else if (strcmp(word, "idle") == 0) {
            idle(atoi(next)), i++;
        } else if (strcmp(word, "fork") == 0) {
            go_on_in_child();
        } else if (strcmp(word, "ctl") == 0) {
            write_ctl(next, argv[i + 2]), i += 2;
        } else if (strcmp(word, "start") == 0) {
            HeapProfilerStart(next), i++;
        } else if (strcmp(word, "dump") == 0) {
            HeapProfilerDump(next), i++;
        } else if (strcmp(word, "stop") == 0) {
            HeapProfilerStop();
        } else if (strcmp(word, "text") == 0) {
            print_text();
        } else if (strcmp(word, "profile") == 0) {
            int error = tally_profile_start(1);
            grow(1);
            printf("%d %d\n", error, tally_profile_dump(next)), i++;
        } else {
            return 2;
        }
    }
    return 0;
}
