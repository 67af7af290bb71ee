// The true times: counters, lateness and a record of each answer, for comparison with a client's figures.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "stub.h"

typedef struct {
    uint64_t t_accept, t_first_byte, t_request, t_first_event, t_last_event;
    uint32_t serial, request, seed, prompt_tokens, tokens, events;
    uint16_t port;
    uint8_t protocol, streamed;
} Record;

#define LATENESS_BINS 200001  // microseconds

Counters counters;
static Record *records;
static size_t count, room;
static uint32_t lateness[LATENESS_BINS];
static uint64_t reset_ns;
static struct rusage reset_usage;

void truth_reset(void) {
    uint64_t open = counters.open, active = counters.active;
    counters = (Counters){.open = open, .max_open = open, .active = active, .max_active = active};
    count = 0;
    memset(lateness, 0, sizeof lateness);
    reset_ns = now_ns();
    getrusage(RUSAGE_SELF, &reset_usage);
}

void truth_lateness(uint64_t ns) {
    uint64_t us = ns / 1000;
    lateness[us < LATENESS_BINS ? us : LATENESS_BINS - 1]++;
}

void truth_record(const Conn *c) {
    if (count == room) records = grow(records, sizeof *records * (room = room ? room * 2 : 65536));
    records[count++] = (Record){
        .t_accept = c->t_accept,
        .t_first_byte = c->t_first_byte,
        .t_request = c->t_request,
        .t_first_event = c->t_first_event,
        .t_last_event = c->t_last_event,
        .serial = c->serial,
        .request = c->request,
        .seed = c->seed,
        .prompt_tokens = c->prompt_tokens,
        .tokens = c->total,
        .events = c->events,
        .port = c->port,
        .protocol = c->protocol,
        .streamed = c->streaming,
    };
}

static unsigned lateness_us(double share) {
    uint64_t all = 0, seen = 0;
    for (int i = 0; i < LATENESS_BINS; i++) all += lateness[i];
    for (int i = 0; i < LATENESS_BINS; i++)
        if ((seen += lateness[i]) > all * share) return i;
    return 0;
}

static double span_s(void) {
    uint64_t first = UINT64_MAX, last = 0;
    for (size_t i = 0; i < count; i++) {
        if (records[i].t_request < first) first = records[i].t_request;
        if (records[i].t_last_event > last) last = records[i].t_last_event;
    }
    return last > first ? (last - first) * 1e-9 : 0;
}

static double seconds(struct timeval now, struct timeval then) {
    return now.tv_sec - then.tv_sec + (now.tv_usec - then.tv_usec) * 1e-6;
}

void truth_reply_stats(Conn *c) {
    char text[4096], knob_text[1024];
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    knobs_print(knob_text, sizeof knob_text);
    Counters n = counters;
    int length = snprintf(
        text, sizeof text,
        "{\"requests\":%lu,\"completed\":%zu,\"aborted\":%lu,\"events\":%lu,\"accepted\":%lu,\"open\":%lu,"
        "\"max_open\":%lu,\"active\":%lu,\"max_active\":%lu,\"blocked_writes\":%lu,\"bytes_in\":%lu,"
        "\"bytes_out\":%lu,\"span_s\":%.6f,\"cpu_user_s\":%.4f,\"cpu_system_s\":%.4f,\"since_reset_s\":%.4f,"
        "\"max_rss_kib\":%ld,\"late_us\":{\"p50\":%u,\"p99\":%u,\"p999\":%u},\"knobs\":%s}\n",
        n.requests, count, n.aborted, n.events, n.accepted, n.open, n.max_open, n.active, n.max_active,
        n.blocked_writes, n.bytes_in, n.bytes_out, span_s(), seconds(use.ru_utime, reset_usage.ru_utime),
        seconds(use.ru_stime, reset_usage.ru_stime), (now_ns() - reset_ns) * 1e-9, use.ru_maxrss,
        lateness_us(.5), lateness_us(.99), lateness_us(.999), knob_text);
    conn_reply(c, 200, "application/json", text, length);
}

void truth_reply_log(Conn *c) {
    static const char *names[] = {"generate", "completion", "chat"};
    size_t bytes = 512 + count * 220;
    char *text = grow(NULL, bytes), *at = text;
    at += sprintf(at, "seed,port,connection,request,protocol,streamed,prompt_tokens,tokens,events,t_accept,"
                      "t_first_byte,t_request,t_first_event,t_last_event\n");
    for (const Record *r = records; r < records + count; r++)
        at += sprintf(at, "%u,%u,%u,%u,%s,%u,%u,%u,%u,%lu,%lu,%lu,%lu,%lu\n", r->seed, r->port, r->serial,
                      r->request, names[r->protocol], r->streamed, r->prompt_tokens, r->tokens, r->events,
                      r->t_accept, r->t_first_byte, r->t_request, r->t_first_event, r->t_last_event);
    conn_reply(c, 200, "text/csv", text, at - text);
    free(text);
}
