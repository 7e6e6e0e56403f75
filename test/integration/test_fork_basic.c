/* SPDX-License-Identifier: MIT
 *
 * test_fork_basic.c - new processes: fork, vfork, posix_spawn, popen and system, from one thread
 * and beside others.
 *
 * The child of a fork must find a heap that works: it frees what the parent allocated,
 * allocates, starts threads, forks again. The parent's blocks must not change. vfork shares
 * memory with the parent, so nothing there may be mistaken for a fork.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

TEST_SETUP(require_tally);

enum { COUNT = 3000 };

static struct {
    unsigned char *p;
    size_t size;
} blocks[COUNT];

static size_t nth_size(size_t i) {
    static const size_t kinds[] = {8, 24, 100, 300, 1000, 1024, 3000, 9000, 33000, 200000};
    return kinds[i % 10] + i % 7;
}

static void allocate_all(unsigned char tag) {
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i].size = nth_size(i);
        blocks[i].p = malloc(blocks[i].size);
        check(blocks[i].p != NULL);
        blocks[i].p[0] = tag;
        blocks[i].p[blocks[i].size - 1] = (unsigned char)i;
    }
}

static void check_all(unsigned char tag) {
    for (size_t i = 0; i < COUNT; i++) {
        check_eq(blocks[i].p[0], tag);
        check_eq(blocks[i].p[blocks[i].size - 1], i & 255);
    }
}

static void free_all(void) {
    for (size_t i = 0; i < COUNT; i++) {
        free(blocks[i].p);
    }
}

static void *churn_once(void *unused) {
    for (size_t i = 0; i < 5000; i++) {
        unsigned char *p = malloc(nth_size(i));
        p[0] = 1;
        free(p);
    }
    return unused;
}

TEST(a_child_frees_what_its_parent_allocated) {
    allocate_all(1);
    check_child({
        check_all(1);
        free_all();
        allocate_all(2);
        check_all(2);
        free_all();
    });
    check_all(1);
    free_all();
}

TEST(a_child_leaves_through_exit) {
    allocate_all(1);
    pid_t pid = fork();
    if (pid == 0) {
        free_all();
        exit(5);
    }
    int status = 0;
    check_eq(waitpid(pid, &status, 0), pid);
    check(WIFEXITED(status));
    check_eq(WEXITSTATUS(status), 5);
    check_all(1);
    free_all();
}

static void be_a_great_grandchild(void) {
    churn_once(NULL);
    allocate_all(3);
    check_all(3);
}

static void be_a_grandchild(void) {
    check_all(1);
    free_all();
    check_child(be_a_great_grandchild());
}

static void be_a_child(void) {
    churn_once(NULL);
    check_child(be_a_grandchild());
    check_all(1);
    free_all();
}

TEST(children_of_children_work_too) {
    allocate_all(1);
    check_child(be_a_child());
    check_all(1);
    free_all();
}

TEST(a_child_may_start_threads) {
    allocate_all(1);
    check_child({
        pthread_t threads[4];
        for (size_t i = 0; i < 4; i++) {
            check_eq(pthread_create(&threads[i], NULL, churn_once, NULL), 0);
        }
        free_all();
        for (size_t i = 0; i < 4; i++) {
            check_eq(pthread_join(threads[i], NULL), 0);
        }
    });
    check_all(1);
    free_all();
}

static atomic_bool stop;

static void *churn_until_stopped(void *unused) {
    while (!atomic_load(&stop)) {
        churn_once(NULL);
    }
    return unused;
}

TEST(two_hundred_children_beside_busy_threads_all_end) {
    pthread_t threads[3];
    allocate_all(1);
    for (size_t i = 0; i < 3; i++) {
        check_eq(pthread_create(&threads[i], NULL, churn_until_stopped, NULL), 0);
    }
    for (int i = 0; i < 200; i++) {
        check_child({
            churn_once(NULL);
            free_all();
            malloc_trim(0);
        });
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < 3; i++) {
        check_eq(pthread_join(threads[i], NULL), 0);
    }
    check_all(1);
    free_all();
}

static void *handler_block;

static void prepare_handler(void) {
    handler_block = malloc(5000);
    churn_once(NULL);
}

static void after_handler(void) {
    free(handler_block);
    churn_once(NULL);
}

TEST(handlers_of_fork_may_allocate) {
    check_eq(pthread_atfork(prepare_handler, after_handler, after_handler), 0);
    allocate_all(1);
    for (int i = 0; i < 20; i++) {
        check_child(free_all());
    }
    check_all(1);
    free_all();
}

extern char **environ;

static int spawn_status(char *const *arguments) {
    pid_t pid;
    int status = -1;
    check_eq(posix_spawn(&pid, arguments[0], NULL, NULL, arguments, environ), 0);
    check_eq(waitpid(pid, &status, 0), pid);
    return status;
}

TEST(posix_spawn_starts_programs) {
    char *const arguments[] = {(char *)(uintptr_t) "/bin/sh", (char *)(uintptr_t) "-c",
                               (char *)(uintptr_t) "exit 7", NULL};
    allocate_all(1);
    for (int i = 0; i < 20; i++) {
        int status = spawn_status(arguments);
        check(WIFEXITED(status));
        check_eq(WEXITSTATUS(status), 7);
    }
    check_all(1);
    free_all();
}

TEST(vfork_and_exec_leave_the_parent_alone) {
    allocate_all(1);
    for (int i = 0; i < 20; i++) {
        pid_t pid = vfork();
        if (pid == 0) {
            execl("/bin/sh", "sh", "-c", "exit 9", (char *)NULL);
            _exit(127);
        }
        int status = -1;
        check_eq(waitpid(pid, &status, 0), pid);
        check_eq(WEXITSTATUS(status), 9);
        churn_once(NULL);
    }
    check_all(1);
    free_all();
}

TEST(popen_and_system_work) {
    char line[64] = "";
    allocate_all(1);
    for (int i = 0; i < 20; i++) {
        FILE *pipe = popen("echo one; echo two", "r");
        check(pipe != NULL);
        check(fgets(line, sizeof line, pipe) != NULL);
        check_str(line, "one\n");
        check(fgets(line, sizeof line, pipe) != NULL);
        check_str(line, "two\n");
        check_eq(pclose(pipe), 0);
    }
    int status = system("exit 3");
    check(WIFEXITED(status));
    check_eq(WEXITSTATUS(status), 3);
    check_all(1);
    free_all();
}

TEST(a_child_made_without_handlers_can_allocate) {
    allocate_all(1);
    pid_t pid = _Fork();
    check(pid >= 0);
    if (pid == 0) {
        check_all(1);
        free_all();
        churn_once(NULL);
        _exit(0);
    }
    int status = -1;
    check_eq(waitpid(pid, &status, 0), pid);
    check(WIFEXITED(status));
    check_eq(WEXITSTATUS(status), 0);
    check_all(1);
    free_all();
}
