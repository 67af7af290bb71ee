// A fast stub of an SGLang or vLLM server: shared declarations. README.md describes its use.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---------------------------------------------------------------- knobs
// Each is an option (--tokens 100) and a parameter of GET /_config (?tokens=100), which prints them all.
typedef struct {
    int64_t tokens;            // output tokens of every answer; 0: as many as the request asks for
    int64_t tokens_per_event;  // like SGLang's --stream-interval
    int64_t events_per_send;   // of a stream without gaps
    int64_t first_one;         // 1: the first event carries one token, as SGLang's does
    int64_t first_us;          // delay of the first event
    int64_t gap_us;            // time between events; 0: as fast as the socket accepts them
    int64_t jitter_us;         // random addition to the first delay, from 0 to this value
    int64_t first_id_tokens;   // 1: the first id of the prompt is the number of output tokens, if that is not more than asked
    // A decode batch for each port (batch.c), where batch_us or stream_ns is not 0. A token of each of N running requests
    // takes batch_us + stream_ns * N + square_ps * N * N.
    int64_t batch_us, stream_ns, square_ps;
    int64_t slots;             // requests that a port runs at once, the others wait; 0: no limit
    int64_t prefill_us;        // of each request; the batch stands still
    int64_t slow_permille;     // the last port is slower by this share
    int64_t noise_permille;    // standard deviation of each port's pace,
    int64_t noise_ms;          // with this correlation time
    int64_t drift_permille;    // all ports are slower in the end by this share,
    int64_t drift_s;           // with this time constant
    int64_t step;              // 1: all streams emit on one common clock of gap_us, like a decode batch
    int64_t cumulative;        // 1: /generate repeats all ids in every event; 0: only the new ones
    int64_t ids;               // 0: OpenAI's answers have no ids, even where they are asked for
    int64_t text;              // 1: every token also has a text, " tok"
    int64_t stamps;            // 1: events carry t_req and t_ns
    int64_t context_length;    // reported
    int64_t dp_size;           // reported
    int64_t vocab_size;        // reported
} Knobs;

extern Knobs knobs;
extern const char *model_name;  // reported; --model

void knobs_set(const char *query);     // "tokens=100&gap_us=20000"; other knobs keep their value
bool knob_set_one(const char *name, const char *value);
int knobs_print(char *to, size_t room);  // as a JSON object

// ---------------------------------------------------------------- connections
typedef enum { GENERATE, COMPLETION, CHAT } Protocol;
typedef enum { BATCH_NONE, BATCH_WAITING, BATCH_RUNNING } BatchState;

typedef struct Endpoint {
    int fd;
    bool listens;
} Endpoint;

typedef struct Conn {
    Endpoint endpoint;  // first: epoll hands it back
    uint16_t port;
    uint8_t protocol, batch;
    bool times_batch;                 // not a connection, but the timer of a port's batch
    bool streaming, waiting;          // an answer is unfinished: a stream, or a document not yet sent
    bool head_sent, wants_usage, wants_ids;
    bool close_after, closed, wants_write, in_ring;
    uint32_t serial, request;         // number of the connection, and of the request on it
    uint32_t seed, prompt_tokens;     // of the prompt: see ids.c
    char id[64];                      // of the request, as its client gave it or made up here
    uint32_t asked, total, sent, events;  // tokens; events sent
    int32_t heap_index;               // -1: not in the heap
    uint32_t batch_index;             // in the queue or in the batch
    char *in, *out;                   // unfinished data: NULL on a quiet connection
    uint32_t in_len, in_cap, out_len, out_off, out_cap;
    uint64_t due;
    uint64_t t_accept, t_first_byte, t_request, t_first_event, t_last_event;
    struct Conn *next, *previous;
} Conn;

void conn_close(Conn *c);
void conn_send(Conn *c, const char *data, size_t n);  // may close c
void conn_reply(Conn *c, int status, const char *type, const char *body, size_t n);

// ---------------------------------------------------------------- http.c
void http_input(Conn *c);  // answers every complete request in c->in

// ---------------------------------------------------------------- ids.c
#define FIRST_ID 1000u
#define ID_RANGE 100000u
#define ID_STRIDE 7919u

typedef struct {
    uint32_t seed, count, first;  // first: the first id
    const char *rest;  // the body without the ids; valid until the next call
    size_t rest_len;
} Prompt;

void ids_init(void);
const char *value_of(const char *body, size_t n, const char *key);  // of a field in JSON; NULL: it is not there
Prompt prompt_read(const char *body, size_t n, Protocol protocol);

// ---------------------------------------------------------------- answer.c
void answer_start(Conn *c, Protocol protocol, const char *body, size_t n, const char *id, size_t id_len);
void answer_due(Conn *c);      // send the due event, or the document
void answer_token(Conn *c);    // of a batch: the next event; a document at its end
void answer_writable(Conn *c); // resume a blocked stream

// ---------------------------------------------------------------- schedule.c
void schedule_at(Conn *c, uint64_t due_ns);
void schedule_soon(Conn *c);
void schedule_remove(Conn *c);
Conn *schedule_next_due(uint64_t now);  // NULL: none is due
uint64_t schedule_wait_ns(uint64_t now);  // UINT64_MAX: nothing is scheduled
void schedule_run_ring(void (*act)(Conn *));

// ---------------------------------------------------------------- batch.c
void batch_port(uint16_t port);  // each port that listens
void batch_join(Conn *c);        // a request, to the queue of its port
void batch_leave(Conn *c);       // it ended, or its connection closed
void batch_turn(Conn *timer);

// ---------------------------------------------------------------- truth.c
typedef struct {
    uint64_t requests, aborted, events, accepted, open, max_open, active, max_active;
    uint64_t blocked_writes, bytes_in, bytes_out;
} Counters;

extern Counters counters;

void truth_reset(void);
void truth_lateness(uint64_t ns);     // delay of an event after its due time
void truth_record(const Conn *c);     // an answer is complete
void truth_reply_stats(Conn *c);      // JSON
void truth_reply_log(Conn *c);        // CSV, a line per answer

// ---------------------------------------------------------------- small parts
uint64_t now_ns(void);                // CLOCK_MONOTONIC
void *grow(void *block, size_t bytes);  // realloc that does not fail
