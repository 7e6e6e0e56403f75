/* SPDX-License-Identifier: MIT
 *
 * fuzz_wire.c - bytes of all kinds as messages of the control socket.
 *
 * Whatever they are, they are read as a message or refused, and nothing behind them is touched.  A request
 * that was read can be written again, and reads the same then.
 */
#include <string.h>

#include "contract/wire.h"
#include "fuzz.h"

static void write_again(const struct wire_message *message) {
    struct wire_writer writer;
    struct wire_message again;
    wire_begin(&writer, message->verb);
    for (unsigned i = 0; i < message->count; i++) {
        wire_add(&writer, message->fields[i].key, message->fields[i].value);
    }
    size_t length = wire_end(&writer);
    if (length == 0) { /* Upper case and what need not be encoded may make it longer. */
        return;
    }
    fuzz_check(wire_read_request(writer.bytes, length, &again));
    fuzz_check(strcmp(again.verb, message->verb) == 0 && again.count == message->count);
    for (unsigned i = 0; i < message->count; i++) {
        fuzz_check(strcmp(again.fields[i].key, message->fields[i].key) == 0);
        fuzz_check(strcmp(again.fields[i].value, message->fields[i].value) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct wire_message message;
    char *bytes = malloc(size + 1); /* of its own size, so that a sanitizer sees its end */
    fuzz_check(bytes != NULL);
    memcpy(bytes, data, size);
    if (wire_read_request(bytes, size, &message)) {
        fuzz_check(message.count <= WIRE_MOST_FIELDS && message.verb[0] != '\0');
        write_again(&message);
    }
    memcpy(bytes, data, size);
    if (wire_read_reply(bytes, size, &message)) {
        fuzz_check(strcmp(message.verb, "ok") == 0 || strcmp(message.verb, "err") == 0);
        fuzz_check(strlen(message.text) < size);
    }
    free(bytes);
    return 0;
}
