/* How a run is brought to its end.
 *
 * 1. A stop is requested (by the agent, or here when the time limit is over). Causes meet as cancel, time limit, the
 *    rest; a higher one replaces the cause and may bring the kill forward, nothing ever moves it back.
 * 2. Is the main process on its way out already? Then nothing is delivered and its own result stands.
 * 3. The notice goes to the whole tree; the grace starts, on the monotonic clock.
 * 4. When the grace is over: SIGKILL to the whole tree, again and again until no descendant is left.
 *
 * A main process that ends by itself and leaves others behind: those get SIGTERM, a short grace, SIGKILL.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "shim.h"

enum { FIRST_PAUSE_MS = 2, LAST_PAUSE_MS = 1000 };

void stop_open(struct shim *shim)
{
    shim->stop = (struct stop){.kill_at_ms = -1, .limit_at_ms = -1, .pause_ms = FIRST_PAUSE_MS};
}

static int rank(const char *cause)
{
    if (strcmp(cause, "cancel") == 0)
        return 2;
    return strcmp(cause, "time_limit") == 0 ? 1 : 0;
}

static void set_cause(struct stop *stop, const char *cause)
{
    snprintf(stop->cause, sizeof stop->cause, "%s", cause);
}

static int64_t due(int64_t delay_ms)
{
    return monotonic_ms() + delay_ms + 1; /* the clock is cut to whole milliseconds: never early */
}

int64_t stop_grace_left_ms(const struct shim *shim)
{
    int64_t left = shim->stop.kill_at_ms - 1 - monotonic_ms(); /* never more than there is */
    if (!shim->stop.delivered)
        return -1;
    return left > 0 ? left : 0;
}

static void deliver(struct shim *shim)
{
    struct stop *stop = &shim->stop;
    if (tree_main_is_exiting(&shim->tree)) {
        stop->void_ = true; /* what had begun to exit by itself keeps its result */
        return;
    }
    stop->delivered = true;
    stop->delivered_at = moment_now();
    int told = tree_notify(&shim->tree, stop->signal);
    stop->kill_at_ms = due(stop->grace_ms); /* counted from the last process that was told */
    char body[320] = "";
    json_append(body, sizeof body,
                "{\"cause\":\"%s\",\"signal\":%d,\"grace_seconds\":%.3f,\"processes\":%d,\"realtime_ns\":%" PRId64
                ",\"boottime_ns\":%" PRId64 "}",
                stop->cause, stop->signal, (double)stop->grace_ms / 1000, told, stop->delivered_at.realtime_ns,
                stop->delivered_at.boottime_ns);
    event_record(shim, EVENT_NOTICE_DELIVERED, body);
    control_tell_waiters(shim);
}

static void raise_cause(struct shim *shim, const char *cause, int64_t grace_ms)
{
    struct stop *stop = &shim->stop;
    if (rank(cause) <= rank(stop->cause))
        return;
    set_cause(stop, cause);
    if (stop->void_ || shim->tree.reaped)
        return;
    if (due(grace_ms) < stop->kill_at_ms)
        stop->kill_at_ms = due(grace_ms);
    if (!stop->delivered)
        return;
    char body[96] = "";
    json_append(body, sizeof body, "{\"cause\":\"%s\",\"grace_left_seconds\":%.3f}", cause,
                (double)stop_grace_left_ms(shim) / 1000);
    event_record(shim, EVENT_STOP_RAISED, body);
}

void stop_request(struct shim *shim, const char *cause, int64_t grace_ms, int signal_number)
{
    struct stop *stop = &shim->stop;
    if (shim->tree.gone)
        return;
    if (stop->requested) {
        raise_cause(shim, cause, grace_ms);
        return;
    }
    stop->requested = true;
    set_cause(stop, cause);
    stop->grace_ms = grace_ms;
    stop->signal = signal_number;
    if (shim->tree.reaped)
        stop->void_ = true;
    else if (shim->tree.running)
        deliver(shim);
    else
        stop->kill_at_ms = due(grace_ms); /* exec may hang on a dead mount */
}

void stop_set_time_limit(struct shim *shim, int64_t remaining_ms)
{
    shim->stop.limit_at_ms = remaining_ms < 0 ? -1 : due(remaining_ms);
}

void stop_on_started(struct shim *shim)
{
    if (shim->intent.time_limit_ms >= 0)
        stop_set_time_limit(shim, shim->intent.time_limit_ms);
    if (shim->stop.requested)
        deliver(shim);
}

void stop_on_main_exited(struct shim *shim)
{
    struct stop *stop = &shim->stop;
    stop->limit_at_ms = -1;
    if (stop->delivered || shim->tree.gone)
        return; /* after a notice the rest of the tree has the rest of the grace: it may be saving */
    stop->leftovers = tree_notify(&shim->tree, SIGTERM);
    stop->kill_at_ms = due(shim->intent.leftover_grace_ms);
}

static void kill_round(struct shim *shim)
{
    struct stop *stop = &shim->stop;
    if (stop->delivered)
        stop->forced = true;
    tree_kill(&shim->tree);
    stop->kill_at_ms = due(stop->pause_ms); /* what cannot be killed is looked at once a second */
    stop->pause_ms = stop->pause_ms * 2 < LAST_PAUSE_MS ? stop->pause_ms * 2 : LAST_PAUSE_MS;
}

static int64_t sooner(int64_t one_ms, int64_t other_ms)
{
    if (one_ms < 0 || other_ms < 0)
        return one_ms < 0 ? other_ms : one_ms;
    return one_ms < other_ms ? one_ms : other_ms;
}

int64_t stop_step(struct shim *shim)
{
    struct stop *stop = &shim->stop;
    int64_t now_ms = monotonic_ms();
    if (shim->tree.gone)
        return -1;
    if (stop->limit_at_ms >= 0 && now_ms >= stop->limit_at_ms) {
        stop->limit_at_ms = -1;
        stop_request(shim, "time_limit", shim->intent.time_limit_grace_ms, shim->intent.signal);
    }
    if (stop->kill_at_ms >= 0 && now_ms >= stop->kill_at_ms)
        kill_round(shim);
    int64_t next_ms = sooner(stop->limit_at_ms, stop->kill_at_ms);
    if (next_ms < 0)
        return -1;
    return next_ms > now_ms ? next_ms - now_ms : 0;
}
