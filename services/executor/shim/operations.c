/* What may be asked on the control socket. The job speaks `ack`, `resumed`, `done`, `status` and `wait`; the agent, who
 * names the run's key, `watch`, `stop` and `time_limit`. A bad line is answered and forgotten. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "shim.h"

static const double MAX_SECONDS = 1e9;

void connection_refuse(struct connection *connection, const char *reason)
{
    char line[ERROR_BYTES + 64] = "";
    json_append(line, sizeof line, "{\"ok\":false,\"error\":\"");
    for (; *reason != '\0'; reason++)
        json_append(line, sizeof line, *reason == '"' || *reason == '\\' ? "\\%c" : "%c", *reason);
    json_append(line, sizeof line, "\"}\n");
    connection_send(connection, line);
}

static void answer(struct connection *connection, int error)
{
    char reason[ERROR_BYTES];
    if (error == 0) {
        connection_send(connection, "{\"ok\":true}\n");
        return;
    }
    snprintf(reason, sizeof reason, "not kept: %s", strerror(error));
    connection_refuse(connection, reason);
}

/* A number from 0 to `most`; missing or null gives `otherwise`. */
static bool take_number(const struct message *message, const char *name, double most, double otherwise, double *into)
{
    const struct field *field = message_find(message, name);
    *into = otherwise;
    if (field == NULL || field->type == VALUE_NULL)
        return true;
    if (field->type != VALUE_INTEGER && field->type != VALUE_NUMBER)
        return false;
    *into = field->number;
    return field->number >= 0 && field->number <= most;
}

static bool take_integer(const struct message *message, const char *name, int64_t otherwise, int64_t *into)
{
    const struct field *field = message_find(message, name);
    *into = otherwise;
    if (field == NULL || field->type == VALUE_NULL)
        return true;
    *into = field->integer;
    return field->type == VALUE_INTEGER && field->integer >= 0;
}

static void on_ack(struct shim *shim, struct connection *connection, const struct message *message)
{
    struct ack ack = {.present = true, .at = moment_now()};
    char body[320] = "";
    if (!take_integer(message, "step", -1, &ack.step) || ack.step < 0) {
        connection_refuse(connection, "ack needs a step, a whole number from 0");
        return;
    }
    if (!take_integer(message, "bytes", -1, &ack.bytes) || !take_number(message, "fraction", 1, -1, &ack.fraction) ||
        !take_number(message, "epoch", 1e15, -1, &ack.epoch)) {
        connection_refuse(connection, "bytes is a whole number from 0, fraction from 0 to 1, epoch a number from 0");
        return;
    }
    int error = journal_ack(&shim->journal, &ack);
    answer(connection, error);
    if (error == 0) {
        ack_append(body, sizeof body, &ack);
        event_record(shim, EVENT_ACK, body);
    }
}

static void on_resumed(struct shim *shim, struct connection *connection, const struct message *message)
{
    struct resumed resumed = {.present = true, .at = moment_now()};
    char body[320] = "";
    if (!take_integer(message, "step", -1, &resumed.step) || resumed.step < 0 ||
        !take_number(message, "load_seconds", MAX_SECONDS, 0, &resumed.load_seconds)) {
        connection_refuse(connection, "resumed needs a step, a whole number from 0, and may give load_seconds from 0");
        return;
    }
    int error = journal_resumed(&shim->journal, &resumed);
    answer(connection, error);
    if (error == 0) {
        resumed_append(body, sizeof body, &resumed);
        event_record(shim, EVENT_RESUMED, body);
    }
}

static void on_done(struct shim *shim, struct connection *connection, const struct message *message)
{
    char body[128] = "";
    bool before = shim->journal.done;
    (void)message;
    int error = journal_done(&shim->journal);
    answer(connection, error);
    if (error != 0 || before)
        return;
    json_append(body, sizeof body, "{\"realtime_ns\":%" PRId64 ",\"boottime_ns\":%" PRId64 "}",
                shim->journal.done_at.realtime_ns, shim->journal.done_at.boottime_ns);
    event_record(shim, EVENT_DONE, body);
}

static void on_status(struct shim *shim, struct connection *connection, const struct message *message)
{
    char line[160] = "";
    (void)message;
    if (!shim->stop.delivered)
        json_append(line, sizeof line, "{\"ok\":true,\"stop\":false}\n");
    else
        json_append(line, sizeof line, "{\"ok\":true,\"stop\":true,\"cause\":\"%s\",\"grace_left_seconds\":%.3f}\n",
                    shim->stop.cause, (double)stop_grace_left_ms(shim) / 1000);
    connection_send(connection, line);
}

