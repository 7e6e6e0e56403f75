/* SPDX-License-Identifier: MIT
 *
 * program_recorded.c - a program for test_run_file.sh, which records its run.
 *
 *      program_recorded WHAT       does some work, then ends in the way WHAT says
 *
 * Ends that nobody tells the library of come when there is a snapshot in the file, so that it does not
 * matter how fast the machine is.  The work is a thousand objects of 1 KiB that live and a hundred thousand of 100 bytes that are freed
 * at once.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KEPT = 1000, KEPT_BYTES = 1024, BRIEF = 100000, BRIEF_BYTES = 100 };
enum { FRAME_SNAP = 2 }; /* as the format has it */

static void *kept[KEPT];

__attribute__((noinline)) static void keep_some(void) {
    for (int i = 0; i < KEPT; i++) {
        kept[i] = malloc(KEPT_BYTES);
    }
}

__attribute__((noinline)) static void use_briefly(void) {
    for (int i = 0; i < BRIEF; i++) {
        char *volatile object = malloc(BRIEF_BYTES);
        free(object);
    }
}

static void work(void) {
    keep_some();
    use_briefly();
}

static bool has_snapshot(const char *path) {
    static const char mark[] = {'T', 'F', 'R', 'M', FRAME_SNAP, 0, 0, 0};
    static char bytes[1 << 20];
    int file = open(path, O_RDONLY);
    ssize_t length = file < 0 ? 0 : read(file, bytes, sizeof bytes);
    close(file);
    return length > 0 && memmem(bytes, (size_t)length, mark, sizeof mark) != NULL;
}

/* Has a file of a run in this directory, with this part in its name, a snapshot? */
static bool is_recorded(const char *part) {
    bool found = false;
    DIR *directory = opendir(".");
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        found = found || (strstr(entry->d_name, ".tally.part") != NULL &&
                          strstr(entry->d_name, part) != NULL && has_snapshot(entry->d_name));
    }
    closedir(directory);
    return found;
}

static bool has_said_something(const char *unused) {
    struct stat facts;
    (void)unused;
    return fstat(2, &facts) == 0 && facts.st_size > 0;
}

/* Ends the program when nothing comes of it. */
static void wait_until(bool (*is_so)(const char *part), const char *part) {
    for (int i = 0; !is_so(part); i++) {
        if (i == 60000) {
            _exit(8);
        }
        usleep(1000);
    }
}

/* Allocates until it is killed. */
static void *churn(void *unused) {
    (void)unused;
    static __thread void *volatile objects[512];
    for (unsigned i = 0;; i++) {
        free(objects[i * 7 % 512]);
        objects[i * 7 % 512] = malloc(1000 + i % 5000);
    }
    return NULL;
}

/* Computes for half a second of its own time. */
__attribute__((noinline)) static void compute(void) {
    struct timespec start, now;
    double used = 0;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    while (used < 0.5) {
        for (volatile int i = 0; i < 100000; i++) {
        }
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        used = (double)(now.tv_sec - start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) / 1e9;
    }
}

static int fork_and(int how) {
    pid_t child = fork();
    int status = 0;
    if (child == 0) {
        if (how == 'e') {
            execl("/proc/self/exe", "program_recorded", "exit", (char *)NULL);
        }
        work();
        if (how == 'c') {
            char part[24];
            snprintf(part, sizeof part, ".%d.", (int)getpid());
            wait_until(is_recorded, part);
            compute();
        }
        if (how == 'n' || how == 'c') {
            return 0; /* exit(3) by main's end */
        }
        if (how == 'w') {
            char part[24];
            snprintf(part, sizeof part, ".%d.", (int)getpid());
            wait_until(is_recorded, part);
        } else {
            usleep(400000); /* There would be a file by now. */
        }
        _exit(0);
    }
    waitpid(child, &status, 0);
    printf("%d\n", (int)child);
    return WEXITSTATUS(status);
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "exit";
    pthread_t thread;
    work();
    if (strcmp(what, "exit") == 0) {
        return 0;
    } else if (strcmp(what, "compute") == 0) {
        compute();
        return 0;
    } else if (strcmp(what, "fork_compute") == 0) {
        return fork_and('c');
    } else if (strcmp(what, "_exit") == 0) {
        wait_until(is_recorded, "");
        _exit(3);
    } else if (strcmp(what, "complaint") == 0) {
        wait_until(has_said_something, NULL);
        _exit(3);
    } else if (strcmp(what, "abort") == 0) {
        wait_until(is_recorded, "");
        abort();
    } else if (strcmp(what, "exec") == 0) {
        execl("/proc/self/exe", words[0], "exit", (char *)NULL);
    } else if (strcmp(what, "idle") == 0) { /* one thread, no calls */
        puts("idle");
        fflush(stdout);
        pause();
    } else if (strcmp(what, "churn") == 0) {
        pthread_create(&thread, NULL, churn, NULL);
        churn(NULL);
    } else if (strcmp(what, "fork") == 0) {
        return fork_and('n');
    } else if (strcmp(what, "fork_exec") == 0) {
        return fork_and('e');
    } else if (strcmp(what, "fork_wait") == 0) {
        return fork_and('w');
    } else if (strcmp(what, "fork_quiet") == 0) {
        return fork_and('q');
    } else if (strcmp(what, "vfork") == 0) {
        for (int i = 0; i < 100; i++) {
            pid_t child = vfork();
            if (child == 0) {
                free(malloc(100000));
                _exit(0);
            }
            waitpid(child, NULL, 0);
            usleep(2000);
        }
        return 0;
    }
    return 9;
}
