/* SPDX-License-Identifier: MIT
 *
 * test_control.c - the control socket from outside: who may ask what, and what happens to those who ask
 * wrongly, too much or too slowly.  The numbers are those of docs/manual/control.md.
 *
 * The program starts itself again as the target, with the library linked, and does what single letters on
 * its standard input say.  Each letter is answered by a line on its standard output.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
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
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <tally/tally.h>
#include <time.h>
#include <unistd.h>

#include "contract/stats_page.h"
#include "test.h"

TEST_SETUP(require_tally);

enum { NOBODY = 65534, PATIENCE_SECONDS = 100, MOST_BYTES = 8192 };

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

static void obey(char letter) {
    static void *kept[1000];
    switch (letter) {
    case 'a': /* allocate */
        for (int i = 0; i < 1000; i++) {
            free(kept[i]);
            kept[i] = malloc(1000 + (size_t)i);
        }
        say("done\n");
        break;
    case 'b':
        compute();
        say("done\n");
        break;
    case 'f':
        do_fork();
        break;
    case '2': /* a file instead of standard error */
        close(2);
        say(open_file() == 2 ? "done\n" : "another number\n");
        break;
    case 'z':
        say_number(lseek(2, 0, SEEK_END));
        break;
    case 'n': /* no memory for stacks, so no threads */
        setrlimit(RLIMIT_AS, &(struct rlimit){1 << 20, RLIM_INFINITY});
        say("done\n");
        break;
    case 'p':
        refuse(SYS_ppoll);
        break;
    case 'q':
        refuse(SYS_accept4);
        break;
    case 'd': /* hides its memory */
        say_number(prctl(PR_SET_DUMPABLE, 0));
        break;
    case 'k':
        confine_this_thread();
        break;
    case 'h':
        shut_listening();
        break;
    case 'e':
        end_child(false);
        break;
    case 'v':
        end_child(true);
        break;
    case 'c': /* as daemons do */
        for (int fd = 3; fd < 1024; fd++) {
            close(fd);
        }
        say("done\n");
        break;
    case 'm': /* many children that work a little */
        for (int i = 0; i < 300; i++) {
            pid_t pid = fork();
            if (pid == 0) {
                free(malloc(200000));
                _exit(0);
            }
            waitpid(pid, NULL, 0);
        }
        say("done\n");
        break;
    case 's':
        say_number(tally_control_start(TALLY_CONTROL_WRITE));
        break;
    case 't':
        say_number(tally_control_stop());
        break;
    case 'l': /* at a limit */
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, 4096});
        say("done\n");
        break;
    case 'u':
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){4096, 4096});
        say("done\n");
        break;
    default:
        exit(0);
    }
}

__attribute__((constructor)) static void begin(int argc, char **argv) {
    char letter;
    if (argc == 2 && strcmp(argv[1], "--target") == 0) {
        alarm(PATIENCE_SECONDS);
        thread_local_data[0] = 1;
        say("ready\n");
        while (read(0, &letter, 1) == 1) {
            obey(letter);
        }
        exit(0);
    }
}

/* ---------------------------------------------------------------- the target, from outside */

static struct {
    pid_t pid;
    int input, output, errors;
    char folder[64];
    char *root; /* TALLY_ROOT=..., or NULL */
} target;

enum { PLAIN, IN_NAMESPACES, CONFINED, NO_NAMESPACES = 99 };

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

static const char *order(char letter) {
    static char line[128];
    check_eq(write(target.input, &letter, 1), 1);
    read_line(target.output, line);
    return line;
}

