/* The job's processes. The shim is their sub-reaper, so whatever a process does (setsid, double fork), it stays a
 * descendant, and the tree is gone exactly when no child is left to wait for. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process.h"
#include "shim.h"

enum { MAX_NOTICE_ROUNDS = 8, SIGRTMIN_KERNEL = 32 };

_Noreturn static void give_up(int report_fd, int step)
{
    struct start_error error = {.step = step, .number = errno};
    ssize_t ignored = write(report_fd, &error, sizeof error);
    (void)ignored;
    _exit(127);
}

/* What the agent and the shim changed must not reach the job: handlers, mask, umask, descriptors. */
static void restore_defaults(const struct intent *intent)
{
    for (int number = 1; number < SIGRTMIN_KERNEL; number++)
        signal(number, SIG_DFL); /* what a parent ignores would stay ignored over exec */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(intent->umask);
}

/* After the fork. Its own session: a `kill 0` in a script must not reach the shim. */
_Noreturn static void become_job(const struct intent *intent, int output_fd, int report_fd)
{
    setsid();
    if (dup2(output_fd, STDOUT_FILENO) < 0 || dup2(output_fd, STDERR_FILENO) < 0)
        give_up(report_fd, STEP_OUTPUT);
    if (chdir(intent->working_dir) < 0)
        give_up(report_fd, STEP_WORKING_DIR);
    restore_defaults(intent);
    environ = intent->envp; /* the job's PATH finds its program, not the agent's */
    execvp(intent->argv[0], intent->argv);
    give_up(report_fd, STEP_EXEC);
}

static int open_cgroup(const char *folder)
{
    if (folder == NULL || (mkdir(folder, 0755) < 0 && errno != EEXIST))
        return -1;
    return open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* clone3 puts the child straight into its cgroup; writing cgroup.procs would wait for an RCU grace period. */
static pid_t fork_into(struct tree *tree)
{
    if (tree->cgroup_fd >= 0) {
        struct clone_args args = {
            .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (unsigned long long)tree->cgroup_fd};
        long child = syscall(SYS_clone3, &args, sizeof args);
        if (child >= 0)
            return (pid_t)child;
        close(tree->cgroup_fd); /* an old kernel, or a filter that forbids it: the scan of /proc serves */
        tree->cgroup_fd = -1;
    }
    return fork();
}

bool tree_start(struct tree *tree, const struct intent *intent, int output_fd)
{
    int report[2];
    tree->exec_fd = -1;
    tree->cgroup_fd = open_cgroup(intent->cgroup);
    if (pipe2(report, O_CLOEXEC) < 0) {
        tree->error = (struct start_error){.step = STEP_FORK, .number = errno};
        return false;
    }
    pid_t child = fork_into(tree);
    if (child == 0)
        become_job(intent, output_fd, report[1]);
    if (child < 0)
        tree->error = (struct start_error){.step = STEP_FORK, .number = errno};
    close(report[1]);
    if (child < 0) {
        close(report[0]);
        return false;
    }
    struct process process;
    tree->pid = child;
    tree->exec_fd = report[0];
    if (process_read(child, &process))
        tree->start_ticks = process.start_ticks;
    return true;
}

/* The report pipe closes by itself at exec; anything in it is a failure. */
void tree_read_exec(struct tree *tree)
{
    struct start_error error = {0};
    ssize_t got;
    do
        got = read(tree->exec_fd, &error, sizeof error);
    while (got < 0 && errno == EINTR);
    close(tree->exec_fd);
    tree->exec_fd = -1;
    if (got == (ssize_t)sizeof error) {
        tree->error = error;
        return;
    }
    tree->running = true;
    tree->started = moment_now();
}

void tree_reap(struct tree *tree)
{
    for (;;) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended < 0 && errno == EINTR)
            continue;
        if (ended < 0 && !tree->gone) {
            tree->gone = true; /* ECHILD: no descendant is left */
            tree->emptied = moment_now();
        }
        if (ended <= 0)
            return;
        if (ended == tree->pid && !tree->reaped) {
            tree->reaped = true;
            tree->status = status;
            tree->exited = moment_now();
        }
    }
}

bool tree_main_is_exiting(const struct tree *tree)
{
    siginfo_t info = {0};
    if (tree->reaped)
        return true;
    if (waitid(P_PID, (id_t)tree->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == tree->pid)
        return true;
    return process_is_exiting(tree->pid);
}

static void signal_one(const struct process *process, int signal_number)
{
    process_signal(process, signal_number);
    process_signal(process, SIGCONT); /* a stopped process could not act on its notice */
}

/* Everybody once; processes that appear while this goes on are caught by another round. Returns how many. */
int tree_notify(const struct tree *tree, int signal_number)
{
    struct process_list told = {0};
    struct process main_process;
    if (!tree->reaped && process_read(tree->pid, &main_process))
        signal_one(&main_process, signal_number); /* first, without waiting for the scan */
    for (int round = 0; round < MAX_NOTICE_ROUNDS; round++) {
        struct process_list now = process_descendants(getpid());
        int fresh = 0;
        for (int at = 0; at < now.count; at++) {
            const struct process *process = &now.items[at];
            if (process->state == 'Z' || process_list_has(&told, process))
                continue;
            fresh++;
            if (process->pid != tree->pid)
                signal_one(process, signal_number);
        }
        free(told.items);
        told = now;
        if (fresh == 0)
            break;
    }
    int count = told.count;
    free(told.items);
    return count;
}

/* One round of SIGKILL; call again until the tree is gone, since a process may fork while this looks. */
int tree_kill(const struct tree *tree)
{
    if (tree->cgroup_fd >= 0) {
        int fd = openat(tree->cgroup_fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);
        if (fd >= 0) {
            ssize_t ignored = write(fd, "1", 1);
            (void)ignored;
            close(fd);
        }
    }
    struct process_list now = process_descendants(getpid());
    for (int at = 0; at < now.count; at++)
        process_signal(&now.items[at], SIGKILL);
    int count = now.count;
    free(now.items);
    return count;
}

void tree_remove_cgroup(struct tree *tree, const struct intent *intent)
{
    if (tree->cgroup_fd < 0)
        return;
    close(tree->cgroup_fd);
    tree->cgroup_fd = -1;
    rmdir(intent->cgroup); /* one that the job divided itself stays; the agent sweeps it */
}
