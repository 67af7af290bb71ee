// The stub server's process: listening, the event loop, reading and writing. One thread.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "stub.h"

#define BACKLOG 65535
#define ACCEPTS_PER_TURN 256
#define EVENTS_PER_TURN 512
#define READ_BYTES (1 << 20)

static int poll_fd;
static Conn *dead;  // freed at the end of the turn, because epoll may still report them in it

uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

void *grow(void *block, size_t bytes) {
    void *bigger = realloc(block, bytes);
    if (bigger || !bytes) return bigger;
    fprintf(stderr, "stub_server: out of memory at %zu bytes\n", bytes);
    exit(1);
}

// ---------------------------------------------------------------- connections
static void watch(Conn *c, bool write) {
    if (c->wants_write == write) return;
    c->wants_write = write;
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP | (write ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(poll_fd, EPOLL_CTL_MOD, c->endpoint.fd, &e);
}

void conn_close(Conn *c) {
    if (c->closed) return;
    c->closed = true;
    if (c->streaming || c->waiting) counters.aborted++, counters.active--;
    schedule_remove(c);
    if (c->batch) batch_leave(c);
    close(c->endpoint.fd);
    counters.open--;
    free(c->in);
    free(c->out);
    c->next = dead;
    dead = c;
}

static void close_if_done(Conn *c) {
    if (c->close_after && !c->streaming && !c->waiting && !c->out_len) conn_close(c);
}

static size_t send_now(Conn *c, const char *data, size_t n) {
    ssize_t sent = send(c->endpoint.fd, data, n, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) conn_close(c);
    if (sent > 0) counters.bytes_out += sent;
    return sent > 0 ? sent : 0;
}

static void keep_output(Conn *c, const char *data, size_t n) {
    counters.blocked_writes++;
    if (c->out_len + n > c->out_cap) c->out = grow(c->out, c->out_cap = (c->out_len + n) * 2);
    memcpy(c->out + c->out_len, data, n);
    c->out_len += n;
    watch(c, true);
}

void conn_send(Conn *c, const char *data, size_t n) {
    size_t sent = c->out_len ? 0 : send_now(c, data, n);
    if (c->closed) return;
    if (sent < n) keep_output(c, data + sent, n - sent);
    else close_if_done(c);
}

void conn_reply(Conn *c, int status, const char *type, const char *body, size_t n) {
    static char *page;
    static size_t room;
    if (room < n + 512) page = grow(page, room = (n + 512) * 2);
    int head = sprintf(page, "HTTP/1.1 %d %s\r\nserver: uvicorn\r\ncontent-length: %zu\r\ncontent-type: %s\r\n\r\n",
                       status, status == 200 ? "OK" : "Not Found", n, type);
    memcpy(page + head, body, n);
    conn_send(c, page, head + n);
}

static void flush_output(Conn *c) {
    c->out_off += send_now(c, c->out + c->out_off, c->out_len - c->out_off);
    if (c->closed || c->out_off < c->out_len) return;
    free(c->out);
    c->out = NULL;
    c->out_len = c->out_off = c->out_cap = 0;
    watch(c, false);
    close_if_done(c);
    if (!c->closed) answer_writable(c);
}

static void keep_input(Conn *c, const char *data, size_t n) {
    if (c->in_len + n > c->in_cap) c->in = grow(c->in, c->in_cap = c->in_len + n);
    memcpy(c->in + c->in_len, data, n);
    c->in_len += n;
}

// All connections share one read buffer; a connection holds memory only while a request is incomplete.
static void read_input(Conn *c) {
    static char data[READ_BYTES];
    ssize_t n;
    do {
        n = recv(c->endpoint.fd, data, sizeof data, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            conn_close(c);
            return;
        }
        if (n > 0) keep_input(c, data, n), counters.bytes_in += n;
    } while (n == sizeof data);
    http_input(c);
}

// ---------------------------------------------------------------- listening
static uint16_t port_of(int fd) {
    struct sockaddr_in address;
    socklen_t n = sizeof address;
    return getsockname(fd, (struct sockaddr *)&address, &n) ? 0 : ntohs(address.sin_port);
}

static void add_conn(int fd) {
    static uint32_t serial;
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    Conn *c = grow(NULL, sizeof *c);
    *c = (Conn){.endpoint.fd = fd, .heap_index = -1, .serial = serial++, .port = port_of(fd), .t_accept = now_ns()};
    counters.accepted++;
    if (++counters.open > counters.max_open) counters.max_open = counters.open;
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = c};
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &e);
}

