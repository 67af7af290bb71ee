/* Events that have one pattern: see events.c. */

#include <stdint.h>

/* One event's bytes around its text, its ids and its count of tokens: sut/wire/wire.py's Pattern. */
struct pattern {
    int64_t head, from_text, between, end; /* sizes; end is -1 where events have no count */
    int64_t counts_first;                  /* whether the count stands before the ids */
    unsigned char bytes[];                  /* the parts, one after another */
};

int64_t ids_of_events(const struct pattern *pattern, const unsigned char *data, int64_t size, int64_t tokens, uint32_t *ids,
                      int64_t *used, int *may_continue);
