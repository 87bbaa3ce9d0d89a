/* Numbered events. Only the newest of each kind is kept: whoever watches later needs what holds, not what was. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

static const char *const KIND_NAMES[EVENT_KINDS] = {
    [EVENT_STARTED] = "started",         [EVENT_NOTICE_DELIVERED] = "notice_delivered",
    [EVENT_STOP_RAISED] = "stop_raised", [EVENT_ACK] = "ack",
    [EVENT_RESUMED] = "resumed",         [EVENT_DONE] = "done",
    [EVENT_MAIN_EXITED] = "main_exited", [EVENT_END] = "end",
};

/* `body` is a JSON object; it becomes the event's `data`. */
void event_record(struct shim *shim, enum event_kind kind, const char *body)
{
    struct events *events = &shim->events;
    size_t size = strlen(body) + 96;
    char *line = malloc(size);
    if (line == NULL)
        return; /* the journal and the end record have it all the same */
    events->last_number++;
    snprintf(line, size, "{\"sequence\":%" PRId64 ",\"event\":\"%s\",\"data\":%s}\n", events->last_number,
             KIND_NAMES[kind], body);
    free(events->lines[kind]);
    events->lines[kind] = line;
    events->numbers[kind] = events->last_number;
    for (int at = 0; at < MAX_CONNECTIONS; at++) {
        if (shim->control.connections[at].fd >= 0 && shim->control.connections[at].watching)
            connection_send(&shim->control.connections[at], line);
    }
}

static int oldest_after(const struct events *events, int64_t number)
{
    int oldest = -1;
    for (int kind = 0; kind < EVENT_KINDS; kind++) {
        if (events->numbers[kind] > number && (oldest < 0 || events->numbers[kind] < events->numbers[oldest]))
            oldest = kind;
    }
    return oldest;
}

void events_replay(const struct shim *shim, struct connection *connection, int64_t from)
{
    int64_t sent = from > 0 ? from - 1 : 0;
    for (int kind; (kind = oldest_after(&shim->events, sent)) >= 0;) {
        connection_send(connection, shim->events.lines[kind]);
        sent = shim->events.numbers[kind];
    }
}
