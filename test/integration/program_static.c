/* SPDX-License-Identifier: MIT
 *
 * program_static.c - a program for static linking against libtally.a; test_static.sh and
 * test_conf.sh compile it.
 *
 * Without arguments it uses the heap from several threads, through stdio and across fork, and
 * prints "works". With the argument "twice" it frees a block twice, and the message tells whose
 * free that was. With "secure" it prints whether the kernel started it with AT_SECURE.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

static void *churn(void *unused) {
    char *live[100] = {NULL};
    for (size_t i = 0; i < 100000; i++) {
        char **slot = &live[i * 31 % 100];
        size_t size = i * 17 % 2000 + 1;
        free(*slot);
        *slot = malloc(size);
        if (*slot == NULL || malloc_usable_size(*slot) < size) {
            abort();
        }
        memset(*slot, 1, size);
    }
    for (size_t i = 0; i < 100; i++) {
        free(live[i]);
    }
    return unused;
}

static void free_twice(void) {
    char *volatile p = malloc(100);
    free(p);
    free(p);
}

static int use_heap(void) {
    pthread_t threads[3];
    for (size_t i = 0; i < 3; i++) {
        pthread_create(&threads[i], NULL, churn, NULL);
    }
    for (size_t i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        churn(NULL);
        _exit(0);
    }
    if (waitpid(pid, &status, 0) != pid || status != 0) {
        puts("the child failed");
        return 1;
    }
    printf("works, usable size of 1 byte: %zu\n", malloc_usable_size(malloc(1)));
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "twice") == 0) {
        free_twice();
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "secure") == 0) {
        free(malloc(100));
        printf("secure %lu\n", getauxval(AT_SECURE));
        return 0;
    }
    return use_heap();
}
