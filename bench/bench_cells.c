/* SPDX-License-Identifier: MIT
 *
 * The sixteen cells: n blocks of one size are allocated, every byte is written, and they are freed
 * in the order of allocation, for n of 25, 400, 1,600 and 16,000 and sizes of 16, 64, 256 and 1,000
 * bytes.  It prints one line per cell with the CPU time per malloc+free pair, writing included,
 * as the minimum over the rounds.
 *
 * The cells walk out of the caches in two directions: 25 blocks fit any thread cache, 16,000 fit
 * none, and 16,000 blocks of 1,000 bytes fit no L2 cache either.  The order of allocation is the
 * one in which programs tear down what they built, and the one a stack of free blocks likes least.
 *
 * Cost: a round repeats its cell until about 2 to 5 ms have gone by.  The number of repeats is
 * fixed and not calibrated, so that every allocator does the same work.
 */
#include "bench.h"

enum { CELL_SIDE = 4, BLOCKS_MOST = 16000, ROUND_PAIRS = 200000, ROUND_PAIRS_BIG = 64000 };

static const size_t counts[CELL_SIDE] = {25, 400, 1600, BLOCKS_MOST};
static const size_t sizes[CELL_SIDE] = {16, 64, 256, 1000};

static struct {
    size_t n, size, repeat;
    void **block;
} cell;

static void cell_round(void *unused) {
    (void)unused;
    for (size_t again = cell.repeat; again > 0; again--) {
        for (size_t i = 0; i < cell.n; i++) {
            cell.block[i] = malloc(cell.size);
            memset(cell.block[i], 1, cell.size);
        }
        for (size_t i = 0; i < cell.n; i++) {
            free(cell.block[i]);
        }
    }
}

static void measure_cell(size_t n, size_t size, size_t rounds) {
    cell.n = n;
    cell.size = size;
    cell.repeat = (size < 1000 ? ROUND_PAIRS : ROUND_PAIRS_BIG) / n;
    double ns = best_ns(CLOCK_PROCESS_CPUTIME_ID, rounds, n * cell.repeat, cell_round, NULL);
    say(1, "n=%zu size=%zu ns=%.3f\n", n, size, ns);
}

int main(int argc, char **argv) {
    bench_begin(argc - 1, argv + 1);
    size_t rounds = arg_number("rounds", 25);
    args_end();
    cell.block = harness_memory(BLOCKS_MOST * sizeof *cell.block);
    for (size_t i = 0; i < CELL_SIDE; i++) {
        for (size_t k = 0; k < CELL_SIDE; k++) {
            measure_cell(counts[k], sizes[i], rounds);
        }
    }
    return 0;
}
