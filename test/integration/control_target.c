/* SPDX-License-Identifier: MIT
 *
 * control_target.c - the process with a control socket, and its client, see control_target.h.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <tally/tally.h>
#include <time.h>
#include <unistd.h>

#include "contract/stats_page.h"
#include "control_target.h"
#include "test.h"

/* ---------------------------------------------------------------- the target */

/* Lies in the stack of every thread, also of those of the library. */
static __thread volatile char thread_local_data[56 << 10];

static void say(const char *line) {
    if (write(1, line, strlen(line)) < 0) {
        _exit(1);
    }
}

static void say_number(long number) {
    char line[32];
    snprintf(line, sizeof line, "%ld\n", number);
    say(line);
}

static void do_fork(void) {
    pid_t pid = fork();
    if (pid == 0) {
        free(malloc(100000));
        for (;;) {
            pause();
        }
    }
    say_number(pid);
}

/* A child that calls exit(3), as it should not, and of whose making no handler was told. */
static void end_child(bool shares_memory) {
    pid_t pid = shares_memory ? vfork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        exit(0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    say_number(status);
}

/* 300 ms of processor time. */
static void compute(void) {
    struct timespec begin, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do {
        for (volatile int i = 0; i < 100000; i++) {
        }
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1000000000 + now.tv_nsec - begin.tv_nsec < 300000000);
}

static int open_file(void) {
    char name[] = "/tmp/tally-control-file-XXXXXX";
    int fd = mkstemp(name);
    unlink(name);
    return fd;
}

/* All threads are refused this system call from now on. */
static void refuse(unsigned call) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    say_number(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program));
}

/* This thread is killed by what would be done at the end. */
static void confine_this_thread(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unlinkat, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_shutdown, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {6, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    say_number(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static void shut_listening(void) {
    for (int fd = 3; fd < 1024; fd++) {
        int listens = 0;
        socklen_t length = sizeof listens;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens) {
            shutdown(fd, SHUT_RDWR);
        }
    }
    say("0\n");
}

/* ---------------------------------------------------------------- its letters */

static void do_allocate(void) {
    static void *kept[1000];
    for (int i = 0; i < 1000; i++) {
        free(kept[i]);
        kept[i] = malloc(1000 + (size_t)i);
    }
    say("done\n");
}

static void do_compute(void) {
    compute();
    say("done\n");
}

static void do_replace_errors(void) {
    close(2);
    say(open_file() == 2 ? "done\n" : "another number\n");
}

static void do_measure_errors(void) {
    say_number(lseek(2, 0, SEEK_END));
}

static void do_refuse_poll(void) {
    refuse(SYS_ppoll);
}

static void do_refuse_accept(void) {
    refuse(SYS_accept4);
}

static void do_hide(void) {
    say_number(prctl(PR_SET_DUMPABLE, 0));
}

static void do_exit_in_clone(void) {
    end_child(false);
}

static void do_exit_in_vfork(void) {
    end_child(true);
}

static void do_close_all(void) {
    for (int fd = 3; fd < 1024; fd++) {
        close(fd);
    }
    say("done\n");
}

static void do_fork_many(void) {
    for (int i = 0; i < 300; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            free(malloc(200000));
            _exit(0);
        }
        waitpid(pid, NULL, 0);
    }
    say("done\n");
}

static void do_control_start(void) {
    say_number(tally_control_start(TALLY_CONTROL_WRITE));
}

static void do_control_stop(void) {
    say_number(tally_control_stop());
}

static void set_limit(int limit, rlim_t now, rlim_t most) {
    setrlimit((__rlimit_resource_t)limit, &(struct rlimit){now, most});
    say("done\n");
}

static void do_forbid_threads(void) { /* there is no memory for their stacks */
    set_limit(RLIMIT_AS, 1 << 20, RLIM_INFINITY);
}

static void do_forbid_descriptors(void) {
    set_limit(RLIMIT_NOFILE, 3, 4096);
}

static void do_allow_descriptors(void) {
    set_limit(RLIMIT_NOFILE, 4096, 4096);
}

static void obey(char letter) {
    static const struct {
        char letter;
        void (*act)(void);
    } orders[] = {
        {'a', do_allocate},
        {'b', do_compute},
        {'c', do_close_all}, /* as daemons do */
        {'d', do_hide},
        {'e', do_exit_in_clone},
        {'f', do_fork},
        {'h', shut_listening},
        {'k', confine_this_thread},
        {'l', do_forbid_descriptors},
        {'m', do_fork_many},
        {'n', do_forbid_threads},
        {'p', do_refuse_poll},
        {'q', do_refuse_accept},
        {'s', do_control_start},
        {'t', do_control_stop},
        {'u', do_allow_descriptors},
        {'v', do_exit_in_vfork},
        {'z', do_measure_errors},
        {'2', do_replace_errors},
    };
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        if (orders[i].letter == letter) {
            orders[i].act();
            return;
        }
    }
    exit(0);
}

