/* SPDX-License-Identifier: MIT
 *
 * test_cxx.cc - the C++ side: every form of operator new and delete, and what they promise when
 * memory runs out.
 *
 * The library is written in C and does not link the C++ runtime, yet its operators have to call
 * the new-handler in a loop and to throw std::bad_alloc when there is one. This program brings
 * the runtime with it. The operators are called by name, because the compiler may elide a
 * new-expression together with its delete-expression.
 */
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <malloc.h>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "test.h"

/* Not every compiler declares the sized forms by itself. */
void operator delete(void *p, std::size_t size) noexcept;
void operator delete[](void *p, std::size_t size) noexcept;
void operator delete(void *p, std::size_t size, std::align_val_t alignment) noexcept;
void operator delete[](void *p, std::size_t size, std::align_val_t alignment) noexcept;

TEST_SETUP(require_tally);

namespace {

const std::size_t impossible_sizes[] = {SIZE_MAX, SIZE_MAX - 100, std::size_t(1) << 63, PTRDIFF_MAX,
                                        std::size_t(1) << 48};
const std::size_t sizes[] = {0, 1, 8, 16, 100, 1000, 1024, 1025, 5000, 32768, 40000, 3 << 20};

struct too_many_calls {};

int handler_calls;

std::size_t opaque(std::size_t value) {
    volatile std::size_t hidden = value;
    return hidden;
}

/* One launder per use: a pointer that was deleted is not to be mentioned again. */
void *null_pointer() {
    return test_launder(nullptr);
}

bool aligned_to(const void *p, std::size_t alignment) {
    return (reinterpret_cast<std::uintptr_t>(p) & (alignment - 1)) == 0;
}

void check_block(void *p, std::size_t size, std::size_t alignment) {
    check(p != nullptr);
    check(aligned_to(p, alignment));
    check(malloc_usable_size(p) >= size);
    std::memset(p, 0x5a, size);
}

} /* namespace */

TEST(the_operators_are_those_of_the_library) {
    const char *names[] = {"_Znwm", "_Znam", "_ZdlPv", "_ZdlPvm", "_ZnwmSt11align_val_t"};
    for (const char *name : names) {
        Dl_info info;
        void *symbol = dlsym(RTLD_DEFAULT, name);
        check(symbol != nullptr);
        check(dladdr(symbol, &info) != 0);
        check(std::strstr(info.dli_fname, "libtally.so") != nullptr);
    }
}

TEST(plain_forms_serve_every_size) {
    for (std::size_t size : sizes) {
        void *p = ::operator new(size);
        check_block(p, size, 16);
        ::operator delete(p);
        p = ::operator new(size);
        check_block(p, size, 16);
        ::operator delete(p, size);
        p = ::operator new[](size);
        check_block(p, size, 16);
        ::operator delete[](p);
        p = ::operator new[](size);
        check_block(p, size, 16);
        ::operator delete[](p, size);
    }
}

TEST(nothrow_forms_serve_every_size) {
    for (std::size_t size : sizes) {
        void *p = ::operator new(size, std::nothrow);
        check_block(p, size, 16);
        ::operator delete(p, std::nothrow);
        p = ::operator new[](size, std::nothrow);
        check_block(p, size, 16);
        ::operator delete[](p, std::nothrow);
    }
}

TEST(aligned_forms_serve_every_size_and_alignment) {
    for (std::size_t alignment = 1; alignment <= (1 << 22); alignment *= 2) {
        std::align_val_t value{alignment};
        std::size_t least = alignment < 16 ? 16 : alignment;
        for (std::size_t size : sizes) {
            void *p = ::operator new(size, value);
            check_block(p, size, least);
            ::operator delete(p, value);
            p = ::operator new(size, value);
            ::operator delete(p, size, value);
            p = ::operator new[](size, value);
            check_block(p, size, least);
            ::operator delete[](p, value);
            p = ::operator new[](size, value);
            ::operator delete[](p, size, value);
            p = ::operator new(size, value, std::nothrow);
            check_block(p, size, least);
            ::operator delete(p, value, std::nothrow);
            p = ::operator new[](size, value, std::nothrow);
            check_block(p, size, least);
            ::operator delete[](p, value, std::nothrow);
        }
    }
}

