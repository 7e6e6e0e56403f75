/* SPDX-License-Identifier: MIT
 *
 * program_graph.c - a random graph of blocks of which it knows what is lost.
 *
 *      program_graph SEED FILE
 *
 * Blocks lead to later ones only, except for rings, whose members are alike: so which block of a ring is taken for
 * the lost one makes no difference.  What the graph holds of each kind is written to the file: "definite BLOCKS BYTES",
 * "indirect ...", and a line "site NUMBER BLOCKS BYTES" for the definite ones of each of the functions that allocate.
 * Addresses are kept so that no search takes them for pointers.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 3000, HELD = 40, SITES = 4, RING_MOST = 5, EDGES_MOST = 3, LEAST = 64 };

struct block {
    uintptr_t hidden; /* all bits of its address are turned */
    size_t size, edges;
    unsigned site, ring; /* the first of its ring */
    unsigned to[EDGES_MOST];
    int is_reached, is_led_to; /* by a root; by a lost block of another ring */
};

static struct block blocks[BLOCKS];
static void **held[HELD];
static uint64_t random_state;

static unsigned draw(unsigned limit) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((random_state >> 33) % limit);
}

__attribute__((noinline)) static void *take_0(size_t size) {
    void *block = calloc(1, size);
    __asm__ volatile("" : "+r"(block));
    return block;
}
__attribute__((noinline)) static void *take_1(size_t size) {
    void *block = calloc(1, size);
    __asm__ volatile("" : "+r"(block));
    return block;
}
__attribute__((noinline)) static void *take_2(size_t size) {
    void *block = calloc(1, size);
    __asm__ volatile("" : "+r"(block));
    return block;
}
__attribute__((noinline)) static void *take_3(size_t size) {
    void *block = calloc(1, size);
    __asm__ volatile("" : "+r"(block));
    return block;
}

static void **address(const struct block *block) {
    return (void **)~block->hidden;
}

/* Rings of one to some; each with blocks of one size and site. */
static void make_blocks(void) {
    static void *(*const take[SITES])(size_t) = {take_0, take_1, take_2, take_3};
    for (unsigned i = 0; i < BLOCKS;) {
        unsigned first = i, members = draw(4) == 0 ? 1 + draw(RING_MOST) : 1, site = draw(SITES);
        size_t size = LEAST + draw(16) * draw(200);
        for (; i < BLOCKS && i < first + members; i++) {
            blocks[i] = (struct block){.size = size, .site = site, .ring = first};
            blocks[i].hidden = ~(uintptr_t)take[site](size);
        }
        for (unsigned k = first; i - first > 1 && k < i; k++) {
            address(&blocks[k])[0] = address(&blocks[k + 1 < i ? k + 1 : first]);
        }
    }
}

static void make_edges(void) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        unsigned later = i + RING_MOST, most = draw(EDGES_MOST + 1);
        for (unsigned k = 0; draw(3) == 0 && k < most && later < BLOCKS; k++) {
            unsigned to = later + draw(BLOCKS - later);
            blocks[i].to[blocks[i].edges++] = to;
            address(&blocks[i])[1 + k] = address(&blocks[to]);
        }
    }
    for (unsigned i = 0; i < HELD; i++) {
        unsigned one = draw(BLOCKS);
        held[i] = address(&blocks[one]);
        blocks[one].is_reached = 1;
    }
}

static void reach_ring(unsigned member) {
    for (unsigned k = blocks[member].ring; k < BLOCKS && blocks[k].ring == blocks[member].ring;
         k++) {
        blocks[k].is_reached = 1;
    }
}

/* Edges lead upwards, so one pass of each does. */
static void sort_blocks(void) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (blocks[i].is_reached) {
            reach_ring(i);
        }
        if (i + 1 < BLOCKS && blocks[i + 1].ring == blocks[i].ring) {
            continue;
        }
        for (unsigned k = blocks[i].ring; k <= i; k++) {
            for (size_t e = 0; e < blocks[k].edges; e++) {
                struct block *ring = &blocks[blocks[blocks[k].to[e]].ring];
                blocks[blocks[k].to[e]].is_reached |= blocks[k].is_reached;
                ring->is_led_to |= !blocks[k].is_reached;
            }
        }
    }
}

static void tell(FILE *file) {
    size_t count[SITES] = {0}, bytes[SITES] = {0}, below = 0, below_bytes = 0, all = 0,
           all_bytes = 0;
    for (unsigned i = 0; i < BLOCKS; i++) {
        const struct block *one = &blocks[i];
        if (one->is_reached) {
            continue;
        }
        if (one->ring == i && !one->is_led_to) {
            count[one->site]++;
            bytes[one->site] += one->size;
        } else {
            below++;
            below_bytes += one->size;
        }
    }
    for (unsigned i = 0; i < SITES; i++) {
        fprintf(file, "site %u %zu %zu\n", i, count[i], bytes[i]);
        all += count[i];
        all_bytes += bytes[i];
    }
    fprintf(file, "definite %zu %zu\nindirect %zu %zu\n", all, all_bytes, below, below_bytes);
}

__attribute__((noinline)) static void wipe(void) {
    volatile char room[65536];
    memset((char *)room, 0x11, sizeof room);
}

int main(int argc, char **argv) {
    FILE *file = argc == 3 ? fopen(argv[2], "w") : NULL;
    if (file == NULL) {
        return 2;
    }
    random_state = strtoull(argv[1], NULL, 10);
    make_blocks();
    make_edges();
    sort_blocks();
    tell(file);
    fclose(file);
    wipe();
    return held[0] == NULL;
}