static void start_as(int kind, const char *conf, const char *weaker) {
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

/* With its socket in a folder that only this test knows. */
static void start(const char *conf) {
    char whole[256];
    strcpy(target.folder, "/tmp/tally-control-XXXXXX");
    check(mkdtemp(target.folder) != NULL);
    snprintf(whole, sizeof whole, "%s,control_dir:%s", conf, target.folder);
    start_as(PLAIN, whole, "");
}

static const char *errors_of_target(void) {
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

static int end_target(void) {
    int status = -1;
    close(target.input);
    check_eq(waitpid(target.pid, &status, 0), target.pid);
    char path[128];
    snprintf(path, sizeof path, "rm -rf %s", target.folder);
    check(target.folder[0] == '\0' || system(path) == 0);
    return status;
}

/* The page of a process, by the name of its descriptor; how many descriptors have the name. */
static union {
    struct stats_page page;
    char bytes[STATS_PAGE_BYTES];
} found;

static unsigned count_descriptors(pid_t pid, const char *beginning, bool reads) {
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

static unsigned look(pid_t pid) {
    memset(&found, 0, sizeof found);
    return count_descriptors(pid, "/memfd:" STATS_PAGE_NAME, true);
}

static unsigned count_threads(pid_t pid) {
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

static void read_text(const char *path, char *text, size_t bytes) {
    int file = open(path, O_RDONLY);
    check(file >= 0);
    ssize_t n = read(file, text, bytes - 1);
    close(file);
    text[n > 0 ? n : 0] = '\0';
}

/* Has the process a handler for this signal? */
static bool catches(pid_t pid, int signal) {
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    read_text(path, text, sizeof text);
    const char *line = strstr(text, "SigCgt:");
    check(line != NULL);
    return strtoul(line + strlen("SigCgt:"), NULL, 16) >> (signal - 1) & 1;
}

static void wait_a_little(void) {
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

/* ---------------------------------------------------------------- the client */

/* Connects to a path below the target's root, as the command does. */
static int connect_below(const char *root, const char *path) {
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

static int reach(void) {
    if (look(target.pid) != 1 || found.page.socket_path[0] != '/') {
        errno = ENOENT;
        return -1;
    }
    return connect_below("", found.page.socket_path);
}

/* What came back, "" for the end, in a static buffer. */
static const char *receive(int fd) {
    static char reply[MOST_BYTES];
    struct pollfd item = {.fd = fd, .events = POLLIN};
    check_eq(poll(&item, 1, PATIENCE_SECONDS * 1000), 1);
    ssize_t n = recv(fd, reply, sizeof reply - 1, 0);
    reply[n > 0 ? n : 0] = '\0';
    return reply;
}

static void send_bytes(int fd, const void *bytes, size_t length, const int *passed, size_t count) {
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

/* The request with its head; the answer without its own. */
static const char *ask_with(int fd, const char *request, const int *passed, size_t count) {
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

static const char *ask(int fd, const char *request) {
    return ask_with(fd, request, NULL, 0);
}

static bool begins(const char *text, const char *beginning) {
    if (strncmp(text, beginning, strlen(beginning)) != 0) {
        test_say("    '", text, "' does not begin with '", beginning, "'\n", NULL);
        return false;
    }
    return true;
}

/* Eight requests a second are served. */
static void rest_a_second(void) {
    nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 50000000}, NULL);
}

static int temporary_file(int flags) {
    char name[] = "/tmp/tally-control-out-XXXXXX";
    int file = mkstemp(name);
    check(file >= 0);
    int again = open(name, flags);
    unlink(name);
    close(file);
    check(again >= 0);
    return again;
}

/* ---------------------------------------------------------------- S-01, S-02, S-03 */

TEST(s01_it_is_off_by_default) {
    start_as(PLAIN, "", "");
    check_eq(look(target.pid), 1);
    check_str(found.page.socket_path, "");
    check_eq(found.page.control, 0);
    check_eq(count_threads(target.pid), 1);
    check_eq(count_descriptors(target.pid, "socket:", false), 0);
    check_eq(end_target(), 0);
}

static void check_off_with(const char *conf, const char *weaker) {
    start_as(PLAIN, conf, weaker);
    check_eq(look(target.pid), 1);
    check_str(found.page.socket_path, "");
    check_str(order('s'), "1"); /* EPERM */
    check_eq(count_threads(target.pid), 1);
    check_eq(end_target(), 0);
}

TEST(s01_off_by_any_source_is_final) {
    check_off_with("control:write", "control:off");
    check_off_with("control:off", "control:write");
}

TEST(s01_off_is_final_within_one_source_too) {
    check_off_with("control:off,control:write", "");
    check_off_with("control:read,control:off,control:default,control:read", "");
}

TEST(s01_a_program_that_may_not_be_dumped_has_none) {
    start("control:default");
    check_str(order('d'), "0");
    check_str(order('s'), "1"); /* EPERM */
    check_eq(end_target(), 0);
}

TEST(s01_the_program_may_open_and_close_it) {
    start("control:default");
    check_str(order('s'), "0");
    int fd = reach();
    check(fd >= 0);
    check(begins(ask(fd, "hello"), "ok version=" TALLY_VERSION " pid="));
    char number[24];
    snprintf(number, sizeof number, "%d", EALREADY);
    check_str(order('s'), number);
    char path[STATS_PAGE_PATH_BYTES];
    strcpy(path, found.page.socket_path);
    check_str(order('t'), "0");
    check(access(path, F_OK) != 0);
    check_str(receive(fd), "");
    for (int i = 0; i < 1000 && count_threads(target.pid) > 1; i++) {
        wait_a_little();
    }
    check_eq(count_threads(target.pid), 1);
    check_eq(look(target.pid), 1);
    check_str(found.page.socket_path, "");
    check_str(order('s'), "0");
    check_eq(end_target(), 0);
}

TEST(s02_s04_it_is_a_socket_with_a_name_and_mode_0600) {
    start("control:read");
    check_eq(look(target.pid), 1);
    struct stat facts;
    check_eq(lstat(found.page.socket_path, &facts), 0);
    check(S_ISSOCK(facts.st_mode));
    check_eq(facts.st_mode & 07777, 0600);
    check_eq(strncmp(found.page.socket_path, target.folder, strlen(target.folder)), 0);
    check_eq(found.page.control, 1);
    check_eq(end_target(), 0);
}

/* The target says so and goes on without. */
static void check_no_socket(const char *why) {
    char conf[200];
    snprintf(conf, sizeof conf, "control:write,control_dir:%s", target.folder);
    start_as(PLAIN, conf, "");
    check_eq(look(target.pid), 1);
    check_str(found.page.socket_path, "");
    check_eq(found.page.control, 0);
    check_eq(count_threads(target.pid), 1);
    check(begins(errors_of_target(), why));
    check_eq(end_target(), 0);
}

TEST(s03_a_directory_that_others_may_enter_is_refused_and_not_repaired) {
    struct stat facts;
    strcpy(target.folder, "/tmp/tally-control-XXXXXX");
    check(mkdtemp(target.folder) != NULL);
    check_eq(chmod(target.folder, 0710), 0);
    char again[64];
    strcpy(again, target.folder);
    char conf[200];
    snprintf(conf, sizeof conf, "control:write,control_dir:%s", target.folder);
    start_as(PLAIN, conf, "");
    check_eq(look(target.pid), 1);
    check_str(found.page.socket_path, "");
    check_eq(stat(again, &facts), 0);
    check_eq(facts.st_mode & 0777, 0710);
    check(begins(errors_of_target(), "tally: no control socket: its directory is not"));
    check_eq(end_target(), 0);
}

TEST(s03_a_directory_of_another_user_is_refused) {
    strcpy(target.folder, "/tmp/tally-control-XXXXXX");
    check(mkdtemp(target.folder) != NULL);
    if (geteuid() != 0 || chown(target.folder, NOBODY, NOBODY) != 0) {
        rmdir(target.folder);
        skip("only root can give a directory away");
    }
    check_no_socket("tally: no control socket: its directory is not");
}

TEST(s03_a_link_to_a_directory_is_refused) {
    char real[64] = "/tmp/tally-control-XXXXXX";
    check(mkdtemp(real) != NULL);
    snprintf(target.folder, sizeof target.folder, "%s-link", real);
    check_eq(symlink(real, target.folder), 0);
    check_no_socket("tally: no control socket: ");
    rmdir(real);
}

TEST(s03_a_directory_that_is_missing_is_made_private) {
    strcpy(target.folder, "/tmp/tally-control-XXXXXX");
    check(mkdtemp(target.folder) != NULL);
    char conf[200];
    umask(0);
    snprintf(conf, sizeof conf, "control:write,control_dir:%s/made", target.folder);
    start_as(PLAIN, conf, "");
    int fd = reach();
    check(fd >= 0 && begins(ask(fd, "hello"), "ok "));
    char path[80];
    snprintf(path, sizeof path, "%s/made", target.folder);
    struct stat facts;
    check_eq(stat(path, &facts), 0);
    check_eq(facts.st_mode & 0777, 0700);
    check_eq(end_target(), 0);
}

/* ---------------------------------------------------------------- below `tally run` */

/* As the command starts it, but that TALLY_ROOT is another process: this is a descendant. */
static void start_descendant(const char *children) {
    static char root[] = "TALLY_ROOT=1:1";
    char conf[250];
    target.root = root;
    strcpy(target.folder, "/tmp/tally-control-XXXXXX");
    check(mkdtemp(target.folder) != NULL);
    snprintf(conf, sizeof conf,
             "control:write,control_dir:%s/c,prof_signal:%d,run_file:%s/a.tally,run_children:%s",
             target.folder, SIGUSR1, target.folder, children);
    start_as(PLAIN, conf, "");
}

TEST(a_descendant_has_no_socket_no_thread_and_no_handler_of_signals) {
    start_descendant("other");
    check_eq(look(target.pid), 1);
    check_str(found.page.socket_path, "");
    check_eq(count_threads(target.pid), 1);
    check_str(order('a'), "done");
    kill(target.pid, SIGUSR1);
    int status = end_target();
    check(WIFSIGNALED(status));
    check_eq(WTERMSIG(status), SIGUSR1);
}

TEST(a_descendant_that_is_wanted_has_them) {
    start_descendant("test_c*");
    int fd = reach();
    check(fd >= 0);
    check(begins(ask(fd, "hello"), "ok "));
    kill(target.pid, SIGUSR1);
    check_str(order('a'), "done");
    check_eq(end_target(), 0);
}

TEST(a_descendant_may_still_open_a_socket_itself) {
    start_descendant("");
    check_str(order('s'), "0");
    check(reach() >= 0);
    check_eq(end_target(), 0);
}

/* A child that is not recorded: the signal ends it, as it would without us. */
TEST(a_forked_child_that_is_quiet_has_no_handler_of_signals) {
    char conf[250];
    strcpy(target.folder, "/tmp/tally-control-XXXXXX");
    check(mkdtemp(target.folder) != NULL);
    snprintf(conf, sizeof conf, "prof_signal:%d,run_file:%s/a.tally", SIGUSR1, target.folder);
    start_as(PLAIN, conf, "");
    pid_t child = atoi(order('f'));
    check(child > 0);
    for (int i = 0; i < 1000 && catches(child, SIGUSR1); i++) {
        wait_a_little(); /* It may not have run yet. */
    }
    check(!catches(child, SIGUSR1));
    check(catches(target.pid, SIGUSR1));
    kill(child, SIGKILL);
    kill(target.pid, SIGUSR1);
    check_str(order('a'), "done");
    check_eq(end_target(), 0);
}

/* ---------------------------------------------------------------- S-04 */

/* Another user with the right to pass all modes of files, so that only the socket can refuse. */
static int ask_as_nobody(const char *path) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};
    data[0].effective = data[0].permitted = 1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH;
    if (prctl(PR_SET_KEEPCAPS, 1) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0 ||
        syscall(SYS_capset, &head, data) != 0) {
        return NO_NAMESPACES;
    }
    int fd = connect_below("", path);
    return fd >= 0 && strncmp(receive(fd), "tally1 ", 7) == 0 ? 0 : 1;
}

TEST(s04_another_user_who_gets_to_the_socket_is_refused_by_it) {
    if (geteuid() != 0) {
        skip("only root can become another user");
    }
    start("control:write");
    check_eq(look(target.pid), 1);
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(ask_as_nobody(found.page.socket_path));
    }
    check_eq(waitpid(pid, &status, 0), pid);
    if (WEXITSTATUS(status) == NO_NAMESPACES) {
        skip("capabilities cannot be kept here");
    }
    check_eq(status, 0);
    char line[100];
    snprintf(line, sizeof line, "tally: control: pid %d uid %d: connect: denied\n", (int)pid,
             NOBODY);
    check_str(errors_of_target(), line);
    check_eq(end_target(), 0);
}

TEST(s04_another_user_cannot_even_get_there) {
    if (geteuid() != 0) {
        skip("only root can become another user");
    }
    start("control:write");
    check_eq(look(target.pid), 1);
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/fd", (int)target.pid);
        bool refused = setresuid(NOBODY, NOBODY, NOBODY) == 0 &&
                       connect_below("", found.page.socket_path) < 0 && errno == EACCES &&
                       opendir(path) == NULL && errno == EACCES;
        _exit(refused ? 0 : 1);
    }
    check_eq(waitpid(pid, &status, 0), pid);
    check_eq(status, 0);
    check_eq(end_target(), 0);
}

/* ---------------------------------------------------------------- S-05, S-06 */

TEST(s05_who_may_look_may_not_change_anything) {
    static const char *const refused[] = {"start",     "stop",  "set key=prof.active value=true",
                                          "purge",     "reset", "mark text=x",
                                          "leak-check"};
    start("control:read");
    int fd = reach();
    check(fd >= 0);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        check(begins(ask(fd, refused[i]), "err 3 this needs control:write"));
    }
    rest_a_second();
    check(begins(ask(fd, "hello"), "ok "));
    check_eq(look(target.pid), 1);
    check_eq(found.page.profile_rate, 0);
    check_eq(end_target(), 0);
}

TEST(s05_what_is_a_path_a_limit_or_of_one_thread_cannot_be_set) {
    static const struct {
        const char *key, *reason;
    } rows[] = {
        {"prof.prefix", "this cannot be set from outside: it says where files are written"},
        {"prof.dump", "this cannot be set from outside: it writes a file"},
        {"arena.0.reset", "this cannot be set from outside: it frees objects"},
        {"opt.prof", "this is only read"},
        {"thread.arena", "this cannot be set from outside: it is about the thread that calls"},
        {"arena.0.extent_hooks", "this cannot be set from outside: its value is an address"},
        {"experimental.prof_recent.alloc_max", "this cannot be set from outside: it is a limit"},
        {"no.such.key", "there is no such name"},
    };
    start("control:write");
    int fd = reach();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char request[100], answer[160];
        snprintf(request, sizeof request, "set key=%s value=1", rows[i].key);
        snprintf(answer, sizeof answer, "err 3 %s", rows[i].reason);
        check(begins(ask(fd, request), answer));
        if (i == 6) {
            rest_a_second();
        }
    }
    check_eq(end_target(), 0);
}

