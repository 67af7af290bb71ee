// The knobs by name.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stub.h"

Knobs knobs = {
    .tokens_per_event = 1,
    .events_per_send = 1,
    .first_one = 1,
    .cumulative = 1,
    .ids = 1,
    .context_length = 131072,
    .dp_size = 1,
    .vocab_size = 201088,
    .noise_ms = 60000,
    .drift_s = 1800,
};

const char *model_name = "stub";

static const struct {
    const char *name;
    int64_t *value;
    int64_t least;
} list[] = {
    {"tokens", &knobs.tokens, 0},
    {"tokens_per_event", &knobs.tokens_per_event, 1},
    {"events_per_send", &knobs.events_per_send, 1},
    {"first_one", &knobs.first_one, 0},
    {"first_us", &knobs.first_us, 0},
    {"gap_us", &knobs.gap_us, 0},
    {"jitter_us", &knobs.jitter_us, 0},
    {"first_id_tokens", &knobs.first_id_tokens, 0},
    {"batch_us", &knobs.batch_us, 0},
    {"stream_ns", &knobs.stream_ns, 0},
    {"square_ps", &knobs.square_ps, 0},
    {"slots", &knobs.slots, 0},
    {"prefill_us", &knobs.prefill_us, 0},
    {"slow_permille", &knobs.slow_permille, 0},
    {"noise_permille", &knobs.noise_permille, 0},
    {"noise_ms", &knobs.noise_ms, 6},
    {"drift_permille", &knobs.drift_permille, 0},
    {"drift_s", &knobs.drift_s, 1},
    {"step", &knobs.step, 0},
    {"cumulative", &knobs.cumulative, 0},
    {"ids", &knobs.ids, 0},
    {"text", &knobs.text, 0},
    {"stamps", &knobs.stamps, 0},
    {"context_length", &knobs.context_length, 1},
    {"dp_size", &knobs.dp_size, 1},
    {"vocab_size", &knobs.vocab_size, 1},
};

#define COUNT (sizeof list / sizeof *list)

bool knob_set_one(const char *name, const char *value) {
    for (size_t i = 0; i < COUNT; i++) {
        if (strcmp(list[i].name, name)) continue;
        int64_t wanted = atoll(value);
        *list[i].value = wanted < list[i].least ? list[i].least : wanted;
        return true;
    }
    return false;
}

void knobs_set(const char *query) {
    char name[64], value[32];
    for (const char *at = query; at && *at; at = strchr(at, '&')) {
        if (*at == '&') at++;
        if (sscanf(at, "%63[a-z_]=%31[0-9]", name, value) == 2) knob_set_one(name, value);
    }
}

int knobs_print(char *to, size_t room) {
    int n = snprintf(to, room, "{");
    for (size_t i = 0; i < COUNT; i++)
        n += snprintf(to + n, room - n, "%s\"%s\":%ld", i ? "," : "", list[i].name, (long)*list[i].value);
    return n + snprintf(to + n, room - n, "}");
}
