/* SPDX-License-Identifier: MIT
 *
 * program_leaks.c - loses memory in ways that are known exactly; the argument says which.
 *
 *      three       1000 bytes from each of three functions; a global object is freed by a destructor
 *      none        the same, but nothing is lost
 *      chain       an object that leads to two others
 *      fork        a child loses what three loses, and exits with 5; its parent loses nothing
 *      lsan        asks for a check itself, by LeakSanitizer's names, before and behind a loss
 *      many N      N places of different size
 *      output      prints something without a newline, and loses
 *      daemon      leaves a child behind that has closed what it was started with, and prints its number
 *      redirect F  has the file as standard error, and loses
 *      mark        loses before and behind a mark, without the option for it
 *      busy        threads allocate while it is checked; then it loses
 *
 * Lost pointers are overwritten: the search would find them in a dead part of a frame otherwise.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tally/tally.h>
#include <unistd.h>

int __lsan_do_recoverable_leak_check(void) __attribute__((weak));
void __lsan_do_leak_check(void) __attribute__((weak));
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));
void __lsan_ignore_object(const void *) __attribute__((weak));
#pragma weak tally_profile_start
#pragma weak tally_leak_mark
#pragma weak tally_leak_check
const char *__lsan_default_suppressions(void);
int give(void *object);
void lose_first(size_t bytes);
void lose_second(size_t bytes);
void lose_third(size_t bytes);
void lose_chain(void);

static void *global;
static volatile int global_depth;

__attribute__((destructor)) static void free_global(void) {
    free(global);
}

/* The object leaves no trace here. */
__attribute__((noinline)) int give(void *object) {
    __asm__ volatile("" : : "r"(object) : "memory");
    return object != NULL;
}

__attribute__((noinline)) void lose_first(size_t bytes) {
    give(malloc(bytes));
    __asm__ volatile("");
}

__attribute__((noinline)) void lose_second(size_t bytes) {
    give(calloc(1, bytes));
    __asm__ volatile("");
}

__attribute__((noinline)) void lose_third(size_t bytes) {
    give(realloc(malloc(10), bytes));
    __asm__ volatile("");
}

__attribute__((noinline)) void lose_chain(void) {
    void **first = malloc(100);
    first[0] = malloc(200);
    ((void **)first[0])[0] = malloc(300);
    give(first);
    __asm__ volatile("");
}

/* Frames of what ran before are written over. */
__attribute__((noinline)) static void wipe(void) {
    volatile char room[8192];
    for (size_t i = 0; i < sizeof room; i++) {
        room[i] = 0x11;
    }
}

/* A stack for each. */
__attribute__((noinline)) static int lose_in_depth(int left) {
    if (left == 0) {
        return 0;
    }
    lose_first((size_t)left * 1000);
    int depth = lose_in_depth(left - 1);
    __asm__ volatile(""); /* so that no loop is made of it */
    return 1 + depth;
}

static void lose_three(void) {
    lose_first(1000);
    lose_second(1000);
    lose_third(1000);
    wipe();
}

static int ask_lsan(void) {
    if (__lsan_do_recoverable_leak_check() != 0) {
        return 3;
    }
    __lsan_disable();
    lose_first(1000);
    __lsan_enable();
    wipe();
    if (__lsan_do_recoverable_leak_check() != 0) {
        return 4;
    }
    lose_first(1000);
    wipe();
    if (__lsan_do_recoverable_leak_check() != 1) {
        return 5;
    }
    __lsan_do_leak_check();
    return 6;
}

/* Rules of the program itself. */
const char *__lsan_default_suppressions(void) {
    return getenv("LEAKY_RULES");
}

/* So many times that some births would fall into the same tick of a coarse clock. */
static int lose_behind_a_mark(void) {
    struct tally_leaks leaks;
    if (tally_profile_start(1) != 0) {
        return 8;
    }
    lose_second(1000);
    for (unsigned i = 1; i <= 50; i++) {
        unsigned long long mark = tally_leak_mark();
        lose_first(1000);
        wipe();
        if (tally_leak_check(&leaks, mark, NULL) != 0 || leaks.definite_objects != 1) {
            return 9;
        }
    }
    return 0;
}

static volatile int is_over;

static void *allocate_and_free(void *unused) {
    void *held[64] = {NULL};
    for (unsigned i = 0; !is_over; i++) {
        free(held[i % 64]);
        held[i % 64] = malloc(16 + i * 7919 % 5000);
    }
    for (unsigned i = 0; i < 64; i++) {
        free(held[i]);
    }
    return unused;
}

static int check_while_busy(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        pthread_create(&threads[i], NULL, allocate_and_free, NULL);
    }
    int found = 0;
    for (int i = 0; i < 10; i++) {
        found |= __lsan_do_recoverable_leak_check();
    }
    is_over = 1;
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    lose_three();
    return found != 0 ? 10 : 0;
}

static int fork_and_lose(void) {
    int status = 0;
    if (fork() == 0) {
        lose_three();
        exit(5);
    }
    wait(&status);
    return WEXITSTATUS(status) == 5 ? 0 : 7;
}

static int leave_daemon(void) {
    pid_t child = fork();
    if (child == 0) {
        free(malloc(100000));
        close(0);
        close(1);
        close(2);
        sleep(20);
        _exit(0);
    }
    printf("%d\n", (int)child);
    return 0;
}

int main(int count, char **words) {
    const char *how = count > 1 ? words[1] : "";
    global = malloc(500);
    if (strcmp(how, "three") == 0) {
        lose_three();
    } else if (strcmp(how, "chain") == 0) {
        lose_chain();
        wipe();
    } else if (strcmp(how, "fork") == 0) {
        return fork_and_lose();
    } else if (strcmp(how, "lsan") == 0) {
        return ask_lsan();
    } else if (strcmp(how, "many") == 0) {
        global_depth = lose_in_depth(atoi(words[2]));
        wipe();
    } else if (strcmp(how, "mark") == 0) {
        return lose_behind_a_mark();
    } else if (strcmp(how, "daemon") == 0) {
        return leave_daemon();
    } else if (strcmp(how, "busy") == 0) {
        return check_while_busy();
    } else if (strcmp(how, "redirect") == 0) {
        if (freopen(words[2], "w", stderr) == NULL) {
            return 11;
        }
        lose_three();
    } else if (strcmp(how, "output") == 0) {
        printf("something");
        lose_three();
    }
    return 0;
}
