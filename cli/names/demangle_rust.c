/* SPDX-License-Identifier: MIT
 *
 * demangle_rust.c - names of Rust: which mangling it is, and v0 as RFC 2603 defines it.
 *
 * A v0 name is a small program, read by recursive descent; each production below prints while it
 * reads.  A back reference jumps to an earlier byte and reads it again, which can make output grow
 * without end: limits of size and depth stop that, and parts that are not printed follow no
 * references.  The hash of a crate and the types of constants are left out, as `c++filt -i` does.
 */
#include <stdio.h>
#include <string.h>

#include "names/demangle.h"
#include "names/rust_text.h"

enum { BOUND_LIFETIMES_MOST = 64 };

static void read_path(struct rust *rust, bool is_value);
static void read_type(struct rust *rust);
static void read_const(struct rust *rust);

static bool enter(struct rust *rust) {
    if (++rust->depth > DEMANGLE_DEPTH_MOST) {
        rust->failed = true;
    }
    return !rust->failed;
}

/* Where a back reference leads, with the place to come back to in *back; false: it is not followed. */
static bool begin_reference(struct rust *rust, size_t *back) {
    size_t here = rust->at - 1;
    uint64_t target = rust_read_base62(rust);
    if (rust->failed || target >= here) {
        rust->failed = true;
        return false;
    }
    *back = rust->at;
    rust->at = (size_t)target;
    return rust->silent == 0 || (rust->at = *back, false);
}

static void put_lifetime(struct rust *rust, uint64_t index) {
    rust_put_text(rust, "'");
    if (index == 0) {
        rust_put_text(rust, "_");
        return;
    }
    if (index > rust->bound_lifetimes) {
        rust->failed = true;
        return;
    }
    uint64_t depth = rust->bound_lifetimes - index;
    if (depth < 26) {
        char letter = (char)('a' + depth);
        rust_put(rust, &letter, 1);
    } else {
        rust_put_text(rust, "_");
        rust_put_number(rust, depth);
    }
}

/* for<'a, 'b>; returns their number, which the caller takes back. */
static uint64_t read_binder(struct rust *rust) {
    uint64_t count = rust_read_optional_base62(rust, 'G');
    if (count > BOUND_LIFETIMES_MOST) {
        rust->failed = true;
    }
    if (rust->failed || count == 0) {
        return 0;
    }
    rust_put_text(rust, "for<");
    for (uint64_t i = 0; i < count; i++) {
        rust_put_text(rust, i > 0 ? ", " : "");
        rust->bound_lifetimes++;
        put_lifetime(rust, 1);
    }
    rust_put_text(rust, "> ");
    return count;
}

static void read_generic_arguments(struct rust *rust) {
    for (bool is_first = true; !rust->failed && !rust_eat(rust, 'E'); is_first = false) {
        rust_put_text(rust, is_first ? "" : ", ");
        if (rust_eat(rust, 'L')) {
            put_lifetime(rust, rust_read_base62(rust));
        } else if (rust_eat(rust, 'K')) {
            read_const(rust);
        } else {
            read_type(rust);
        }
    }
}

/* A name inside a path; upper-case name spaces are things without a name: closures, shims. */
static void read_nested(struct rust *rust, bool is_value) {
    char space = rust_next(rust);
    if (!is_lower(space) && !is_upper(space)) {
        rust->failed = true;
        return;
    }
    read_path(rust, is_value);
    uint64_t number = rust_read_optional_base62(rust, 's');
    struct identifier id = rust_read_identifier(rust);
    bool has_name = id.ascii_length > 0 || id.punycode != NULL;
    if (is_lower(space)) {
        rust_put_text(rust, has_name ? "::" : "");
        rust_put_identifier(rust, id);
        return;
    }
    rust_put_text(rust, "::{");
    if (space == 'C' || space == 'S') {
        rust_put_text(rust, space == 'C' ? "closure" : "shim");
    } else {
        rust_put(rust, &space, 1);
    }
    rust_put_text(rust, has_name ? ":" : "");
    rust_put_identifier(rust, id);
    rust_put_text(rust, "#");
    rust_put_number(rust, number);
    rust_put_text(rust, "}");
}

/* <T>, <T as Trait>; the path of the impl itself says nothing to people. */
static void read_impl(struct rust *rust, char tag) {
    if (tag != 'Y') {
        rust_read_optional_base62(rust, 's');
        rust->silent++;
        read_path(rust, false);
        rust->silent--;
    }
    rust_put_text(rust, "<");
    read_type(rust);
    if (tag != 'M') {
        rust_put_text(rust, " as ");
        read_path(rust, false);
    }
    rust_put_text(rust, ">");
}

static void read_path_of(struct rust *rust, char tag, bool is_value) {
    size_t back;
    switch (tag) {
    case 'C':
        rust_read_optional_base62(rust, 's');
        rust_put_identifier(rust, rust_read_identifier(rust));
        break;
    case 'N':
        read_nested(rust, is_value);
        break;
    case 'M':
    case 'X':
    case 'Y':
        read_impl(rust, tag);
        break;
    case 'I':
        read_path(rust, is_value);
        rust_put_text(rust, is_value ? "::<" : "<");
        read_generic_arguments(rust);
        rust_put_text(rust, ">");
        break;
    case 'B':
        if (begin_reference(rust, &back)) {
            read_path(rust, is_value);
            rust->at = back;
        }
        break;
    default:
        rust->failed = true;
    }
}

