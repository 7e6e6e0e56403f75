/* SPDX-License-Identifier: MIT
 *
 * nearest.c - the distance of two words, row by row; a swap looks two rows back.
 *
 * Cost        The product of the lengths.
 */
#include "base/nearest.h"

size_t nearest_distance(const char *a, size_t a_length, const char *b, size_t b_length) {
    size_t rows[3][NEAREST_MOST + 1];
    if (a_length > NEAREST_MOST || b_length > NEAREST_MOST) {
        return NEAREST_MOST;
    }
    for (size_t j = 0; j <= b_length; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= a_length; i++) {
        size_t *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t cost = a[i - 1] != b[j - 1];
            now[j] = min_size(min_size(last[j], now[j - 1]) + 1, last[j - 1] + cost);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                now[j] = min_size(now[j], before[j - 2] + 1);
            }
        }
    }
    return rows[a_length % 3][b_length];
}
