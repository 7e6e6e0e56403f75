/* SPDX-License-Identifier: MIT
 *
 * socket.c - answers the user's requests on a Unix socket, if the program or an option opens it.
 *
 *      directory 0700  -->  PID.sock 0600  -->  up to 4 clients  -->  verbs.c
 *         S-03                 S-04              S-04, S-07, S-08       S-05, S-06
 *
 * Whoever may connect could as well debug the process, so the socket gives nothing that the kernel
 * would not give; but what comes in is not trusted.  The numbers are those of the requirements in
 * docs/manual/control.md.
 *
 * Descriptors belong to the program, too: it may close them, even all at once, or put another file
 * in the place of one.  So each is checked before it is used, and the service ends when the socket
 * is no longer the same file.  The child of a fork has no socket: that of its parent is not the
 * child's to close.
 *
 * Threads     socket_serve runs in one thread, which owns the clients; the other functions may be
 *             called from any.
 */
#include <errno.h>
#include <string.h>

#include "base/fmt.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/os.h"
#include "base/os_confined.h"
#include "base/os_shared.h"
#include "base/os_socket.h"
#include "contract/stats_page.h"
#include "contract/wire.h"
#include "control/control.h"
#include "control/verbs.h"
#include "opt/opt.h"

enum {
    NAME_BYTES = 40,
    IDLE_MS = 5000,
    SECOND_MS = 1000,
    SAID_MS = 60000,
    MOST_ERRORS = 3,
    OVERFLOW_USER = 65534, /* the user id shown for users of other namespaces */
};
_Static_assert(WIRE_CLIENTS + 1 <= OS_MOST_WAITED, "they are waited for together");

/* A descriptor, and the file behind it, to see whether it is still the same. */
struct held {
    int fd; /* -1: none */
    uint64_t device, inode;
};

struct client {
    struct held held;
    uint32_t pid, user; /* pid is for the log only: it is 0 across namespaces */
    unsigned errors;
    uint64_t seen_ms;
};

enum state { CLOSED, OPENING, OPEN };

static struct {
    _Atomic int state;
    _Atomic bool must_stop;
    enum verbs_right right;
    uint32_t process; /* whose socket it is */
    struct held listening;
    uint64_t device, inode; /* of the name */
    char directory[STATS_PAGE_PATH_BYTES - NAME_BYTES];
    char name[NAME_BYTES];
    struct client clients[WIRE_CLIENTS];
    uint64_t second_ms; /* the current second */
    unsigned requests;  /* in that second */
} g;

/* Buffers for a request and its answer, too large for the thread's stack.  Used by that thread
 * alone. */
static struct {
    char bytes[WIRE_MOST_BYTES +
               1]; /* one more, so that a message that is too long is seen to be cut */
    struct wire_message message;
    struct wire_writer reply;
} work SPARSE;

/* The last line in the log, if it was about a client that only looks.  Used by the thread alone. */
static struct {
    uint32_t pid, user;
    char verb[12]; /* empty: there is none */
    uint64_t since_ms;
    unsigned more; /* times since then */
} said;

/* ---------------------------------------------------------------- descriptors */

static struct held hold(int fd) {
    struct held held = {.fd = fd};
    return os_inode_of(fd, &held.device, &held.inode) ? held : (struct held){.fd = -1};
}

static bool is_ours(const struct held *held) {
    uint64_t device, inode;
    return held->fd >= 0 && os_inode_of(held->fd, &device, &inode) && device == held->device &&
           inode == held->inode;
}

static void let_go(struct held *held) {
    if (is_ours(held)) {
        os_close(held->fd);
    }
    held->fd = -1;
}

/* ---------------------------------------------------------------- opening */

/* Makes `<directory>/<name>`; -EADDRINUSE if a live socket has that name. */
static int listen_as(int directory, const char *name) {
    int fd = os_listen(directory, name, &g.device, &g.inode);
    if (fd == -EADDRINUSE && os_is_stale(directory, name)) {
        os_remove_in(directory, name);
        fd = os_listen(directory, name, &g.device, &g.inode);
    }
    return fd;
}

/* The name is the process id as this process sees it.  If that name is taken, perhaps by a process
 * of another namespace, a name is chosen that nobody can guess. */
