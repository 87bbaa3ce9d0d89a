/* The control socket: JSON lines, several connections at once. operations.c has what may be asked. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shim.h"

enum { MAX_OUT_BYTES = 256 * 1024 };

void control_close(struct connection *connection)
{
    if (connection->fd >= 0)
        close(connection->fd);
    free(connection->out);
    *connection = (struct connection){.fd = -1};
}

void control_flush(struct connection *connection)
{
    while (connection->out_bytes > 0) {
        ssize_t put = send(connection->fd, connection->out, connection->out_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0 && errno != EAGAIN)
            control_close(connection);
        if (put <= 0)
            return;
        connection->out_bytes -= (size_t)put;
        memmove(connection->out, connection->out + put, connection->out_bytes);
    }
}

/* A reader that does not read is let go: it may come back and ask for what it missed. */
void connection_send(struct connection *connection, const char *line)
{
    size_t size = strlen(line);
    char *out = NULL;
    if (connection->fd >= 0 && connection->out_bytes + size <= MAX_OUT_BYTES)
        out = realloc(connection->out, connection->out_bytes + size);
    if (out == NULL) {
        control_close(connection);
        return;
    }
    connection->out = out;
    memcpy(out + connection->out_bytes, line, size);
    connection->out_bytes += size;
    control_flush(connection);
}

/* Handles every whole line in the buffer and keeps the rest. */
static void take_lines(struct shim *shim, struct connection *connection)
{
    size_t from = 0;
    for (size_t at = 0; connection->fd >= 0 && at < connection->in_bytes; at++) {
        if (connection->in[at] == '\0')
            connection->in[at] = 1; /* a NUL would hide what follows: 1 is no JSON either */
        if (connection->in[at] != '\n')
            continue;
        connection->in[at] = '\0';
        if (connection->oversized)
            connection_refuse(connection, "a line has at most 4095 bytes");
        else if (at > from)
            operation_perform(shim, connection, connection->in + from);
        connection->oversized = false;
        from = at + 1;
    }
    if (connection->fd < 0)
        return;
    connection->in_bytes -= from;
    memmove(connection->in, connection->in + from, connection->in_bytes);
    if (connection->in_bytes == sizeof connection->in) {
        connection->oversized = true; /* skipped up to its end, refused there */
        connection->in_bytes = 0;
    }
}

void control_read(struct shim *shim, struct connection *connection)
{
    char *into = connection->in + connection->in_bytes;
    ssize_t got = recv(connection->fd, into, sizeof connection->in - connection->in_bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (got <= 0) {
        control_close(connection);
        return;
    }
    connection->in_bytes += (size_t)got;
    take_lines(shim, connection);
}

static struct connection *free_connection(struct control *control)
{
    for (int at = 0; at < MAX_CONNECTIONS; at++) {
        if (control->connections[at].fd < 0)
            return &control->connections[at];
    }
    return NULL;
}

/* The agent's first connection comes with the spawn and needs no key. */
void control_open(struct shim *shim)
{
    for (int at = 0; at < MAX_CONNECTIONS; at++)
        shim->control.connections[at].fd = -1;
    struct connection *agent = free_connection(&shim->control);
    agent->fd = AGENT_FD;
    agent->agent = agent->watching = true;
}

void control_accept(struct shim *shim)
{
    int fd = accept4(LISTEN_FD, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    struct connection *connection = free_connection(&shim->control);
    if (connection == NULL) {
        static const char FULL[] = "{\"ok\":false,\"error\":\"too many connections\"}\n";
        ssize_t ignored = send(fd, FULL, sizeof FULL - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)ignored;
        close(fd);
        return;
    }
    connection->fd = fd;
}

/* What the job said before its end counts, read or not when the end was seen. */
void control_drain(struct shim *shim)
{
    control_accept(shim);
    for (int at = 0; at < MAX_CONNECTIONS; at++) {
        struct connection *connection = &shim->control.connections[at];
        if (connection->fd >= 0 && !connection->watching)
            control_read(shim, connection);
    }
}