TEST(values_of_every_kind_are_set_from_outside) {
    start("control:write");
    int fd = reach();
    check(begins(ask(fd, "set key=max_background_threads value=1"), "ok old="));
    check(
        begins(ask(fd, "set key=max_background_threads value=-1"), "err 1 the value is a number"));
    check(begins(ask(fd, "set key=arena.4096.purge value=run"), "ok\n"));
    check(begins(ask(fd, "set key=arena.0.decay value=1"), "err 1 the value is the word run"));
    check(begins(ask(fd, "set key=arena.0.name value=first"), "ok\n"));
    check(begins(ask(fd, "set key=arena.0.dss value=secondary"), "ok old="));
    rest_a_second();
    fd = reach();
    check(begins(ask(fd, "set key=arena.0.dss value=nothing"), "err 1 the value is not accepted"));
    check(begins(ask(fd, "set key=arena.0.dss value=primary"), "ok old=secondary"));
    check(begins(ask(fd, "set key=epoch value=1"), "ok old="));
    check(begins(ask(fd, "set key=stats.mutexes.reset value=run"), "ok\n"));
    check(begins(ask(fd, "set key=arena.4000.purge value=run"), "err 3 there is no such name"));
    check_eq(end_target(), 0);
}

TEST(s06_output_goes_to_one_file_or_pipe_that_is_open_for_writing) {
    start("control:write,prof:true,lg_prof_sample:10");
    order('a');
    int fd = reach();
    int ends[2];
    check_eq(pipe(ends), 0);
    int file = temporary_file(O_WRONLY);
    int reads = temporary_file(O_RDONLY);
    int device = open("/dev/null", O_WRONLY);
    int folder = open("/tmp", O_RDONLY);
    check(begins(ask(fd, "dump"), "err 1 a descriptor"));
    check(begins(ask_with(fd, "dump", &reads, 1), "err 3 "));
    check(begins(ask_with(fd, "dump", &device, 1), "err 3 "));
    check(begins(ask_with(fd, "maps", &folder, 1), "err 3 "));
    check(begins(ask_with(fd, "maps", &ends[1], 1), "ok bytes="));
    check(begins(ask_with(fd, "dump", &file, 1), "ok bytes="));
    struct stat facts;
    check(fstat(file, &facts) == 0 && facts.st_size > 100);
    check_eq(end_target(), 0);
}

