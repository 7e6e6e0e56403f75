// SPDX-License-Identifier: MIT
//
// program_late_plugin.cc - a plugin in C++ that asks operator new for more than there is, in every
// form, with and without a new-handler. Opened by program_late_host.c for test_late_cxx.sh.
#include <cstddef>
#include <cstdint>
#include <new>

extern "C" const char *find_fault();

namespace {

const std::align_val_t alignment{256};
volatile std::size_t impossible = std::size_t{1} << 62;
int handler_calls;

// As the standard wants it: a handler that cannot help leaves, or takes itself away.
void give_up_at_third_call() {
    if (++handler_calls == 3) {
        std::set_new_handler(nullptr);
    }
}

void throw_bad_alloc() {
    handler_calls++;
    throw std::bad_alloc();
}

template <typename Allocate> bool throws(Allocate allocate) {
    try {
        ::operator delete(allocate());
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

template <typename Allocate>
bool calls_handler(std::new_handler handler, int expected, Allocate allocate) {
    handler_calls = 0;
    std::set_new_handler(handler);
    bool as_promised = allocate();
    std::set_new_handler(nullptr);
    return as_promised && handler_calls == expected;
}

bool plain_throws() {
    return throws([] { return ::operator new(impossible); });
}

bool aligned_throws() {
    return throws([] { return ::operator new(impossible, alignment); });
}

bool nothrow_is_null() {
    return ::operator new(impossible, std::nothrow) == nullptr;
}

bool aligned_nothrow_is_null() {
    return ::operator new(impossible, alignment, std::nothrow) == nullptr;
}

} // namespace

// Returns what is wrong, or nullptr.
const char *find_fault() {
    int *number = new int(7);
    bool right = *number == 7;
    delete number;
    if (!right) {
        return "new of an int";
    }
    if (!plain_throws() || !throws([] { return ::operator new[](impossible); })) {
        return "new of an impossible size did not throw";
    }
    if (!aligned_throws()) {
        return "aligned new of an impossible size did not throw";
    }
    if (!nothrow_is_null() || !aligned_nothrow_is_null()) {
        return "nothrow new of an impossible size gave a block";
    }
    if (!calls_handler(give_up_at_third_call, 3, plain_throws) ||
        !calls_handler(give_up_at_third_call, 3, aligned_throws)) {
        return "new did not call the new-handler until it gave up";
    }
    if (!calls_handler(give_up_at_third_call, 3, nothrow_is_null) ||
        !calls_handler(give_up_at_third_call, 3, aligned_nothrow_is_null)) {
        return "nothrow new did not call the new-handler until it gave up";
    }
    if (!calls_handler(throw_bad_alloc, 1, nothrow_is_null) ||
        !calls_handler(throw_bad_alloc, 1, aligned_nothrow_is_null)) {
        return "nothrow new did not swallow what the new-handler threw";
    }
    return nullptr;
}
