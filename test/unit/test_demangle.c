/* SPDX-License-Identifier: MIT
 *
 * test_demangle.c - names of Rust and C++ for people, short ones, and what is left alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "names/demangle.h"
#include "test.h"

static char out[DEMANGLE_OUT_BYTES];

static const char *rust(const char *name) {
    return demangle_rust(name, out) ? out : "no";
}

static const char *shortened(const char *name) {
    demangle_shorten(name, out);
    return out;
}

TEST(legacy_names_of_rust_lose_their_hash) {
    check_str(rust("_ZN4core3ptr13drop_in_place17h0123456789abcdefE"), "core::ptr::drop_in_place");
    check_str(rust("_ZN4core3ptr13drop_in_place17h0123456789abcdefE.llvm.1234"),
              "core::ptr::drop_in_place");
}

TEST(legacy_escapes_are_undone) {
    check_str(rust("_ZN66_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..ops..drop..Drop$GT$4drop17h"
                   "0123456789abcdefE"),
              "<alloc::vec::Vec<T> as core::ops::drop::Drop>::drop");
    check_str(rust("_ZN1r10a$C$b$RF$c17h0123456789abcdefE"), "r::a,b&c");
    check_str(rust("_ZN1r9a$C$b$RF$c17h0123456789abcdefE"), "no"); /* a wrong length */
    check_str(rust("_ZN1r14gr$uf6$$udf$ed17h0123456789abcdefE"), "r::gr\xc3\xb6\xc3\x9f"
                                                                 "ed");
    check_str(rust("_ZN1r4a.$b17h0123456789abcdefE"), "r::a.$b");
}

TEST(names_of_cxx_are_none_of_rust) {
    check_str(rust("_ZN3foo3barEv"), "no");
    check_str(rust("_ZN3foo17h0000000000000000E"), "no"); /* hashes have more than one digit */
    check_str(rust("_ZN17h0123456789abcdefE"), "no");
    check_str(rust("main"), "no");
    check_str(rust(""), "no");
    check_str(rust("_R"), "no");
    check_str(rust("_ZN"), "no");
}

/* Names and results are those of RFC 2603 and of rustc. */
TEST(v0_paths_are_read) {
    check_str(rust("_RNvC7mycrate3foo"), "mycrate::foo");
    check_str(rust("_RNvCs15kBYyAo9fc_7mycrate7example"), "mycrate::example");
    check_str(rust("_RNvCs15kBYyAo9fc_7mycrate7example.llvm.33"), "mycrate::example");
    check_str(rust("_RNCNvC4bind3foo0"), "bind::foo::{closure#0}");
    check_str(rust("_RNCNvC4bind3foos_0"), "bind::foo::{closure#1}");
    check_str(rust("_RNSNvC4bind3foo6vtable"), "bind::foo::{shim:vtable#0}");
    check_str(rust("_RNvMs_C7mycrateNtB4_3Foo3bar"), "<mycrate::Foo>::bar");
    check_str(rust("_RNvXs_C7mycrateNtB4_3FooNtB4_3Bar3baz"),
              "<mycrate::Foo as mycrate::Bar>::baz");
    check_str(rust("_RINvC7mycrate3fooyhE"), "mycrate::foo::<u64, u8>");
    check_str(rust("_RINvC7mycrate3fooNtB2_3BarEB2_"), "mycrate::foo::<mycrate::Bar>");
}

TEST(v0_types_are_read) {
    check_str(rust("_RINvC1a1bRhQtPlOeE"), "a::b::<&u8, &mut u16, *const i32, *mut str>");
    check_str(rust("_RINvC1a1bAhj3_ShTEThETmiEE"),
              "a::b::<[u8; 3], [u8], (), (u8,), (u32, isize)>");
    check_str(rust("_RINvC1a1bFEuFUKChEzFK9fast_calltEuE"),
              "a::b::<fn(), unsafe extern \"C\" fn(u8) -> !, extern \"fast-call\" fn(u16)>");
    check_str(rust("_RINvC1a1bDNtC1c1tEL_E"), "a::b::<dyn c::t>");
    check_str(rust("_RINvC1a1bDINtC1c1thEp4ItemlEL_E"), "a::b::<dyn c::t<u8, Item = i32>>");
    check_str(rust("_RINvC1a1bFG_RL0_hEuE"), "a::b::<for<'a> fn(&'a u8)>");
    check_str(rust("_RINvC1a1bFG0_RL1_hRL0_hEuE"), "a::b::<for<'a, 'b> fn(&'a u8, &'b u8)>");
}