TEST(deleting_null_does_nothing) {
    std::align_val_t value{64};
    errno = 4242;
    ::operator delete(null_pointer());
    ::operator delete[](null_pointer());
    ::operator delete(null_pointer(), std::size_t(8));
    ::operator delete[](null_pointer(), std::size_t(8));
    ::operator delete(null_pointer(), std::nothrow);
    ::operator delete[](null_pointer(), std::nothrow);
    ::operator delete(null_pointer(), value);
    ::operator delete[](null_pointer(), value);
    ::operator delete(null_pointer(), std::size_t(8), value);
    ::operator delete[](null_pointer(), std::size_t(8), value);
    ::operator delete(null_pointer(), value, std::nothrow);
    ::operator delete[](null_pointer(), value, std::nothrow);
    check_eq(errno, 4242);
}

TEST(two_blocks_of_zero_bytes_differ) {
    void *a = ::operator new(opaque(0));
    void *b = ::operator new(opaque(0));
    check(a != nullptr && b != nullptr && a != b);
    ::operator delete(a);
    ::operator delete(b);
}

namespace {

/* Calls every throwing form and counts the bad_allocs. */
int count_bad_allocs(std::size_t size) {
    std::align_val_t value{64};
    int thrown = 0;
    for (int form = 0; form < 4; form++) {
        void *p = nullptr;
        try {
            p = form == 0   ? ::operator new(size)
                : form == 1 ? ::operator new[](size)
                : form == 2 ? ::operator new(size, value)
                            : ::operator new[](size, value);
        } catch (const std::bad_alloc &) {
            thrown++;
        }
        check(p == nullptr);
    }
    return thrown;
}

void check_all_nothrow_forms_give_null(std::size_t size) {
    std::align_val_t value{64};
    check(::operator new(size, std::nothrow) == nullptr);
    check(::operator new[](size, std::nothrow) == nullptr);
    check(::operator new(size, value, std::nothrow) == nullptr);
    check(::operator new[](size, value, std::nothrow) == nullptr);
}

} /* namespace */

TEST(impossible_sizes_throw_bad_alloc) {
    for (std::size_t size : impossible_sizes) {
        check_eq(count_bad_allocs(opaque(size)), 4);
    }
}

TEST(impossible_sizes_give_null_with_nothrow) {
    for (std::size_t size : impossible_sizes) {
        check_all_nothrow_forms_give_null(opaque(size));
    }
}

TEST(the_new_handler_is_called_until_it_gives_up) {
    std::set_new_handler([] {
        if (++handler_calls == 5) {
            std::set_new_handler(nullptr);
        }
    });
    check_eq(count_bad_allocs(opaque(SIZE_MAX)), 4);
    check_eq(handler_calls, 5);
}

TEST(the_new_handler_is_called_by_every_form) {
    std::new_handler handler = [] {
        handler_calls++;
        std::set_new_handler(nullptr);
    };
    std::align_val_t value{64};
    std::size_t size = opaque(SIZE_MAX - 4096);
    for (int form = 0; form < 4; form++) {
        std::set_new_handler(handler);
        void *p = form == 0   ? ::operator new(size, std::nothrow)
                  : form == 1 ? ::operator new[](size, std::nothrow)
                  : form == 2 ? ::operator new(size, value, std::nothrow)
                              : ::operator new[](size, value, std::nothrow);
        check(p == nullptr);
        check_eq(handler_calls, form + 1);
    }
    for (int form = 0; form < 4; form++) {
        handler_calls = 0;
        std::set_new_handler(handler);
        check_eq(count_bad_allocs(size), 4);
        check_eq(handler_calls, 1);
    }
}

TEST(an_exception_of_the_handler_passes_through_the_throwing_forms) {
    std::set_new_handler([] {
        if (++handler_calls == 3) {
            throw too_many_calls();
        }
    });
    std::align_val_t value{64};
    for (int form = 0; form < 4; form++) {
        bool caught = false;
        handler_calls = 0;
        try {
            void *p = form == 0   ? ::operator new(opaque(SIZE_MAX))
                      : form == 1 ? ::operator new[](opaque(SIZE_MAX))
                      : form == 2 ? ::operator new(opaque(SIZE_MAX), value)
                                  : ::operator new[](opaque(SIZE_MAX), value);
            check(p == nullptr);
        } catch (const too_many_calls &) {
            caught = true;
        }
        check(caught);
        check_eq(handler_calls, 3);
    }
}