__attribute__((constructor)) static void begin(int argc, char **argv) {
    char letter;
    if (argc == 2 && strcmp(argv[1], "--target") == 0) {
        alarm(TEST_SECONDS);
        thread_local_data[0] = 1;
        say("ready\n");
        while (read(0, &letter, 1) == 1) {
            obey(letter);
        }
        exit(0);
    }
}

/* ---------------------------------------------------------------- the target, from outside */

struct target target;

static void confine(void) {
    struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {1, allow};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        _exit(NO_NAMESPACES);
    }
}

/* Another root of names and of processes: the target is number 1 there, and its /mnt is its own. */
static void enter_namespaces(void) {
    if (unshare(CLONE_NEWNS | CLONE_NEWPID) != 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        _exit(NO_NAMESPACES);
    }
    pid_t pid = fork();
    if (pid != 0) {
        int status = 0;
        waitpid(pid, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (mount("none", "/proc", "proc", 0, NULL) != 0 ||
        mount("none", "/mnt", "tmpfs", 0, NULL) != 0) {
        _exit(NO_NAMESPACES);
    }
}

static void read_line(int fd, char line[128]) {
    size_t n = 0;
    while (n < 127 && read(fd, line + n, 1) == 1 && line[n] != '\n') {
        n++;
    }
    line[n] = '\0';
}

const char *order(char letter) {
    static char line[128];
    check_eq(write(target.input, &letter, 1), 1);
    read_line(target.output, line);
    return line;
}

void start_as(enum target_kind kind, const char *conf, const char *weaker) {
    static char tally_conf[256], malloc_conf[256];
    int input[2], output[2], errors[2];
    char line[128];
    check(pipe(input) == 0 && pipe(output) == 0 && pipe(errors) == 0);
    snprintf(tally_conf, sizeof tally_conf, "TALLY_CONF=%s", conf);
    snprintf(malloc_conf, sizeof malloc_conf, "MALLOC_CONF=%s", weaker);
    target.pid = fork();
    if (target.pid == 0) {
        char *environment[] = {tally_conf, malloc_conf, target.root, NULL};
        dup2(input[0], 0);
        dup2(output[1], 1);
        dup2(errors[1], 2);
        for (int fd = 3; fd < 1024; fd++) {
            close(fd);
        }
        if (kind == IN_NAMESPACES) {
            enter_namespaces();
        } else if (kind == CONFINED) {
            confine();
        }
        execle("/proc/self/exe", "test_control", "--target", (char *)NULL, environment);
        _exit(127);
    }
    close(input[0]);
    close(output[1]);
    close(errors[1]);
    target.input = input[1];
    target.output = output[0];
    target.errors = errors[0];
    read_line(target.output, line);
    int status = 0;
    if (line[0] == '\0' && waitpid(target.pid, &status, 0) == target.pid &&
        WEXITSTATUS(status) == NO_NAMESPACES) {
        skip("the kernel lets us have no namespaces, or no filter");
    }
    check_eq(status, 0);
    check_str(line, "ready");
}

void start(const char *conf) {
    char whole[256];
    strcpy(target.folder, "/tmp/tally-control-XXXXXX");
    check(mkdtemp(target.folder) != NULL);
    snprintf(whole, sizeof whole, "%s,control_dir:%s", conf, target.folder);
    start_as(PLAIN, whole, "");
}

const char *errors_of_target(void) {
    static char text[1 << 16];
    size_t n = 0;
    struct pollfd item = {.fd = target.errors, .events = POLLIN};
    while (poll(&item, 1, 0) == 1 && n < sizeof text - 1) {
        ssize_t got = read(target.errors, text + n, sizeof text - 1 - n);
        if (got <= 0) {
            break;
        }
        n += (size_t)got;
    }
    text[n] = '\0';
    return text;
}

int end_target(void) {
    int status = -1;
    close(target.input);
    check_eq(waitpid(target.pid, &status, 0), target.pid);
    char path[128];
    snprintf(path, sizeof path, "rm -rf %s", target.folder);
    check(target.folder[0] == '\0' || system(path) == 0);
    return status;
}

union found found;

unsigned count_descriptors(pid_t pid, const char *beginning, bool reads) {
    char path[64], name[512], link[128];
    unsigned count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return 0;
    }
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        memset(link, 0, sizeof link);
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (readlink(name, link, sizeof link - 1) > 0 &&
            strncmp(link, beginning, strlen(beginning)) == 0) {
            count++;
            if (reads) {
                int file = open(name, O_RDONLY); /* It may be gone, or not have its size yet. */
                (void)!read(file, found.bytes, sizeof found.bytes);
                close(file);
            }
        }
    }
    closedir(directory);
    return count;
}

