/* SPDX-License-Identifier: MIT
 *
 * cmd_doctor.c - `tally doctor`: why the library does or does not work here, in sentences.
 *
 *      ok    what is as it should be
 *      warn  what works less well, and what would help
 *      fail  what does not work, and why
 *
 * It looks at the program's file, for a process also at /proc, then at the directory of the control
 * socket and at the kernel.  It changes nothing.  Exit status 1: there is at least one fail.
 */
#define _GNU_SOURCE /* memfd_create */
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "args/args.h"
#include "common/cli.h"
#include "live/target.h"
#include "run/elf_facts.h"

enum { PATH_BYTES = 4096 };

enum verdict { OK, WARN, FAIL };

static unsigned fails;

__attribute__((format(printf, 2, 3))) static void say(enum verdict verdict, const char *format,
                                                      ...) {
    static const struct {
        const char *word;
        enum cli_style style;
    } verdicts[] = {{"ok  ", STYLE_GOOD}, {"warn", STYLE_WARN}, {"fail", STYLE_BAD}};
    va_list arguments;
    fails += verdict == FAIL;
    printf("%s%s%s  ", cli_style(stdout, verdicts[verdict].style), verdicts[verdict].word,
           cli_style(stdout, STYLE_PLAIN));
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

/* The program's file. */

static void judge_link(const struct elf_facts *facts) {
    if (facts->defines_tally) {
        say(OK, "libtally is linked into it");
    } else if (!facts->is_dynamic) {
        say(FAIL, "statically linked: the loader has no say, so nothing can be preloaded; link it "
                  "with libtally.a");
    } else if (facts->defines_malloc) {
        say(FAIL, "dynamically linked, but it defines malloc itself, and its own wins over a "
                  "preloaded one");
    } else if (facts->needs_tally) {
        say(OK, "dynamically linked, with libtally.so among its libraries");
    } else {
        say(OK, "dynamically linked, malloc not overridden by the program");
    }
    if (facts->needs_sanitizer) {
        say(FAIL, "built with a sanitizer, which has a malloc of its own and wants to come first");
    }
}

static void judge_frames(const struct elf_facts *facts) {
    if (facts->functions < 20) {
        return;
    }
    double share = 100 * (double)facts->with_frame / (double)facts->functions;
    if (share >= 50) {
        say(OK, "frame pointers in %.0f %% of its functions", share);
    } else {
        say(WARN,
            "frame pointers in %.0f %% of its functions: stacks are walked by unwind tables, "
            "which is slower.  Build with -fno-omit-frame-pointer",
            share);
    }
}

/* A file of the distribution's debug packages. */
static bool has_separate_debug_file(const struct elf_facts *facts) {
    char path[PATH_BYTES];
    if (strlen(facts->build_id) < 4) {
        return false;
    }
    snprintf(path, sizeof path, "/usr/lib/debug/.build-id/%.2s/%s.debug", facts->build_id,
             facts->build_id + 2);
    return access(path, R_OK) == 0;
}

static void judge_debug_info(const char *shown, const struct elf_facts *facts) {
    if (facts->has_debug_info || has_separate_debug_file(facts)) {
        say(OK, "debug information: names, files and lines");
    } else if (facts->has_symbols) {
        say(WARN,
            "no debug information for %s: names yes, lines no.  Build with -g, or name "
            "addresses with --debuginfod",
            shown);
    } else {
        say(WARN,
            "%s is stripped: only names that it exports.  Build with -g and without strip, "
            "install its debug package, or name addresses with --debuginfod",
            shown);
    }
    if (facts->build_id[0] == '\0') {
        say(WARN, "no build id: whether a debug file belongs to it cannot be told.  Link with "
                  "-Wl,--build-id");
    }
}

/* The command is built for the same machine as the library. */
static uint16_t own_machine(void) {
    struct elf_facts facts;
    return elf_look("/proc/self/exe", &facts) ? facts.machine : EM_NONE;
}

static bool judge_word_size(const struct elf_facts *facts) {
    if (!facts->is_64_bit) {
        say(FAIL, "a 32-bit program: the library has 64 bits, and the loader passes over it");
    } else if (facts->machine != own_machine()) {
        say(FAIL, "a program for another kind of processor");
    } else {
        say(OK, "64 bits, as the library");
        return true;
    }
    return false;
}

/* Programs that run with more rights than their caller: the loader forgets the environment. */
static void judge_rights(const char *path) {
    struct stat status;
    if (stat(path, &status) != 0) {
        return;
    }
    if ((status.st_mode & (S_ISUID | S_ISGID)) != 0) {
        say(FAIL, "set-id: the loader ignores LD_PRELOAD, and the library its configuration");
    } else if (getxattr(path, "security.capability", NULL, 0) > 0) {
        say(FAIL, "it has file capabilities: the loader ignores LD_PRELOAD, and the library its "
                  "configuration");
    } else {
        say(OK, "not set-id");
    }
}

static void judge_file(const char *path, const char *shown) {
    struct elf_facts facts;
    if (!elf_look(path, &facts)) {
        say(FAIL, "%s cannot be looked at: %s", shown, strerror(errno));
        return;
    }
    if (facts.is_script) {
        char name[ELF_NAME_BYTES];
        snprintf(name, sizeof name, "%s", safe_text(facts.interpreter));
        say(WARN, "%s is a script for %s; what follows is about that", shown, name);
        if (!elf_look(facts.interpreter, &facts)) {
            say(FAIL, "%s cannot be looked at: %s", name, strerror(errno));
            return;
        }
        judge_rights(name);
    } else {
        judge_rights(path);
    }
    if (!facts.is_elf) {
        say(FAIL, "%s is no program of this system (no ELF file)", shown);
    } else if (judge_word_size(&facts)) {
        judge_link(&facts);
        judge_frames(&facts);
        judge_debug_info(shown, &facts);
    }
}

/* The directory of the socket. */

/* The first of those that the library tries. */
static void control_directory(char path[PATH_BYTES]) {
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char parent[64];
    snprintf(parent, sizeof parent, "/run/user/%u", (unsigned)geteuid());
    if (runtime != NULL && runtime[0] == '/') {
        snprintf(path, PATH_BYTES, "%s/tally", runtime);
    } else if (access(parent, W_OK) == 0) {
        snprintf(path, PATH_BYTES, "%s/tally", parent);
    } else if (access("/run/tally", W_OK) == 0) {
        snprintf(path, PATH_BYTES, "/run/tally/%u", (unsigned)geteuid());
    } else {
        snprintf(path, PATH_BYTES, "/tmp/tally-%u", (unsigned)geteuid());
    }
}

static void judge_directory(const char *path, const char *shown, unsigned owner) {
    struct stat status;
    if (lstat(path, &status) != 0) {
        if (errno == ENOENT) {
            say(OK, "control directory %s is made when it is needed", shown);
        } else {
            say(FAIL, "control directory %s cannot be looked at: %s", shown, strerror(errno));
        }
    } else if (!S_ISDIR(status.st_mode)) {
        say(FAIL, "control directory %s is none: no socket there.  Remove it", shown);
    } else if (status.st_uid != owner) {
        say(FAIL,
            "control directory %s belongs to user %u: no socket there.  Set control_dir to "
            "one of your own",
            shown, (unsigned)status.st_uid);
    } else if ((status.st_mode & 077) != 0) {
        say(FAIL, "control directory %s is open to others: no socket there.  chmod 700 it", shown);
    } else {
        say(OK, "control directory %s is private", shown);
    }
}

/* The configuration that programs started from here get. */

static void judge_configuration(void) {
    const char *text = getenv("TALLY_CONF");
    const char *control = text != NULL ? strstr(text, "control:") : NULL;
    if (control == NULL || strncmp(control, "control:off", 11) == 0) {
        say(WARN, "control is off in programs you start yourself; to arm later: "
                  "TALLY_CONF=control:write");
    } else {
        say(OK, "control is on: TALLY_CONF has %.*s",
            (int)strcspn(control, ",") < 16 ? (int)strcspn(control, ",") : 16, control);
    }
    char path[PATH_BYTES];
    control_directory(path);
    judge_directory(path, safe_text(path), geteuid());
}

/* The kernel. */

static long read_setting(const char *path) {
    char text[64];
    return read_small(path, text, sizeof text) > 0 ? strtol(text, NULL, 10) : -1;
}

static void judge_memfd(void) {
    int fd = memfd_create("tally-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0) {
        say(OK, "memfd_create works: programs have a page of statistics");
        close(fd);
    } else if (target_status_number(getpid(), "Seccomp") > 0) {
        say(FAIL, "the seccomp filter refuses memfd_create: no page of statistics");
    } else {
        say(FAIL,
            "memfd_create does not work (%s): no page of statistics; commands find a program "
            "by the path of its socket alone",
            strerror(errno));
    }
}

static void judge_kernel(void) {
    struct utsname name;
    enum { MAPS_LEAST = 65530 };
    if (uname(&name) == 0) {
        say(OK, "kernel %s, pages of %lu KiB", name.release, getauxval(AT_PAGESZ) / 1024);
    }
    judge_memfd();
    if (read_setting("/proc/sys/vm/overcommit_memory") == 2) {
        say(WARN, "vm.overcommit_memory is 2: address space counts as memory, so allocations fail "
                  "early");
    }
    long maps = read_setting("/proc/sys/vm/max_map_count");
    if (maps >= 0 && maps < MAPS_LEAST) {
        say(WARN, "vm.max_map_count is %ld: large heaps may run out of mappings; %d is usual", maps,
            MAPS_LEAST);
    }
    if (read_setting("/proc/sys/vm/memfd_noexec") == 2) {
        say(WARN, "vm.memfd_noexec is 2: a page of statistics may be refused");
    }
}

/* A process. */

/* The directory of its socket, as seen from here. */
static void judge_socket(const struct target *target, const char *socket_path) {
    char path[PATH_BYTES], shown[STATS_PAGE_PATH_BYTES];
    snprintf(shown, sizeof shown, "%s", socket_path);
    char *slash = strrchr(shown, '/');
    if (slash == NULL || slash == shown) {
        return;
    }
    *slash = '\0';
    snprintf(path, sizeof path, "%s%s", target_proc_path(target->pid, "root"), shown);
    judge_directory(path, safe_text(shown), target->uid);
}

static void judge_control(const struct target *target) {
    struct target_page read;
    if (!target_read_page(target, &read)) {
        return;
    }
    const struct stats_page *page = &read.words;
    say(OK, "libtally %s, with a page of statistics", safe_text(page->version));
    if (page->control == 0) {
        say(WARN, "control is off: statistics only.  To steer it, start it with tally run or "
                  "TALLY_CONF=control:write");
    } else if (page->control == 1) {
        say(WARN, "control is on for reading: no start, stop, set, purge.  For them, start it with "
                  "TALLY_CONF=control:write");
    } else {
        say(OK, "control is on");
    }
    if (page->control > 0) {
        judge_socket(target, page->socket_path);
    }
}

static void judge_missing_page(const struct target *target) {
    if (!target_maps_library(target->pid)) {
        say(FAIL, "it runs without the library; start it with tally run");
        return;
    }
    say(OK, "libtally.so is mapped");
    if (target_status_number(target->pid, "Seccomp") > 0) {
        say(FAIL, "no page of statistics: a seccomp filter is on and may refuse memfd_create");
    } else {
        say(FAIL, "no page of statistics: stats_page is off, or the program closed its descriptor");
    }
}

static void judge_process(const struct target *target) {
    char shown[TARGET_NAME_BYTES * 4];
    char state = target_state(target->pid);
    snprintf(shown, sizeof shown, "%s", safe_text(target->name));
    say(OK, "process %ld is %s", target->pid, shown);
    if (access(target_proc_path(target->pid, "fd"), R_OK) != 0) {
        say(FAIL, "it belongs to user %u or is protected: look as that user or as root",
            target->uid);
        return;
    }
    if (state == 'T' || state == 't') {
        say(WARN, "it is stopped: statistics can be read, everything else waits until it goes on");
    }
    if (target_status_number(target->pid, "Seccomp") > 0) {
        say(WARN, "a seccomp filter is on: what it refuses of the library's calls is not done");
    }
    if (target->page_fd >= 0) {
        judge_control(target);
    } else {
        judge_missing_page(target);
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/exe", target->pid);
    judge_file(path, shown);
}

static int examine_program(const char *word) {
    char path[ELF_PATH_BYTES];
    if (!elf_find(word, path)) {
        return complain(EXIT_NOT_FOUND, "there is no program %s", safe_text(word));
    }
    if (access(path, X_OK) != 0) {
        say(FAIL, "%s is not executable: %s", safe_text(path), strerror(errno));
    }
    judge_file(path, safe_text(path));
    judge_configuration();
    return EXIT_DONE;
}

static int examine_process(const char *word) {
    struct target target;
    enum exit_code code = target_open(word, false, &target);
    if (code == EXIT_DONE) {
        judge_process(&target);
        target_close(&target);
    }
    return code;
}

static int run_doctor(int count, char **words) {
    int code = EXIT_DONE;
    if (count == 0) {
        judge_configuration();
    } else if (words[0][strspn(words[0], "0123456789")] == '\0') {
        code = examine_process(words[0]);
    } else {
        code = examine_program(words[0]);
    }
    if (code != EXIT_DONE) {
        return code;
    }
    judge_kernel();
    return fails > 0 ? EXIT_FOUND : EXIT_DONE;
}

const struct command command_doctor = {
    .name = "doctor",
    .summary = "Say why the library does or does not work here",
    .usage = "[PID|PROGRAM]",
    .text =
        "Looks at a program or a running process, at the directory of the control socket and at "
        "the kernel, and says in one sentence each what is right (ok), what works less well "
        "(warn) and what does not work (fail).\n\n"
        "    tally doctor ./server\n"
        "    tally doctor 4711\n",
    .words = {0, 1},
    .run = run_doctor,
};