/* Answered once a stop is wanted: at once, or when the notice goes out. */
static void on_wait(struct shim *shim, struct connection *connection, const struct message *message)
{
    if (shim->stop.delivered)
        on_status(shim, connection, message);
    else
        connection->waiting = true;
}

void control_tell_waiters(struct shim *shim)
{
    for (int at = 0; at < MAX_CONNECTIONS; at++) {
        struct connection *connection = &shim->control.connections[at];
        if (connection->fd >= 0 && connection->waiting) {
            connection->waiting = false;
            on_status(shim, connection, NULL);
        }
    }
}

static void on_watch(struct shim *shim, struct connection *connection, const struct message *message)
{
    const struct field *key = message_find(message, "key");
    int64_t from;
    if (!connection->agent && (key == NULL || strcmp(key->text, shim->intent.key) != 0)) {
        connection_refuse(connection, "watch needs the run's key");
        return;
    }
    if (!take_integer(message, "from", 0, &from)) {
        connection_refuse(connection, "from is a whole number from 0");
        return;
    }
    connection->agent = true;
    connection->watching = true;
    connection_send(connection, "{\"ok\":true}\n");
    events_replay(shim, connection, from);
}

/* Causes are labels: a closed alphabet keeps them safe in records. */
static bool is_label(const char *text)
{
    return *text != '\0' && strlen(text) < NAME_BYTES && strspn(text, "abcdefghijklmnopqrstuvwxyz_") == strlen(text);
}

static void on_stop(struct shim *shim, struct connection *connection, const struct message *message)
{
    const struct field *cause = message_find(message, "cause");
    double grace_seconds;
    int64_t signal_number;
    if (cause == NULL || !is_label(cause->text)) {
        connection_refuse(connection, "stop needs a cause of small letters and underscores");
        return;
    }
    if (!take_number(message, "grace_seconds", MAX_SECONDS, -1, &grace_seconds) || grace_seconds < 0) {
        connection_refuse(connection, "stop needs grace_seconds, a number from 0");
        return;
    }
    if (!take_integer(message, "signal", shim->intent.signal, &signal_number) || signal_number < 1 ||
        signal_number > 64) {
        connection_refuse(connection, "signal is a number from 1 to 64");
        return;
    }
    connection_send(connection, "{\"ok\":true}\n");
    stop_request(shim, cause->text, (int64_t)(grace_seconds * 1000 + 0.5), (int)signal_number);
}

static void on_time_limit(struct shim *shim, struct connection *connection, const struct message *message)
{
    double remaining_seconds;
    if (!take_number(message, "remaining_seconds", MAX_SECONDS, -1, &remaining_seconds)) {
        connection_refuse(connection, "remaining_seconds is a number from 0, or null for no limit");
        return;
    }
    stop_set_time_limit(shim, remaining_seconds < 0 ? -1 : (int64_t)(remaining_seconds * 1000));
    connection_send(connection, "{\"ok\":true}\n");
}

void operation_perform(struct shim *shim, struct connection *connection, const char *line)
{
    static const struct {
        const char *name;
        bool agent_only;
        void (*handle)(struct shim *, struct connection *, const struct message *);
    } OPERATIONS[] = {
        {"ack", false, on_ack},       {"resumed", false, on_resumed}, {"done", false, on_done},
        {"status", false, on_status}, {"wait", false, on_wait},       {"watch", false, on_watch},
        {"stop", true, on_stop},      {"time_limit", true, on_time_limit},
    };
    struct message message;
    char error[ERROR_BYTES];
    if (!message_parse(&message, line, error)) {
        connection_refuse(connection, error);
        return;
    }
    const struct field *op = message_find(&message, "op");
    for (size_t at = 0; op != NULL && at < sizeof OPERATIONS / sizeof *OPERATIONS; at++) {
        if (op->type != VALUE_TEXT || strcmp(op->text, OPERATIONS[at].name) != 0)
            continue;
        if (OPERATIONS[at].agent_only && !connection->agent)
            connection_refuse(connection, "only the agent may ask for this");
        else
            OPERATIONS[at].handle(shim, connection, &message);
        return;
    }
    connection_refuse(connection, "op is one of ack, resumed, done, status, wait");
}