TEST(s06_more_than_one_descriptor_is_refused_and_none_stays) {
    start("control:write");
    int fd = reach();
    check(begins(ask(fd, "hello"), "ok "));
    unsigned before = count_descriptors(target.pid, "/", false);
    int both[2] = {temporary_file(O_WRONLY), temporary_file(O_WRONLY)};
    check(begins(ask_with(fd, "maps", both, 2), "err 1 one descriptor"));
    check(begins(ask_with(fd, "hello", both, 1), "err 1 this has no output"));
    check_eq(count_descriptors(target.pid, "/", false), before);
    check_eq(end_target(), 0);
}

/* ---------------------------------------------------------------- S-07, S-08 */

TEST(s07_a_message_that_is_too_long_is_refused) {
    static char bytes[6000];
    start("control:read");
    int fd = reach();
    memset(bytes, 'x', sizeof bytes);
    send_bytes(fd, bytes, sizeof bytes, NULL, 0);
    check(strstr(receive(fd), " err 1 a message has at most 4096 bytes\n") != NULL);
    send_bytes(fd, bytes, 4097, NULL, 0);
    check(strstr(receive(fd), " err 1 ") != NULL);
    check(begins(ask(fd, "hello"), "ok "));
    check_eq(end_target(), 0);
}

TEST(s07_four_are_served_and_a_fifth_is_told_to_come_later) {
    start("control:read");
    int clients[5];
    for (int i = 0; i < 4; i++) {
        clients[i] = reach();
        check(begins(ask(clients[i], "hello"), "ok "));
    }
    clients[4] = reach();
    check(strstr(receive(clients[4]), " err 4 too many connections\n") != NULL);
    check_str(receive(clients[4]), "");
    close(clients[0]);
    bool is_served = false;
    for (int i = 0; i < 60 && !is_served; i++) { /* until the place is seen to be free */
        int again = reach();
        check(again >= 0);
        is_served = strncmp(ask(again, "hello"), "ok ", 3) == 0;
        close(again);
        rest_a_second();
    }
    check(is_served);
    check_eq(end_target(), 0);
}

TEST(s07_eight_requests_are_served_in_a_second) {
    enum {
        REQUESTS = 100
    }; /* They would have to take 12 seconds to be no more than eight in each. */
    start("control:read");
    int fd = reach();
    unsigned served = 0, refused = 0;
    kill(target.pid, SIGSTOP); /* so that all are there when it looks */
    for (int i = 0; i < REQUESTS; i++) {
        send_bytes(fd, "tally1 16 hello\n", 16, NULL, 0);
    }
    kill(target.pid, SIGCONT);
    for (int i = 0; i < REQUESTS; i++) {
        const char *reply = receive(fd);
        served += strstr(reply, " ok ") != NULL;
        refused += strstr(reply, " err 5 ") != NULL;
    }
    check_eq(served + refused, REQUESTS);
    check(refused > 0 && served >= 8);
    rest_a_second();
    check(begins(ask(fd, "hello"), "ok "));
    check_eq(end_target(), 0);
}

TEST(s07_who_says_nothing_for_five_seconds_is_dropped) {
    start("control:read");
    int fd = reach();
    check(begins(ask(fd, "hello"), "ok "));
    check_str(receive(fd), ""); /* in the end */
    check_eq(end_target(), 0);
}

TEST(s07_a_reader_that_does_not_read_delays_only_itself) {
    start("control:read");
    int fd = reach();
    int ends[2];
    check_eq(pipe(ends), 0);
    check(fcntl(ends[1], F_SETPIPE_SZ, 4096) >= 4096);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(begins(ask_with(fd, "stats", &ends[1], 1), "err 8 ") ? 0 : 1);
    }
    for (int i = 0; i < 100; i++) {
        check_str(order('a'), "done");
    }
    int status = -1;
    check_eq(waitpid(pid, &status, 0), pid);
    check_eq(status, 0);
    check_eq(end_target(), 0);
}

/* A profile that is not read for longer than clients may be silent, and one who asks meanwhile. */
TEST(s07_who_asks_while_another_is_served_is_answered) {
    start("control:write,prof:true,lg_prof_sample:8");
    order('a');
    int slow = reach(), other = reach();
    check(begins(ask(other, "hello"), "ok "));
    int ends[2];
    check_eq(pipe(ends), 0);
    check(fcntl(ends[1], F_SETPIPE_SZ, 4096) >= 4096);
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        _exit(begins(ask_with(slow, "dump format=jemalloc", &ends[1], 1), "ok ") ? 0 : 1);
    }
    close(ends[1]);
    struct pollfd item = {.fd = ends[0], .events = POLLIN};
    check_eq(poll(&item, 1, PATIENCE_SECONDS * 1000), 1); /* It is being written. */
    send_bytes(other, "tally1 16 hello\n", 16, NULL, 0);
    for (int i = 0; i < 6; i++) {
        rest_a_second();
    }
    char bytes[4096];
    while (read(ends[0], bytes, sizeof bytes) > 0) {
    }
    int status = -1;
    check_eq(waitpid(pid, &status, 0), pid);
    check_eq(status, 0);
    check(strstr(receive(other), " ok version=") != NULL);
    check_eq(end_target(), 0);
}

