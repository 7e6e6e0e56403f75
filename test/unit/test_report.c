/* SPDX-License-Identifier: MIT
 *
 * test_report.c - each verdict has its exact sentence, and ends the process.
 */
#include "guard/guard.h"

#include "heap/heap.h"
#include "unit.h"

static struct heap_object object_with(enum heap_verdict verdict) {
    return (struct heap_object){.verdict = verdict, .base = 0x10000, .size = 48, .size_class = 3};
}

#define check_refused(verdict, address, sentence)                                                  \
    do {                                                                                           \
        struct heap_object object_ = object_with(verdict);                                         \
        check_dies_exactly(guard_refuse("free", (void *)(address), &object_), sentence, SIGABRT);  \
    } while (0)

TEST(each_verdict_has_its_sentence) {
    check_refused(HEAP_DOUBLE_FREE, 0x10000,
                  "tally: free(0x10000): the 48-byte object is already free");
    check_refused(HEAP_NEVER_ALLOCATED, 0x10000,
                  "tally: free(0x10000): this 48-byte object was never allocated");
    check_refused(
        HEAP_INTERIOR, 0x10010,
        "tally: free(0x10010): not the start of an object: 16 bytes into the 48-byte object "
        "at 0x10000");
    check_refused(
        HEAP_SLAB_END, 0x10010,
        "tally: free(0x10010): no object is here: behind the last 48-byte object of a slab");
    check_refused(HEAP_FREE_PAGES, 0x10000,
                  "tally: free(0x10000): no object is here: this memory of the heap is free");
    check_refused(HEAP_FOREIGN, 0x10000, "tally: free(0x10000): not memory of this heap");
}

TEST(object_freed_by_two_threads_at_once_is_a_double_free) {
    check_refused(HEAP_LIVE, 0x10000, "tally: free(0x10000): the 48-byte object is already free");
}

TEST(sentence_names_the_function_that_was_called) {
    struct heap_object object = object_with(HEAP_FOREIGN);
    check_dies_exactly(guard_refuse("realloc", (void *)0x123, &object),
                       "tally: realloc(0x123): not memory of this heap", SIGABRT);
}

TEST(wrong_size_has_its_sentence) {
    struct heap_object object = object_with(HEAP_LIVE);
    check_dies_exactly(
        guard_refuse_size("free_sized", (void *)0x10000, &object, 100, 112),
        "tally: free_sized(0x10000, 100): wrong size: the object has 48 bytes, one of "
        "that size would have 112",
        SIGABRT);
}
