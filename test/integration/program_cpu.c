/* SPDX-License-Identifier: MIT
 *
 * program_cpu.c - what test_cpu_files.sh runs: computes until it was sampled, and ends in a way of its choice.
 *
 *      program_cpu WHAT
 *
 *      spin         50 samples, then exit        forks       a child that is sampled, too
 *      killed       SIGKILL after a flush        execs       becomes itself, as spin
 *      api FILE     ProfilerStart and its kin    toggle N    the signal N twice on, twice off
 *      plain        computes a little; no profile is expected
 *      chdir        goes to / before it ends     worker N    as toggle, in a child that began without
 *      default      gives all signals back       confined    a thread begins behind a filter of system calls
 */
#include <gperftools/profiler.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile unsigned long sink;

static void compute(void) {
    for (unsigned i = 0; i < 100000; i++) {
        sink += i;
    }
}

static struct ProfilerState look(void) {
    struct ProfilerState state;
    ProfilerGetCurrentState(&state);
    return state;
}

static void spin(int samples) {
    while (look().samples_gathered < samples) {
        compute();
    }
}

static void expect(int condition, const char *what) {
    if (!condition) {
        printf("not so: %s\n", what);
        exit(3);
    }
}

/* Slow calls, after which a child goes on with its profile. */
static void allocate(void) {
    for (int i = 0; i < 1000; i++) {
        free(malloc((size_t)1 << 20));
    }
}

static int refuse(void *unused) {
    (void)unused;
    return 0;
}

static void use_api(const char *file) {
    struct ProfilerOptions options = {refuse, NULL};
    expect(!look().enabled && !ProfilingIsEnabledForAllThreads(), "it is off");
    expect(!ProfilerStart("/nonexistent/file"), "a folder that is not there is refused");
    expect(ProfilerStart(file), "it starts");
    expect(!ProfilerStart("other"), "it starts once");
    struct ProfilerState state = look();
    expect(state.enabled && strcmp(state.profile_name, file) == 0, "the state has the name");
    expect(state.start_time > 1600000000, "the state has the time");
    ProfilerRegisterThread();
    ProfilerEnable();
    ProfilerDisable();
    spin(5);
    ProfilerFlush();
    spin(20);
    ProfilerStop();
    expect(!look().enabled && look().profile_name[0] == '\0', "it stops");
    expect(ProfilerStartWithOptions(file, &options), "it starts again, over its own file");
    for (int i = 0; i < 200; i++) {
        compute();
    }
    expect(look().samples_gathered == 0, "a filter is asked");
    ProfilerStop();
    expect(ProfilerStart(file), "and again");
    spin(20);
    ProfilerStop();
}

static void toggle(int number) {
    for (int i = 0; i < 2; i++) {
        expect(!look().enabled, "it is off");
        raise(number);
        spin(20);
        raise(number);
        while (look().enabled) {
            compute();
        }
    }
}

/* The signal comes when the child has been asked by its own thread. */
static int toggle_in_child(int number) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 10; i++) {
            allocate();
        }
        raise(number);
        spin(20);
        exit(0);
    }
    waitpid(child, &status, 0);
    return status != 0;
}

/* As supervisors do; the profile ends, and the process does not. */
static void reset_signals(void) {
    spin(20);
    for (int number = SIGRTMIN; number <= SIGRTMAX; number++) {
        signal(number, SIG_IGN);
    }
    while (look().enabled) {
        compute();
    }
}

static void *be_thread(void *unused) {
    free(malloc(1000));
    compute();
    return unused;
}

/* The filter ends whoever makes or deletes a timer, or opens a file. */
static int confine_and_begin_threads(void) {
    static struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_timer_create, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_timer_delete, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog filter = {sizeof rules / sizeof rules[0], rules};
    spin(20);
    ProfilerFlush();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        return 77;
    }
    for (int i = 0; i < 10; i++) {
        pthread_t thread;
        expect(pthread_create(&thread, NULL, be_thread, NULL) == 0, "a thread begins");
        pthread_join(thread, NULL);
    }
    return 0;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    alarm(600); /* One that is never sampled would never end. */
    if (strcmp(what, "spin") == 0) {
        spin(50);
    } else if (strcmp(what, "killed") == 0) {
        spin(20);
        ProfilerFlush();
        raise(SIGKILL);
    } else if (strcmp(what, "forks") == 0) {
        spin(20);
        int status = 0;
        pid_t child = fork();
        allocate();
        spin(40);
        if (child != 0) {
            waitpid(child, &status, 0);
        }
        return status != 0;
    } else if (strcmp(what, "execs") == 0) {
        spin(20);
        execl("/proc/self/exe", words[0], "spin", (char *)NULL);
    } else if (strcmp(what, "api") == 0) {
        use_api(words[2]);
    } else if (strcmp(what, "toggle") == 0) {
        toggle(atoi(words[2]));
    } else if (strcmp(what, "chdir") == 0) {
        expect(chdir("/") == 0, "there is a root");
        spin(20);
        ProfilerFlush();
        expect(look().profile_name[0] != '/', "the name is as it was given");
    } else if (strcmp(what, "worker") == 0) {
        return toggle_in_child(atoi(words[2]));
    } else if (strcmp(what, "default") == 0) {
        reset_signals();
    } else if (strcmp(what, "confined") == 0) {
        return confine_and_begin_threads();
    } else if (strcmp(what, "plain") == 0) {
        compute();
    } else {
        return 2;
    }
    return 0;
}
