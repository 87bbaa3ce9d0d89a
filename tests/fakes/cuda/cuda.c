/* A libcuda.so.1 for tests: whoever takes a context becomes a process on the fake NVML's card (fakes/nvml/nvml.c).
 * Jobs have a small environment, so the path of NVML's state is compiled in: -DSTATE="...". */

#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

int cuInit(unsigned flags) { (void)flags; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuCtxSetCurrent(void *context) { (void)context; return 0; }
int cuMemAlloc_v2(unsigned long long *memory, size_t bytes) { (void)bytes; *memory = 1; return 0; }

int cuDevicePrimaryCtxRetain(void **context, int device) {
    (void)context;
    FILE *state = fopen(STATE, "a");
    if (state == NULL) return 999;
    fprintf(state, "process card=%d pid=%d used=1500\n", device, getpid());
    return fclose(state) == 0 ? 0 : 999;
}
