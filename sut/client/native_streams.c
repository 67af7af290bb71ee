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

/* Shared with Python, which sets the first half. Times are monotonic ns. */
struct exchange {
    int64_t batched, urgent;             /* epoll sets */
    int64_t events_a_round, at_a_time;
    int64_t most_held_bytes, stall_ns;
    int64_t slack_ns, offset_ns;         /* a stamp minus offset_ns is monotonic, and wrong by slack_ns at most */
    unsigned char *received;             /* where every read goes */
    int64_t received_bytes;
    const char *event_end;
    int64_t event_end_bytes;
    int64_t mask, code, size, arrived_ns; /* of what is returned */
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
};

struct streams *streams_new(struct exchange *exchange) {
    struct streams *made = calloc(1, sizeof *made);
    if (made)
        made->exchange = exchange;
    return made;
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
    if (stream) {
        free(stream->bytes);
        *stream = (struct stream){0};
    }
}

/* What is kept of a stream, exchange->size bytes; valid until the next call of this function. */
const unsigned char *streams_take(struct streams *streams, int descriptor) {
    struct stream *stream = stream_of(streams, descriptor);
    free(streams->taken);
    streams->taken = NULL;
    streams->exchange->size = 0;
    if (stream) {
        streams->taken = stream->bytes;
        streams->exchange->size = stream->size;
        streams->exchange->arrived_ns = stream->held_ns;
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

static int ends_with_an_event(const struct exchange *exchange) {
    int64_t before = exchange->size - exchange->event_end_bytes;
    return before >= 0 && !memcmp(exchange->received + before, exchange->event_end, exchange->event_end_bytes);
}

static int keep(struct exchange *exchange, struct stream *stream) {
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
    memcpy(stream->bytes + stream->size, exchange->received, exchange->size);
    stream->size = size;
    stream->held_ns = exchange->arrived_ns;
    exchange->kept++;
    return 1;
}

/* Whether Python has to look at it. */
static int receive(struct exchange *exchange, struct stream *stream, int descriptor) {
    union {
        char bytes[CMSG_SPACE(sizeof(struct timespec))];
        struct cmsghdr aligned;
    } control;
    struct iovec into = {exchange->received, exchange->received_bytes};
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
           !ends_with_an_event(exchange) || !keep(exchange, stream);
}

static int is_urgent(const struct exchange *exchange) {
    struct epoll_event event;
    return epoll_wait(exchange->urgent, &event, 1, 0) > 0;
}

/* The next descriptor of a round that Python has to look at, with mask, code, size and arrived_ns; -1 at its end. */
int streams_next(struct streams *streams) {
    struct exchange *exchange = streams->exchange;
    if (!streams->reading) {
        int most = exchange->events_a_round < MOST_EVENTS ? exchange->events_a_round : MOST_EVENTS;
        streams->count = epoll_wait(exchange->batched, streams->events, most, 0);
        streams->at = 0;
        streams->reading = 1;
        exchange->more = streams->count == most;
    }
    while (streams->at < streams->count) {
        if (streams->at && streams->at % exchange->at_a_time == 0 && is_urgent(exchange)) {
            exchange->more = 1;
            break;
        }
        const struct epoll_event *event = &streams->events[streams->at++];
        struct stream *stream = stream_of(streams, event->data.fd);
        if (!stream)
            continue;
        exchange->mask = event->events == EPOLLIN ? 0 : event->events;
        if (exchange->mask || receive(exchange, stream, event->data.fd))
            return event->data.fd;
    }
    streams->reading = 0;
    return -1;
}
