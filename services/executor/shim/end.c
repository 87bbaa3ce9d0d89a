/* The end record: the one account of how the run went. It is told to watchers at once and written as `end.json`;
 * while the disk refuses it, it is tried again and stays to be had on the socket. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "shim.h"

enum { RETRY_MS = 1000 };

static const char *const STEP_NAMES[] = {
    [STEP_NONE] = "", [STEP_FORK] = "fork", [STEP_OUTPUT] = "output", [STEP_WORKING_DIR] = "working_dir",
    [STEP_EXEC] = "exec",
};

static void append_moment(char *record, size_t size, const char *name, const struct moment *at)
{
    if (at->realtime_ns == 0)
        json_append(record, size, ",\"%s\":null", name);
    else
        json_append(record, size, ",\"%s\":{\"realtime_ns\":%" PRId64 ",\"boottime_ns\":%" PRId64 "}", name,
                    at->realtime_ns, at->boottime_ns);
}

static void append_result(char *record, size_t size, const struct tree *tree)
{
    bool ran = tree->running && tree->reaped;
    if (ran && WIFEXITED(tree->status))
        json_append(record, size, ",\"exit_code\":%d,\"signal\":null", WEXITSTATUS(tree->status));
    else if (ran && WIFSIGNALED(tree->status))
        json_append(record, size, ",\"exit_code\":null,\"signal\":%d", WTERMSIG(tree->status));
    else
        json_append(record, size, ",\"exit_code\":null,\"signal\":null");
    if (tree->error.step == STEP_NONE)
        json_append(record, size, ",\"start_error\":null");
    else
        json_append(record, size, ",\"start_error\":{\"step\":\"%s\",\"errno\":%d,\"text\":\"%s\"}",
                    STEP_NAMES[tree->error.step], tree->error.number, strerror(tree->error.number));
    json_append(record, size, ",\"pid\":%d,\"start_ticks\":%" PRIu64, tree->running ? tree->pid : 0,
                tree->start_ticks);
}

static void append_stop(char *record, size_t size, const struct stop *stop)
{
    if (stop->requested)
        json_append(record, size, ",\"stop_cause\":\"%s\"", stop->cause);
    else
        json_append(record, size, ",\"stop_cause\":null");
    json_append(record, size, ",\"notice_delivered\":%s,\"forced\":%s,\"leftovers\":%d",
                stop->delivered ? "true" : "false", stop->forced ? "true" : "false", stop->leftovers);
    append_moment(record, size, "noticed", &stop->delivered_at);
}

static void append_journal(char *record, size_t size, const struct journal *journal)
{
    json_append(record, size, ",\"done\":%s,\"ack\":", journal->done ? "true" : "false");
    if (journal->ack.present)
        ack_append(record, size, &journal->ack);
    else
        json_append(record, size, "null");
    json_append(record, size, ",\"resumed\":");
    if (journal->resumed.present)
        resumed_append(record, size, &journal->resumed);
    else
        json_append(record, size, "null");
}

static void append_use(char *record, size_t size, const struct output *output)
{
    struct rusage use;
    getrusage(RUSAGE_CHILDREN, &use);
    json_append(record, size,
                ",\"log_bytes\":%" PRId64 ",\"log_dropped_bytes\":%" PRId64 ",\"log_lost_bytes\":%" PRId64
                ",\"cpu_seconds\":%.6f,\"peak_memory_kib\":%ld",
                output->log_size, output->dropped, output->lost,
                (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
                    (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6,
                use.ru_maxrss);
}

void end_begin(struct shim *shim)
{
    char *record = shim->end_record;
    size_t size = sizeof shim->end_record;
    output_finish(&shim->output);
    tree_remove_cgroup(&shim->tree, &shim->intent);
    json_append(record, size, "{\"version\":1,\"run_id\":\"%s\",\"boot_id\":\"%s\"", shim->intent.run_id,
                shim->intent.boot_id);
    append_result(record, size, &shim->tree);
    append_moment(record, size, "started", &shim->tree.started);
    append_moment(record, size, "exited", &shim->tree.exited);
    append_moment(record, size, "emptied", &shim->tree.emptied);
    append_stop(record, size, &shim->stop);
    append_journal(record, size, &shim->journal);
    append_use(record, size, &shim->output);
    json_append(record, size, "}");
    end_write(shim);
    event_record(shim, EVENT_END, record);
}

void end_write(struct shim *shim)
{
    int error = file_replace("end.json", shim->end_record, false);
    shim->end_written = error == 0 || error == ENOENT; /* a folder that was removed wants no end */
    shim->end_retry_at_ms = monotonic_ms() + RETRY_MS;
}
