/* Reads batched streams of plain TCP: what sut/client/streams.py does in Python, with the same bounds, which
 * sut/client/native_streams.py hands over. Nothing blocks and nothing is allocated but what is kept. */

#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#define MOST_EVENTS 256
#define FIRST_ROOM 2048
#define RECEIVE_BYTES 65536

/* Shared with Python, which sets the first half. Times are monotonic ns. */
struct exchange {
    int64_t batched, urgent;             /* epoll sets */
    int64_t events_a_round, at_a_time;
    int64_t most_held_bytes, stall_ns;
    int64_t slack_ns, offset_ns;         /* a stamp minus offset_ns is monotonic, and wrong by slack_ns at most */
    int64_t nap_ms;
    const char *event_end;
    int64_t event_end_bytes;
    int64_t mask, code, size, arrived_ns; /* of the descriptor that is returned */
    int64_t held_bytes, held_ns;          /* of what was taken */
    int64_t more, kept, stepped;
};

struct stream {
    unsigned char *bytes; /* what is kept */
    int64_t size, room;
    int64_t held_ns;      /* arrival of the last byte that is kept */
    int64_t last_ns;      /* of the last byte that was read */
    char is_open, holds;
};

struct streams {
    struct exchange *exchange;
    struct stream *all; /* by descriptor */
    int64_t room;
    unsigned char *taken;
    struct epoll_event events[MOST_EVENTS];
    int count, at, reading;
    int waiting; /* a descriptor that is to be returned next; -1: none */
    unsigned char received[RECEIVE_BYTES];
};

struct streams *streams_new(struct exchange *exchange) {
    struct streams *made = calloc(1, sizeof *made);
    if (made) {
        made->exchange = exchange;
        made->waiting = -1;
    }
    return made;
}

/* Where the bytes of the descriptor that was returned are. */
const unsigned char *streams_received(const struct streams *streams) {
    return streams->received;
}

static struct stream *stream_of(struct streams *streams, int descriptor) {
    if (descriptor < 0 || descriptor >= streams->room || !streams->all[descriptor].is_open)
        return NULL;
    return &streams->all[descriptor];
}

/* 0, or -1 without memory. */
int streams_begin(struct streams *streams, int descriptor, int64_t last_ns, int holds) {
    if (descriptor >= streams->room) {
        int64_t room = streams->room ? streams->room : 1024;
        while (room <= descriptor)
            room *= 2;
        struct stream *all = realloc(streams->all, room * sizeof *all);
        if (!all)
            return -1;
        memset(all + streams->room, 0, (room - streams->room) * sizeof *all);
        streams->all = all;
        streams->room = room;
    }
    streams->all[descriptor] = (struct stream){.last_ns = last_ns, .is_open = 1, .holds = holds != 0};
    return 0;
}

void streams_end(struct streams *streams, int descriptor) {
    struct stream *stream = stream_of(streams, descriptor);
    if (streams->waiting == descriptor)
        streams->waiting = -1;
    if (stream) {
        free(stream->bytes);
        *stream = (struct stream){0};
    }
}

/* What is kept of a stream, held_bytes; valid until the next call of this function. */
const unsigned char *streams_take(struct streams *streams, int descriptor) {
    struct stream *stream = stream_of(streams, descriptor);
    free(streams->taken);
    streams->taken = NULL;
    streams->exchange->held_bytes = 0;
    if (stream) {
        streams->taken = stream->bytes;
        streams->exchange->held_bytes = stream->size;
        streams->exchange->held_ns = stream->held_ns;
        stream->bytes = NULL;
        stream->size = stream->room = 0;
    }
    return streams->taken;
}

void streams_free(struct streams *streams) {
    for (int64_t descriptor = 0; descriptor < streams->room; descriptor++)
        free(streams->all[descriptor].bytes);
    free(streams->all);
    free(streams->taken);
    free(streams);
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* The arrival of what was read: the kernel's stamp if it can be trusted, else now. */
static int64_t arrival(struct exchange *exchange, struct msghdr *message, int64_t last_ns) {
    int64_t now = now_ns();
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SO_TIMESTAMPNS)
        return now;
    struct timespec stamp;
    memcpy(&stamp, CMSG_DATA(header), sizeof stamp);
    int64_t arrived = stamp.tv_sec * INT64_C(1000000000) + stamp.tv_nsec - exchange->offset_ns;
    if (last_ns - exchange->slack_ns <= arrived && arrived <= now + exchange->slack_ns)
        return arrived;
    exchange->stepped = 1;
    return now;
}

