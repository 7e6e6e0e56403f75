/* SPDX-License-Identifier: MIT
 *
 * demangle_short.c - demangled names without what nobody wants to read.
 *
 * One pass from left to right.  The output is built behind a stack of open brackets; each remembers
 * where it opened and where its last arguments begin, so that at a closing `>` the default
 * arguments of a container can be cut off the end of the output, and what is left compared with the
 * few templates everybody knows by another name.  Afterwards parameters and return types are cut
 * off: they are most of a name's length, and the line beside it tells overloads apart.
 */
#include <stdint.h>
#include <string.h>

#include "names/demangle.h"

enum { ARGUMENTS_MOST = 8 };

struct bracket {
    char kind;                       /* < ( [ { */
    uint32_t opened;                 /* in the output */
    uint32_t starts[ARGUMENTS_MOST]; /* of the arguments after the first: at their commas */
    uint32_t count;                  /* of commas; more than ARGUMENTS_MOST are not folded */
};

struct shortened {
    const char *in;
    char *out;
    size_t used;
    struct bracket open[DEMANGLE_DEPTH_MOST];
    size_t depth;
};

/* The length of `with` when the text begins with it, else 0. */
static size_t begins(const char *text, const char *with) {
    size_t length = 0;
    while (with[length] != '\0') {
        if (text[length] != with[length]) {
            return 0;
        }
        length++;
    }
    return length;
}

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || (unsigned char)c >= 0x80;
}

static void put(struct shortened *s, const char *text, size_t length) {
    memcpy(s->out + s->used, text, length);
    s->used += length;
}

/* What is left out at this place of the input: its length, 0 for nothing. */
static size_t left_out(const char *in) {
    if (begins(in, "[abi:") || begins(in, " [clone ")) {
        const char *end = strchr(in + 1, ']');
        return end == NULL ? 0 : (size_t)(end - in) + 1;
    }
    return 0;
}

/* The inline name spaces of the two standard libraries, after std:: . */
static size_t inline_space(const struct shortened *s) {
    bool is_std = s->used >= 5 && memcmp(s->out + s->used - 5, "std::", 5) == 0 &&
                  (s->used == 5 || !is_word(s->out[s->used - 6]));
    if (!is_std) {
        return 0;
    }
    size_t length = begins(s->in, "__cxx11::");
    return length > 0 ? length : begins(s->in, "__1::");
}

/* `operator` and its sign, which must not count as a bracket; `before` is the character in front. */
static size_t operator_name(const char *in, char before) {
    static const char *const signs[] = {
        "<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "()", "[]", "<", ">", NULL};
    size_t length = begins(in, "operator");
    if (length == 0 || is_word(before)) {
        return 0;
    }
    for (size_t i = 0; signs[i] != NULL; i++) {
        if (begins(in + length, signs[i])) {
            return length + strlen(signs[i]);
        }
    }
    return 0;
}

static size_t owner_start(const struct shortened *s, size_t opened) {
    while (opened > 0 && (is_word(s->out[opened - 1]) || s->out[opened - 1] == ':')) {
        opened--;
    }
    return opened;
}

/* A default argument of a container of std. */
static bool is_default(const char *argument) {
    static const char *const names[] = {
        "std::allocator<", "std::char_traits<",    "std::less<", "std::hash<",
        "std::equal_to<",  "std::default_delete<", NULL};
    for (size_t i = 0; names[i] != NULL; i++) {
        if (begins(argument, names[i])) {
            return true;
        }
    }
    return false;
}

static void drop_defaults(struct shortened *s, struct bracket *bracket) {
    if (bracket->count > ARGUMENTS_MOST ||
        !begins(s->out + owner_start(s, bracket->opened), "std::")) {
        return;
    }
    while (bracket->count > 0 && is_default(s->out + bracket->starts[bracket->count - 1] + 2)) {
        s->used = bracket->starts[--bracket->count];
    }
}

/* std::string for std::basic_string<char>: the name ends the output. */
static void fold_known(struct shortened *s, size_t start) {
    static const char *const known[][2] = {
        {"std::basic_string<char>", "std::string"},
        {"std::basic_string<wchar_t>", "std::wstring"},
        {"std::basic_string<char8_t>", "std::u8string"},
        {"std::basic_string<char16_t>", "std::u16string"},
        {"std::basic_string<char32_t>", "std::u32string"},
        {"std::basic_string_view<char>", "std::string_view"},
        {"std::basic_string_view<wchar_t>", "std::wstring_view"},
        {"std::basic_ios<char>", "std::ios"},
        {"std::basic_streambuf<char>", "std::streambuf"},
        {"std::basic_istream<char>", "std::istream"},
        {"std::basic_ostream<char>", "std::ostream"},
        {"std::basic_iostream<char>", "std::iostream"},
        {"std::basic_filebuf<char>", "std::filebuf"},
        {"std::basic_ifstream<char>", "std::ifstream"},
        {"std::basic_ofstream<char>", "std::ofstream"},
        {"std::basic_fstream<char>", "std::fstream"},
        {"std::basic_stringbuf<char>", "std::stringbuf"},
        {"std::basic_istringstream<char>", "std::istringstream"},
        {"std::basic_ostringstream<char>", "std::ostringstream"},
        {"std::basic_stringstream<char>", "std::stringstream"},
        {"std::basic_regex<char>", "std::regex"},
    };
    size_t length = s->used - start;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strlen(known[i][0]) == length && memcmp(s->out + start, known[i][0], length) == 0) {
            s->used = start;
            put(s, known[i][1], strlen(known[i][1]));
            return;
        }
    }
}

