/* The intent: pairs of name and value, each ended by a NUL, as the agent wrote them. `arg` and `env` repeat. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

enum { MAX_INTENT_BYTES = 4 * 1024 * 1024 };

static char *read_whole(const char *name, size_t *size)
{
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    struct stat status;
    char *text = NULL;
    if (fstat(fd, &status) == 0 && status.st_size > 0 && status.st_size <= MAX_INTENT_BYTES)
        text = malloc((size_t)status.st_size);
    size_t have = 0;
    while (text != NULL && have < (size_t)status.st_size) {
        ssize_t got = read(fd, text + have, (size_t)status.st_size - have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        have += (size_t)got;
    }
    close(fd);
    *size = have;
    return text;
}

static size_t count_ends(const char *text, size_t size)
{
    size_t ends = 0;
    for (size_t at = 0; at < size; at++)
        ends += text[at] == '\0';
    return ends;
}

static bool parse_number(const char *value, int64_t *number)
{
    char *end;
    errno = 0;
    long long parsed = strtoll(value, &end, 10);
    if (errno != 0 || end == value || *end != '\0')
        return false;
    *number = parsed;
    return true;
}

/* Numbers and texts by name; a name that is not known is the agent's own and skipped. */
static bool take_pair(struct intent *intent, const char *name, const char *value)
{
    const struct {
        const char *name;
        const char **into;
    } texts[] = {
        {"run_id", &intent->run_id},   {"key", &intent->key},
        {"boot_id", &intent->boot_id}, {"control_path", &intent->control_path},
        {"cgroup", &intent->cgroup},   {"working_dir", &intent->working_dir},
    };
    for (size_t at = 0; at < sizeof texts / sizeof *texts; at++) {
        if (strcmp(name, texts[at].name) == 0) {
            *texts[at].into = value;
            return true;
        }
    }
    int64_t signal_number = intent->signal, mask = (int64_t)intent->umask;
    const struct {
        const char *name;
        int64_t *into;
    } numbers[] = {
        {"log_head_bytes", &intent->log_head_bytes},
        {"log_tail_bytes", &intent->log_tail_bytes},
        {"time_limit_ms", &intent->time_limit_ms},
        {"time_limit_grace_ms", &intent->time_limit_grace_ms},
        {"leftover_grace_ms", &intent->leftover_grace_ms},
        {"signal", &signal_number},
        {"umask", &mask},
    };
    for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++) {
        if (strcmp(name, numbers[at].name) == 0 && !parse_number(value, numbers[at].into))
            return false;
    }
    intent->signal = (int)signal_number;
    intent->umask = (mode_t)mask;
    return true;
}

static const char *missing_field(const struct intent *intent)
{
    if (intent->run_id == NULL)
        return "run_id";
    if (intent->key == NULL || *intent->key == '\0')
        return "key";
    if (intent->boot_id == NULL)
        return "boot_id";
    if (intent->control_path == NULL)
        return "control_path";
    if (intent->working_dir == NULL)
        return "working_dir";
    if (intent->argv[0] == NULL)
        return "arg";
    return NULL;
}

static bool take_all(struct intent *intent, char *text, size_t size, char error[ERROR_BYTES])
{
    size_t args = 0, envs = 0;
    for (char *at = text; at < text + size;) {
        char *value = at + strlen(at) + 1;
        if (value >= text + size) {
            snprintf(error, ERROR_BYTES, "the intent ends after the name %.40s", at);
            return false;
        }
        if (strcmp(at, "arg") == 0) {
            intent->argv[args++] = value;
        } else if (strcmp(at, "env") == 0) {
            intent->envp[envs++] = value;
        } else if (!take_pair(intent, at, value)) {
            snprintf(error, ERROR_BYTES, "the intent's %.40s is no number", at);
            return false;
        }
        at = value + strlen(value) + 1;
    }
    return true;
}

bool intent_read(struct intent *intent, char error[ERROR_BYTES])
{
    size_t size = 0;
    char *text = read_whole("intent", &size);
    if (text == NULL || size == 0 || text[size - 1] != '\0') {
        snprintf(error, ERROR_BYTES, "the intent is missing, empty, too large or cut off");
        return false;
    }
    size_t pairs = count_ends(text, size) / 2 + 1;
    *intent = (struct intent){
        .argv = calloc(pairs, sizeof(char *)),
        .envp = calloc(pairs, sizeof(char *)),
        .time_limit_ms = -1,
        .leftover_grace_ms = 2000,
        .signal = 15,
        .umask = 022,
    };
    if (intent->argv == NULL || intent->envp == NULL) {
        snprintf(error, ERROR_BYTES, "no memory for the intent");
        return false;
    }
    if (!take_all(intent, text, size, error))
        return false;
    const char *missing = missing_field(intent);
    if (missing != NULL) {
        snprintf(error, ERROR_BYTES, "the intent has no %s", missing);
        return false;
    }
    return true;
}