static void accept_some(int listener) {
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
        if (fd < 0) return;
        add_conn(fd);
    }
}

static void listen_on(uint32_t address, int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address)};
    if (bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, BACKLOG)) {
        fprintf(stderr, "stub_server: port %d: %s\n", port, strerror(errno));
        exit(1);
    }
    Endpoint *e = grow(NULL, sizeof *e);
    *e = (Endpoint){.fd = fd, .listens = true};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = e};
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &event);
    batch_port(port);
}

// ---------------------------------------------------------------- loop
static void handle(struct epoll_event *e) {
    Endpoint *endpoint = e->data.ptr;
    if (endpoint->listens) {
        accept_some(endpoint->fd);
        return;
    }
    Conn *c = (Conn *)endpoint;
    if (!c->closed && e->events & (EPOLLERR | EPOLLHUP)) conn_close(c);
    if (!c->closed && e->events & EPOLLOUT) flush_output(c);
    if (!c->closed && e->events & (EPOLLIN | EPOLLRDHUP)) read_input(c);
}

static void act(Conn *c) {
    if (c->times_batch) {
        batch_turn(c);
        return;
    }
    answer_due(c);
    http_input(c);  // a pipelined request, if the answer is complete
}

static void free_dead(void) {
    while (dead) {
        Conn *next = dead->next;
        free(dead);
        dead = next;
    }
}

static void turn(void) {
    static struct epoll_event events[EVENTS_PER_TURN];
    uint64_t wait = schedule_wait_ns(now_ns());
    struct timespec timeout = {.tv_sec = wait / 1000000000ull, .tv_nsec = wait % 1000000000ull};
    int n = epoll_pwait2(poll_fd, events, EVENTS_PER_TURN, wait == UINT64_MAX ? NULL : &timeout, NULL);
    for (int i = 0; i < n; i++) handle(&events[i]);
    Conn *c;
    uint64_t now = now_ns();
    while ((c = schedule_next_due(now))) act(c);
    schedule_run_ring(act);
    free_dead();
}

// ---------------------------------------------------------------- start
static void raise_descriptor_limit(void) {
    struct rlimit limit, wanted = {1 << 20, 1 << 20};
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < wanted.rlim_max && !setrlimit(RLIMIT_NOFILE, &wanted)) return;  // root may
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void usage(const char *what) {
    fprintf(stderr,
            "stub_server: %s\nusage: stub_server [--port 30000] [--ports 1] [--any 0|1] [--model NAME] [--<knob> <value>]...\n"
            "knobs are listed in README.md\n",
            what);
    exit(2);
}

int main(int argc, char **argv) {
    int port = 30000, ports = 1, any = 0;
    for (int i = 1; i < argc; i += 2) {
        if (strncmp(argv[i], "--", 2) || i + 1 == argc) usage(argv[i]);
        const char *name = argv[i] + 2, *value = argv[i + 1];
        if (!strcmp(name, "port")) port = atoi(value);
        else if (!strcmp(name, "ports")) ports = atoi(value);
        else if (!strcmp(name, "any")) any = atoi(value);
        else if (!strcmp(name, "model")) model_name = value;
        else if (!knob_set_one(name, value)) usage(argv[i]);
    }
    prctl(PR_SET_TIMERSLACK, 1000);
    raise_descriptor_limit();
    ids_init();
    poll_fd = epoll_create1(0);
    for (int i = 0; i < ports; i++) listen_on(any ? INADDR_ANY : INADDR_LOOPBACK, port + i);
    truth_reset();
    fprintf(stderr, "stub_server: ports %d to %d\n", port, port + ports - 1);
    for (;;) turn();
}