static int listen_in(int directory) {
    fmt_text(g.name, sizeof(g.name), "%u.sock", os_process_id());
    int fd = listen_as(directory, g.name);
    if (fd == -EADDRINUSE) {
        uint64_t random = hash_word(os_facts.random ^ os_now_ns());
        fmt_text(g.name, sizeof(g.name), "%u-%08x.sock", os_process_id(), (unsigned)(random >> 32));
        fd = listen_as(directory, g.name);
    }
    return fd;
}

static int try_directory(void) {
    int directory = os_make_private(g.directory);
    if (directory < 0) {
        return directory;
    }
    int fd = listen_in(directory);
    os_close(directory);
    return fd;
}

/* The candidates in order; false if there is no such candidate, or it cannot be used. */
static bool choose_directory(unsigned candidate) {
    const char *runtime = os_environment("XDG_RUNTIME_DIR");
    size_t capacity = sizeof(g.directory);
    size_t length = 0;
    switch (candidate) {
    case 0:
        length = runtime != NULL && runtime[0] == '/'
                     ? fmt_text(g.directory, capacity, "%s/tally", runtime)
                     : 0;
        break;
    case 1:
        length = fmt_text(g.directory, capacity, "/run/user/%u/tally", os_user());
        break;
    case 2:
        length = fmt_text(g.directory, capacity, "/run/tally/%u", os_user());
        break;
    default:
        length = fmt_text(g.directory, capacity, "/tmp/tally-%u", os_user());
    }
    return length > 0 && length < capacity - 1;
}

/* If the user has named a directory, no other is tried. */
static int open_somewhere(void) {
    enum { CANDIDATES = 4 };
    int fd = -ENOENT;
    if (opt.control_dir[0] != '\0') {
        fmt_text(g.directory, sizeof(g.directory), "%s", opt.control_dir);
        return opt.control_dir[0] == '/' ? try_directory() : -EINVAL;
    }
    for (unsigned i = 0; i < CANDIDATES && fd < 0; i++) {
        fd = choose_directory(i) ? try_directory() : -ENOENT;
    }
    return fd;
}

static void tell_page(void) {
    char path[STATS_PAGE_PATH_BYTES];
    fmt_text(path, sizeof(path), "%s/%s", g.directory, g.name);
    stats_page_tell_socket(path, g.right);
}

static int open_now(unsigned rights) {
    int fd = open_somewhere();
    if (fd < 0) {
        return fd;
    }
    g.process = os_process_id();
    g.listening = hold(fd);
    g.right = rights == CONTROL_WRITE ? VERBS_WRITE : VERBS_READ;
    g.must_stop = false;
    for (unsigned i = 0; i < WIRE_CLIENTS; i++) {
        g.clients[i].held.fd = -1;
    }
    tell_page();
    return 0;
}

int socket_open(unsigned rights) {
    int closed = CLOSED;
    if (opt.control == CONTROL_OFF || !os_may_tell_user() || os_is_confined()) {
        return -EPERM;
    }
    if (!atomic_compare_exchange_strong(&g.state, &closed, OPENING)) {
        return -EALREADY;
    }
    int error = open_now(rights);
    g.state = error == 0 ? OPEN : CLOSED;
    return error;
}

bool socket_is_open(void) {
    return g.state == OPEN;
}

/* ---------------------------------------------------------------- ending */

/* The thread may be waiting on a listening socket whose descriptor the program has closed: then
 * only a connection wakes it. */
static void remove_name(bool wakes) {
    int directory = os_open_private(g.directory);
    if (directory >= 0) {
        if (wakes) {
            (void)os_is_stale(directory, g.name);
        }
        os_remove_same(directory, g.name, g.device, g.inode);
        os_close(directory);
    }
}

static void close_all(void) {
    for (unsigned i = 0; i < WIRE_CLIENTS; i++) {
        let_go(&g.clients[i].held);
    }
    let_go(&g.listening);
}

/* A child that has not yet noticed the fork, or shares its parent's memory, must not end its
 * parent's service. */
