/* SPDX-License-Identifier: MIT
 *
 * test_replay_storm.cc - libraries are opened and closed, exceptions are thrown, processes are
 * forked and threads allocate, all at once.
 *
 * Other allocators hung here: the loader holds its lock and allocates, the unwinder takes the
 * loader's lock and allocates, and a fork in between meets both. So the allocator must not call
 * either of them while it holds anything of its own. The parent watches for progress.
 */
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <new>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tally/tally.h>
#include <time.h>
#include <unistd.h>
#include <vector>

#include "test.h"

TEST_SETUP(require_tally);

namespace {

constexpr int slice_seconds = 3, whole_seconds = 600, patience_seconds = 120;
enum Kind { LOADER, THROWER, ALLOCATOR, FORKER, KINDS };

/* Shared with the watching parent. */
std::atomic<unsigned long> *progress;
std::atomic<bool> stop{false};

/* Small libraries that come with libc or with others; those that are absent are left out. */
const char *const libraries[] = {"libanl.so.1",        "libutil.so.1",       "libBrokenLocale.so.1",
                                 "libnss_compat.so.2", "libnss_hesiod.so.2", "libmvec.so.1",
                                 "libthread_db.so.1",  "libz.so.1"};

void sleep_ms(long milliseconds) {
    timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, nullptr);
}

void *open_and_close(void *) {
    while (!stop) {
        for (const char *name : libraries) {
            if (void *handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL)) {
                dlsym(handle, "no_such_name"); /* the message is allocated */
                dlclose(handle);
                progress[LOADER]++;
            }
        }
    }
    return nullptr;
}

/* A destructor in each frame, so that the unwinder has something to do on its way. */
void throw_from(int depth, std::string &text) {
    std::vector<std::string> garbage(3, text);
    if (depth == 0) {
        throw std::runtime_error(garbage.back());
    }
    throw_from(depth - 1, garbage[1]);
}

void *throw_and_catch(void *) {
    std::string text(50, 'x');
    while (!stop) {
        try {
            throw_from(12, text);
        } catch (const std::runtime_error &error) {
            check(std::string(error.what()) == text);
        }
        try {
            volatile std::size_t impossible = std::size_t(1) << 62; /* The compiler would refuse. */
            std::unique_ptr<char[]> none(new char[impossible]);
            check(none == nullptr);
        } catch (const std::bad_alloc &) {
            progress[THROWER]++;
        }
    }
    return nullptr;
}

void *allocate(void *) {
    std::vector<std::vector<char>> blocks(100);
    for (unsigned i = 0; !stop; i++) {
        blocks[i * 7 % 100].assign(i * 31 % 5000 + (i % 501 == 0 ? 300000 : 0), char(i));
        progress[ALLOCATOR]++;
    }
    return nullptr;
}

/* It only allocates: whether one may throw in a child that was born while another thread was in the
 * loader is for libc to say. */
void be_a_child() {
    std::vector<std::string> texts(100, std::string(100, 'y'));
    std::vector<char> large(300000, 'z');
    _exit(texts.back().size() == 100 && large.back() == 'z' ? 0 : 1);
}

void *fork_children(void *) {
    while (!stop) {
        pid_t pid = fork();
        check(pid >= 0);
        if (pid == 0) {
            be_a_child();
        }
        int status = 0;
        check(waitpid(pid, &status, 0) == pid);
        check_eq(status, 0);
        progress[FORKER]++;
        sleep_ms(1);
    }
    return nullptr;
}

void storm(int seconds) {
    void *(*const bodies[])(void *) = {open_and_close,  open_and_close, throw_and_catch,
                                       throw_and_catch, allocate,       allocate,
                                       fork_children};
    std::vector<pthread_t> threads;
    for (auto body : bodies) {
        pthread_t thread;
        check(pthread_create(&thread, nullptr, body, nullptr) == 0);
        threads.push_back(thread);
    }
    sleep_ms(seconds * 1000L);
    while (std::any_of(progress, progress + KINDS, [](const auto &steps) { return steps == 0; })) {
        sleep_ms(100); /* A busy machine has not let one of them begin. */
    }
    stop = true;
    for (pthread_t thread : threads) {
        check(pthread_join(thread, nullptr) == 0);
    }
    tally_verify();
}

/* True when every kind of thread has moved since the last look. */
bool all_move(unsigned long (&last)[KINDS]) {
    bool moved = true;
    for (int kind = 0; kind < KINDS; kind++) {
        moved = moved && progress[kind] != last[kind];
        last[kind] = progress[kind];
    }
    return moved;
}

} // namespace

TEST(loader_exceptions_forks_and_threads_do_not_hang) {
    int seconds = getenv("STRESS") != nullptr ? whole_seconds : slice_seconds;
    test_allow_seconds(static_cast<unsigned>(seconds) + TEST_SECONDS);
    void *shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(shared != MAP_FAILED);
    progress = new (shared) std::atomic<unsigned long>[KINDS];
    pid_t pid = test_child_begin(__FILE__, __LINE__);
    if (pid == 0) {
        storm(seconds);
        test_child_done();
    }
    unsigned long last[KINDS] = {};
    int status, quiet = 0;
    pid_t ended;
    while ((ended = waitpid(pid, &status, WNOHANG)) == 0 && quiet < patience_seconds * 10) {
        sleep_ms(100);
        quiet = all_move(last) ? 0 : quiet + 1;
    }
    char text[KINDS][24];
    test_say("    opened ", test_decimal(text[0], static_cast<long long>(progress[LOADER])),
             ", threw ", test_decimal(text[1], static_cast<long long>(progress[THROWER])),
             ", allocated ", test_decimal(text[2], static_cast<long long>(progress[ALLOCATOR])),
             ", forked ", test_decimal(text[3], static_cast<long long>(progress[FORKER])), "\n",
             static_cast<char *>(nullptr));
    if (ended == 0) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        test_fail(__FILE__, __LINE__, "it hangs");
    }
    check_eq(status, 0);
    for (int kind = 0; kind < KINDS; kind++) {
        check(progress[kind] > 0);
    }
}
