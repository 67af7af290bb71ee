// Answers of a decode batch: each port is a server whose time per token grows with the requests that it runs.
// The same rules as benchmarks/peak/server_model.py. A port does one thing at a time: the prefill of the request that
// waits longest, where a slot is free (its end is the first event), else a step, in which every running request makes
// tokens_per_event tokens.
#include <math.h>
#include <stdlib.h>

#include "stub.h"

typedef struct Batch {
    Conn timer;  // first: act() gets it when the step or the prefill is over
    Conn **running, **waiting;  // a request that left the queue is NULL in it
    uint32_t size, room, head, tail, queue_room;
    Conn *prefilled;            // in its prefill; also running
    bool busy;
    double log_pace;
    uint64_t paced_ns;          // when log_pace was drawn
} Batch;

static Batch *by_port[65536];
static uint16_t last_port;
static uint64_t start_ns;

void batch_port(uint16_t port) {
    Batch *b = grow(NULL, sizeof *b);
    *b = (Batch){.timer = {.heap_index = -1, .times_batch = true, .port = port}};
    by_port[port] = b;
    last_port = port;
    start_ns = now_ns();
}

// ---------------------------------------------------------------- pace
static double normal(void) {
    double a = (rand() + 1.0) / (RAND_MAX + 2.0), b = rand() / (RAND_MAX + 1.0);
    return sqrt(-2 * log(a)) * cos(6.283185307179586 * b);
}

static double noise(Batch *b, uint64_t now) {
    double sd = knobs.noise_permille / 1000.0;
    if (sd == 0) return 1;
    uint64_t tick = knobs.noise_ms * 1000000ull / 6;
    if (!b->paced_ns) b->log_pace = sd * normal(), b->paced_ns = now;
    double keep = exp(-1 / 6.0);
    for (; now - b->paced_ns >= tick; b->paced_ns += tick)
        b->log_pace = keep * b->log_pace + sd * sqrt(1 - keep * keep) * normal();
    return exp(b->log_pace);
}

// What multiplies the times of this port now.
static double pace(Batch *b, uint64_t now) {
    double slow = b->timer.port == last_port ? 1 + knobs.slow_permille / 1000.0 : 1;
    double warm = 1 - exp(-((now - start_ns) * 1e-9) / knobs.drift_s);
    return slow * (1 + knobs.drift_permille / 1000.0 * warm) * noise(b, now);
}

static uint64_t step_ns(Batch *b, uint64_t now) {
    double n = b->size;
    double one = knobs.batch_us * 1e3 + knobs.stream_ns * n + knobs.square_ps * 1e-3 * n * n;
    return one * knobs.tokens_per_event * pace(b, now);
}

// ---------------------------------------------------------------- queue and batch
static void enqueue(Batch *b, Conn *c) {
    if (b->tail == b->queue_room) {
        uint32_t left = 0;
        for (uint32_t i = b->head; i < b->tail; i++) {
            Conn *waits = b->waiting[i];
            if (!waits) continue;
            waits->batch_index = left;
            b->waiting[left++] = waits;
        }
        b->head = 0, b->tail = left;
        if (left * 2 >= b->queue_room) {
            b->queue_room = b->queue_room ? b->queue_room * 2 : 64;
            b->waiting = grow(b->waiting, sizeof *b->waiting * b->queue_room);
        }
    }
    c->batch_index = b->tail;
    b->waiting[b->tail++] = c;
}

static Conn *dequeue(Batch *b) {
    while (b->head < b->tail) {
        Conn *c = b->waiting[b->head++];
        if (c) return c;
    }
    return NULL;
}

static bool has_slot(const Batch *b) { return !knobs.slots || b->size < (uint64_t)knobs.slots; }

static void join(Batch *b, Conn *c) {
    if (b->size == b->room) b->running = grow(b->running, sizeof *b->running * (b->room = b->room ? b->room * 2 : 64));
    c->batch = BATCH_RUNNING;
    c->batch_index = b->size;
    b->running[b->size++] = c;
}

void batch_leave(Conn *c) {
    Batch *b = by_port[c->port];
    if (c->batch == BATCH_WAITING) b->waiting[c->batch_index] = NULL;
    if (c->batch == BATCH_RUNNING) {
        Conn *last = b->running[--b->size];
        b->running[last->batch_index = c->batch_index] = last;
    }
    if (b && b->prefilled == c) b->prefilled = NULL;
    c->batch = BATCH_NONE;
}

// ---------------------------------------------------------------- turns
// From ``now`` on: the moment at which the last piece of work was due, so that lateness does not add up.
static void begin(Batch *b, uint64_t now) {
    Conn *c = has_slot(b) ? dequeue(b) : NULL;
    b->busy = c || b->size;
    if (!b->busy) return;
    if (c) {
        join(b, c);
        b->prefilled = c;
        if (c->t_request > now) now = c->t_request;  // it came while this work was overdue
    }
    schedule_at(&b->timer, now + (c ? (uint64_t)(knobs.prefill_us * 1e3 * pace(b, now)) : step_ns(b, now)));
}

void batch_turn(Conn *timer) {
    Batch *b = (Batch *)timer;
    uint64_t due = timer->due;
    schedule_remove(timer);
    truth_lateness(now_ns() - due);
    if (b->prefilled) {
        Conn *c = b->prefilled;
        b->prefilled = NULL;
        answer_token(c);
    } else {
        for (uint32_t i = b->size; i-- > 0;) answer_token(b->running[i]);  // one that ends is replaced by the last
    }
    begin(b, due);
}

void batch_join(Conn *c) {
    Batch *b = by_port[c->port];
    c->batch = BATCH_WAITING;
    enqueue(b, c);
    if (!b->busy) begin(b, c->t_request);
}