static void close_template(struct shortened *s) {
    struct bracket *bracket = &s->open[--s->depth];
    s->out[s->used] = s->out[s->used + 1] = '\0'; /* there is room: the `>` is still in the input */
    drop_defaults(s, bracket);
    s->used -= s->used > 0 && s->out[s->used - 1] == ' '; /* "> >" */
    put(s, ">", 1);
    fold_known(s, owner_start(s, bracket->opened));
}

static bool closes(char kind, char c) {
    return (kind == '(' && c == ')') || (kind == '[' && c == ']') || (kind == '{' && c == '}');
}

static void put_bracket(struct shortened *s, char c) {
    bool is_closing = s->depth > 0 && closes(s->open[s->depth - 1].kind, c);
    bool is_opening = c == '<' || c == '(' || c == '[' || c == '{';
    if (is_closing) {
        s->depth--;
    } else if (is_opening && s->depth < DEMANGLE_DEPTH_MOST) {
        struct bracket *bracket = &s->open[s->depth++];
        bracket->kind = c;
        bracket->opened = (uint32_t)s->used;
        bracket->count = 0;
    }
    put(s, &c, 1);
}

static void put_character(struct shortened *s, char c) {
    struct bracket *top = s->depth > 0 ? &s->open[s->depth - 1] : NULL;
    if (c == '>' && top != NULL && top->kind == '<') {
        close_template(s);
    } else if (c == ',' && top != NULL && top->kind == '<') {
        if (top->count < ARGUMENTS_MOST) {
            top->starts[top->count] = (uint32_t)s->used;
        }
        top->count += top->count <= ARGUMENTS_MOST;
        put(s, &c, 1);
    } else {
        put_bracket(s, c);
    }
}

/* Signatures. */

static bool ends(const char *text, size_t length, const char *with) {
    size_t bytes = strlen(with);
    return length >= bytes && memcmp(text + length - bytes, with, bytes) == 0;
}

/* Where the parameters begin; the length where there are none, or too many of them to tell. */
static size_t parameters_of(const char *text, size_t length) {
    static const char *const qualifiers[] = {" const", " volatile", " noexcept", "&", " ", NULL};
    size_t end = length;
    for (size_t i = 0; qualifiers[i] != NULL; i++) {
        if (ends(text, end, qualifiers[i])) {
            end -= strlen(qualifiers[i]);
            i = (size_t)-1; /* start again at the first */
        }
    }
    size_t depth = 0, at = end;
    while (at > 0) {
        at--;
        depth += text[at] == ')';
        if (depth == 0) {
            return length;
        }
        depth -= text[at] == '(';
        if (depth == 0) {
            break;
        }
    }
    bool is_function = depth == 0 && at > 0 && text[at - 1] != ')' && !ends(text, at, "operator");
    return is_function || (at > 0 && ends(text, at, "operator()")) ? at : length;
}

/* Where the name begins, after the return type. */
static size_t name_of(const char *text, size_t end) {
    size_t start = 0, depth = 0;
    for (size_t at = 0; at < end; at++) {
        char c = text[at];
        if (depth == 0 && operator_name(text + at, at > 0 ? text[at - 1] : '\0') +
                                  begins(text + at, "operator ") >
                              0) {
            break;
        }
        bool is_arrow = c == '>' && at > 0 && text[at - 1] == '-';
        depth += c == '<' || c == '(' || c == '[' || c == '{';
        depth -= depth > 0 && !is_arrow && (c == '>' || c == ')' || c == ']' || c == '}');
        if (depth == 0 && c == ' ' && begins(text + at, " const::") == 0) {
            start = at + 1;
        }
    }
    return start;
}

static void drop_signature(char *text, size_t length) {
    size_t end = parameters_of(text, length);
    if (end == length) {
        return;
    }
    size_t start = name_of(text, end);
    if (start < end) {
        memmove(text, text + start, end - start);
        text[end - start] = '\0';
    }
}

void demangle_shorten(const char *name, char out[DEMANGLE_OUT_BYTES]) {
    struct shortened s = {.in = name, .out = out};
    size_t length = strnlen(name, DEMANGLE_OUT_BYTES - 1);
    const char *end = name + length;
    while (s.in < end) {
        size_t skipped = left_out(s.in);
        skipped = skipped > 0 ? skipped : inline_space(&s);
        size_t verbatim =
            skipped > 0 ? 0 : operator_name(s.in, s.used > 0 ? out[s.used - 1] : '\0');
        verbatim = verbatim == 0 && skipped == 0 ? begins(s.in, "->") : verbatim;
        if (skipped + verbatim > (size_t)(end - s.in)) {
            break;
        }
        put(&s, s.in, verbatim);
        if (skipped + verbatim == 0) {
            put_character(&s, *s.in);
            verbatim = 1;
        }
        s.in += skipped + verbatim;
    }
    out[s.used] = '\0';
    drop_signature(out, s.used);
}
