// Answers to generation requests: the times and the content of their events.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stub.h"

// ---------------------------------------------------------------- text
// A writer without bounds checks: ensure_room() is called once per event with the largest size it can need.
static char *text, *at;
static size_t room;

static void ensure_room(size_t bytes) {
    if (room < bytes) text = grow(text, room = bytes * 2);
    at = text;
}

static void put(const char *words) {
    size_t n = strlen(words);
    memcpy(at, words, n);
    at += n;
}

static void put_number(uint64_t value) {
    char digits[20];
    int n = 0;
    do digits[n++] = '0' + value % 10;
    while (value /= 10);
    while (n) *at++ = digits[--n];
}

static void put_field(const char *name, uint64_t value) {
    put(name);
    put_number(value);
}

static void put_ids(const Conn *c, uint32_t from, uint32_t to) {
    uint32_t value = (c->seed + (uint64_t)from * ID_STRIDE) % ID_RANGE;
    for (uint32_t i = from; i < to; i++) {
        if (i > from) *at++ = ',';
        put_number(FIRST_ID + value);
        if ((value += ID_STRIDE) >= ID_RANGE) value -= ID_RANGE;
    }
}

static void put_words(uint32_t n) {
    for (; knobs.text && n; n--) put(" tok");
}

static void put_stamps(const Conn *c, uint64_t now) {
    if (!knobs.stamps) return;
    put_field(",\"t_req\":", c->t_request);
    put_field(",\"t_ns\":", now);
}

// ---------------------------------------------------------------- documents
static bool stopped_early(const Conn *c) { return c->total < c->asked; }

static void put_generate(const Conn *c, uint32_t from, uint32_t to, bool last) {
    put("{\"text\":\"");
    put_words(to - from);
    put("\",\"output_ids\":[");
    put_ids(c, from, to);
    put("],\"meta_info\":{\"id\":\"");
    put(c->id);
    put("\",\"finish_reason\":");
    if (!last) put("null");
    else if (stopped_early(c)) put("{\"type\":\"stop\",\"matched\":200002}");
    else {
        put_field("{\"type\":\"length\",\"length\":", to);
        put("}");
    }
    put_field(",\"prompt_tokens\":", c->prompt_tokens);
    put_field(",\"completion_tokens\":", to);
    put(",\"cached_tokens\":0}");
}

static void put_usage(const Conn *c, uint32_t tokens) {
    put_field(",\"usage\":{\"prompt_tokens\":", c->prompt_tokens);
    put_field(",\"total_tokens\":", c->prompt_tokens + tokens);
    put_field(",\"completion_tokens\":", tokens);
    put("}");
}

static void put_envelope(const Conn *c, bool streamed) {
    put("{\"id\":\"cmpl-");
    put(c->id);
    put("\",\"object\":\"");
    if (c->protocol == COMPLETION) put("text_completion");
    else put(streamed ? "chat.completion.chunk" : "chat.completion");
    put("\",\"created\":1700000000,\"model\":\"stub\",\"choices\":[");
}

static void put_openai(const Conn *c, uint32_t from, uint32_t to, bool last, bool streamed) {
    put_envelope(c, streamed);
    put("{\"index\":0,");
    if (c->protocol == COMPLETION) put("\"text\":\"");
    else {
        put(streamed ? "\"delta\":" : "\"message\":");
        put("{\"role\":\"assistant\",\"content\":\"");
    }
    for (uint32_t i = from; i < to; i++) put(" tok");
    put(c->protocol == COMPLETION ? "\"" : "\"}");
    if (c->wants_ids) {
        put(",\"token_ids\":[");
        put_ids(c, from, to);
        put("]");
    }
    put(",\"logprobs\":null,\"finish_reason\":");
    put(!last ? "null}]" : stopped_early(c) ? "\"stop\"}]" : "\"length\"}]");
    if (!streamed) put_usage(c, to);
}

