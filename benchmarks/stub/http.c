// HTTP/1.1 requests: parsing and dispatch.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "stub.h"

typedef struct {
    const char *path, *body, *id;
    size_t path_len, body_len, id_len, length;  // length: of the complete request
    bool post, closes;
} Request;

static bool line_is(const char *line, const char *name) { return !strncasecmp(line, name, strlen(name)); }

static void read_headers(Request *r, const char *line, const char *end) {
    while (line < end) {
        const char *stop = memmem(line, end + 2 - line, "\r\n", 2);
        if (!stop) return;
        if (line_is(line, "content-length:")) r->body_len = strtoull(line + 15, NULL, 10);
        else if (line_is(line, "connection:")) r->closes = memmem(line, stop - line, "close", 5) != NULL;
        else if (line_is(line, "x-request-id: ")) r->id = line + 14, r->id_len = stop - r->id;
        line = stop + 2;
    }
}

// 1: complete; 0: incomplete; -1: not HTTP.
static int parse(const char *data, size_t n, Request *r) {
    const char *end = memmem(data, n, "\r\n\r\n", 4);
    if (!end) return n > 65536 ? -1 : 0;
    const char *space = memchr(data, ' ', end - data);
    const char *second = space ? memchr(space + 1, ' ', end - space - 1) : NULL;
    if (!second) return -1;
    *r = (Request){.path = space + 1, .path_len = second - space - 1, .post = !strncmp(data, "POST ", 5)};
    read_headers(r, data, end);
    r->body = end + 4;
    r->length = (r->body - data) + r->body_len;
    return n >= r->length;
}

static bool path_is(const Request *r, const char *path) {
    size_t n = strlen(path);
    return r->path_len >= n && !strncmp(r->path, path, n) && (r->path_len == n || r->path[n] == '?');
}

static void reply_json(Conn *c, const char *body) {
    conn_reply(c, 200, "application/json", body, strlen(body));
}

static void reply_server_info(Conn *c) {
    char body[1024];
    snprintf(body, sizeof body,
             "{\"model_path\":\"%s\",\"served_model_name\":\"%s\",\"version\":\"stub\",\"dp_size\":%ld,\"tp_size\":1,"
             "\"context_length\":%ld,\"vocab_size\":%ld,\"stream_interval\":%ld,"
             "\"incremental_streaming_output\":%s,\"max_running_requests\":%ld,"
             "\"internal_states\":[{\"last_gen_throughput\":0.0}]}",
             model_name, model_name, (long)knobs.dp_size, (long)knobs.context_length, (long)knobs.vocab_size,
             (long)knobs.tokens_per_event,
             knobs.cumulative ? "false" : "true", knobs.slots ? (long)knobs.slots : 1000000l);
    reply_json(c, body);
}

static void reply_models(Conn *c) {
    char body[512];
    snprintf(body, sizeof body,
             "{\"object\":\"list\",\"data\":[{\"id\":\"%s\",\"object\":\"model\",\"created\":1700000000,"
             "\"owned_by\":\"sglang\",\"root\":\"%s\",\"max_model_len\":%ld}]}",
             model_name, model_name, (long)knobs.context_length);
    reply_json(c, body);
}

static void reply_model_info(Conn *c) {
    char body[512];
    snprintf(body, sizeof body, "{\"model_path\":\"%s\",\"tokenizer_path\":\"%s\",\"is_generation\":true}",
             model_name, model_name);
    reply_json(c, body);
}

static void reply_ok(Conn *c) { conn_reply(c, 200, "text/plain", "ok\n", 3); }

static void reply_reset(Conn *c) {
    truth_reset();
    reply_ok(c);
}

static const struct {
    const char *path;
    void (*reply)(Conn *);
} pages[] = {
    {"/health", reply_ok},
    {"/health_generate", reply_ok},
    {"/flush_cache", reply_ok},
    {"/get_server_info", reply_server_info},
    {"/server_info", reply_server_info},
    {"/get_model_info", reply_model_info},
    {"/model_info", reply_model_info},
    {"/v1/models", reply_models},
    {"/_stats", truth_reply_stats},
    {"/_log", truth_reply_log},
    {"/_reset", reply_reset},
};

static void configure(Conn *c, const Request *r) {
    char query[1024] = "";
    const char *mark = memchr(r->path, '?', r->path_len);
    if (mark) snprintf(query, sizeof query, "%.*s", (int)(r->path + r->path_len - mark - 1), mark + 1);
    knobs_set(query);
    char body[1024];
    conn_reply(c, 200, "application/json", body, knobs_print(body, sizeof body));
}

static void dispatch(Conn *c, const Request *r) {
    static const char *generation[] = {"/generate", "/v1/completions", "/v1/chat/completions"};
    for (int i = 0; r->post && i < 3; i++)
        if (path_is(r, generation[i])) {
            answer_start(c, (Protocol)i, r->body, r->body_len, r->id, r->id_len);
            return;
        }
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        if (path_is(r, pages[i].path)) {
            pages[i].reply(c);
            return;
        }
    if (path_is(r, "/_config")) configure(c, r);
    else conn_reply(c, 404, "application/json", "{\"detail\":\"Not Found\"}", 22);
}

static void drop_input(Conn *c, size_t used) {
    c->in_len -= used;
    if (c->in_len) {
        memmove(c->in, c->in + used, c->in_len);
        return;
    }
    free(c->in);
    c->in = NULL;
    c->in_cap = 0;
}

void http_input(Conn *c) {
    Request r;
    while (!c->closed && c->in_len && !c->streaming && !c->waiting) {
        if (!c->t_first_byte) c->t_first_byte = now_ns();
        int complete = parse(c->in, c->in_len, &r);
        if (complete < 0) conn_close(c);
        if (complete <= 0) return;
        c->close_after = r.closes;
        dispatch(c, &r);
        if (c->closed) return;
        drop_input(c, r.length);
        if (!c->streaming && !c->waiting) c->t_first_byte = 0;
    }
}