static int ends_with_an_event(const struct exchange *exchange, const unsigned char *received) {
    int64_t before = exchange->size - exchange->event_end_bytes;
    return before >= 0 && !memcmp(received + before, exchange->event_end, exchange->event_end_bytes);
}

static int keep(struct exchange *exchange, struct stream *stream, const unsigned char *received) {
    int64_t size = stream->size + exchange->size, room = stream->room ? stream->room : FIRST_ROOM;
    while (room < size)
        room *= 2;
    if (room != stream->room) {
        unsigned char *bytes = realloc(stream->bytes, room);
        if (!bytes)
            return 0;
        stream->bytes = bytes;
        stream->room = room;
    }
    memcpy(stream->bytes + stream->size, received, exchange->size);
    stream->size = size;
    stream->held_ns = exchange->arrived_ns;
    exchange->kept++;
    return 1;
}

/* Whether Python has to look at it. */
static int receive(struct streams *streams, struct stream *stream, int descriptor) {
    struct exchange *exchange = streams->exchange;
    union {
        char bytes[CMSG_SPACE(sizeof(struct timespec))];
        struct cmsghdr aligned;
    } control;
    struct iovec into = {streams->received, sizeof streams->received};
    struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t size = recvmsg(descriptor, &message, MSG_DONTWAIT);
    exchange->code = size < 0 ? errno : 0;
    if (size < 0)
        return errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
    exchange->size = size;
    exchange->arrived_ns = arrival(exchange, &message, stream->last_ns);
    int64_t gap_ns = exchange->arrived_ns - stream->last_ns;
    stream->last_ns = exchange->arrived_ns;
    return !stream->holds || gap_ns > exchange->stall_ns || stream->size > exchange->most_held_bytes ||
           !ends_with_an_event(exchange, streams->received) || !keep(exchange, stream, streams->received);
}

static int is_urgent(const struct exchange *exchange, int64_t wait_ms) {
    struct epoll_event event;
    return epoll_wait(exchange->urgent, &event, 1, wait_ms) != 0; /* a signal is urgent, too */
}

/* The next descriptor of a round that Python has to look at, with mask, code, size and arrived_ns; -1 at its end. */
int streams_next(struct streams *streams) {
    struct exchange *exchange = streams->exchange;
    if (streams->waiting >= 0) {
        int descriptor = streams->waiting;
        streams->waiting = -1;
        return descriptor;
    }
    if (!streams->reading) {
        int most = exchange->events_a_round < MOST_EVENTS ? exchange->events_a_round : MOST_EVENTS;
        streams->count = epoll_wait(exchange->batched, streams->events, most, 0);
        streams->at = 0;
        streams->reading = 1;
        exchange->more = streams->count == most;
    }
    while (streams->at < streams->count) {
        if (streams->at && streams->at % exchange->at_a_time == 0 && is_urgent(exchange, 0)) {
            exchange->more = 1;
            break;
        }
        const struct epoll_event *event = &streams->events[streams->at++];
        struct stream *stream = stream_of(streams, event->data.fd);
        if (!stream)
            continue;
        exchange->mask = event->events == EPOLLIN ? 0 : event->events;
        if (exchange->mask || receive(streams, stream, event->data.fd))
            return event->data.fd;
    }
    streams->reading = 0;
    return -1;
}

/* Read rounds, a nap before each, until something urgent has come, Python has to look at a stream, or the time is over. */
void streams_wait(struct streams *streams, int64_t wait_ns) {
    struct exchange *exchange = streams->exchange;
    int64_t until = now_ns() + wait_ns;
    do {
        int64_t left_ns = until - now_ns();
        int naps = !exchange->more && left_ns > 0;
        if (is_urgent(exchange, naps ? exchange->nap_ms : 0))
            return;
        streams->waiting = streams_next(streams);
    } while (streams->waiting < 0 && !exchange->stepped && now_ns() < until);
}