void socket_stop(void) {
    if (g.state == OPEN && g.process == os_process_id()) {
        bool is_open = is_ours(&g.listening);
        g.must_stop = true;
        remove_name(!is_open);
        if (is_open) {
            os_shut(g.listening.fd); /* The thread wakes and closes the socket. */
        }
    }
}

STARTUP void socket_forked(void) {
    if (g.state == OPEN) {
        close_all();
    }
    g.state = CLOSED;
    g.must_stop = false;
}

/* ---------------------------------------------------------------- requests */

/* Limits the number of requests in each second, whoever asks. */
static bool is_too_often(void) {
    uint64_t now_ms = os_now_ms();
    if (now_ms - g.second_ms >= SECOND_MS) {
        g.second_ms = now_ms;
        g.requests = 0;
    }
    return ++g.requests > WIRE_REQUESTS_PER_SECOND;
}

static const char *name_code(unsigned code) {
    static const char *const names[] = {"ok",    "syntax",      "unknown", "denied",  "busy",
                                        "limit", "unavailable", "io",      "deadline"};
    return code < sizeof(names) / sizeof(names[0]) ? names[code] : "?";
}

static void log_more(void) {
    if (said.more > 0) {
        log_note("control: pid %u uid %u: %s: ok (%u more)", said.pid, said.user, said.verb,
                 said.more);
        said.more = 0;
    }
}

/* If that is wanted.  A client that looks again and again, as `tally top` does, is logged once a minute,
 * with the number of requests.  What changes something, or is refused, is logged each time. */
static void log_request(const struct client *client, const char *verb, unsigned code) {
    uint64_t now_ms = os_now_ms();
    if (!opt.control_log) {
        return;
    }
    bool only_looks = code == 0 && !verbs_changes(verb);
    if (only_looks && client->pid == said.pid && client->user == said.user &&
        strcmp(verb, said.verb) == 0 && now_ms - said.since_ms < SAID_MS) {
        said.more++;
        return;
    }
    log_more();
    said.pid = client->pid;
    said.user = client->user;
    said.since_ms = now_ms;
    fmt_text(said.verb, sizeof(said.verb), "%s", only_looks ? verb : "");
    log_note("control: pid %u uid %u: %s: %s", client->pid, client->user, verb, name_code(code));
}

/* Answers the request in `work`; returns the code of the reply. */
static unsigned answer(struct client *client, ssize_t length, int output) {
    const char *verb = "no message";
    unsigned code = WIRE_SYNTAX;
    if (length == -EMSGSIZE) {
        wire_error(&work.reply, WIRE_SYNTAX, "a message has at most 4096 bytes");
    } else if (length == -EBADMSG) {
        wire_error(&work.reply, WIRE_SYNTAX, "one descriptor may come along");
    } else if (!wire_read_request(work.bytes, (size_t)length, &work.message)) {
        wire_error(&work.reply, WIRE_SYNTAX, "this is no request");
    } else if (is_too_often()) {
        verb = work.message.verb;
        code = WIRE_LIMIT;
        wire_error(&work.reply, WIRE_LIMIT, "too many requests in one second");
    } else {
        verb = work.message.verb;
        code = verbs_answer(&(struct verbs_request){&work.message, g.right, output}, &work.reply);
    }
    log_request(client, verb, code);
    return code;
}

static void drop(struct client *client) {
    let_go(&client->held);
}

/* Reads one message and answers it.  The client is dropped at its end, or after too many
 * mistakes. */
static void serve_client(struct client *client) {
    int output = -1;
    ssize_t length = is_ours(&client->held)
                         ? os_receive(client->held.fd, work.bytes, WIRE_MOST_BYTES, &output)
                         : -EBADF;
    if (length == -EAGAIN) {
        return;
    }
    if (length == 0 || (length < 0 && length != -EMSGSIZE && length != -EBADMSG)) {
        drop(client);
        return;
    }
    unsigned code = answer(client, length, output);
    if (output >= 0) {
        os_close(output);
    }
    client->errors += code == WIRE_SYNTAX || code == WIRE_UNKNOWN;
    client->seen_ms = os_now_ms();
    bool was_sent = is_ours(&client->held) &&
                    os_send(client->held.fd, work.reply.bytes, work.reply.length) == 0;
    if (!was_sent || client->errors >= MOST_ERRORS) {
        drop(client);
    }
}