TEST(s07_ten_thousand_connections_leave_nothing_behind) {
    start("control:read");
    int fd = reach();
    check(begins(ask(fd, "hello"), "ok "));
    close(fd);
    unsigned before = 0;
    for (int i = 0; i < 1000; i++) { /* until the client is seen to be gone */
        before = count_descriptors(target.pid, "socket:", false);
        if (before == 1) {
            break;
        }
        wait_a_little();
    }
    check_eq(before, 1);
    for (int i = 0; i < 10000; i++) {
        fd = connect_below("", found.page.socket_path);
        check(fd >= 0);
        close(fd);
    }
    for (int i = 0; i < 1000 && count_descriptors(target.pid, "socket:", false) != 1; i++) {
        wait_a_little();
        errors_of_target(); /* A full pipe would stop it. */
    }
    check_eq(count_descriptors(target.pid, "socket:", false), 1);
    fd = reach();
    check(begins(ask(fd, "hello"), "ok "));
    check_str(order('a'), "done");
    check_eq(end_target(), 0);
}

TEST(s07_a_target_without_descriptors_serves_when_it_has_some) {
    start("control:read");
    check_str(order('l'), "done");
    int fd = reach();
    check(fd >= 0);
    for (int i = 0; i < 3; i++) { /* so that it tries again, and may not even wait for so many */
        rest_a_second();
    }
    check_str(order('a'), "done");
    check_str(order('u'), "done");
    const char *reply = ask(fd, "hello");
    /* The connection may have been closed when it was taken from the queue and found no number. */
    if (reply[0] == '\0') {
        fd = reach();
        reply = ask(fd, "hello");
    }
    check(begins(reply, "ok "));
    check_eq(end_target(), 0);
}

TEST(s08_three_mistakes_close_the_connection) {
    static const char *const wrong[] = {"GET / HTTP/1.0\r\n\r\n", "tally1 99 hello\n",
                                        "tally1 16 hel"};
    start("control:read");
    int fd = reach();
    for (int i = 0; i < 3; i++) {
        send_bytes(fd, wrong[i], strlen(wrong[i]), NULL, 0);
        check(strstr(receive(fd), " err 1 this is no request\n") != NULL);
    }
    check_str(receive(fd), "");
    fd = reach();
    check(begins(ask(fd, "bogus"), "err 2 no such verb"));
    check(begins(ask(fd, "hello"), "ok "));
    check_eq(end_target(), 0);
}

/* ---------------------------------------------------------------- S-09 to S-13 */

static void check_all_blocked(unsigned long blocked) {
    for (int signal = 1; signal <= 64; signal++) {
        bool never = signal == SIGKILL || signal == SIGSTOP || signal == 32 || signal == 33;
        check(never || (blocked >> (signal - 1) & 1));
    }
}

TEST(s09_its_thread_has_a_name_and_all_signals_blocked) {
    start("control:read");
    int fd = reach();
    check(begins(ask(fd, "hello"), "ok ")); /* It runs. */
    check_eq(count_threads(target.pid), 2);
    char path[300], text[4096];
    snprintf(path, sizeof path, "/proc/%d/task", (int)target.pid);
    DIR *directory = opendir(path);
    check(directory != NULL);
    unsigned seen = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (atoi(entry->d_name) > 0 && atoi(entry->d_name) != target.pid) {
            snprintf(path, sizeof path, "/proc/%d/task/%s/status", (int)target.pid, entry->d_name);
            read_text(path, text, sizeof text);
            check(strstr(text, "Name:\ttally-control\n") != NULL);
            check_all_blocked(strtoul(strstr(text, "SigBlk:") + 8, NULL, 16));
            seen++;
        }
    }
    closedir(directory);
    check_eq(seen, 1);
    check_eq(end_target(), 0);
}

TEST(s10_a_child_serves_nobody_and_has_a_page_of_its_own) {
    start("control:write");
    int fd = reach();
    check(begins(ask(fd, "hello"), "ok "));
    pid_t child = atoi(order('f'));
    check(child > 0);
    for (int i = 0; i < 1000 && (look(child) != 1 || found.page.pid != (uint32_t)child); i++) {
        wait_a_little(); /* It may not have run yet, or be about to leave its parent's. */
    }
    check_eq(look(child), 1);
    check_eq(count_descriptors(child, "socket:", false), 0);
    check_eq(found.page.pid, child);
    check_str(found.page.socket_path, "");
    check_eq(found.page.control, 0);
    check_eq(count_threads(child), 1);
    check(begins(ask(fd, "hello"), "ok "));
    kill(child, SIGKILL);
    check_eq(end_target(), 0);
}

/* Neither the name nor the service goes with a child. */
static void check_child_ends_alone(char letter) {
    start("control:write");
    int fd = reach();
    check(begins(ask(fd, "hello"), "ok "));
    check_str(order(letter), "0");
    check(access(found.page.socket_path, F_OK) == 0);
    check(begins(ask(fd, "hello"), "ok "));
    fd = reach();
    check(fd >= 0);
    check(begins(ask(fd, "hello"), "ok "));
    check_eq(end_target(), 0);
}

TEST(s10_a_child_that_exits_leaves_its_parent_alone) {
    check_child_ends_alone('e');
}

TEST(s10_a_child_that_shares_memory_and_exits_leaves_its_parent_alone) {
    check_child_ends_alone('v');
}

TEST(s10_at_exit_a_directory_that_is_gone_is_not_made_again) {
    char folder[64];
    start("control:write");
    check_eq(look(target.pid), 1);
    check_eq(unlink(found.page.socket_path), 0);
    check_eq(rmdir(target.folder), 0);
    strcpy(folder, target.folder);
    target.folder[0] = '\0';
    check_eq(end_target(), 0);
    check(access(folder, F_OK) != 0);
}