static void read_path(struct rust *rust, bool is_value) {
    if (enter(rust)) {
        read_path_of(rust, rust_next(rust), is_value);
    }
    rust->depth--;
}

/* A trait of a dyn: its generic arguments stay open for the associated types.  True: they are. */
static bool read_open_path(struct rust *rust) {
    bool is_open = false;
    if (enter(rust)) {
        size_t back;
        if (rust_eat(rust, 'B')) {
            if (begin_reference(rust, &back)) {
                is_open = read_open_path(rust);
                rust->at = back;
            }
        } else if (rust_eat(rust, 'I')) {
            read_path(rust, false);
            rust_put_text(rust, "<");
            read_generic_arguments(rust);
            is_open = true;
        } else {
            read_path(rust, false);
        }
    }
    rust->depth--;
    return is_open;
}

static void read_dyn_trait(struct rust *rust) {
    bool is_open = read_open_path(rust);
    while (rust_eat(rust, 'p')) {
        rust_put_text(rust, is_open ? ", " : "<");
        is_open = true;
        rust_put_identifier(rust, rust_read_identifier(rust));
        rust_put_text(rust, " = ");
        read_type(rust);
    }
    rust_put_text(rust, is_open ? ">" : "");
}

static void read_dyn(struct rust *rust) {
    rust_put_text(rust, "dyn ");
    uint64_t bound = read_binder(rust);
    for (bool is_first = true; !rust->failed && !rust_eat(rust, 'E'); is_first = false) {
        rust_put_text(rust, is_first ? "" : " + ");
        read_dyn_trait(rust);
    }
    rust->bound_lifetimes -= bound;
    if (!rust_eat(rust, 'L')) {
        rust->failed = true;
        return;
    }
    uint64_t lifetime = rust_read_base62(rust);
    if (lifetime != 0) {
        rust_put_text(rust, " + ");
        put_lifetime(rust, lifetime);
    }
}

static void read_abi(struct rust *rust) {
    struct identifier abi = {"C", NULL, 1, 0};
    if (!rust_eat(rust, 'C')) {
        abi = rust_read_identifier(rust);
        rust->failed |= abi.ascii_length == 0 || abi.punycode != NULL;
    }
    rust_put_text(rust, "extern \"");
    for (size_t i = 0; i < abi.ascii_length; i++) {
        rust_put(rust, abi.ascii[i] == '_' ? "-" : &abi.ascii[i], 1);
    }
    rust_put_text(rust, "\" ");
}

/* Types up to E, with commas; returns their number. */
static size_t read_types(struct rust *rust) {
    size_t count = 0;
    for (; !rust->failed && !rust_eat(rust, 'E'); count++) {
        rust_put_text(rust, count > 0 ? ", " : "");
        read_type(rust);
    }
    return count;
}

static void read_function_type(struct rust *rust) {
    uint64_t bound = read_binder(rust);
    rust_put_text(rust, rust_eat(rust, 'U') ? "unsafe " : "");
    if (rust_eat(rust, 'K')) {
        read_abi(rust);
    }
    rust_put_text(rust, "fn(");
    read_types(rust);
    rust_put_text(rust, ")");
    if (!rust_eat(rust, 'u')) {
        rust_put_text(rust, " -> ");
        read_type(rust);
    }
    rust->bound_lifetimes -= bound;
}

static const char *basic_type(char tag) {
    static const char *const names[26] = {"i8",   "bool",  "char",  "f64", "str", "f32", NULL,
                                          "u8",   "isize", "usize", NULL,  "i32", "u32", "i128",
                                          "u128", "_",     NULL,    NULL,  "i16", "u16", "()",
                                          "...",  NULL,    "i64",   "u64", "!"};
    return is_lower(tag) ? names[tag - 'a'] : NULL;
}

static void read_reference_type(struct rust *rust, char tag) {
    rust_put_text(rust, "&");
    if (rust_eat(rust, 'L')) {
        uint64_t lifetime = rust_read_base62(rust);
        if (lifetime != 0) {
            put_lifetime(rust, lifetime);
            rust_put_text(rust, " ");
        }
    }
    rust_put_text(rust, tag == 'Q' ? "mut " : "");
    read_type(rust);
}

static void read_type_of(struct rust *rust, char tag) {
    size_t back;
    switch (tag) {
    case 'R':
    case 'Q':
        read_reference_type(rust, tag);
        break;
    case 'P':
    case 'O':
        rust_put_text(rust, tag == 'P' ? "*const " : "*mut ");
        read_type(rust);
        break;
    case 'A':
    case 'S':
        rust_put_text(rust, "[");
        read_type(rust);
        if (tag == 'A') {
            rust_put_text(rust, "; ");
            read_const(rust);
        }
        rust_put_text(rust, "]");
        break;
    case 'T':
        rust_put_text(rust, "(");
        rust_put_text(rust, read_types(rust) == 1 ? ",)" : ")");
        break;
    case 'F':
        read_function_type(rust);
        break;
    case 'D':
        read_dyn(rust);
        break;
    case 'B':
        if (begin_reference(rust, &back)) {
            read_type(rust);
            rust->at = back;
        }
        break;
    default:
        read_path_of(rust, tag, false);
    }
}