/* ---------------------------------------------------------------- connections */

static bool may_connect(uint32_t user) {
    return user == 0 || (user == os_user() && user != OVERFLOW_USER);
}

static struct client *find_place(void) {
    for (unsigned i = 0; i < WIRE_CLIENTS; i++) {
        if (g.clients[i].held.fd < 0) {
            return &g.clients[i];
        }
    }
    return NULL;
}

/* Sends the refusal, if that is possible without waiting. */
static void turn_away(int fd, const struct client *client, enum wire_code code, const char *text) {
    size_t length = wire_error(&work.reply, code, text);
    log_request(client, "connect", code);
    (void)os_send(fd, work.reply.bytes, length);
    os_close(fd);
}

static void welcome(int fd) {
    struct client client = {.seen_ms = os_now_ms()};
    if (!os_peer(fd, &client.pid, &client.user) || !may_connect(client.user)) {
        turn_away(fd, &client, WIRE_DENIED, "this process serves its own user and root");
        return;
    }
    struct client *place = find_place();
    if (place == NULL) {
        turn_away(fd, &client, WIRE_BUSY, "too many connections");
        return;
    }
    client.held = hold(fd);
    *place = client;
}

/*
 * Judges an error of waiting or accepting: 0 to go on, or the error itself if every later call
 * would have it too, such as that of a filter of system calls.  An error that lasts for a while, of
 * memory or of a limit for descriptors, is waited out: trying again at once would keep the thread
 * busy with nothing else.
 */
static int judge(int error) {
    static _Atomic uint32_t never;
    switch (error) {
    case 0:
    case -EAGAIN:
    case -EINTR:
    case -ECONNABORTED:
        return 0;
    case -EINVAL: /* The limit is below the number of descriptors waited for. */
    case -EMFILE:
    case -ENFILE:
    case -ENOMEM:
    case -ENOBUFS:
        os_wait_ms(&never, 0, SECOND_MS);
        return 0;
    default:
        return error;
    }
}

static int accept_some(void) {
    for (unsigned i = 0; i < WIRE_CLIENTS; i++) {
        int fd = os_accept(g.listening.fd);
        if (fd < 0) {
            return fd;
        }
        welcome(fd);
    }
    return 0;
}

static int wait_for_work(struct os_waited waited[WIRE_CLIENTS + 1]) {
    bool has_clients = false;
    waited[WIRE_CLIENTS] = (struct os_waited){.fd = g.listening.fd};
    for (unsigned i = 0; i < WIRE_CLIENTS; i++) {
        waited[i] = (struct os_waited){.fd = g.clients[i].held.fd};
        has_clients |= waited[i].fd >= 0;
    }
    return os_wait_for_input(waited, WIRE_CLIENTS + 1, has_clients ? SECOND_MS : -1);
}

/* 0 or the error that ends the service. */
static int serve_once(void) {
    struct os_waited waited[WIRE_CLIENTS + 1];
    int error = judge(wait_for_work(waited));
    if (error != 0 || g.must_stop || !is_ours(&g.listening)) {
        return error;
    }
    uint64_t now_ms = os_now_ms(); /* before serving, during which others wait without being idle */
    for (unsigned i = 0; i < WIRE_CLIENTS; i++) {
        struct client *client = &g.clients[i];
        if (waited[i].is_ready) {
            serve_client(client);
        } else if (now_ms - client->seen_ms >= IDLE_MS) {
            drop(client);
        }
    }
    if (waited[WIRE_CLIENTS].has_ended) { /* The program has shut the socket down. */
        error = -ESHUTDOWN;
    } else if (waited[WIRE_CLIENTS].is_ready) {
        error = judge(accept_some());
    }
    return error;
}

void socket_serve(void) {
    int error = 0;
    while (error == 0 && !g.must_stop && is_ours(&g.listening)) {
        error = serve_once();
    }
    log_more();
    if (!g.must_stop) {
        log_note("control: the program has closed the socket%s, so nobody is served any more",
                 error != 0 ? " or forbidden to use it" : "");
        remove_name(false);
    }
    close_all();
    stats_page_tell_socket("", 0);
    g.state = CLOSED;
}