/* No thread can be made. */
TEST(s11_a_socket_that_nobody_serves_is_not_told) {
    start("control:default");
    check_str(order('n'), "done");
    char number[24];
    snprintf(number, sizeof number, "%d", EAGAIN);
    check_str(order('s'), number);
    check_eq(look(target.pid), 1);
    check_str(found.page.socket_path, "");
    check_eq(found.page.control, 0);
    check_str(order('s'), number); /* and not EALREADY */
    check_eq(end_target(), 0);
}

TEST(s10_at_exit_the_name_goes_if_it_is_still_ours) {
    char path[STATS_PAGE_PATH_BYTES], folder[64];
    start("control:write");
    check_eq(look(target.pid), 1);
    strcpy(path, found.page.socket_path);
    check(access(path, F_OK) == 0);
    strcpy(folder, target.folder);
    target.folder[0] = '\0';
    check_eq(end_target(), 0);
    check(access(path, F_OK) != 0);
    check_eq(rmdir(folder), 0);
    start("control:write");
    check_eq(look(target.pid), 1);
    strcpy(path, found.page.socket_path);
    check_eq(unlink(path), 0);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    strcpy(folder, target.folder);
    target.folder[0] = '\0';
    check_eq(end_target(), 0);
    check(access(path, F_OK) == 0);
    unlink(path);
    check_eq(rmdir(folder), 0);
}

TEST(s11_a_program_that_closes_everything_is_served_no_more) {
    start("control:write");
    int fd = reach();
    check(begins(ask(fd, "hello"), "ok "));
    char path[STATS_PAGE_PATH_BYTES];
    strcpy(path, found.page.socket_path);
    errors_of_target();
    check_str(order('c'), "done");
    int late = connect_below("", path); /* which wakes the thread */
    for (int i = 0; i < 1000 && count_threads(target.pid) > 1; i++) {
        wait_a_little();
    }
    check_eq(count_threads(target.pid), 1);
    check_str(errors_of_target(),
              "tally: control: the program has closed the socket, so nobody is served any more\n");
    check(late < 0 || receive(late)[0] == '\0');
    check(access(path, F_OK) != 0);
    check_str(order('a'), "done");
    check_eq(end_target(), 0);
}

TEST(s11_a_program_that_closes_everything_can_begin_anew) {
    start("control:write");
    int fd = reach();
    check(begins(ask(fd, "hello"), "ok "));
    close(fd);
    for (int i = 0; i < 1000 && count_descriptors(target.pid, "socket:", false) > 1; i++) {
        wait_a_little();
    }
    wait_a_little(); /* Without clients, the thread waits for nothing but connections. */
    check_str(order('c'), "done");
    check_str(order('t'), "0");
    for (int i = 0; i < 1000 && count_threads(target.pid) > 1; i++) {
        wait_a_little();
    }
    check_eq(count_threads(target.pid), 1);
    check_str(order('s'), "0");
    check_eq(count_threads(target.pid), 2);
    check_eq(end_target(), 0);
}

/* The thread ends: it does not try for ever. */
static void check_service_ends(char letter) {
    start("control:write");
    int fd = reach();
    check(begins(ask(fd, "hello"), "ok "));
    close(fd);
    if (strcmp(order(letter), "0") != 0) {
        skip("the kernel lets us have no filter");
    }
    fd = connect_below("", found.page.socket_path); /* which wakes the thread, if it sleeps */
    for (int i = 0; i < 1000 && count_threads(target.pid) > 1; i++) {
        wait_a_little();
    }
    check_eq(count_threads(target.pid), 1);
    check(strstr(errors_of_target(), "so nobody is served any more\n") != NULL);
    check(access(found.page.socket_path, F_OK) != 0);
    check_str(order('a'), "done");
    check_eq(end_target(), 0);
}

TEST(s11_a_thread_that_may_not_wait_ends) {
    check_service_ends('p');
}

TEST(s11_a_thread_that_may_not_accept_ends) {
    check_service_ends('q');
}

TEST(s11_a_socket_that_is_shut_down_is_served_no_more) {
    check_service_ends('h');
}

TEST(s12_behind_a_filter_of_system_calls_there_is_neither_page_nor_socket) {
    start_as(CONFINED, "control:write", "");
    check_eq(look(target.pid), 0);
    check_eq(count_threads(target.pid), 1);
    check_eq(count_descriptors(target.pid, "socket:", false), 0);
    check_str(order('a'), "done");
    check_eq(end_target(), 0);
}

/* What the target has said of requests of this process. */
static void check_lines(const char *const ends[], unsigned count) {
    char text[500];
    int n = 0;
    for (unsigned i = 0; i < count; i++) {
        n += snprintf(text + n, sizeof text - (size_t)n, "tally: control: pid %d uid %u: %s\n",
                      (int)getpid(), (unsigned)geteuid(), ends[i]);
    }
    check_str(errors_of_target(), text);
}

TEST(s12_a_program_that_has_confined_itself_is_not_killed_at_its_end) {
    char conf[150];
    strcpy(target.folder, "/tmp/tally-control-XXXXXX");
    check(mkdtemp(target.folder) != NULL);
    snprintf(conf, sizeof conf, "control:write,control_dir:%s/c,run_file:%s/a.tally", target.folder,
             target.folder);
    start_as(PLAIN, conf, "");
    check(reach() >= 0);
    if (strcmp(order('k'), "0") != 0) {
        skip("the kernel lets us have no filter");
    }
    check_eq(end_target(), 0);
}

TEST(s13_each_request_leaves_a_line) {
    start("control:read");
    int fd = reach();
    ask(fd, "hello");
    ask(fd, "purge");
    ask(fd, "bogus");
    static const char *const ends[] = {"hello: ok", "purge: denied", "bogus: unknown"};
    check_lines(ends, 3);
    check_eq(end_target(), 0);
}

TEST(s13_who_looks_again_and_again_is_counted) {
    start("control:write");
    int fd = reach();
    for (int i = 0; i < 4; i++) {
        check(begins(ask(fd, "stats"), "ok"));
    }
    check(begins(ask(fd, "purge"), "ok"));
    check(begins(ask(fd, "purge"), "ok"));
    static const char *const ends[] = {"stats: ok", "stats: ok (3 more)", "purge: ok", "purge: ok"};
    check_lines(ends, 4);
    check_eq(end_target(), 0);
}

/* A program that closes standard error may get a file of its own under that number. */
TEST(s13_nothing_is_written_to_a_file_in_the_place_of_standard_error) {
    start("control:write");
    int fd = reach();
    check(begins(ask(fd, "hello"), "ok "));
    check_str(order('2'), "done");
    check(begins(ask(fd, "purge"), "ok "));
    check(begins(ask(fd, "bogus"), "err 2 "));
    check_str(order('z'), "0"); /* bytes in the file */
    check_eq(end_target(), 0);
}

