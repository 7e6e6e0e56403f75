/* SPDX-License-Identifier: MIT
 *
 * read_worker.c - profiles of strangers, read by a process that may die while it does.
 *
 *      command                                     worker (confine.c)
 *      opens the file  ---- fork --------------->  reads, unpacks and parses it
 *      builds the run  <--- result: an image ----
 *      wants a moment  ---- request: which ----->  makes its profile
 *      builds it       <--- result: an image ----  ... until the requests end
 *
 * Read next   read_image.c, the image.
 */
#define _GNU_SOURCE /* pipe2 */
#include "read/read_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/cli.h"
#include "common/confine.h"
#include "read/read_image.h"
#include "read/read_text.h"

enum { RESULT = CONFINE_RESULT, INPUT, REQUEST, INPUTS = 2 }; /* descriptors of the worker */
enum { REFUSED, READ };                                       /* what an answer begins with */

struct request {
    uint32_t is_cpu; /* one of run->cpu */
    uint32_t moment;
};

struct read_worker {
    pid_t pid;
    int request;
    struct image_pipe result;
};

/* ---------------------------------------------------------------- the worker */

static void put_refusal(struct image_pipe *result, const char *why) {
    image_put_number(result, REFUSED);
    image_put_text(result, why);
}

static struct read_run *parse(const char *format, char why[READ_WHY_BYTES]) {
    size_t length;
    struct read_run *run = NULL;
    uint8_t *bytes = read_descriptor(INPUT, &length, why);
    if (bytes != NULL) {
        run = read_run_as(format, bytes, length, why);
        free(bytes);
    }
    if (run != NULL) {
        run->file_bytes = length;
    }
    return run;
}

/* One moment, whose profile is not kept: thousands may be asked for. */
static void answer(struct image_pipe *result, struct read_run *run, struct request request) {
    char why[READ_WHY_BYTES] = "it has no such snapshot";
    struct read_moment *moments = request.is_cpu ? run->cpu : run->moments;
    struct profile *profile = NULL;
    if (request.moment < (request.is_cpu ? run->cpu_count : run->moment_count)) {
        profile = request.is_cpu ? read_cpu_moment(run, request.moment, why)
                                 : read_moment(run, request.moment, why);
    }
    if (profile == NULL) {
        put_refusal(result, why);
        return;
    }
    image_put_number(result, READ);
    image_put_profile(result, profile);
    if (moments[request.moment].payload != NULL) {
        profile_free(profile);
        moments[request.moment].profile = NULL;
    }
}

/* Only lack of memory calls exit(3) here; the command's exit handlers must not run. */
static void leave_at_once(void) {
    _exit(EXIT_OWN_FAILURE);
}

__attribute__((noreturn)) static void work(const char *format) {
    static struct image_pipe result = {.fd = RESULT};
    char why[READ_WHY_BYTES] = "";
    struct request request;
    atexit(leave_at_once);
    confine_finish(INPUTS);
    struct read_run *run = parse(format, why);
    if (run != NULL) {
        image_put_number(&result, READ);
        image_put_run(&result, run);
    } else {
        put_refusal(&result, why);
    }
    image_flush(&result);
    while (run != NULL && read(REQUEST, &request, sizeof request) == (ssize_t)sizeof request) {
        answer(&result, run, request);
        image_flush(&result);
    }
    _exit(EXIT_DONE);
}

/* ---------------------------------------------------------------- its parent */

static bool start(struct read_worker *worker, int input, const char *format) {
    int result[2], request[2];
    if (pipe2(result, O_CLOEXEC) != 0) {
        return false;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, request) != 0) {
        close(result[0]);
        close(result[1]);
        return false;
    }
    fflush(NULL); /* or the child would write it, too */
    worker->pid = fork();
    if (worker->pid == 0) {
        const int kept[] = {result[1], input, request[0]};
        confine_start(kept, 3, cli_memory_limit);
        work(format);
    }
    close(result[1]);
    close(request[0]);
    worker->request = request[1];
    worker->result.fd = result[0];
    return worker->pid > 0;
}

/* How the worker ended; it is killed if it does not end within a second. */
static int wait_for(struct read_worker *worker) {
    const struct timespec pause = {.tv_nsec = 5 * 1000 * 1000};
    int status = 0;
    for (int tries = 0; tries < 200; tries++) {
        pid_t pid = waitpid(worker->pid, &status, WNOHANG);
        if (pid != 0 && !(pid < 0 && errno == EINTR)) {
            return pid > 0 ? status : 0;
        }
        nanosleep(&pause, NULL);
    }
    kill(worker->pid, SIGKILL);
    while (waitpid(worker->pid, &status, 0) < 0 && errno == EINTR) {
    }
    return 0;
}

/* The sentence for a worker that has not answered; ends the worker. */
static void explain(struct read_worker *worker, char why[READ_WHY_BYTES]) {
    int status = wait_for(worker);
    worker->pid = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_OWN_FAILURE) {
        read_damage(why, "reading it takes more than %s of memory; see --memory-limit",
                    size_text((int64_t)cli_memory_limit));
    } else if (WIFSIGNALED(status) &&
               (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL)) {
        read_damage(why, "reading it took too long or too much memory, and was stopped");
    } else if (WIFSIGNALED(status)) {
        read_damage(why, "its reader died by signal %d, which is a mistake of tally",
                    WTERMSIG(status));
    } else {
        read_damage(why, "what its reader found makes no sense");
    }
}

/* Does an image follow?  If not, there is a sentence. */
static bool has_read(struct read_worker *worker, char why[READ_WHY_BYTES]) {
    struct image_pipe *result = &worker->result;
    result->left = cli_memory_limit;
    uint64_t kind = image_take_number(result);
    if (result->has_failed || kind == READ) {
        return !result->has_failed;
    }
    char *sentence = image_take_text(result);
    read_damage(why, "%s", sentence);
    free(sentence);
    return false;
}

struct profile *read_worker_moment(struct read_worker *worker, bool is_cpu, uint32_t moment,
                                   char why[READ_WHY_BYTES]) {
    const struct request request = {is_cpu, moment};
    struct profile *profile = NULL;
    if (worker->pid == 0) {
        read_damage(why, "its reader has died");
        return NULL;
    }
    /* Where this fails there is no answer, either. */
    send(worker->request, &request, sizeof request, MSG_NOSIGNAL);
    if (has_read(worker, why)) {
        profile = image_take_profile(&worker->result);
    }
    if (worker->result.has_failed) {
        explain(worker, why);
    }
    return profile;
}

void read_worker_end(struct read_worker *worker) {
    close(worker->request);
    close(worker->result.fd);
    if (worker->pid > 0) {
        kill(worker->pid, SIGKILL);
        while (waitpid(worker->pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    free(worker);
}

struct read_run *read_confined(const char *path, const char *format, char why[READ_WHY_BYTES]) {
    int input = read_open(path, why);
    if (input < 0) {
        return NULL;
    }
    struct read_worker *worker = must_zeroed(sizeof *worker);
    struct read_run *run = NULL;
    worker->request = worker->result.fd = -1;
    if (!start(worker, input, format)) {
        read_damage(why, "no process to read it with: %s", strerror(errno));
        worker->pid = 0;
    } else if (has_read(worker, why)) {
        run = image_take_run(&worker->result);
    }
    if (worker->result.has_failed) {
        explain(worker, why);
    }
    if (input != STDIN_FILENO) {
        close(input);
    }
    if (run == NULL) {
        read_worker_end(worker);
    } else {
        run->worker = worker;
    }
    return run;
}