TEST(v0_constants_are_read) {
    check_str(rust("_RINvC1a1bKj7b_E"), "a::b::<123>");
    check_str(rust("_RINvC1a1bKan80_E"), "a::b::<-128>");
    check_str(rust("_RINvC1a1bKb0_Kb1_E"), "a::b::<false, true>");
    check_str(rust("_RINvC1a1bKc76_Kca_Kc2202_E"), "a::b::<'v', '\\n', '\\u{2202}'>");
    check_str(rust("_RINvC1a1bKo100000000000000000_E"), "a::b::<0x100000000000000000>");
    check_str(rust("_RINvC1a1bKpE"), "a::b::<_>");
    check_str(rust("_RINvC1a1bKb2_E"), "no");
    check_str(rust("_RINvC1a1bKcd800_E"), "no"); /* half of a pair is no character */
}

TEST(v0_punycode_is_read) {
    check_str(
        rust("_RNqCs4fqI2P2rA04_11utf8_identsu30____7hkackfecea1cbdathfdh9hlq6y"),
        "utf8_idents::\xe1\x83\xa1\xe1\x83\x90\xe1\x83\xad\xe1\x83\x9b\xe1\x83\x94\xe1\x83\x9a\xe1"
        "\x83\x90\xe1\x83\x93_\xe1\x83\x92\xe1\x83\x94\xe1\x83\x9b\xe1\x83\xa0\xe1\x83\x98\xe1\x83"
        "\x94\xe1\x83\x9a\xe1\x83\x98_\xe1\x83\xa1\xe1\x83\x90\xe1\x83\x93\xe1\x83\x98\xe1\x83\x9a"
        "\xe1\x83\x98");
    check_str(rust("_RNvC1au7gre_pla"), "a::\xc3\xa4gre");
    check_str(rust("_RNvC1au7gre_PLA"), "no");
    check_str(rust("_RNvC1au12gre_99999999"), "no"); /* beyond all characters */
}

TEST(v0_names_that_refer_to_themselves_end) {
    check_str(rust("_RNvB_1a"), "no");
    check_str(rust("_RB_"), "no");
    check_str(rust("_RINvC1a1bB9_E"), "no");
    /* Each T has two of the one before: 2 to the power of what fits. */
    static char bomb[DEMANGLE_IN_MOST];
    size_t used = (size_t)sprintf(bomb, "_RINvC1a1bTllE");
    unsigned at = 8; /* of the first T, behind _R */
    for (unsigned i = 0; i < 60; i++) {
        char reference[16];
        unsigned number = at - 1, digits = 0;
        char reversed[8];
        do {
            unsigned digit = number % 62;
            reversed[digits++] = (char)(digit < 10   ? '0' + digit
                                        : digit < 36 ? 'a' + digit - 10
                                                     : 'A' + digit - 36);
            number /= 62;
        } while (number > 0);
        size_t length = 0;
        reference[length++] = 'B';
        while (digits > 0) {
            reference[length++] = reversed[--digits];
        }
        reference[length++] = '_';
        reference[length] = '\0';
        at = (unsigned)used - 2;
        used += (size_t)sprintf(bomb + used, "T%s%sE", reference, reference);
    }
    sprintf(bomb + used, "E");
    check_str(rust(bomb), "no");
}

