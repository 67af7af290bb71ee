/* Reads batched streams of plain TCP: what sut/client/streams.py does in Python, with the same bounds, which
 * sut/client/native_streams.py hands over; of events that have the expected pattern only the ids are kept.
 * Nothing blocks and nothing is allocated but what is kept. */

#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#include "events.h"

#define MOST_EVENTS 256
#define FIRST_ROOM 2048
#define FIRST_IDS 128
#define MOST_SURPRISES 4
#define MOST_OF_A_CHUNK 8192 /* bytes that wait for the end of their event */
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
    int64_t mask, code;                    /* of the descriptor that is returned */
    int64_t start, size, arrived_ns;       /* what it has received */
    int64_t held_bytes, held_ids, held_ns; /* of what was taken */
    int64_t more, kept, kept_ids, stepped;
};

struct stream {
    struct pattern *expected; /* of its events; NULL: none, or another one has come since */
    int64_t tokens, most;     /* so far, those that are kept included; and as many as it may have */
    uint32_t *ids;            /* what is kept: these, followed by bytes */
    int64_t id_count, id_room;
    unsigned char *bytes;
    int64_t size, room;
    int64_t held_ns;      /* arrival of the last byte that is kept */
    int64_t last_ns;      /* of the last byte that was read */
    uint32_t mask;        /* what is awaited */
    int surprises;        /* reads with something else than what was expected */
    char is_open, holds;
};

