/* Two clocks for records (wall time, and time since boot for durations), one for what is due. */
#define _GNU_SOURCE
#include <time.h>

#include "shim.h"

static int64_t read_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

struct moment moment_now(void)
{
    return (struct moment){.realtime_ns = read_ns(CLOCK_REALTIME), .boottime_ns = read_ns(CLOCK_BOOTTIME)};
}

int64_t monotonic_ms(void)
{
    return read_ns(CLOCK_MONOTONIC) / 1000000;
}
