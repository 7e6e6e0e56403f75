/* SPDX-License-Identifier: MIT
 *
 * cpu_plugin.c - a module that computes and calls back, for stress_cpu.c, which loads and unloads it while its
 * stacks are walked.  There are two, whose frames are not alike, so that rules of the one are wrong for the
 * other.
 */
extern unsigned compute_in_plugin(unsigned (*back)(unsigned), unsigned rounds);

unsigned compute_in_plugin(unsigned (*back)(unsigned), unsigned rounds) {
    volatile unsigned numbers[PLUGIN_WORDS] = {1};
    for (unsigned i = 0; i < rounds; i++) {
        numbers[i % PLUGIN_WORDS] += back(numbers[(i + 1) % PLUGIN_WORDS]);
    }
    return numbers[0];
}