TEST(names_that_nest_too_deep_stay) {
    static char deep[DEMANGLE_IN_MOST + 16];
    strcpy(deep, "_RINvC1a1b");
    memset(deep + strlen(deep), 'R', 300);
    strcat(deep, "hE");
    check_str(rust(deep), "no");
    memset(deep + 10, 0, 400);
    memset(deep + 10, 'R', 200);
    strcat(deep, "hE");
    check(strncmp(rust(deep), "a::b::<&&&&", 11) == 0);
}

TEST(names_that_are_too_long_stay) {
    static char name[DEMANGLE_IN_MOST + 64];
    sprintf(name, "_RNvC1a%d_", DEMANGLE_IN_MOST - 20);
    memset(name + strlen(name), 'x', DEMANGLE_IN_MOST - 20);
    check(demangle_rust(name, out));
    memset(name, 0, sizeof name);
    sprintf(name, "_RNvC1a%d_", DEMANGLE_IN_MOST);
    memset(name + strlen(name), 'x', DEMANGLE_IN_MOST);
    check(!demangle_rust(name, out));
    check(!demangle(name, out));
}

TEST(names_of_cxx_are_left_to_libstdcxx) {
    if (!demangle_open()) {
        skip("libstdc++.so.6 is not installed");
    }
    check(demangle("_ZN3foo3barEi", out));
    check_str(out, "foo::bar(int)");
    check(demangle("_ZNSt6vectorIiSaIiEE9push_backEOi", out));
    check_str(out, "std::vector<int, std::allocator<int> >::push_back(int&&)");
    check(demangle("_ZN4core3ptr13drop_in_place17h0123456789abcdefE", out));
    check_str(out, "core::ptr::drop_in_place");
    check(!demangle("main", out));
    check(!demangle("_Zwhatever", out));
    check(!demangle("i", out)); /* which is a type to libstdc++ */
}

/* Parameters that each have two of the one before: the last would have gigabytes. */
TEST(a_name_of_cxx_that_explodes_is_ended_by_the_timer) {
    static char bomb[DEMANGLE_IN_MOST];
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    if (!demangle_open()) {
        skip("libstdc++.so.6 is not installed");
    }
    strcpy(bomb, "_Z1f1aIiiE");
    for (unsigned i = 0; i < 4; i++) {
        sprintf(bomb + strlen(bomb), "S_IS%c_S%c_E", digits[i], digits[i]);
    }
    check(demangle(bomb, out));
    for (unsigned i = 4; i < 34; i++) {
        sprintf(bomb + strlen(bomb), "S_IS%c_S%c_E", digits[i], digits[i]);
    }
    check_dies(demangle(bomb, out), "", SIGVTALRM);
}

/* Shorter than what the timer notices, longer than what is wanted. */
TEST(a_name_of_cxx_that_becomes_too_long_stays) {
    static char name[DEMANGLE_IN_MOST];
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    if (!demangle_open()) {
        skip("libstdc++.so.6 is not installed");
    }
    strcpy(name, "_Z1f1aIiiE");
    for (unsigned i = 0; i < 13; i++) {
        sprintf(name + strlen(name), "S_IS%c_S%c_E", digits[i], digits[i]);
    }
    check(!demangle(name, out));
}

TEST(strings_and_containers_become_short) {
    check_str(shortened("std::__cxx11::basic_string<char, std::char_traits<char>, "
                        "std::allocator<char> >::size() const"),
              "std::string::size");
    check_str(
        shortened("std::map<std::__cxx11::basic_string<char, std::char_traits<char>, "
                  "std::allocator<char> >, std::vector<int, std::allocator<int> >, "
                  "std::less<std::__cxx11::basic_string<char, std::char_traits<char>, "
                  "std::allocator<char> > >, std::allocator<std::pair<int const, int> > >::at"),
        "std::map<std::string, std::vector<int>>::at");
    check_str(shortened("std::basic_ostream<char, std::char_traits<char> >& std::operator<< "
                        "<std::char_traits<char> >(std::basic_ostream<char, "
                        "std::char_traits<char> >&, char const*)"),
              "std::operator<< <std::char_traits<char>>");
    check_str(shortened("f<std::basic_ostream<char, std::char_traits<char> > >"),
              "f<std::ostream>");
    check_str(shortened("std::unique_ptr<A, std::default_delete<A> >::get() const"),
              "std::unique_ptr<A>::get");
    check_str(
        shortened("std::vector<std::allocator<int>, std::allocator<std::allocator<int> > >::f()"),
        "std::vector<std::allocator<int>>::f");
    check_str(shortened("std::__1::vector<int, std::__1::allocator<int> >::f()"),
              "std::vector<int>::f");
}

