/* What /proc says about processes: parents, start times, and whether one has begun to exit. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "process.h"

enum { PF_EXITING = 0x4 }; /* include/linux/sched.h; field 9 of /proc/PID/stat */

static bool read_small(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, text, size - 1);
    close(fd);
    if (got <= 0)
        return false;
    text[got] = '\0';
    return true;
}

static bool parse_stat(const char *text, struct process *process)
{
    const char *rest = strrchr(text, ')'); /* a command name may hold spaces and brackets itself */
    if (rest == NULL)
        return false;
    return sscanf(rest + 1, " %c %d %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %" SCNu64,
                  &process->state, &process->parent, &process->flags, &process->start_ticks) == 4;
}

bool process_read(pid_t pid, struct process *process)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    process->pid = pid;
    return read_small(path, text, sizeof text) && parse_stat(text, process);
}

/* A thread is on its way out once it tears itself down, or once a group exit has marked it with SIGKILL. */
static bool thread_is_exiting(pid_t pid, pid_t thread)
{
    char path[96], text[4096];
    struct process process;
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, thread);
    if (!read_small(path, text, sizeof text))
        return true; /* gone meanwhile */
    if (!parse_stat(text, &process))
        return false;
    if (process.flags & PF_EXITING)
        return true;
    snprintf(path, sizeof path, "/proc/%d/task/%d/status", pid, thread);
    if (!read_small(path, text, sizeof text))
        return true;
    const char *pending = strstr(text, "\nSigPnd:");
    uint64_t mask = 0;
    return pending != NULL && sscanf(pending, "\nSigPnd: %" SCNx64, &mask) == 1 && (mask >> (SIGKILL - 1)) & 1;
}

bool process_is_exiting(pid_t pid)
{
    char path[64];
    if (!thread_is_exiting(pid, pid))
        return false;
    /* A leader may end alone (pthread_exit) and leave the process alive: every thread has to be leaving. */
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *threads = opendir(path);
    if (threads == NULL)
        return true;
    bool exiting = true;
    for (struct dirent *entry; exiting && (entry = readdir(threads)) != NULL;) {
        if (isdigit((unsigned char)entry->d_name[0]))
            exiting = thread_is_exiting(pid, (pid_t)atoi(entry->d_name));
    }
    closedir(threads);
    return exiting;
}

static bool list_add(struct process_list *list, const struct process *process)
{
    if (list->count == list->room) {
        int room = list->room == 0 ? 256 : list->room * 2;
        struct process *items = realloc(list->items, (size_t)room * sizeof *items);
        if (items == NULL)
            return false;
        list->items = items;
        list->room = room;
    }
    list->items[list->count++] = *process;
    return true;
}

bool process_list_has(const struct process_list *list, const struct process *process)
{
    for (int at = 0; at < list->count; at++) {
        if (list->items[at].pid == process->pid && list->items[at].start_ticks == process->start_ticks)
            return true;
    }
    return false;
}

static struct process_list all_processes(void)
{
    struct process_list all = {0};
    DIR *folder = opendir("/proc");
    if (folder == NULL)
        return all;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        struct process process;
        if (isdigit((unsigned char)entry->d_name[0]) && process_read((pid_t)atoi(entry->d_name), &process))
            list_add(&all, &process);
    }
    closedir(folder);
    return all;
}

/* Breadth first from the ancestor: the list itself is the queue of parents still to look under. */
struct process_list process_descendants(pid_t ancestor)
{
    struct process_list all = all_processes(), found = {0};
    for (int next = -1; next < found.count; next++) {
        pid_t parent = next < 0 ? ancestor : found.items[next].pid;
        for (int at = 0; at < all.count; at++) {
            if (all.items[at].parent == parent)
                list_add(&found, &all.items[at]);
        }
    }
    free(all.items);
    return found;
}

bool process_signal(const struct process *process, int signal_number)
{
    int fd = (int)syscall(SYS_pidfd_open, process->pid, 0);
    if (fd < 0 && errno == ESRCH)
        return false;
    /* Compared once the descriptor pins the process: the id cannot be handed on from here. */
    struct process now;
    bool same = process_read(process->pid, &now) && now.start_ticks == process->start_ticks;
    bool sent = false;
    if (same && fd >= 0)
        sent = syscall(SYS_pidfd_send_signal, fd, signal_number, NULL, 0) == 0;
    else if (same)
        sent = kill(process->pid, signal_number) == 0; /* a kernel before 5.3 */
    if (fd >= 0)
        close(fd);
    return sent;
}
