/* makeway-shim RUN_FOLDER: start-up and the loop. Descriptors 3, 4 and 5 come from the agent (shim.h). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim.h"

/* Exit codes; 0: the end is written. */
enum { EXIT_BAD_CALL = 2, EXIT_NOT_LOCKED = 3, EXIT_ENDED_BEFORE = 4, EXIT_BAD_INTENT = 5 };

static struct shim shim;

/* Rare, and nobody watches standard error of a shim: its last words go into the run folder. */
static int complain(int code, const char *what)
{
    int fd = open("shim.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (fd >= 0)
        dprintf(fd, "%s\n", what);
    return code;
}

/* Everything is blocked: a stop comes by the socket, and only SIGKILL can part a shim from its job. */
static int take_signals(void)
{
    sigset_t all, child;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signal(SIGCHLD, SIG_DFL); /* were it inherited as ignored, exit codes would be lost */
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    return signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void prepare_descriptors(void)
{
    syscall(SYS_close_range, AGENT_FD + 1, ~0U, 0); /* whatever else leaked in ends here */
    fcntl(LOCK_FD, F_SETFD, FD_CLOEXEC);
    fcntl(LISTEN_FD, F_SETFD, FD_CLOEXEC);
    fcntl(AGENT_FD, F_SETFD, FD_CLOEXEC);
    fcntl(LISTEN_FD, F_SETFL, O_NONBLOCK);
}

static void record_started(void)
{
    char body[512] = "";
    json_append(body, sizeof body,
                "{\"pid\":%d,\"start_ticks\":%" PRIu64 ",\"boot_id\":\"%s\",\"realtime_ns\":%" PRId64
                ",\"boottime_ns\":%" PRId64 "}",
                shim.tree.pid, shim.tree.start_ticks, shim.intent.boot_id, shim.tree.started.realtime_ns,
                shim.tree.started.boottime_ns);
    event_record(&shim, EVENT_STARTED, body);
    file_replace("started.json", body, false); /* for an agent that finds the job without its shim */
}

static void record_exited(void)
{
    char body[256] = "";
    int status = shim.tree.status;
    json_append(body, sizeof body, WIFEXITED(status) ? "{\"exit_code\":%d" : "{\"signal\":%d",
                WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    json_append(body, sizeof body, ",\"realtime_ns\":%" PRId64 ",\"boottime_ns\":%" PRId64 "}",
                shim.tree.exited.realtime_ns, shim.tree.exited.boottime_ns);
    event_record(&shim, EVENT_MAIN_EXITED, body);
}

static void on_exec(void)
{
    tree_read_exec(&shim.tree);
    if (!shim.tree.running)
        return;
    record_started();
    stop_on_started(&shim);
}

static void on_children(int signal_fd)
{
    struct signalfd_siginfo info[16];
    while (read(signal_fd, info, sizeof info) > 0)
        continue;
    bool before = shim.tree.reaped;
    tree_reap(&shim.tree);
    if (before || !shim.tree.reaped)
        return;
    if (shim.tree.exec_fd >= 0)
        on_exec(); /* it ended before its exec was noticed: first things first */
    if (shim.tree.running)
        record_exited();
    stop_on_main_exited(&shim);
}

struct waits {
    struct pollfd items[MAX_CONNECTIONS + 4];
    int count;
};

/* poll skips a negative descriptor, so what is closed needs no case of its own. */
static void wait_on(struct waits *waits, int fd, short what)
{
    waits->items[waits->count++] = (struct pollfd){.fd = fd, .events = what};
}

static int timeout_ms(void)
{
    int64_t next_ms = stop_step(&shim);
    if (shim.end_record[0] != '\0') {
        next_ms = shim.end_retry_at_ms - monotonic_ms();
        next_ms = next_ms > 0 ? next_ms : 0;
    }
    if (next_ms < 0)
        return -1;
    return next_ms < 3600000 ? (int)next_ms : 3600000;
}

static void serve(struct waits *waits, int signal_fd)
{
    struct pollfd *items = waits->items;
    if (items[1].revents != 0)
        on_exec();
    if (items[2].revents != 0)
        output_pump(&shim.output);
    for (int at = 0; at < MAX_CONNECTIONS; at++) {
        struct connection *connection = &shim.control.connections[at];
        short seen = items[at + 4].revents;
        if (connection->fd >= 0 && (seen & POLLOUT))
            control_flush(connection);
        if (connection->fd >= 0 && (seen & (POLLIN | POLLHUP | POLLERR)))
            control_read(&shim, connection);
    }
    if (items[3].revents != 0)
        control_accept(&shim);
    if (items[0].revents != 0)
        on_children(signal_fd); /* last: an ack that came before the exit is heard before it */
}

static void turn(int signal_fd)
{
    struct waits waits = {.count = 0};
    int wait_ms = timeout_ms();
    wait_on(&waits, signal_fd, POLLIN);
    wait_on(&waits, shim.tree.exec_fd, POLLIN);
    wait_on(&waits, shim.output.pipe_fd, POLLIN);
    wait_on(&waits, LISTEN_FD, POLLIN);
    for (int at = 0; at < MAX_CONNECTIONS; at++) {
        const struct connection *connection = &shim.control.connections[at];
        wait_on(&waits, connection->fd, connection->out_bytes > 0 ? POLLIN | POLLOUT : POLLIN);
    }
    if (poll(waits.items, (nfds_t)waits.count, wait_ms) > 0)
        serve(&waits, signal_fd);
}

/* What was sent must be read: the end event is what the agent waits for. */
static void flush_all(void)
{
    for (int at = 0; at < MAX_CONNECTIONS; at++) {
        struct connection *connection = &shim.control.connections[at];
        struct pollfd item = {.fd = connection->fd, .events = POLLOUT};
        while (connection->fd >= 0 && connection->out_bytes > 0 && poll(&item, 1, 1000) > 0)
            control_flush(connection);
    }
}

static void run(int signal_fd)
{
    int job_output = output_open(&shim.output, &shim.intent);
    if (job_output < 0 || !tree_start(&shim.tree, &shim.intent, job_output)) {
        if (job_output < 0)
            shim.tree.error = (struct start_error){.step = STEP_OUTPUT, .number = errno};
        shim.tree.gone = true;
        shim.tree.exec_fd = -1;
    }
    close(job_output);
    while (!shim.tree.gone)
        turn(signal_fd);
    control_drain(&shim);
    end_begin(&shim);
    while (!shim.end_written) {
        turn(signal_fd);
        if (monotonic_ms() >= shim.end_retry_at_ms)
            end_write(&shim);
    }
    flush_all();
    unlink(shim.intent.control_path);
}

int main(int argc, char **argv)
{
    char error[ERROR_BYTES];
    if (argc != 2 || chdir(argv[1]) < 0)
        return EXIT_BAD_CALL;
    prepare_descriptors();
    int signal_fd = take_signals();
    if (flock(LOCK_FD, LOCK_EX | LOCK_NB) < 0)
        return complain(EXIT_NOT_LOCKED, "the run folder's lock is held by another process");
    if (access("end.json", F_OK) == 0)
        return EXIT_ENDED_BEFORE;
    if (!intent_read(&shim.intent, error))
        return complain(EXIT_BAD_INTENT, error);
    setsid();
    if (signal_fd < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return complain(EXIT_BAD_CALL, "the kernel has no signalfd or no sub-reaper");
    stop_open(&shim);
    shim.journal.fd = -1;
    control_open(&shim);
    run(signal_fd);
    return 0;
}