TEST(what_is_not_of_std_keeps_its_arguments) {
    check_str(shortened("mine<int, std::less<int> >::f"), "mine<int, std::less<int>>::f");
    check_str(shortened("notstd::basic_string<char>"), "notstd::basic_string<char>");
    check_str(shortened("main"), "main");
    check_str(shortened(""), "");
}

TEST(parameters_and_results_go) {
    check_str(shortened("f(int, std::allocator<int>)"), "f");
    check_str(shortened("unsigned long f<int>(int (*)(char), X&) const &"), "f<int>");
    check_str(shortened("std::string const& A<B>::f<C, D>(C) const"), "A<B>::f<C, D>");
    check_str(shortened("decltype(auto) f<A>(int)"), "f<A>");
    check_str(shortened("(anonymous namespace)::f(int)"), "(anonymous namespace)::f");
    check_str(shortened("void (anonymous namespace)::f<int>(int)"),
              "(anonymous namespace)::f<int>");
    check_str(shortened("main::{lambda(int)#1}::operator()(int) const"),
              "main::{lambda(int)#1}::operator()");
    check_str(shortened("A::f(int) const::{lambda()#1}::operator()() const"),
              "A::f(int) const::{lambda()#1}::operator()");
    check_str(shortened("auto A::f(int) const::{lambda(auto:1)#1}::operator()<B>(B) const"),
              "A::f(int) const::{lambda(auto:1)#1}::operator()<B>");
    check_str(shortened("A::operator unsigned int*() const"), "A::operator unsigned int*");
    check_str(shortened("operator new(unsigned long)"), "operator new");
    check_str(shortened("operator delete[](void*)"), "operator delete[]");
    check_str(shortened("non-virtual thunk to A::f(int)"), "A::f");
    check_str(shortened("vtable for A<B>"), "vtable for A<B>");
    check_str(shortened("void (*f(int))(char)"), "void (*f(int))(char)");
    check_str(shortened("<(A, B) as C<D>>::e"), "<(A, B) as C<D>>::e");
    check_str(shortened("()"), "()");
    check_str(shortened(" ()"), " ()");
    check_str(shortened("f())"), "f())");
}

TEST(tags_and_clones_go) {
    check_str(shortened("f[abi:cxx11](int)"), "f");
    check_str(shortened("f(int) [clone .cold] [clone .isra.0]"), "f");
    check_str(shortened("f[abi:"), "f[abi:");
}

TEST(operators_are_no_brackets) {
    check_str(shortened("A::operator<(A const&) const"), "A::operator<");
    check_str(shortened("A::operator->() const"), "A::operator->");
    check_str(shortened("A::operator()"), "A::operator()");
    check_str(shortened("bool operator>> <int, char>(A)"), "operator>> <int, char>");
    check_str(shortened("<fn(A) -> B as C<D>>::e"), "<fn(A) -> B as C<D>>::e");
    check_str(shortened("std::vector<int (*)(int, char), std::allocator<int (*)(int, char)> >::f"),
              "std::vector<int (*)(int, char)>::f");
}

TEST(brackets_without_a_partner_do_no_harm) {
    check_str(shortened(">>>"), ">>>");
    check_str(shortened("<<<"), "<<<");
    check_str(shortened("std::a<b,>"), "std::a<b,>");
    check_str(shortened("std::a<,"), "std::a<,");
    static char deep[1024];
    memset(deep, '<', 600);
    check_str(shortened(deep), deep);
}