static void read_type(struct rust *rust) {
    if (enter(rust)) {
        char tag = rust_next(rust);
        if (basic_type(tag) != NULL) {
            rust_put_text(rust, basic_type(tag));
        } else {
            read_type_of(rust, tag);
        }
    }
    rust->depth--;
}

/* Hexadecimal digits up to `_`: where they begin, how many, and their value if 16 are enough. */
static uint64_t read_hex(struct rust *rust, const char **digits, size_t *count) {
    uint64_t value = 0;
    *digits = rust->name + rust->at;
    *count = 0;
    while (!rust->failed && !rust_eat(rust, '_')) {
        int digit = hex_digit(rust_next(rust));
        if (digit < 0) {
            rust->failed = true;
            return 0;
        }
        value = value << 4 | (unsigned)digit;
        ++*count;
    }
    return value;
}

static void read_const_number(struct rust *rust) {
    const char *digits;
    size_t count;
    uint64_t value = read_hex(rust, &digits, &count);
    if (count > 16) {
        rust_put_text(rust, "0x");
        rust_put(rust, digits, count);
    } else {
        rust_put_number(rust, value);
    }
}

static void read_const_char(struct rust *rust) {
    const char *digits;
    size_t count;
    uint64_t c = read_hex(rust, &digits, &count);
    if (count > 8 || !is_scalar(c)) {
        rust->failed = true;
        return;
    }
    static const char special[] = "\tt\rr\nn''\\\\";
    char text[24];
    const char *found = c != 0 && c < 0x80 ? strchr(special, (char)c) : NULL;
    /* The second of each pair is the letter of the escape, which is no special character itself. */
    if (found != NULL && (found - special) % 2 == 0) {
        snprintf(text, sizeof text, "'\\%c'", found[1]);
    } else if (c >= 0x20 && c < 0x7f) {
        snprintf(text, sizeof text, "'%c'", (char)c);
    } else {
        snprintf(text, sizeof text, "'\\u{%x}'", (unsigned)c);
    }
    rust_put_text(rust, text);
}

static void read_const_of(struct rust *rust, char tag) {
    size_t back, count;
    const char *digits;
    if (tag == 'B') {
        if (begin_reference(rust, &back)) {
            read_const(rust);
            rust->at = back;
        }
    } else if (tag == 'p') {
        rust_put_text(rust, "_");
    } else if (tag != '\0' && strchr("htmyoj", tag) != NULL) {
        read_const_number(rust);
    } else if (tag != '\0' && strchr("aslxni", tag) != NULL) {
        rust_put_text(rust, rust_eat(rust, 'n') ? "-" : "");
        read_const_number(rust);
    } else if (tag == 'b') {
        uint64_t value = read_hex(rust, &digits, &count);
        rust->failed |= count != 1 || value > 1;
        rust_put_text(rust, value == 1 ? "true" : "false");
    } else if (tag == 'c') {
        read_const_char(rust);
    } else {
        rust->failed = true;
    }
}

static void read_const(struct rust *rust) {
    if (enter(rust)) {
        read_const_of(rust, rust_next(rust));
    }
    rust->depth--;
}

static bool demangle_v0(struct rust *rust) {
    for (size_t i = 0; i < rust->length; i++) {
        char c = rust->name[i];
        if (!is_digit(c) && !is_lower(c) && !is_upper(c) && c != '_') {
            rust->length = i; /* what a compiler appended: .llvm.123 */
            if (c != '.') {
                return false;
            }
        }
    }
    if (!is_upper(rust_peek(rust))) {
        return false;
    }
    read_path(rust, true);
    if (!rust->failed && rust->at < rust->length) { /* the crate that asked for this instance */
        rust->silent++;
        read_path(rust, false);
        rust->silent--;
    }
    return !rust->failed && rust->at == rust->length;
}

bool demangle_rust(const char *name, char out[DEMANGLE_OUT_BYTES]) {
    size_t length = strnlen(name, DEMANGLE_IN_MOST + 1);
    if (length > DEMANGLE_IN_MOST) {
        return false;
    }
    bool is_v0 = length > 2 && name[0] == '_' && name[1] == 'R';
    if (!is_v0 && (length <= 3 || memcmp(name, "_ZN", 3) != 0)) {
        return false;
    }
    size_t prefix = is_v0 ? 2 : 3;
    struct rust rust = {.name = name + prefix, .length = length - prefix, .out = out};
    if (!(is_v0 ? demangle_v0(&rust) : rust_read_legacy(&rust))) {
        return false;
    }
    out[rust.used] = '\0';
    return true;
}
