/* SPDX-License-Identifier: MIT
 *
 * message.c - takes protobuf messages apart, and trusts no length in them.
 */
#include "read/message.h"

enum { VARINT_MOST = 10 };

bool message_take_varint(struct message *message, uint64_t *value) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < VARINT_MOST && message->at < message->end; i++) {
        uint8_t byte = *message->at++;
        sum |= (uint64_t)(byte & 0x7f) << 7 * i;
        if (byte < 0x80) {
            *value = sum;
            return true;
        }
    }
    return false;
}

static bool take_bytes(struct message *message, uint64_t length, struct message *bytes) {
    if (length > (uint64_t)(message->end - message->at)) {
        return false;
    }
    *bytes = (struct message){message->at, message->at + length};
    message->at += length;
    return true;
}

bool message_next(struct message *message, struct field *field) {
    struct message rest = *message;
    uint64_t tag, length = 0;
    if (!message_take_varint(&rest, &tag) || tag >> 3 == 0 || tag >> 3 > UINT32_MAX) {
        return false;
    }
    field->number = (uint32_t)(tag >> 3);
    field->kind = (unsigned)(tag & 7);
    field->value = 0;
    field->bytes = (struct message){rest.at, rest.at};
    switch (field->kind) {
    case KIND_VARINT:
        if (!message_take_varint(&rest, &field->value)) {
            return false;
        }
        break;
    case KIND_BYTES:
        if (!message_take_varint(&rest, &length) || !take_bytes(&rest, length, &field->bytes)) {
            return false;
        }
        break;
    case KIND_64_BITS:
    case KIND_32_BITS:
        if (!take_bytes(&rest, field->kind == KIND_64_BITS ? 8 : 4, &field->bytes)) {
            return false;
        }
        break;
    default:
        return false;
    }
    *message = rest;
    return true;
}
