/* Files of the run folder: the journal of acks and `done` (on disk before anybody is answered), and records that are
 * written whole or not at all. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shim.h"

enum { MAX_JOURNAL_BYTES = 64 * 1024, MAX_LINE = 512 };

static const char JOURNAL[] = "journal.jsonl";

static int write_all(int fd, const char *text, size_t size)
{
    while (size > 0) {
        ssize_t put = write(fd, text, size);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return put < 0 ? errno : ENOSPC;
        text += put;
        size -= (size_t)put;
    }
    return 0;
}

int file_replace(const char *name, const char *text, bool sync)
{
    char temporary[64];
    snprintf(temporary, sizeof temporary, "%s.new", name);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (fd < 0)
        return errno;
    int error = write_all(fd, text, strlen(text));
    if (error == 0 && sync && fsync(fd) < 0)
        error = errno;
    close(fd);
    if (error == 0 && rename(temporary, name) < 0)
        error = errno;
    if (error != 0)
        unlink(temporary);
    return error;
}

static void moment_append(char *buffer, size_t size, const struct moment *at)
{
    json_append(buffer, size, ",\"realtime_ns\":%" PRId64 ",\"boottime_ns\":%" PRId64 "}", at->realtime_ns,
                at->boottime_ns);
}

void ack_append(char *buffer, size_t size, const struct ack *ack)
{
    json_append(buffer, size, "{\"step\":%" PRId64, ack->step);
    if (ack->bytes >= 0)
        json_append(buffer, size, ",\"bytes\":%" PRId64, ack->bytes);
    if (ack->fraction >= 0)
        json_append(buffer, size, ",\"fraction\":%.9g", ack->fraction);
    if (ack->epoch >= 0)
        json_append(buffer, size, ",\"epoch\":%.9g", ack->epoch);
    moment_append(buffer, size, &ack->at);
}

void resumed_append(char *buffer, size_t size, const struct resumed *resumed)
{
    json_append(buffer, size, "{\"step\":%" PRId64 ",\"load_seconds\":%.9g", resumed->step, resumed->load_seconds);
    moment_append(buffer, size, &resumed->at);
}

static void journal_line(char *buffer, size_t size, const struct journal *journal, const char *only)
{
    if (journal->resumed.present && (only == NULL || strcmp(only, "resumed") == 0)) {
        json_append(buffer, size, "{\"resumed\":");
        resumed_append(buffer, size, &journal->resumed);
        json_append(buffer, size, "}\n");
    }
    if (journal->ack.present && (only == NULL || strcmp(only, "ack") == 0)) {
        json_append(buffer, size, "{\"ack\":");
        ack_append(buffer, size, &journal->ack);
        json_append(buffer, size, "}\n");
    }
    if (journal->done && (only == NULL || strcmp(only, "done") == 0)) {
        json_append(buffer, size, "{\"done\":{\"step\":null");
        moment_append(buffer, size, &journal->done_at);
        json_append(buffer, size, "}\n");
    }
}

/* Only the newest of each kind matters, so a long journal is started afresh with those. */
static int rewrite(struct journal *journal, const struct journal *next)
{
    char text[3 * MAX_LINE] = "";
    journal_line(text, sizeof text, next, NULL);
    int error = file_replace(JOURNAL, text, true);
    if (error != 0)
        return error;
    close(journal->fd);
    journal->fd = open(JOURNAL, O_WRONLY | O_APPEND | O_CLOEXEC);
    journal->size = (int64_t)strlen(text);
    return 0;
}

static int append_line(struct journal *journal, const char *text)
{
    if (journal->fd < 0)
        journal->fd = open(JOURNAL, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
    if (journal->fd < 0)
        return errno;
    int error = write_all(journal->fd, text, strlen(text));
    if (error == 0 && fdatasync(journal->fd) < 0)
        error = errno;
    if (error == 0)
        journal->size += (int64_t)strlen(text);
    else if (ftruncate(journal->fd, journal->size) < 0) /* no half line: it was not promised to anybody */
        error = errno;
    return error;
}

static int keep(struct journal *journal, const struct journal *next, const char *only)
{
    char text[MAX_LINE] = "";
    int error;
    if (journal->fd >= 0 && journal->size > MAX_JOURNAL_BYTES) {
        error = rewrite(journal, next);
    } else {
        journal_line(text, sizeof text, next, only);
        error = append_line(journal, text);
    }
    if (error == 0) {
        journal->ack = next->ack;
        journal->resumed = next->resumed;
        journal->done = next->done;
        journal->done_at = next->done_at;
    }
    return error;
}

int journal_ack(struct journal *journal, const struct ack *ack)
{
    struct journal next = *journal;
    next.ack = *ack;
    return keep(journal, &next, "ack");
}

int journal_resumed(struct journal *journal, const struct resumed *resumed)
{
    struct journal next = *journal;
    next.resumed = *resumed;
    return keep(journal, &next, "resumed");
}

int journal_done(struct journal *journal)
{
    struct journal next = *journal;
    if (journal->done)
        return 0;
    next.done = true;
    next.done_at = moment_now();
    return keep(journal, &next, "done");
}
