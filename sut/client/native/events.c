/* Complete chunks of an HTTP body whose events all have one pattern: what Pattern.leading_ids in sut/wire/wire.py accepts
 * of an event, and nothing that sut/wire/sse.py or httptools would read differently. Anything else is left to Python. */

#include <string.h>

#include "events.h"

struct cursor {
    const unsigned char *at, *end;
};

static int skip(struct cursor *cursor, const void *expected, int64_t size) {
    if (cursor->end - cursor->at < size || memcmp(cursor->at, expected, size))
        return 0;
    cursor->at += size;
    return 1;
}

/* A chunk's size in hexadecimal digits without extensions, and the line's end; -1 for anything else. */
static int64_t chunk_size(struct cursor *cursor) {
    int64_t size = 0;
    int digits = 0;
    for (; cursor->at < cursor->end && digits < 8; cursor->at++, digits++) {
        unsigned char byte = *cursor->at, letter = byte | 0x20;
        if (byte >= '0' && byte <= '9')
            size = size * 16 + byte - '0';
        else if (letter >= 'a' && letter <= 'f')
            size = size * 16 + letter - 'a' + 10;
        else
            break;
    }
    return digits && skip(cursor, "\r\n", 2) ? size : -1;
}

/* The content of a JSON string with the short escapes, up to its quote. */
static int skip_text(struct cursor *cursor) {
    for (; cursor->at < cursor->end; cursor->at++) {
        if (*cursor->at == '"')
            return 1;
        if (*cursor->at < 0x20)
            return 0;
        if (*cursor->at == '\\') {
            cursor->at++;
            if (cursor->at == cursor->end || !*cursor->at || !strchr("\"\\/bfnrt", *cursor->at))
                return 0;
        }
    }
    return 0;
}

/* A number of at most 10 digits, as JSON has them; -1 for anything else. */
static int64_t number(struct cursor *cursor) {
    const unsigned char *start = cursor->at;
    int64_t value = 0;
    for (; cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9'; cursor->at++) {
        if (cursor->at - start == 10)
            return -1;
        value = value * 10 + *cursor->at - '0';
    }
    int64_t digits = cursor->at - start;
    return !digits || (digits > 1 && *start == '0') ? -1 : value;
}

/* The number of ids of one event, its line's end included; -1 if it has another pattern. ``tokens``: those before it. */
static int64_t ids_of_event(const struct pattern *pattern, struct cursor *cursor, int64_t tokens, uint32_t *ids) {
    const unsigned char *from_text = pattern->bytes + pattern->head, *between = from_text + pattern->from_text;
    const unsigned char *end = between + pattern->between;
    int64_t count = 0, said = 0;
    if (!skip(cursor, "data: ", 6) || !skip(cursor, pattern->bytes, pattern->head))
        return -1;
    if (pattern->from_text && (!skip_text(cursor) || !skip(cursor, from_text, pattern->from_text)))
        return -1;
    if (pattern->counts_first) {
        said = number(cursor);
        if (!skip(cursor, between, pattern->between))
            return -1;
    }
    do {
        int64_t id = number(cursor);
        if (id < 0 || id > UINT32_MAX)
            return -1;
        ids[count++] = (uint32_t)id;
    } while (skip(cursor, ",", 1));
    if (!pattern->counts_first) {
        if (!skip(cursor, between, pattern->between))
            return -1;
        said = pattern->end < 0 ? 0 : number(cursor);
    }
    if (pattern->end >= 0 && (said != tokens + count || !skip(cursor, end, pattern->end)))
        return -1;
    return skip(cursor, "\n\n", 2) ? count : -1;
}

/* The ids of the first chunks of ``data`` that are complete and of such events, ``used`` bytes. ``ids`` has room for half
 * as many as there are bytes. What follows is something else, unless it ``may_continue``: a chunk that has begun. */
int64_t ids_of_events(const struct pattern *pattern, const unsigned char *data, int64_t size, int64_t tokens, uint32_t *ids,
                      int64_t *used, int *may_continue) {
    struct cursor cursor = {data, data + size};
    int64_t count = 0;
    *used = *may_continue = 0;
    while (cursor.at < cursor.end) {
        int64_t length = chunk_size(&cursor), more = 0;
        if (length <= 0)
            return count;
        if (length + 2 > cursor.end - cursor.at) {
            *may_continue = 1;
            return count;
        }
        struct cursor chunk = {cursor.at, cursor.at + length};
        while (chunk.at < chunk.end) {
            int64_t new = ids_of_event(pattern, &chunk, tokens + count + more, ids + count + more);
            if (new < 0)
                return count;
            more += new;
        }
        cursor.at = chunk.end;
        if (!skip(&cursor, "\r\n", 2))
            return count;
        count += more;
        *used = cursor.at - data;
    }
    return count;
}