static void put_document(const Conn *c, uint32_t from, uint32_t to, bool last, bool streamed, uint64_t now) {
    if (c->protocol == GENERATE) put_generate(c, from, to, last);
    else put_openai(c, from, to, last, streamed);
    put_stamps(c, now);
    put("}");
}

// ---------------------------------------------------------------- streams
// The length before a chunk has a fixed width and is filled in once it is known.
static char *open_chunk(void) {
    char *start = at;
    put("00000000\r\n");
    return start;
}

static void close_chunk(char *start) {
    uint32_t n = at - start - 10;
    for (int i = 7; i >= 0; i--, n >>= 4) start[i] = "0123456789abcdef"[n & 15];
    put("\r\n");
}

static void put_end(const Conn *c) {
    if (c->wants_usage && c->protocol != GENERATE) {
        char *chunk = open_chunk();
        put("data: ");
        put_envelope(c, true);
        put("]");
        put_usage(c, c->total);
        put("}\n\n");
        close_chunk(chunk);
    }
    put("e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
}

static void put_head(Conn *c) {
    if (c->head_sent) return;
    c->head_sent = true;
    put("HTTP/1.1 200 OK\r\ndate: Fri, 20 Nov 2026 00:00:00 GMT\r\nserver: uvicorn\r\n"
        "content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n");
}

static uint32_t next_total(const Conn *c) {
    uint64_t to = !c->sent && knobs.first_one ? 1 : c->sent + (uint64_t)knobs.tokens_per_event;
    return to < c->total ? to : c->total;
}

static uint32_t first_of_event(const Conn *c) { return c->protocol == GENERATE && knobs.cumulative ? 0 : c->sent; }

static void stamp(Conn *c, uint64_t now) {
    if (!c->events++) c->t_first_event = now;
    c->t_last_event = now;
    counters.events++;
}

static void finish(Conn *c) {
    schedule_remove(c);
    if (c->batch) batch_leave(c);
    truth_record(c);
    c->streaming = c->waiting = false;
    c->t_first_byte = 0;
    counters.active--;
}

static void schedule_following(Conn *c, uint64_t now) {
    uint64_t gap = knobs.gap_us * 1000ull;
    if (!gap) schedule_soon(c);
    else if (knobs.step) schedule_at(c, (now / gap + 1) * gap);
    // A shorter last event comes sooner: the tokens keep their pace.
    else schedule_at(c, (c->due ? c->due : now) + gap * (next_total(c) - c->sent) / knobs.tokens_per_event);
}

static void put_event(Conn *c, uint64_t now) {
    uint32_t from = first_of_event(c), to = next_total(c);
    char *chunk = open_chunk();
    put("data: ");
    put_document(c, from, to, to == c->total, true, now);
    put("\n\n");
    close_chunk(chunk);
    if (to == c->total) put_end(c);
    c->sent = to;
    stamp(c, now);
}

static void send_event(Conn *c) {
    uint64_t now = now_ns();
    uint64_t n = knobs.gap_us || c->batch ? 1 : knobs.events_per_send, left = c->total - c->sent;
    if (n > left) n = left;
    if (c->due) truth_lateness(now - c->due);
    ensure_room(n * (2048 + (n * knobs.tokens_per_event + c->sent - first_of_event(c)) * 16));
    put_head(c);
    do put_event(c, now);
    while (--n && c->sent < c->total);
    bool last = c->sent == c->total;
    if (last) finish(c);
    conn_send(c, text, at - text);
    if (c->closed || last || c->batch) return;
    if (c->wants_write) schedule_remove(c);  // continues in answer_writable
    else schedule_following(c, now);
}

static void send_document(Conn *c) {
    uint64_t now = now_ns();
    ensure_room(2048 + (size_t)c->total * 16);
    put_document(c, 0, c->total, true, false, now);
    stamp(c, now);
    finish(c);
    conn_reply(c, 200, "application/json", text, at - text);
}

// ---------------------------------------------------------------- requests
static int64_t number_after(const char *body, size_t n, const char *key) {
    const char *value = value_of(body, n, key);
    return value && *value >= '0' && *value <= '9' ? atoll(value) : -1;
}

static bool true_after(const char *body, size_t n, const char *key) {
    const char *value = value_of(body, n, key);
    return value && body + n - value >= 4 && !memcmp(value, "true", 4);
}

static uint32_t asked_tokens(const char *body, size_t n) {
    static const char *keys[] = {"\"max_new_tokens\"", "\"max_tokens\"", "\"max_completion_tokens\""};
    for (int i = 0; i < 3; i++) {
        int64_t asked = number_after(body, n, keys[i]);
        if (asked > 0) return asked;
    }
    return 16;
}

static uint64_t first_delay_ns(void) {
    static uint64_t state = 88172645463325252ull;  // xorshift
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (knobs.first_us + (knobs.jitter_us ? state % knobs.jitter_us : 0)) * 1000ull;
}

static void schedule_first(Conn *c) {
    uint64_t gap = knobs.gap_us * 1000ull, due = c->t_request + first_delay_ns();
    if (c->waiting) due += gap * ((c->total + knobs.tokens_per_event - 1) / knobs.tokens_per_event - 1);
    else if (knobs.step && gap) due = (due + gap - 1) / gap * gap;
    c->due = 0;
    if (due > c->t_request || gap) schedule_at(c, due);
    else if (c->streaming) schedule_soon(c);
    else answer_due(c);
}

// The client's: SGLang's is a field of the body, vLLM's a header.
static void take_id(Conn *c, const char *body, size_t n, const char *id, size_t id_len) {
    static const char key[] = "\"rid\":\"";
    const char *found = c->protocol == GENERATE ? memmem(body, n, key, sizeof key - 1) : NULL;
    if (found) {
        id = found + sizeof key - 1;
        const char *end = memchr(id, '"', body + n - id);
        id_len = end ? end - id : 0;
    }
    if (!id_len || id_len >= sizeof c->id) {
        snprintf(c->id, sizeof c->id, "%lu", (uint64_t)c->serial << 32 | c->request);
        return;
    }
    memcpy(c->id, id, id_len);
    c->id[id_len] = 0;
}

void answer_start(Conn *c, Protocol protocol, const char *body, size_t n, const char *id, size_t id_len) {
    Prompt prompt = prompt_read(body, n, protocol);
    c->t_request = now_ns();
    c->protocol = protocol;
    c->seed = prompt.seed;
    c->prompt_tokens = prompt.count;
    c->asked = asked_tokens(prompt.rest, prompt.rest_len);
    c->total = knobs.tokens ? knobs.tokens : c->asked;
    if (knobs.first_id_tokens && prompt.first && prompt.first < c->asked) c->total = prompt.first;
    c->sent = c->events = 0;
    c->head_sent = false;
    c->wants_usage = true_after(prompt.rest, prompt.rest_len, "\"include_usage\"");
    c->wants_ids = knobs.ids && true_after(prompt.rest, prompt.rest_len, "\"return_token_ids\"");
    c->streaming = true_after(prompt.rest, prompt.rest_len, "\"stream\"");
    c->waiting = !c->streaming;
    c->request++;
    take_id(c, prompt.rest, prompt.rest_len, id, id_len);
    counters.requests++;
    if (++counters.active > counters.max_active) counters.max_active = counters.active;
    c->due = 0;
    if (knobs.batch_us || knobs.stream_ns) batch_join(c);
    else schedule_first(c);
}

void answer_due(Conn *c) {
    if (c->streaming) send_event(c);
    else send_document(c);
}

void answer_token(Conn *c) {
    if (c->streaming) send_event(c);
    else if ((c->sent = next_total(c)) == c->total) send_document(c);
    http_input(c);  // a pipelined request, if the answer is complete
}

void answer_writable(Conn *c) {
    if (!c->streaming || c->batch || c->in_ring || c->heap_index >= 0) return;
    c->due = 0;
    schedule_soon(c);
}
