/* What /proc says about processes. Internal to tree.c. */
#ifndef MAKEWAY_PROCESS_H
#define MAKEWAY_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct process {
    pid_t pid;
    pid_t parent;
    char state;
    unsigned flags;
    uint64_t start_ticks; /* since boot: with the id, the identity of a process */
};

struct process_list {
    struct process *items; /* the caller frees it */
    int count;
    int room;
};

bool process_read(pid_t pid, struct process *process);
/* True when the process has begun to exit, or is gone. Doubt is false. */
bool process_is_exiting(pid_t pid);
struct process_list process_descendants(pid_t ancestor);
bool process_list_has(const struct process_list *list, const struct process *process);
/* Signals the very process that was read, never another with its id. */
bool process_signal(const struct process *process, int signal_number);

#endif
