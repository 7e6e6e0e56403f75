/* SPDX-License-Identifier: MIT
 *
 * test_verbs.c - what can be asked for on the control socket, without the socket: who may, what must come
 * along, and which mistakes have which code.  test_control_*.c ask through the socket.
 */
#include "control/verbs.h"

#include <fcntl.h>
#include <unistd.h>

#include "unit.h"

static struct wire_writer reply;

/* Which descriptor comes along. */
enum output { NONE, WRITABLE, READABLE };

static unsigned ask(const char *verb, const char *key, const char *value, enum verbs_right right,
                    enum output output) {
    struct wire_message message = {.verb = verb, .text = "", .count = key != NULL};
    message.fields[0] = (struct wire_field){key, value};
    int fd = output == NONE ? -1 : open("/dev/null", output == WRITABLE ? O_WRONLY : O_RDONLY);
    if (output == WRITABLE) {
        int ends[2]; /* /dev/null is neither a file nor a pipe */
        check_eq(pipe(ends), 0);
        close(fd);
        fd = ends[1];
    }
    struct verbs_request request = {&message, right, fd};
    unsigned code = verbs_answer(&request, &reply);
    close(fd);
    return code;
}

TEST(each_verb_needs_its_right_and_nothing_above_it) {
    static const struct {
        const char *verb;
        bool changes;
        enum output output;
    } verbs[] = {
        {"hello", false, NONE},    {"stats", false, NONE},         {"dump", false, WRITABLE},
        {"maps", false, WRITABLE}, {"start", true, NONE},          {"stop", true, NONE},
        {"set", true, NONE},       {"purge", true, NONE},          {"reset", true, NONE},
        {"mark", true, NONE},      {"leak-check", true, WRITABLE},
    };
    start_heap();
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        const char *verb = verbs[i].verb;
        enum output output = verbs[i].output;
        check_eq(verbs_changes(verb), verbs[i].changes);
        check_eq(ask(verb, NULL, NULL, VERBS_NONE, output), WIRE_DENIED);
        check_eq(ask(verb, NULL, NULL, VERBS_READ, output) == WIRE_DENIED, verbs[i].changes);
        check(ask(verb, NULL, NULL, VERBS_WRITE, output) != WIRE_DENIED);
    }
    check(!verbs_changes("bogus"));
    check_eq(ask("bogus", NULL, NULL, VERBS_WRITE, NONE), WIRE_UNKNOWN);
}

TEST(output_comes_along_where_it_is_needed_and_only_there) {
    start_heap();
    check_eq(ask("maps", NULL, NULL, VERBS_READ, NONE), WIRE_SYNTAX);
    check_eq(ask("hello", NULL, NULL, VERBS_READ, WRITABLE), WIRE_SYNTAX);
    check_eq(ask("maps", NULL, NULL, VERBS_READ, READABLE), WIRE_DENIED);
    check_eq(ask("stats", NULL, NULL, VERBS_READ, READABLE), WIRE_DENIED);
}

TEST(a_wrong_field_is_a_mistake_of_syntax) {
    static const struct {
        const char *verb, *key, *value;
        enum output output;
    } wrong[] = {
        {"dump", "kind", "future", WRITABLE},
        {"dump", "format", "svg", WRITABLE},
        {"start", "rate", "fast", NONE},
        {"start", "kind", "time", NONE},
        {"stop", "kind", "time", NONE},
        {"set", "key", "arenas.dirty_decay_ms", NONE},
        {"mark", "words", "x", NONE},
        {"leak-check", "max_pause_ms", "0", WRITABLE},
        {"leak-check", "max_pause_ms", "60001", WRITABLE},
    };
    start_heap();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        unsigned code =
            ask(wrong[i].verb, wrong[i].key, wrong[i].value, VERBS_WRITE, wrong[i].output);
        if (code != WIRE_SYNTAX) {
            test_say("    ", wrong[i].verb, " ", wrong[i].key, "=", wrong[i].value, "\n", NULL);
        }
        check_eq(code, WIRE_SYNTAX);
    }
}

TEST(an_answer_is_a_whole_message) {
    struct wire_message message;
    start_heap();
    check_eq(ask("hello", NULL, NULL, VERBS_READ, NONE), 0);
    check(wire_read_reply(reply.bytes, reply.length, &message));
    check_str(message.verb, "ok");
    check(wire_find(&message, "version") != NULL);
    check_eq(ask("purge", NULL, NULL, VERBS_READ, NONE), WIRE_DENIED);
    check(wire_read_reply(reply.bytes, reply.length, &message));
    check_str(message.verb, "err");
    check_eq(message.code, WIRE_DENIED);
    check_str(message.text, "this needs control:write");
}