struct streams {
    struct exchange *exchange;
    struct stream *all; /* by descriptor */
    int64_t room;
    unsigned char *taken;
    uint32_t *taken_ids;
    struct epoll_event events[MOST_EVENTS];
    int count, at, unwatched; /* of the events; those that were taken since the last look at what is urgent */
    int reading;
    int waiting; /* a descriptor that is to be returned next; -1: none */
    unsigned char received[RECEIVE_BYTES];
    uint32_t ids[(RECEIVE_BYTES + MOST_OF_A_CHUNK) / 2];
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

/* Report once what is there now, and again each time that more comes: a stream is read to its end, so that looking once
 * more, as without EPOLLET, would only cost. 0, or -1 with errno. */
static int await(struct streams *streams, int descriptor, uint32_t mask) {
    struct epoll_event event = {.events = mask | EPOLLET, .data.fd = descriptor};
    if (!epoll_ctl(streams->exchange->batched, EPOLL_CTL_MOD, descriptor, &event))
        return 0;
    return errno == ENOENT ? epoll_ctl(streams->exchange->batched, EPOLL_CTL_ADD, descriptor, &event) : -1;
}

/* Wait for other events of a stream. 0, or -1 with errno. */
int streams_listen(struct streams *streams, int descriptor, uint32_t mask) {
    struct stream *stream = stream_of(streams, descriptor);
    if (stream)
        stream->mask = mask;
    return stream ? await(streams, descriptor, mask) : 0;
}

/* 0, or -1 with errno. */
int streams_begin(struct streams *streams, int descriptor, uint32_t mask, int64_t last_ns, int holds) {
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
    streams->all[descriptor] = (struct stream){.last_ns = last_ns, .mask = mask, .is_open = 1, .holds = holds != 0};
    return await(streams, descriptor, mask);
}

static void expect_nothing(struct stream *stream) {
    free(stream->expected);
    stream->expected = NULL;
}

/* Expect events of a pattern from now on: a struct pattern of ``size`` bytes, none if that is 0. 0, or -1 without memory. */
int streams_expect(struct streams *streams, int descriptor, const void *pattern, int64_t size, int64_t tokens, int64_t most) {
    struct stream *stream = stream_of(streams, descriptor);
    if (!stream)
        return 0;
    expect_nothing(stream);
    if (!size || stream->size) /* what is kept comes first */
        return 0;
    stream->expected = malloc(size);
    if (!stream->expected)
        return -1;
    memcpy(stream->expected, pattern, size);
    stream->tokens = tokens;
    stream->most = most;
    return 0;
}

static void drop(struct stream *stream) {
    free(stream->expected);
    free(stream->ids);
    free(stream->bytes);
    *stream = (struct stream){0};
}

void streams_end(struct streams *streams, int descriptor) {
    struct stream *stream = stream_of(streams, descriptor);
    if (streams->waiting == descriptor)
        streams->waiting = -1;
    if (stream) {
        streams->exchange->kept_ids -= stream->id_count;
        drop(stream);
    }
}

/* What is kept of a stream: held_ids, then held_bytes, which are returned; both valid until the next call. */
const unsigned char *streams_take(struct streams *streams, int descriptor) {
    struct stream *stream = stream_of(streams, descriptor);
    struct exchange *exchange = streams->exchange;
    free(streams->taken);
    free(streams->taken_ids);
    streams->taken = NULL;
    streams->taken_ids = NULL;
    exchange->held_bytes = exchange->held_ids = 0;
    if (stream) {
        streams->taken = stream->bytes;
        streams->taken_ids = stream->ids;
        exchange->held_bytes = stream->size;
        exchange->held_ids = stream->id_count;
        exchange->held_ns = stream->held_ns;
        exchange->kept_ids -= stream->id_count;
        if (stream->size)
            expect_nothing(stream); /* what follows them is not the beginning of a chunk */
        stream->bytes = NULL;
        stream->ids = NULL;
        stream->size = stream->room = stream->id_count = stream->id_room = 0;
    }
    return streams->taken;
}

/* The ids that streams_take has taken. */
const uint32_t *streams_taken_ids(const struct streams *streams) {
    return streams->taken_ids;
}

void streams_free(struct streams *streams) {
    for (int64_t descriptor = 0; descriptor < streams->room; descriptor++)
        drop(&streams->all[descriptor]);
    free(streams->all);
    free(streams->taken);
    free(streams->taken_ids);
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
    return before >= 0 && !memcmp(received + exchange->start + before, exchange->event_end, exchange->event_end_bytes);
}

static int append(struct stream *stream, const unsigned char *bytes, int64_t size) {
    int64_t needed = stream->size + size, room = stream->room ? stream->room : FIRST_ROOM;
    while (room < needed)
        room *= 2;
    if (room != stream->room) {
        unsigned char *larger = realloc(stream->bytes, room);
        if (!larger)
            return 0;
        stream->bytes = larger;
        stream->room = room;
    }
    memcpy(stream->bytes + stream->size, bytes, size);
    stream->size = needed;
    return 1;
}

static int append_ids(struct stream *stream, const uint32_t *ids, int64_t count) {
    int64_t needed = stream->id_count + count, room = stream->id_room ? stream->id_room : FIRST_IDS;
    while (room < needed)
        room += room / 4;
    if (room != stream->id_room) {
        uint32_t *larger = realloc(stream->ids, room * sizeof *larger);
        if (!larger)
            return 0;
        stream->ids = larger;
        stream->id_room = room;
    }
    memcpy(stream->ids + stream->id_count, ids, count * sizeof *ids);
    stream->id_count = needed;
    return 1;
}

static void keep_only(struct stream *stream, int64_t start, int64_t size) {
    if (size) {
        memmove(stream->bytes, stream->bytes + start, size);
    } else {
        free(stream->bytes);
        stream->bytes = NULL;
        stream->room = 0;
    }
    stream->size = size;
}

static int kept(struct exchange *exchange, struct stream *stream) {
    stream->held_ns = exchange->arrived_ns;
    exchange->kept++;
    return 1;
}

/* Keep the ids of events of the expected pattern, and of the last one what has come so far: those are bytes. Whether that
 * was all; what is left is the end of what was received. */
static int keep_ids(struct streams *streams, struct stream *stream) {
    struct exchange *exchange = streams->exchange;
    int64_t before = stream->size, used;
    int may_continue;
    if (!stream->expected || (before && !append(stream, streams->received, exchange->size)))
        return 0;
    const unsigned char *data = before ? stream->bytes : streams->received;
    int64_t size = before + exchange->size;
    int64_t count = ids_of_events(stream->expected, data, size, stream->tokens, streams->ids, &used, &may_continue);
    if (stream->tokens + count > stream->most || !append_ids(stream, streams->ids, count))
        count = used = may_continue = 0;
    stream->tokens += count;
    exchange->kept_ids += count;
    int64_t left = size - used;
    may_continue = may_continue && left <= MOST_OF_A_CHUNK;
    if (before) /* a chunk had begun: it is complete now, or nothing was used */
        keep_only(stream, used, may_continue ? left : used ? 0 : before);
    else if (may_continue)
        may_continue = append(stream, data + used, left);
    if (!left || may_continue)
        return kept(exchange, stream);
    if (used) {
        exchange->start = used - before;
        exchange->size = left;
        stream->held_ns = exchange->arrived_ns;
    }
    return 0;
}

static int keep(struct exchange *exchange, struct stream *stream, const unsigned char *received) {
    return append(stream, received + exchange->start, exchange->size) && kept(exchange, stream);
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
    ssize_t size;
    do
        size = recvmsg(descriptor, &message, MSG_DONTWAIT);
    while (size < 0 && errno == EINTR);
    exchange->code = size < 0 ? errno : 0;
    if (size < 0)
        return errno != EAGAIN && errno != EWOULDBLOCK;
    if (size == RECEIVE_BYTES && await(streams, descriptor, stream->mask)) { /* there may be more */
        exchange->code = errno;
        return 1;
    }
    exchange->start = 0;
    exchange->size = size;
    exchange->arrived_ns = arrival(exchange, &message, stream->last_ns);
    int64_t gap_ns = exchange->arrived_ns - stream->last_ns;
    stream->last_ns = exchange->arrived_ns;
    if (!size || !stream->holds || gap_ns > exchange->stall_ns)
        return 1;
    if (keep_ids(streams, stream))
        return 0;
    if (stream->expected && stream->surprises++ < MOST_SURPRISES)
        return 1; /* its reader learns another pattern: the first event of many servers has more fields */
    expect_nothing(stream); /* what follows is kept behind these bytes */
    return stream->size > exchange->most_held_bytes || !ends_with_an_event(exchange, streams->received) ||
           !keep(exchange, stream, streams->received);
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
    if (!streams->reading && streams->at == streams->count) {
        int most = exchange->events_a_round < MOST_EVENTS ? exchange->events_a_round : MOST_EVENTS;
        streams->count = epoll_wait(exchange->batched, streams->events, most, 0);
        if (streams->count < 0)
            streams->count = 0;
        streams->at = streams->unwatched = 0;
        exchange->more = streams->count == most;
    }
    streams->reading = 1;
    while (streams->at < streams->count) {
        if (streams->unwatched == exchange->at_a_time) {
            streams->unwatched = 0;
            if (is_urgent(exchange, 0)) {
                exchange->more = 1;
                break;
            }
        }
        const struct epoll_event *event = &streams->events[streams->at++];
        struct stream *stream = stream_of(streams, event->data.fd);
        streams->unwatched++;
        if (!stream)
            continue;
        exchange->code = 0;
        exchange->mask = event->events == EPOLLIN ? 0 : event->events;
        if (exchange->mask && await(streams, event->data.fd, stream->mask)) { /* Python may not read to the end */
            exchange->mask = 0;
            exchange->code = errno;
            return event->data.fd;
        }
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
