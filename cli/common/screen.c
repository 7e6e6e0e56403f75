/* SPDX-License-Identifier: MIT
 *
 * screen.c - takes the terminal and gives it back.
 *
 * Signals that end, stop or resize the command are read from a descriptor, so that nothing happens
 * in the middle of a drawing.  A fault of our own restores the terminal before it ends the command.
 */
#include "common/screen.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "common/cli.h"

static const char enter_screen[] = "\033[?1049h\033[?25l\033[H\033[2J";
static const char leave_screen[] = "\033[?25h\033[?1049l";
static const int waited_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
static const int faults[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};

static struct {
    volatile sig_atomic_t is_taken;
    bool has_exit_handler;
    struct termios before;
    sigset_t mask_before;
    int signals; /* the descriptor */
} g;

/* All of this is safe in a signal handler. */
static void give_back(void) {
    if (!g.is_taken) {
        return;
    }
    g.is_taken = 0;
    write_all(STDOUT_FILENO, leave_screen, sizeof leave_screen - 1);
    tcsetattr(STDIN_FILENO, TCSANOW, &g.before);
}

static void take(void) {
    struct termios raw = g.before;
    raw.c_lflag &= (tcflag_t) ~(ECHO | ICANON);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    g.is_taken = 1;
    write_all(STDOUT_FILENO, enter_screen, sizeof enter_screen - 1);
}

static void restore_and_die(int number) {
    give_back();
    signal(number, SIG_DFL);
    raise(number);
}

static bool catch_signals(void) {
    sigset_t mask;
    sigemptyset(&mask);
    for (size_t i = 0; i < sizeof waited_signals / sizeof waited_signals[0]; i++) {
        sigaddset(&mask, waited_signals[i]);
    }
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct sigaction action = {.sa_handler = restore_and_die, .sa_flags = (int)SA_RESETHAND};
        sigaction(faults[i], &action, NULL);
    }
    g.signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    return g.signals >= 0 && sigprocmask(SIG_BLOCK, &mask, &g.mask_before) == 0;
}

bool screen_begin(void) {
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) ||
        tcgetattr(STDIN_FILENO, &g.before) != 0 || !catch_signals()) {
        return false;
    }
    if (!g.has_exit_handler) {
        g.has_exit_handler = true;
        atexit(give_back);
    }
    fflush(stdout);
    take();
    return true;
}

void screen_end(void) {
    give_back();
    sigprocmask(SIG_SETMASK, &g.mask_before, NULL);
    close(g.signals);
}

/* Drawing. */

static struct winsize window(void) {
    struct winsize size = {.ws_row = 0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) {
        size = (struct winsize){.ws_row = 24, .ws_col = 80};
    }
    return size;
}

unsigned screen_columns(void) {
    return window().ws_col;
}

/* The number of bytes of the line that fit into the columns. */
static size_t fitting(const char *line, size_t length, unsigned columns) {
    size_t at = 0;
    while (at < length) {
        bool begins_character = ((unsigned char)line[at] & 0xc0) != 0x80;
        if (begins_character && columns-- == 0) {
            break;
        }
        at++;
    }
    return at;
}

void screen_draw(const char *text, size_t length) {
    struct winsize size = window();
    char *drawing = NULL;
    size_t bytes = 0, at = 0;
    FILE *file = open_memstream(&drawing, &bytes);
    if (file == NULL) {
        return;
    }
    fputs("\033[H", file);
    for (unsigned row = 0; row < size.ws_row && at < length; row++) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t line = end != NULL ? (size_t)(end - (text + at)) : length - at;
        fprintf(file, "%s%.*s\033[K", row > 0 ? "\r\n" : "",
                (int)fitting(text + at, line, size.ws_col), text + at);
        at += line + 1;
    }
    fputs("\033[J", file);
    fclose(file);
    write_all(STDOUT_FILENO, drawing, bytes);
    free(drawing);
}

/* Waiting. */

/* Ctrl-Z: the terminal belongs to the shell until we go on. */
static void stop_for_a_while(void) {
    give_back();
    raise(SIGSTOP);
    take();
}

static enum screen_event read_signal(int *number) {
    struct signalfd_siginfo info;
    if (read(g.signals, &info, sizeof info) != (ssize_t)sizeof info) {
        return SCREEN_RESIZED;
    }
    *number = (int)info.ssi_signo;
    if (*number == SIGTSTP) {
        stop_for_a_while();
        return SCREEN_RESIZED;
    }
    return *number == SIGWINCH || *number == SIGCONT ? SCREEN_RESIZED : SCREEN_END;
}

enum screen_event screen_wait(uint64_t until_ns, int fd, int *number) {
    struct pollfd waiting[] = {{.fd = g.signals, .events = POLLIN},
                               {.fd = STDIN_FILENO, .events = POLLIN},
                               {.fd = fd, .events = POLLIN}};
    uint64_t now = cli_now_ns();
    int left_ms = now < until_ns ? (int)((until_ns - now) / 1000000) + 1 : 0;
    if (poll(waiting, 3, left_ms) <= 0) {
        return SCREEN_TIME;
    }
    if (waiting[0].revents != 0) {
        return read_signal(number);
    }
    if (waiting[1].revents != 0) {
        unsigned char key = 0;
        if (read(STDIN_FILENO, &key, 1) != 1) { /* the terminal is gone */
            *number = SIGHUP;
            return SCREEN_END;
        }
        *number = key;
        return SCREEN_KEY;
    }
    return SCREEN_OTHER;
}
