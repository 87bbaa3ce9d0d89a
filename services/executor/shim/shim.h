/* makeway-shim: the parent of one run.
 *
 * Spawned by the node agent with a locked run folder, it starts the job, holds its log, delivers the
 * notice and the kill, answers the job's acks, and writes the one end record. It outlives the agent.
 *
 *   main.c     start-up and the loop          intent.c   what to run, as the agent wrote it
 *   tree.c     spawn, descendants, signals    process.c  what /proc says
 *   stop.c     causes, notice, grace, limit   end.c      the one end record
 *   output.c   the capped log                 journal.c  files of the run folder
 *   control.c  the socket                     operations.c  what may be asked on it
 *   events.c   numbered events for watchers   message.c  one line of JSON
 *   clock.c    the clocks
 */
#ifndef MAKEWAY_SHIM_H
#define MAKEWAY_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Descriptors handed over by the agent. */
enum { LOCK_FD = 3, LISTEN_FD = 4, AGENT_FD = 5 };

enum { LINE_BYTES = 4096, NAME_BYTES = 33, ERROR_BYTES = 160 };

/* -- clock.c ------------------------------------------------------------------------------------ */

struct moment {
    int64_t realtime_ns;
    int64_t boottime_ns;
};

struct moment moment_now(void);
int64_t monotonic_ms(void);

/* -- intent.c ----------------------------------------------------------------------------------- */

struct intent {
    const char *run_id;
    const char *key; /* who names it on the socket is the agent */
    const char *boot_id;
    const char *control_path;
    const char *working_dir;
    const char *cgroup; /* folder to make for the run, or NULL */
    char **argv;
    char **envp;
    int64_t log_head_bytes;
    int64_t log_tail_bytes;
    int64_t time_limit_ms; /* -1: none */
    int64_t time_limit_grace_ms;
    int64_t leftover_grace_ms; /* between SIGTERM and SIGKILL for what the main process left behind */
    int signal;
    mode_t umask;
};

/* Reads `intent` in the current folder; false with a sentence in `error` when it is unusable. */
bool intent_read(struct intent *intent, char error[ERROR_BYTES]);

/* -- tree.c ------------------------------------------------------------------------------------- */

enum start_step { STEP_NONE = 0, STEP_FORK, STEP_OUTPUT, STEP_WORKING_DIR, STEP_EXEC };

struct start_error {
    int step; /* enum start_step; STEP_NONE: no error */
    int number; /* errno */
};

struct tree {
    pid_t pid;             /* the main process; 0 before it is forked */
    uint64_t start_ticks;  /* field 22 of its /proc stat, against reuse of the id */
    int exec_fd;           /* readable once exec has happened or failed; -1 afterwards */
    bool running;          /* exec has happened */
    bool reaped;           /* the main process has ended and `status` holds how */
    bool gone;             /* no descendant is left */
    int status;
    struct start_error error;
    struct moment started;
    struct moment exited;
    struct moment emptied;
    int cgroup_fd; /* the run's own cgroup v2 folder, or -1 */
};

bool tree_start(struct tree *tree, const struct intent *intent, int output_fd);
void tree_read_exec(struct tree *tree);
void tree_reap(struct tree *tree);
bool tree_main_is_exiting(const struct tree *tree);
int tree_notify(const struct tree *tree, int signal_number);
int tree_kill(const struct tree *tree);
void tree_remove_cgroup(struct tree *tree, const struct intent *intent);

/* -- output.c ----------------------------------------------------------------------------------- */

struct output {
    int pipe_fd; /* -1 once closed */
    int log_fd;
    int tail_fd;
    int64_t head_bytes;   /* room for the first part */
    int64_t tail_bytes;   /* room for the last part, kept as a ring in a file of its own */
    int64_t log_size;     /* bytes in output.log */
    int64_t ring_from;    /* the ring is sound from here on, counted since its first byte */
    int64_t ring_written;
    int64_t dropped; /* left out in the middle, by the cap */
    int64_t lost;    /* could not be written */
    int64_t unsaid;  /* part of `lost` that the log does not mention yet */
    int error;       /* errno of the last failed write */
};

/* Makes the pipe; returns the end for the job, or -1. */
int output_open(struct output *output, const struct intent *intent);
void output_pump(struct output *output);
/* Takes what the pipe still holds, joins head and tail, closes. Call when the tree is gone. */
void output_finish(struct output *output);

/* -- message.c ---------------------------------------------------------------------------------- */

enum value_type { VALUE_NULL, VALUE_BOOL, VALUE_INTEGER, VALUE_NUMBER, VALUE_TEXT };

struct field {
    char name[NAME_BYTES];
    enum value_type type;
    bool truth;
    int64_t integer; /* VALUE_INTEGER */
    double number;   /* VALUE_INTEGER and VALUE_NUMBER */
    char text[129];
};

enum { MAX_FIELDS = 12 };

struct message {
    int count;
    struct field fields[MAX_FIELDS];
};

