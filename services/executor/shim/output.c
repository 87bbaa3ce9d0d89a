/* The job's output: one pipe in, output.log out. The first part goes straight to the log; past the cap the last part
 * is kept in a ring beside it and joined on at the end. A full disk costs log bytes, never the job. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "shim.h"

enum { BLOCK_BYTES = 64 * 1024, BLOCKS_A_TURN = 16 };

static char block[BLOCK_BYTES];

int output_open(struct output *output, const struct intent *intent)
{
    int ends[2];
    *output = (struct output){
        .pipe_fd = -1,
        .log_fd = -1,
        .tail_fd = -1,
        .head_bytes = intent->log_head_bytes,
        .tail_bytes = intent->log_tail_bytes,
    };
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    fcntl(ends[0], F_SETFL, O_NONBLOCK); /* the reading end alone: the job's writes go on waiting */
    output->pipe_fd = ends[0];
    return ends[1];
}

static int64_t smaller(int64_t one, int64_t other)
{
    return one < other ? one : other;
}

static bool open_lazily(int *fd, const char *name, int flags, int *error)
{
    if (*fd < 0)
        *fd = open(name, flags | O_CREAT | O_CLOEXEC, 0640);
    if (*fd < 0)
        *error = errno;
    return *fd >= 0;
}

static int64_t append_raw(struct output *output, const char *bytes, int64_t count)
{
    int64_t written = 0;
    while (written < count) {
        ssize_t put = write(output->log_fd, bytes + written, (size_t)(count - written));
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            output->error = put < 0 ? errno : ENOSPC;
            break;
        }
        written += put;
    }
    output->log_size += written;
    return written;
}

static void lose(struct output *output, int64_t count)
{
    output->lost += count;
    output->unsaid += count;
}

/* The log says where bytes are missing, as soon as it can be written again. */
static bool say_loss(struct output *output)
{
    char text[160];
    if (output->unsaid == 0)
        return true;
    int length = snprintf(text, sizeof text, "\n[makeway: %" PRId64 " bytes lost here: %s]\n", output->unsaid,
                          strerror(output->error));
    if (append_raw(output, text, length) < length)
        return false;
    output->unsaid = 0;
    return true;
}

static void append(struct output *output, const char *bytes, int64_t count)
{
    if (!open_lazily(&output->log_fd, "output.log", O_WRONLY | O_APPEND, &output->error) || !say_loss(output)) {
        lose(output, count);
        return;
    }
    int64_t written = append_raw(output, bytes, count);
    if (written < count)
        lose(output, count - written);
}

static bool ring_put(struct output *output, const char *bytes, int64_t count)
{
    if (!open_lazily(&output->tail_fd, "output.tail", O_RDWR, &output->error))
        return false;
    int64_t at = output->ring_written % output->tail_bytes;
    if (pwrite(output->tail_fd, bytes, (size_t)count, at) != (ssize_t)count) {
        output->error = errno != 0 ? errno : ENOSPC;
        return false;
    }
    return true;
}

static void keep_last(struct output *output, const char *bytes, int64_t count)
{
    while (count > 0) {
        int64_t room = output->tail_bytes > 0 ? output->tail_bytes - output->ring_written % output->tail_bytes : count;
        int64_t part = smaller(count, room);
        bool kept = output->tail_bytes > 0 && ring_put(output, bytes, part);
        output->ring_written += part;
        if (!kept)
            output->ring_from = output->ring_written; /* what lies before a hole is no tail any more */
        bytes += part;
        count -= part;
    }
}

static void take(struct output *output, const char *bytes, int64_t count)
{
    int64_t head = 0;
    if (output->ring_written == 0 && output->log_size < output->head_bytes) {
        head = smaller(count, output->head_bytes - output->log_size);
        append(output, bytes, head);
    }
    keep_last(output, bytes + head, count - head);
}

/* Bytes read; 0 at the end of the pipe or when it holds nothing now (`ended` tells which). */
static int64_t pump_block(struct output *output, int64_t limit, bool *ended)
{
    ssize_t got;
    do
        got = read(output->pipe_fd, block, (size_t)smaller(limit, BLOCK_BYTES));
    while (got < 0 && errno == EINTR);
    *ended = got == 0 || (got < 0 && errno != EAGAIN);
    if (got <= 0)
        return 0;
    take(output, block, got);
    return got;
}

static void close_pipe(struct output *output)
{
    close(output->pipe_fd);
    output->pipe_fd = -1;
}

/* A bounded share: a job that floods its output must not keep the shim from a notice. */
void output_pump(struct output *output)
{
    bool ended = false;
    for (int turn = 0; turn < BLOCKS_A_TURN && !ended; turn++) {
        if (pump_block(output, BLOCK_BYTES, &ended) == 0 && !ended)
            return;
    }
    if (ended)
        close_pipe(output);
}

static void join_tail(struct output *output)
{
    int64_t from = output->ring_written - output->tail_bytes;
    if (from < output->ring_from)
        from = output->ring_from;
    if (from > 0) {
        char text[96];
        output->dropped = from;
        append(output, text, snprintf(text, sizeof text, "\n[makeway: %" PRId64 " bytes left out here]\n", from));
    }
    while (from < output->ring_written) {
        int64_t at = from % output->tail_bytes;
        int64_t part = smaller(smaller(output->ring_written - from, output->tail_bytes - at), BLOCK_BYTES);
        ssize_t got = pread(output->tail_fd, block, (size_t)part, at);
        if (got <= 0) {
            output->error = errno;
            lose(output, output->ring_written - from);
            break;
        }
        append(output, block, got);
        from += got;
    }
}

void output_finish(struct output *output)
{
    int waiting = 0;
    bool ended = false;
    /* Only what is in the pipe now: a stranger who holds its other end cannot keep the run open. */
    if (output->pipe_fd >= 0 && ioctl(output->pipe_fd, FIONREAD, &waiting) == 0) {
        for (int64_t left = waiting, got = 1; left > 0 && got > 0; left -= got)
            got = pump_block(output, left, &ended);
    }
    if (output->pipe_fd >= 0)
        close_pipe(output);
    if (output->ring_written > 0)
        join_tail(output);
    if (output->log_fd >= 0) {
        say_loss(output);
        close(output->log_fd);
    }
    if (output->tail_fd >= 0) {
        close(output->tail_fd);
        unlink("output.tail");
    }
    output->log_fd = output->tail_fd = -1;
}
