/* SPDX-License-Identifier: MIT
 *
 * test_leak_cxx.cc - what the containers of C++ hold, and lose.
 *
 * operator new is tally's here, so that containers put everything into the heap that is looked at.
 */
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <cstring>

#include <tally/tally.h>

extern "C" {
#include "leak/leak.h"
}
#include "test.h"

void *operator new(std::size_t size) {
    void *object = tally_malloc(size);
    check(object != nullptr);
    return object;
}

void *operator new[](std::size_t size) {
    return operator new(size);
}

void operator delete(void *object) noexcept {
    tally_free(object);
}

void operator delete(void *object, std::size_t) noexcept {
    tally_free(object);
}

void operator delete[](void *object) noexcept {
    tally_free(object);
}

void operator delete[](void *object, std::size_t) noexcept {
    tally_free(object);
}

/* As in leak_checks.h. */
static void need_plain_memory() {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    skip("a sanitizer watches what a search reads");
#endif
}
TEST_SETUP(need_plain_memory);

namespace {

struct item {
    std::string name;
    std::vector<int> numbers;
    virtual ~item() = default;
};

struct other {
    long rest[3];
    virtual ~other() = default;
};

/* A pointer to its second base leads past its beginning. */
struct both : item, other {};

struct world {
    std::map<std::string, item> by_name;
    std::unordered_map<int, std::shared_ptr<item>> by_number;
    std::list<std::unique_ptr<item>> in_order;
    std::deque<item> queue;
    other *second_base;
    item *array; /* of new[]: behind the number of items */
};

world *held;

__attribute__((noinline)) void wipe() {
    volatile char rest[32768];
    for (std::size_t i = 0; i < sizeof(rest); i++) {
        rest[i] = 0;
    }
    __asm__ volatile("" ::: "memory");
}

item make_item(int i) {
    item made;
    made.name = "a name that is too long to lie in the string itself " + std::to_string(i);
    made.numbers.assign(100, i);
    return made;
}

__attribute__((noinline)) void build() {
    held = new world();
    for (int i = 0; i < 300; i++) {
        item made = make_item(i);
        held->by_name[made.name] = made;
        held->by_number[i] = std::make_shared<item>(made);
        held->in_order.push_back(std::make_unique<item>(made));
        held->queue.push_back(made);
    }
    held->second_base = new both();
    held->array = new item[7];
}

uintptr_t upside_down;

__attribute__((noinline)) void hide() {
    upside_down = ~reinterpret_cast<uintptr_t>(held);
    held = nullptr;
}

world *reveal() {
    return reinterpret_cast<world *>(~upside_down);
}

__attribute__((noinline)) void destroy() {
    delete reveal()->second_base;
    delete[] reveal()->array;
    delete reveal();
}

leak_sum sum_of(const leak_result *result, leak_kind kind) {
    return result->kinds[kind];
}

leak_result *check_now() {
    leak_wish wish = {};
    leak_result *result;
    wipe();
    if (!leak_check(&wish, &result)) {
        test_fail(__FILE__, __LINE__, "leak_check");
    }
    return result;
}

} // namespace

TEST(containers_hold_all_that_is_in_them_and_lose_it_together) {
    build();
    leak_result *result = check_now();
    check_eq(sum_of(result, LEAK_DEFINITE).objects, 0);
    check_eq(sum_of(result, LEAK_INDIRECT).objects, 0);
    check_eq(sum_of(result, LEAK_POSSIBLE).objects, 0);
    uint64_t objects = result->reachable.objects, bytes = result->reachable.bytes;
    check(objects > 300 * 8);
    leak_release(result);

    hide();
    result = check_now();
    check_eq(sum_of(result, LEAK_DEFINITE).objects, 1); /* the rest hangs on it */
    check_eq(sum_of(result, LEAK_DEFINITE).bytes, tally_usable_size(reveal()));
    check_eq(sum_of(result, LEAK_POSSIBLE).objects, 0);
    check_eq(sum_of(result, LEAK_DEFINITE).objects + sum_of(result, LEAK_INDIRECT).objects +
                 result->reachable.objects,
             objects);
    check_eq(sum_of(result, LEAK_DEFINITE).bytes + sum_of(result, LEAK_INDIRECT).bytes +
                 result->reachable.bytes,
             bytes);
    leak_release(result);

    destroy();
    result = check_now();
    check_eq(sum_of(result, LEAK_DEFINITE).objects, 0);
    check_eq(sum_of(result, LEAK_INDIRECT).objects, 0);
    leak_release(result);
}

TEST(a_thread_of_the_standard_library_holds_what_it_was_given) {
    std::unique_ptr<item> given(new item(make_item(1)));
    volatile bool stops = false;
    std::thread thread([moved = std::move(given), &stops] {
        while (!stops) {
            std::this_thread::yield();
        }
    });
    leak_result *result = check_now();
    check_eq(sum_of(result, LEAK_DEFINITE).objects, 0);
    check_eq(sum_of(result, LEAK_POSSIBLE).objects, 0);
    check(result->reachable.objects >= 3);
    leak_release(result);
    stops = true;
    thread.join();
    result = check_now();
    check_eq(sum_of(result, LEAK_DEFINITE).objects, 0);
    check_eq(result->reachable.objects, 0);
    leak_release(result);
}