/* One flat JSON object: no nesting, no repeated names. False with a sentence in `error`. */
bool message_parse(struct message *message, const char *line, char error[ERROR_BYTES]);
const struct field *message_find(const struct message *message, const char *name);
/* Appends to the text in `buffer`, never past `size` bytes. Only numbers and plain names are ever put in quotes. */
void json_append(char *buffer, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* -- journal.c ---------------------------------------------------------------------------------- */

struct ack {
    bool present;
    int64_t step;
    int64_t bytes;   /* -1: not said */
    double fraction; /* -1: not said */
    double epoch;    /* -1: not said */
    struct moment at;
};

struct resumed {
    bool present;
    int64_t step;
    double load_seconds;
    struct moment at;
};

struct journal {
    int fd;
    int64_t size;
    bool done;
    struct moment done_at;
    struct ack ack;
    struct resumed resumed;
};

/* Each is on disk when it returns 0; else errno, and nothing changed. */
int journal_ack(struct journal *journal, const struct ack *ack);
int journal_resumed(struct journal *journal, const struct resumed *resumed);
int journal_done(struct journal *journal);
void ack_append(char *buffer, size_t size, const struct ack *ack);
void resumed_append(char *buffer, size_t size, const struct resumed *resumed);
/* Writes `name` whole or not at all; 0 or errno. */
int file_replace(const char *name, const char *text, bool sync);

/* -- events.c ----------------------------------------------------------------------------------- */

enum event_kind {
    EVENT_STARTED,
    EVENT_NOTICE_DELIVERED,
    EVENT_STOP_RAISED,
    EVENT_ACK,
    EVENT_RESUMED,
    EVENT_DONE,
    EVENT_MAIN_EXITED,
    EVENT_END,
    EVENT_KINDS,
};

/* The newest event of each kind: all a watcher that comes later needs. */
struct events {
    int64_t last_number;
    int64_t numbers[EVENT_KINDS]; /* 0: none yet */
    char *lines[EVENT_KINDS];
};

/* -- stop.c ------------------------------------------------------------------------------------- */

struct stop {
    bool requested;
    bool delivered;
    bool forced;   /* SIGKILL was needed after the notice */
    bool void_;    /* the main process had begun to exit by itself: no notice */
    char cause[NAME_BYTES];
    int signal;
    int64_t grace_ms;
    int64_t kill_at_ms; /* monotonic; -1: no kill is due */
    int64_t pause_ms;   /* until the next look while killing */
    int64_t limit_at_ms; /* monotonic; -1: no time limit */
    int leftovers;       /* processes that the main one left behind at its own end */
    struct moment delivered_at;
};

/* -- control.c ---------------------------------------------------------------------------------- */

enum { MAX_CONNECTIONS = 16 };

struct connection {
    int fd; /* -1: free */
    bool agent;
    bool watching;
    bool waiting; /* asked to be told when a stop is wanted */
    bool oversized;
    size_t in_bytes;
    char in[LINE_BYTES];
    char *out;
    size_t out_bytes;
};

struct control {
    struct connection connections[MAX_CONNECTIONS];
};

/* -- the shim ----------------------------------------------------------------------------------- */

struct shim {
    struct intent intent;
    struct tree tree;
    struct stop stop;
    struct output output;
    struct journal journal;
    struct events events;
    struct control control;
    char end_record[4096];   /* empty until the run is over */
    bool end_written;
    int64_t end_retry_at_ms; /* monotonic */
};

void stop_open(struct shim *shim);
/* A stop is wanted. Repeats never move the kill; a higher cause may only bring it forward. */
void stop_request(struct shim *shim, const char *cause, int64_t grace_ms, int signal_number);
void stop_set_time_limit(struct shim *shim, int64_t remaining_ms);
void stop_on_started(struct shim *shim);
void stop_on_main_exited(struct shim *shim);
/* Does what is due; returns milliseconds until the next thing is, or -1. */
int64_t stop_step(struct shim *shim);
/* Milliseconds left of the grace; -1 when no notice was delivered. */
int64_t stop_grace_left_ms(const struct shim *shim);

/* The tree is gone: close the log, make the record, tell watchers, try to write it. */
void end_begin(struct shim *shim);
void end_write(struct shim *shim);

void event_record(struct shim *shim, enum event_kind kind, const char *body);
void events_replay(const struct shim *shim, struct connection *connection, int64_t from);

void control_open(struct shim *shim);
void control_accept(struct shim *shim);
void control_read(struct shim *shim, struct connection *connection);
void control_flush(struct connection *connection);
void control_close(struct connection *connection);
void connection_send(struct connection *connection, const char *line);
void control_drain(struct shim *shim);

/* -- operations.c ------------------------------------------------------------------------------- */

void operation_perform(struct shim *shim, struct connection *connection, const char *line);
void connection_refuse(struct connection *connection, const char *reason);
void control_tell_waiters(struct shim *shim);

#endif
