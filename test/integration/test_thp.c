/* SPDX-License-Identifier: MIT
 *
 * test_thp.c - what the option thp tells the kernel about the heap, read back from the kernel.
 *
 * Each case runs this program again with a TALLY_CONF of its own and looks at the flags of the
 * mappings that its blocks lie in: "nh" keeps huge pages away, "hg" asks for them.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

TEST_SETUP(require_tally);

static const size_t MIB = 1024 * 1024;

enum verdict {
    AS_EXPECTED = 0,
    NO_FILE = 3,
    NO_MAPPING = 4,
    OTHER_FLAGS = 5,
    BAD_HEAP = 6,
    MAPPINGS_LEFT = 7
};

/* The flags of the mapping that holds `address`: the text behind "VmFlags:", up to the line's end. */
static bool read_flags(const void *address, char flags[256]) {
    static char text[1 << 20];
    int fd = open("/proc/self/smaps", O_RDONLY);
    size_t length = 0;
    for (ssize_t n; (n = read(fd, text + length, sizeof text - 1 - length)) > 0;) {
        length += (size_t)n;
    }
    close(fd);
    text[length] = '\0';
    bool inside = false;
    for (char *line = text, *next; line != NULL; line = next) {
        next = strchr(line, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        char *dash, *end;
        unsigned long from = strtoul(line, &dash, 16);
        if (dash > line && *dash == '-') {
            unsigned long to = strtoul(dash + 1, &end, 16);
            inside = from <= (unsigned long)address && (unsigned long)address < to;
        } else if (inside && strncmp(line, "VmFlags:", 8) == 0) {
            strncpy(flags, line + 8, 255);
            return true;
        }
    }
    return false;
}

/* Is the block's mapping flagged so?  NULL: neither way. */
static enum verdict look(const void *block, const char *wanted) {
    static char flags[256];
    if (!read_flags(block, flags)) {
        return NO_MAPPING;
    }
    bool kept_away = strstr(flags, " nh") != NULL, asked_for = strstr(flags, " hg") != NULL;
    bool right = wanted == NULL
                     ? !kept_away && !asked_for
                     : kept_away == (strcmp(wanted, "nh") == 0) && asked_for == !kept_away;
    return right ? AS_EXPECTED : OTHER_FLAGS;
}

/* Blocks of a small heap, of a large one, and one that came back from a move. */
static enum verdict look_at_heap(const char *small, const char *large) {
    char *first = malloc(100), *second = malloc(MIB);
    char *third = malloc(100 * MIB), *fourth = malloc(100);
    if (first == NULL || second == NULL || third == NULL || fourth == NULL) {
        return BAD_HEAP;
    }
    enum verdict verdict = look(first, small);
    verdict = verdict != AS_EXPECTED ? verdict : look(second, small);
    verdict = verdict != AS_EXPECTED ? verdict : look(third, large);
    return verdict != AS_EXPECTED ? verdict : look(third + 99 * MIB, large);
}

static unsigned count_mappings(void) {
    static char text[1 << 16];
    unsigned lines = 0;
    int fd = open("/proc/self/maps", O_RDONLY);
    for (ssize_t n; (n = read(fd, text, sizeof text)) > 0;) {
        for (ssize_t i = 0; i < n; i++) {
            lines += text[i] == '\n';
        }
    }
    close(fd);
    return lines;
}

/* Moves blocks about and frees them; tells whether mappings are left behind. */
static enum verdict move_blocks(void) {
    enum { BLOCKS = 40, LEFT_MOST = 25 };
    static char *blocks[BLOCKS];
    unsigned before = count_mappings();
    for (unsigned i = 0; i < 3 * BLOCKS; i++) {
        char **block = &blocks[i % BLOCKS];
        free(*block);
        *block = malloc(300000);
        memset(*block, 1, 300000);
        *block = realloc(*block, 5 * MIB);
        if (*block == NULL) {
            return BAD_HEAP;
        }
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        free(blocks[i]);
    }
    return count_mappings() <= before + LEFT_MOST ? AS_EXPECTED : MAPPINGS_LEFT;
}

/* With two arguments, the flags of a small and of a large heap, the program answers and ends. */
__attribute__((constructor)) static void answer(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "--flags") == 0) {
        const char *small = strcmp(argv[2], "none") == 0 ? NULL : argv[2];
        const char *large = strcmp(argv[3], "none") == 0 ? NULL : argv[3];
        _exit(look_at_heap(small, large));
    }
    if (argc == 2 && strcmp(argv[1], "--moves") == 0) {
        _exit(move_blocks());
    }
}

static void check_program(const char *conf, char *const *arguments) {
    if (access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0) {
        skip("this kernel has no transparent huge pages");
    }
    pid_t pid = fork();
    if (pid == 0) {
        setenv("TALLY_CONF", conf, 1);
        execv("/proc/self/exe", arguments);
        _exit(NO_FILE);
    }
    int status;
    check_eq(waitpid(pid, &status, 0), pid);
    check(WIFEXITED(status));
    check_eq(WEXITSTATUS(status), AS_EXPECTED);
}

static void check_flags(const char *conf, char *small, char *large) {
    char *const arguments[] = {"test_thp", "--flags", small, large, NULL};
    check_program(conf, arguments);
}

TEST(never_keeps_huge_pages_away_from_all_of_the_heap) {
    check_flags("thp:never", "nh", "nh");
}

TEST(always_asks_for_huge_pages_everywhere) {
    check_flags("thp:always", "hg", "hg");
}

TEST(auto_keeps_them_away_from_a_small_heap_and_leaves_a_large_one_to_the_kernel) {
    check_flags("thp:auto", "nh", "none");
    check_flags("", "nh", "none");
}

TEST(nothing_is_set_that_children_would_inherit) {
    free(malloc(100 * MIB));
    check_eq(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), 0);
}

/* Memory that was moved away is replaced by new memory, which must get the advice of its
 * neighbours again: otherwise each stays a mapping of its own for ever. */
TEST(moved_blocks_leave_no_mappings_behind) {
    char *const arguments[] = {"test_thp", "--moves", NULL};
    check_program("thp:never", arguments);
    check_program("thp:always", arguments);
    check_program("thp:auto", arguments);
}