/* ---------------------------------------------------------------- S-14 */

static const char *output_of(int fd, const char *request, const char *expected) {
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

TEST(s14_addresses_can_be_kept_back) {
    start("control:read,prof:true,lg_prof_sample:8");
    order('a');
    int fd = reach();
    const char *maps = output_of(fd, "maps", "ok ");
    check(strstr(maps, "libtally.so") != NULL && strchr(maps, '-') < strchr(maps, ' '));
    check(begins(output_of(fd, "dump format=jemalloc", "ok "), "heap_v2/"));
    check_eq(end_target(), 0);
    start("control:read,prof:true,lg_prof_sample:8,hide_addresses:true");
    order('a');
    fd = reach();
    maps = output_of(fd, "maps", "ok ");
    check(strstr(maps, "libtally.so") != NULL);
    for (const char *line = maps; *line != '\0'; line = strchr(line, '\n') + 1) {
        char *rest;
        check(strtoul(line, &rest, 16) < 1ul << 32 && *rest == ' '); /* an offset in a file */
    }
    output_of(fd, "dump format=jemalloc", "err 6 ");
    output_of(fd, "dump format=gperftools", "err 6 ");
    output_of(fd, "dump format=pprof", "ok ");
    check_eq(end_target(), 0);
}

/* ---------------------------------------------------------------- what it is for */

TEST(a_profile_is_started_dumped_and_stopped_from_outside) {
    start("control:write");
    int fd = reach();
    int file = temporary_file(O_RDWR);
    check(begins(ask_with(fd, "dump", &file, 1), "err 6 the profiler was not started yet"));
    check(begins(ask(fd, "start rate=1k"), "ok rate=1024"));
    order('a');
    check(begins(ask(fd, "stats"), "ok"));
    check_eq(look(target.pid), 1);
    check_eq(found.page.profile_rate, 1024);
    check(found.page.profile_samples > 10);
    check(begins(output_of(fd, "dump format=pprof", "ok "), "\x1f\x8b"));
    check(begins(output_of(fd, "dump format=gperftools kind=peak", "ok "), "heap profile: "));
    check(begins(ask(fd, "reset"), "ok"));
    check(begins(ask(fd, "stop"), "ok"));
    rest_a_second();
    check(begins(ask(fd, "stats"), "ok"));
    check_eq(look(target.pid), 1);
    check_eq(found.page.profile_rate, 0);
    check_eq(found.page.profile_samples, 0);
    check_eq(end_target(), 0);
}

/* The number behind a key of an answer. */
static long number_of(const char *answer, const char *key) {
    const char *at = strstr(answer, key);
    check(at != NULL);
    return atol(at + strlen(key));
}

TEST(time_on_the_processor_is_recorded_from_outside) {
    start("control:write");
    int fd = reach();
    int file = temporary_file(O_RDWR);
    check(begins(ask_with(fd, "dump kind=cpu", &file, 1), "err 6 the processor's time was not"));
    check(begins(ask(fd, "stop kind=cpu"), "err 6 the processor's time is not recorded"));
    check(begins(ask(fd, "start kind=cpu hz=200"), "ok hz=200"));
    check(strstr(ask(fd, "hello"), "profiling=0 cpu=1") != NULL);
    check_eq(look(target.pid), 1);
    check_eq(found.page.cpu_hz, 200);
    check(begins(ask(fd, "start kind=cpu"), "err 4 the processor's time is recorded already"));
    order('b');
    rest_a_second();
    fd = reach(); /* mistakes count */
    check(begins(output_of(fd, "dump kind=cpu", "ok "), "\x1f\x8b"));
    const char *stopped = ask(fd, "stop kind=cpu");
    check_eq(number_of(stopped, "left_out="), 0);
    long samples = number_of(stopped, "samples=");
    check(samples >= 30 && samples <= 90); /* 60, and none twice */
    const char *bytes = output_of(fd, "dump kind=cpu format=gperftools-cpu", "ok samples=");
    const uint64_t header[] = {0, 3, 0, 5000, 0};
    check(memcmp(bytes, header, sizeof header) == 0);
    check(begins(ask(fd, "reset kind=cpu"), "ok"));
    check(strstr(ask(fd, "start kind=cpu hz=5000"), "ok hz=4000") != NULL);
    rest_a_second();
    check_eq(number_of(ask(fd, "stop"), "samples="), 0); /* it sleeps */
    check(begins(ask(fd, "start kind=time"), "err 1 "));
    check(begins(ask(fd, "start kind=cpu hz=0"), "err 1 "));
    check_eq(end_target(), 0);
}

/* The sizes of a file; -1: there is none. */
static long size_of(const char *path) {
    struct stat facts;
    return stat(path, &facts) == 0 ? (long)facts.st_size : -1;
}

TEST(a_profile_that_goes_to_a_file_is_stopped_with_it) {
    char options[128], path[64];
    snprintf(path, sizeof path, "/tmp/tally-test-%d.prof", (int)getpid());
    snprintf(options, sizeof options, "control:write,cpu_hz:1000,cpu_file:%s", path);
    start(options);
    int fd = reach();
    long before = size_of(path);
    check(begins(ask(fd, "start kind=cpu"), "err 4 the processor's time is recorded already"));
    order('b');
    rest_a_second();
    check(number_of(ask(fd, "stop kind=cpu"), "samples=") > 0);
    long written = size_of(path);
    check(before > 0 && written > before);
    check(begins(ask(fd, "start kind=cpu hz=1000"), "ok hz=1000"));
    check_eq(end_target(), 0);
    check_eq(size_of(path), written); /* what comes later is not the file's */
    unlink(path);
}

/* The file of the run has this text, which is written as it is. */
static bool run_file_has(const char *text) {
    static char bytes[1 << 20];
    char path[80];
    snprintf(path, sizeof path, "%s/a.tally.part", target.folder);
    int file = open(path, O_RDONLY);
    check(file >= 0);
    ssize_t n = read(file, bytes, sizeof bytes);
    close(file);
    return n > 0 && memmem(bytes, (size_t)n, text, strlen(text)) != NULL;
}

TEST(a_run_that_is_recorded_can_be_marked_and_keeps_its_rate) {
    char conf[150];
    strcpy(target.folder, "/tmp/tally-control-XXXXXX");
    check(mkdtemp(target.folder) != NULL);
    snprintf(conf, sizeof conf, "control:write,control_dir:%s,run_file:%s/a.tally,lg_prof_sample:4",
             target.folder, target.folder);
    start_as(PLAIN, conf, "");
    order('a');
    int fd = reach();
    check(begins(ask(fd, "start rate=512k"), "err 4 this run is recorded at another rate"));
    check(begins(ask(fd, "start"), "ok rate=16"));
    check(begins(ask(fd, "start rate=16"), "ok rate=16"));
    check(begins(ask(fd, "stats"), "ok"));
    check_eq(look(target.pid), 1);
    check_eq(found.page.profile_rate, 16);
    check(found.page.profile_samples > 100);
    check(begins(ask(fd, "mark text=the%20load%20begins"), "ok"));
    check(run_file_has("the load begins"));
    check(!run_file_has("reset: "));
    check(begins(ask(fd, "reset"), "ok"));
    check(run_file_has("reset: "));
    check_eq(end_target(), 0);
}

TEST(statistics_are_read_and_settings_changed_from_outside) {
    start("control:write");
    order('a');
    int fd = reach();
    check(strstr(output_of(fd, "stats", "ok bytes="), "tally: where the heap's bytes are\n") !=
          NULL);
    check(begins(output_of(fd, "stats format=json", "ok bytes="), "{"));
    check(begins(ask(fd, "set key=arena.4096.dirty_decay_ms value=0"), "ok old="));
    check(begins(ask(fd, "set key=arenas.dirty_decay_ms value=-2"), "err 1 "));
    check(begins(ask(fd, "set key=arenas.dirty_decay_ms value=77"), "ok old=1000"));
    check(begins(ask(fd, "set key=arenas.dirty_decay_ms value=x"), "err 1 "));
    rest_a_second();
    fd = reach(); /* the mistakes count */
    check(begins(ask(fd, "set key=arenas.dirty_decay_ms value=78"), "ok old=77"));
    check(begins(ask(fd, "set key=prof.active value=maybe"), "err 1 "));
    check(begins(ask(fd, "purge"), "ok bytes="));
    const char *leaks = output_of(fd, "leak-check quick=1", "ok pause_ns=");
    check(begins(leaks, "tally-leaks 1\nheap "));
    check(strstr(leaks, "\nend\n") != NULL);
    check(begins(ask(fd, "mark text=x"), "err 6 nothing is recorded"));
    check_eq(end_target(), 0);
}

TEST(a_stopped_target_can_be_read) {
    start_as(PLAIN, "", "");
    order('a');
    kill(target.pid, SIGSTOP);
    check_eq(waitpid(target.pid, NULL, WUNTRACED), target.pid);
    check_eq(look(target.pid), 1);
    check_eq(found.page.magic, STATS_PAGE_MAGIC);
    check_eq(found.page.pid, target.pid);
    kill(target.pid, SIGCONT);
    check_eq(end_target(), 0);
}

/* S-19: whatever its children do, the page of the target stays its own and whole. */
TEST(a_storm_of_forks_leaves_the_page_of_the_parent_alone) {
    start("control:read");
    int fd = reach();
    check(begins(ask(fd, "stats"), "ok"));
    char letter = 'm';
    check_eq(write(target.input, &letter, 1), 1);
    struct pollfd item = {.fd = target.output, .events = POLLIN};
    unsigned looks = 0, odd = 0;
    do {
        check_eq(look(target.pid), 1);
        check_eq(found.page.pid, target.pid);
        odd += found.page.sequence % 2;
        looks++;
    } while (poll(&item, 1, 0) == 0);
    check(looks > 1 && odd < looks);
    check_eq(count_descriptors(target.pid, "socket:", false), 2);
    check_eq(end_target(), 0);
}

/* Its number 1, as it sees itself. */
static pid_t child_of(pid_t parent) {
    char path[64], text[64] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    int file = open(path, O_RDONLY);
    check(file < 0 || read(file, text, sizeof text - 1) >= 0);
    close(file);
    return atoi(text);
}

TEST(a_target_in_other_namespaces_is_reached_through_its_root) {
    char root[64];
    start_as(IN_NAMESPACES, "control:write,control_dir:/mnt/inside", "");
    pid_t inside = child_of(target.pid);
    if (inside <= 0) {
        skip("the kernel does not tell children of processes");
    }
    check_eq(look(inside), 1);
    check_eq(found.page.pid, 1);
    check_str(found.page.socket_path, "/mnt/inside/1.sock");
    snprintf(root, sizeof root, "/proc/%d/root", (int)inside);
    int fd = connect_below(root, found.page.socket_path);
    check(fd >= 0);
    check(begins(ask(fd, "hello"), "ok version=" TALLY_VERSION " pid=1 "));
    check(strstr(output_of(fd, "maps", "ok "), "test_control") != NULL);
    check_eq(end_target(), 0);
}

/* Three processes with the number 1, each in namespaces of its own, and one directory for all. */
TEST(s03_a_socket_that_is_served_is_left_alone_and_a_dead_one_is_replaced) {
    char conf[200], folder[] = "/var/tmp/tally-control-XXXXXX", first[80];
    check(mkdtemp(folder) != NULL);
    snprintf(conf, sizeof conf, "control:read,control_dir:%s", folder);
    snprintf(first, sizeof first, "%s/1.sock", folder);
    start_as(IN_NAMESPACES, conf, "");
    pid_t served = child_of(target.pid);
    if (served <= 0) {
        skip("the kernel does not tell children of processes");
    }
    check_eq(look(served), 1);
    check_str(found.page.socket_path, first);
    int input = target.input;
    pid_t parent = target.pid;
    start_as(IN_NAMESPACES, conf, "");
    check_eq(look(child_of(target.pid)), 1);
    check(begins(found.page.socket_path, folder));
    check(strncmp(found.page.socket_path + strlen(folder), "/1-", 3) == 0);
    int fd = connect_below("", first);
    check(fd >= 0 && begins(ask(fd, "hello"), "ok "));
    check_eq(end_target(), 0);
    kill(served, SIGKILL);
    check_eq(waitpid(parent, NULL, 0), parent);
    close(input);
    check(access(first, F_OK) == 0); /* Nobody was left to remove it. */
    start_as(IN_NAMESPACES, conf, "");
    check_eq(look(child_of(target.pid)), 1);
    check_str(found.page.socket_path, first);
    fd = connect_below("", first);
    check(fd >= 0 && begins(ask(fd, "hello"), "ok "));
    strcpy(target.folder, folder);
    check_eq(end_target(), 0);
}
