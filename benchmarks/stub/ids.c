// Token ids. Those of an answer are a function of the prompt, so that a client can be checked.
// The seed is the CRC-32 of the prompt's ids as text, "1,2,3"; id i is FIRST_ID + (seed + i * ID_STRIDE) % ID_RANGE.
// tests/stub/protocol.py has the same rule.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "stub.h"

static uint32_t table[8][256];

void ids_init(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (crc & 1 ? 0xEDB88320u : 0);
        table[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++) table[k][i] = (table[k - 1][i] >> 8) ^ table[0][table[k - 1][i] & 255];
}

// Eight bytes per step: a 2 000-token prompt is 12 KB and must not cost more than its recv.
static uint32_t crc32_of(const unsigned char *p, size_t n) {
    uint32_t crc = ~0u;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        word ^= crc;
        crc = table[7][word & 255] ^ table[6][word >> 8 & 255] ^ table[5][word >> 16 & 255] ^
              table[4][word >> 24 & 255] ^ table[3][word >> 32 & 255] ^ table[2][word >> 40 & 255] ^
              table[1][word >> 48 & 255] ^ table[0][word >> 56];
    }
    for (; n; n--) crc = (crc >> 8) ^ table[0][(crc ^ *p++) & 255];
    return ~crc;
}

static size_t without_spaces(const char *from, size_t n, char *to) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (from[i] != ' ' && from[i] != '\n') to[kept++] = from[i];
    return kept;
}

const char *value_of(const char *body, size_t n, const char *key) {
    const char *at = memmem(body, n, key, strlen(key));
    if (!at) return NULL;
    at += strlen(key);
    while (at < body + n && (*at == ' ' || *at == ':')) at++;
    return at < body + n ? at : NULL;
}

// The body without its long list, so that the search for the other fields is cheap.
static const char *rest_of(const char *body, size_t n, const char *list, const char *end, size_t *rest_len) {
    static char *rest;
    static size_t room;
    size_t before = list - body, after = body + n - end;
    if (room < before + after) rest = grow(rest, room = before + after);
    memcpy(rest, body, before);
    memcpy(rest + before, end, after);
    *rest_len = before + after;
    return rest;
}

Prompt prompt_read(const char *body, size_t n, Protocol protocol) {
    static const char *keys[] = {[GENERATE] = "\"input_ids\"", [COMPLETION] = "\"prompt\"", [CHAT] = "\"prompt_token_ids\""};
    const char *list = value_of(body, n, keys[protocol]);
    if (!list || *list != '[') return (Prompt){crc32_of((const unsigned char *)body, n), n / 4, 0, body, n};
    list++;
    const char *end = memchr(list, ']', body + n - list);
    if (!end) end = body + n;
    Prompt prompt;
    prompt.rest = rest_of(body, n, list, end, &prompt.rest_len);
    size_t length = end - list;
    static char *compact;
    static size_t room;
    if (memchr(list, ' ', length < 32 ? length : 32)) {  // json.dumps's ", " shows at once
        if (room < length) compact = grow(compact, room = length);
        length = without_spaces(list, length, compact);
        list = compact;
    }
    prompt.count = length > 0;
    prompt.first = strtoul(list, NULL, 10);
    for (size_t i = 0; i < length; i++) prompt.count += list[i] == ',';
    prompt.seed = crc32_of((const unsigned char *)list, length);
    return prompt;
}