TEST(nothrow_forms_give_null_when_the_handler_throws) {
    std::set_new_handler([] {
        handler_calls++;
        throw std::bad_alloc();
    });
    check_all_nothrow_forms_give_null(opaque(SIZE_MAX));
    check_eq(handler_calls, 4);
}

TEST(memory_found_by_the_handler_is_used) {
    static rlimit limit;
    check_eq(getrlimit(RLIMIT_AS, &limit), 0);
    rlimit small = limit;
    small.rlim_cur = 1 << 20;
    std::set_new_handler([] {
        handler_calls++;
        setrlimit(RLIMIT_AS, &limit);
    });
    check_eq(setrlimit(RLIMIT_AS, &small), 0);
    const std::size_t size = std::size_t(600) << 20;
    char *p = static_cast<char *>(::operator new(size));
    check_eq(handler_calls, 1);
    p[0] = p[size - 1] = 1;
    ::operator delete(p);
}

namespace {

struct counted {
    static int alive;
    long value;
    counted() : value(42) {
        alive++;
    }
    ~counted() {
        alive--;
    }
};
int counted::alive;

struct alignas(4096) page_aligned {
    char bytes[100];
};

struct throwing {
    throwing() {
        throw too_many_calls();
    }
    char bytes[200];
};

} /* namespace */

TEST(expressions_construct_and_destroy) {
    for (int i = 0; i < 1000; i++) {
        counted *one = new counted;
        counted *many = new counted[10];
        check_eq(counted::alive, 11);
        check_eq(many[9].value, 42);
        delete one;
        delete[] many;
        check_eq(counted::alive, 0);
    }
    for (int i = 0; i < 100; i++) {
        page_aligned *one = new page_aligned;
        page_aligned *many = new page_aligned[3];
        check(aligned_to(one, 4096) && aligned_to(many, 4096));
        delete one;
        delete[] many;
    }
}

TEST(a_throwing_constructor_gives_its_memory_back) {
    struct mallinfo2 before = mallinfo2();
    for (int i = 0; i < 100000; i++) {
        bool caught = false;
        try {
            delete new throwing;
        } catch (const too_many_calls &) {
            caught = true;
        }
        check(caught);
    }
    check(mallinfo2().uordblks < before.uordblks + (1 << 20));
}

TEST(containers_and_strings_live_on_the_heap) {
    std::map<std::string, std::vector<int>> map;
    for (int i = 0; i < 20000; i++) {
        map["key number " + std::to_string(i % 777)].push_back(i);
    }
    check_eq(map.size(), 777);
    long sum = 0;
    for (const auto &entry : map) {
        for (int value : entry.second) {
            sum += value;
        }
    }
    check_eq(sum, 20000L * 19999 / 2);
}

namespace {

struct kept_by_thread {
    std::vector<std::string> words;
    ~kept_by_thread() {
        words.emplace_back("allocated while the thread ends, and long enough for the heap");
        check_eq(words.size(), 101);
    }
};

} /* namespace */

TEST(thread_local_objects_may_allocate_while_the_thread_ends) {
    for (int i = 0; i < 200; i++) {
        std::thread([] {
            thread_local kept_by_thread kept;
            for (int j = 0; j < 100; j++) {
                kept.words.emplace_back(static_cast<std::size_t>(j), 'x');
            }
        }).join();
    }
}

TEST(bad_alloc_is_thrown_in_threads_too) {
    int thrown = 0;
    std::thread([&thrown] { thrown = count_bad_allocs(opaque(SIZE_MAX)); }).join();
    check_eq(thrown, 4);
}

TEST(a_block_of_new_may_be_freed_by_another_thread) {
    std::vector<std::unique_ptr<std::string>> strings;
    for (int i = 0; i < 5000; i++) {
        strings.push_back(std::make_unique<std::string>(static_cast<std::size_t>(i % 300), 'y'));
    }
    std::thread([&strings] {
        for (int i = 0; i < 5000; i++) {
            check_eq(strings[static_cast<std::size_t>(i)]->size(), i % 300);
        }
        strings.clear();
    }).join();
    check(strings.empty());
}
