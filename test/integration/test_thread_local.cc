// SPDX-License-Identifier: MIT
//
// test_thread_local.cc - objects of C++ with a thread's lifetime.
//
// Destructors of thread_local objects run before those of pthread keys, and an object may come to
// life inside the destructor of another.  Containers free what they hold there and may allocate
// anew.  Exceptions leave the thread's functions meanwhile, which allocate as well.

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <malloc.h>
#include <stdlib.h>

#include <tally/tally.h>

#include "test.h"

TEST_SETUP(require_tally);

namespace {

constexpr unsigned THREADS = 300;

unsigned count_of_ends; // written by one thread at a time

// Comes to life in the destructor of the other one.
struct Latecomer {
    std::vector<std::string> lines;
    ~Latecomer() {
        lines.emplace_back(5000, 'z');
        count_of_ends++;
    }
};

thread_local Latecomer latecomer;

struct Holder {
    std::map<int, std::string> words;
    std::vector<std::unique_ptr<char[]>> blocks;
    ~Holder() {
        blocks.clear();
        for (int i = 0; i < 50; i++) {
            words[i + 1000] = std::string(static_cast<size_t>(i) * 20, 'y');
        }
        latecomer.lines.assign(20, std::string(300, 'x'));
        count_of_ends++;
    }
};

thread_local Holder holder;

void fill_holder(unsigned seed) {
    for (unsigned i = 0; i < 100; i++) {
        holder.words[static_cast<int>(i)] = std::string(i * seed % 500, 'w');
        holder.blocks.push_back(std::make_unique<char[]>(i * 50 + 1));
    }
}

void throw_and_catch() {
    try {
        throw std::runtime_error(std::string(200, 'e'));
    } catch (const std::exception &caught) {
        check_eq(std::string(caught.what()).size(), 200);
    }
}

void run_threads(unsigned count, void (*body)(unsigned)) {
    for (unsigned i = 0; i < count; i++) {
        std::thread thread(body, i);
        thread.join();
    }
}

size_t live_bytes() {
    struct tally_totals now;
    tally_totals(&now);
    return now.live;
}

void check_nothing_stays(void (*body)(unsigned)) {
    run_threads(100, body); // the main thread earns its own heap here
    count_of_ends = 0;
    tally_purge(); // a heap may wait for the next thread
    size_t live = live_bytes();
    size_t heaps = mallinfo2().ordblks;
    run_threads(THREADS, body);
    check_eq(count_of_ends, 2 * THREADS);
    check_eq(live_bytes(), live);
    tally_purge();
    check_eq(mallinfo2().ordblks, heaps);
    tally_verify();
}

} // namespace

TEST(thread_local_containers_are_freed_with_their_thread) {
    check_nothing_stays([](unsigned seed) { fill_holder(seed); });
}

TEST(thread_local_containers_are_freed_after_exceptions) {
    check_nothing_stays([](unsigned seed) {
        throw_and_catch();
        fill_holder(seed);
        throw_and_catch();
    });
}

// The thread does nothing but bring the object to life; all allocation is in destructors.
TEST(thread_local_destructors_allocate_in_a_thread_that_never_did) {
    check_nothing_stays([](unsigned) { check(holder.words.empty()); });
}