unsigned look(pid_t pid) {
    memset(&found, 0, sizeof found);
    return count_descriptors(pid, "/memfd:" STATS_PAGE_NAME, true);
}

unsigned count_threads(pid_t pid) {
    char path[64];
    unsigned count = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *directory = opendir(path);
    check(directory != NULL);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    closedir(directory);
    return count;
}

void read_text(const char *path, char *text, size_t bytes) {
    int file = open(path, O_RDONLY);
    check(file >= 0);
    ssize_t n = read(file, text, bytes - 1);
    close(file);
    text[n > 0 ? n : 0] = '\0';
}

void wait_a_little(void) {
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

/* ---------------------------------------------------------------- the client */

int connect_below(const char *root, const char *path) {
    char folder[400], name[128];
    const char *slash = strrchr(path, '/');
    check(slash != NULL);
    snprintf(folder, sizeof folder, "%s%.*s", root, (int)(slash - path), path);
    int directory = open(folder, O_PATH | O_DIRECTORY);
    if (directory < 0) {
        return -1;
    }
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(name, sizeof name, "/proc/self/fd/%d/%.60s", directory, slash + 1);
    strcpy(address.sun_path, name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    check(fd >= 0);
    int error = connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? 0 : errno;
    close(directory);
    if (error != 0) {
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

int reach(void) {
    if (look(target.pid) != 1 || found.page.socket_path[0] != '/') {
        errno = ENOENT;
        return -1;
    }
    return connect_below("", found.page.socket_path);
}

const char *receive(int fd) {
    static char reply[MOST_BYTES];
    struct pollfd item = {.fd = fd, .events = POLLIN};
    check_eq(poll(&item, 1, TEST_SECONDS * 1000), 1);
    ssize_t n = recv(fd, reply, sizeof reply - 1, 0);
    reply[n > 0 ? n : 0] = '\0';
    return reply;
}

void send_bytes(int fd, const void *bytes, size_t length, const int *passed, size_t count) {
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(8 * sizeof(int))];
    } control = {0};
    struct iovec piece = {(void *)(uintptr_t)bytes, length};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        control.head = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
                                        .cmsg_type = SCM_RIGHTS,
                                        .cmsg_len = CMSG_LEN(count * sizeof(int))};
        memcpy(CMSG_DATA(&control.head), passed, count * sizeof(int));
    }
    (void)!sendmsg(fd, &message, MSG_NOSIGNAL);
}

const char *ask_with(int fd, const char *request, const int *passed, size_t count) {
    char text[MOST_BYTES], head[32];
    size_t length = strlen(request) + 1;
    for (int i = 0; i < 3; i++) {
        length = strlen(request) + 1 + (size_t)snprintf(head, sizeof head, "tally1 %zu ", length);
    }
    snprintf(text, sizeof text, "%s%s\n", head, request);
    send_bytes(fd, text, strlen(text), passed, count);
    const char *reply = receive(fd);
    const char *rest = strchr(reply, ' ');
    rest = rest != NULL ? strchr(rest + 1, ' ') : NULL;
    return rest != NULL ? rest + 1 : reply;
}

const char *ask(int fd, const char *request) {
    return ask_with(fd, request, NULL, 0);
}

bool begins(const char *text, const char *beginning) {
    if (strncmp(text, beginning, strlen(beginning)) != 0) {
        test_say("    '", text, "' does not begin with '", beginning, "'\n", NULL);
        return false;
    }
    return true;
}

void rest_a_second(void) {
    nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 50000000}, NULL);
}

int temporary_file(int flags) {
    char name[] = "/tmp/tally-control-out-XXXXXX";
    int file = mkstemp(name);
    check(file >= 0);
    int again = open(name, flags);
    unlink(name);
    close(file);
    check(again >= 0);
    return again;
}

const char *output_of(int fd, const char *request, const char *expected) {
    static char text[1 << 18];
    char name[] = "/tmp/tally-control-out-XXXXXX";
    int file = mkstemp(name);
    unlink(name);
    check(begins(ask_with(fd, request, &file, 1), expected));
    ssize_t n = pread(file, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    close(file);
    return text;
}
