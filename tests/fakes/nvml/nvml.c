/* A libnvidia-ml.so.1 for tests: the real pynvml runs through it. Its state is a text file that a test rewrites at any
 * time (by rename), named by FAKE_NVML_STATE and read again at every call. One device, process or rule a line:
 *
 *   card uuid=GPU-a name=NVIDIA_A100-SXM4-80GB bus=00000000:07:00.0 total=81920 reserved=500 used=0 gpu=12 mem=3 ...
 *   instance card=0 number=1 uuid=MIG-a name=NVIDIA_A100_MIG_3g.40gb total=40192 used=0
 *   process card=0 pid=4711 used=512            (instance=1 puts it on that instance; graphics=1 on the other list)
 *   event card=0 type=8 data=79                 (told once each, in order)
 *   fail function=nvmlDeviceGetTemperature code=15
 *   hang function=nvmlDeviceGetUtilizationRates
 *   slow function=nvmlDeviceGetHandleByIndex ms=300
 *
 * Sizes are MiB; blanks in names are underscores; used=auto is what the card's processes that live use together. A key that is missing, or "na", makes its function answer
 * NOT_SUPPORTED, or a process's memory NOT_AVAILABLE. Whole functions are left out by -DWITHOUT_V3 and
 * -DWITHOUT_EVENTS, as in old drivers. */

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, NO_DRIVER = 9, TIMED_OUT = 10, BAD_VERSION = 25 };
enum { MAX_LINES = 256, LINE_BYTES = 512, INSTANCES_PER_CARD = 100 };
static const unsigned long long MIB = 1024ULL * 1024, NOT_AVAILABLE = ~0ULL;

typedef struct { char text[MAX_LINES][LINE_BYTES]; int count; } state_t;
typedef uintptr_t device_t; /* 1 + card * INSTANCES_PER_CARD, + 1 + number for an instance */
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;
typedef struct { unsigned gpu, memory; } rates_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process_t;
typedef struct { char old_bus[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;

static int is_kind(const char *line, const char *kind) {
    size_t length = strlen(kind);
    return strncmp(line, kind, length) == 0 && line[length] == ' ';
}

/* Copies the value of " key=value"; 0 when it is missing or "na". */
static int value_of(const char *line, const char *key, char *out, size_t size) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, " %s=", key);
    const char *found = strstr(line, wanted);
    if (found == NULL) return 0;
    found += strlen(wanted);
    size_t length = strcspn(found, " \n");
    if (length >= size) length = size - 1;
    memcpy(out, found, length);
    out[length] = 0;
    return strcmp(out, "na") != 0;
}

static int number_of(const char *line, const char *key, long *out) {
    char text[64];
    if (!value_of(line, key, text, sizeof text)) return 0;
    *out = strtol(text, NULL, 0);
    return 1;
}

static void read_state(state_t *state) {
    state->count = 0;
    const char *path = getenv("FAKE_NVML_STATE");
    FILE *file = path == NULL ? NULL : fopen(path, "r");
    if (file == NULL) return;
    while (state->count < MAX_LINES && fgets(state->text[state->count], LINE_BYTES, file) != NULL) state->count++;
    fclose(file);
}

/* Reads the state and obeys its rules for a function: returns its code, or hangs for ever. */
static int enter(const char *function, state_t *state) {
    read_state(state);
    for (int i = 0; i < state->count; i++) {
        char name[96];
        long code, ms;
        const char *line = state->text[i];
        if (!value_of(line, "function", name, sizeof name) || strcmp(name, function) != 0) continue;
        if (is_kind(line, "hang")) for (;;) pause();
        if (is_kind(line, "slow") && number_of(line, "ms", &ms)) usleep((unsigned)ms * 1000);
        if (is_kind(line, "fail") && number_of(line, "code", &code)) return (int)code;
    }
    return SUCCESS;
}

static const char *nth(const state_t *state, const char *kind, long wanted) {
    for (int i = 0; i < state->count; i++)
        if (is_kind(state->text[i], kind) && wanted-- == 0) return state->text[i];
    return NULL;
}

static long card_of(device_t device) { return (long)(device - 1) / INSTANCES_PER_CARD; }
static long instance_of(device_t device) { return (long)(device - 1) % INSTANCES_PER_CARD - 1; /* -1: the card */ }

static const char *line_of(const state_t *state, device_t device) {
    if (instance_of(device) < 0) return nth(state, "card", card_of(device));
    for (int i = 0; i < state->count; i++) {
        long card, number;
        const char *line = state->text[i];
        if (is_kind(line, "instance") && number_of(line, "card", &card) && number_of(line, "number", &number) &&
            card == card_of(device) && number == instance_of(device))
            return line;
    }
    return NULL;
}

static int text(const char *function, device_t device, const char *key, char *out, unsigned size) {
    state_t state;
    int code = enter(function, &state);
    if (code != SUCCESS) return code;
    const char *line = line_of(&state, device);
    if (line == NULL) return INVALID;
    return value_of(line, key, out, size) ? SUCCESS : NOT_SUPPORTED;
}

static int reading(const char *function, device_t device, const char *key, unsigned *out) {
    char value[64];
    int code = text(function, device, key, value, sizeof value);
    if (code == SUCCESS) *out = (unsigned)strtoul(value, NULL, 0);
    return code;
}

static int used_of(const char *function, device_t device, unsigned *out) {
    char value[64];
    int code = text(function, device, "used", value, sizeof value);
    if (code != SUCCESS || strcmp(value, "auto") != 0) return reading(function, device, "used", out);
    state_t state;
    read_state(&state);
    *out = 0;
    for (int i = 0; i < state.count; i++) {
        long card, pid, used;
        const char *line = state.text[i];
        if (!is_kind(line, "process") || !number_of(line, "card", &card) || card != card_of(device)) continue;
        if (number_of(line, "pid", &pid) && kill((pid_t)pid, 0) == 0 && number_of(line, "used", &used)) *out += (unsigned)used;
    }
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    state_t state;
    int code = enter("nvmlInit", &state);
    return code != SUCCESS ? code : getenv("FAKE_NVML_STATE") == NULL ? NO_DRIVER : SUCCESS;
}

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) {
    static char text[32];
    snprintf(text, sizeof text, "fake error %d", code);
    return text;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    state_t state;
    int code = enter("nvmlDeviceGetCount", &state);
    *count = 0;
    while (nth(&state, "card", *count) != NULL) ++*count;
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *device) {
    state_t state;
    int code = enter("nvmlDeviceGetHandleByIndex", &state);
    if (code != SUCCESS) return code;
    const char *line = nth(&state, "card", index);
    if (line == NULL) return INVALID;
    long lost;
    if (number_of(line, "lost", &lost) && lost) return 15;
    *device = 1 + (device_t)index * INSTANCES_PER_CARD;
    return SUCCESS;
}

int nvmlDeviceGetUUID(device_t device, char *out, unsigned size) { return text("nvmlDeviceGetUUID", device, "uuid", out, size); }

int nvmlDeviceGetName(device_t device, char *out, unsigned size) {
    int code = text("nvmlDeviceGetName", device, "name", out, size);
    for (char *at = out; code == SUCCESS && *at; at++)
        if (*at == '_') *at = ' ';
    return code;
}

int nvmlDeviceGetPciInfo_v3(device_t device, pci_t *pci) {
    memset(pci, 0, sizeof *pci);
    return text("nvmlDeviceGetPciInfo", device, "bus", pci->bus_id, sizeof pci->bus_id);
}

int nvmlDeviceGetNumaNodeId(device_t device, int *node) { return reading("nvmlDeviceGetNumaNodeId", device, "numa", (unsigned *)node); }

int nvmlDeviceGetMemoryInfo(device_t device, memory_t *memory) {
    unsigned total, used;
    int code = reading("nvmlDeviceGetMemoryInfo", device, "total", &total);
    if (code != SUCCESS) return code;
    code = used_of("nvmlDeviceGetMemoryInfo", device, &used);
    memory->total = total * MIB;
    memory->used = code == SUCCESS ? used * MIB : NOT_AVAILABLE;
    memory->free = code == SUCCESS ? memory->total - memory->used : 0;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(device_t device, memory_v2_t *memory) {
    if (memory->version >> 24 != 2) return BAD_VERSION;
    memory_t plain;
    unsigned reserved = 0;
    int code = reading("nvmlDeviceGetMemoryInfo_v2", device, "reserved", &reserved);
    if (code != SUCCESS) return code;
    code = nvmlDeviceGetMemoryInfo(device, &plain);
    memory->total = plain.total;
    memory->used = plain.used;
    memory->free = plain.free;
    memory->reserved = reserved * MIB;
    return code;
}

int nvmlDeviceGetUtilizationRates(device_t device, rates_t *rates) {
    int code = reading("nvmlDeviceGetUtilizationRates", device, "gpu", &rates->gpu);
    return code == SUCCESS ? reading("nvmlDeviceGetUtilizationRates", device, "mem", &rates->memory) : code;
}

int nvmlDeviceGetPowerUsage(device_t device, unsigned *milliwatts) { return reading("nvmlDeviceGetPowerUsage", device, "power", milliwatts); }

int nvmlDeviceGetTemperature(device_t device, unsigned sensor, unsigned *celsius) {
    return sensor == 0 ? reading("nvmlDeviceGetTemperature", device, "temp", celsius) : INVALID;
}

int nvmlDeviceGetClockInfo(device_t device, unsigned kind, unsigned *mhz) {
    return reading("nvmlDeviceGetClockInfo", device, kind == 1 ? "sm" : "memclk", mhz);
}

static int processes(const char *function, device_t device, long graphics, unsigned *count, process_t *out) {
    state_t state;
    unsigned room = out == NULL ? 0 : *count;
    int code = enter(function, &state);
    if (code != SUCCESS) return code;
    *count = 0;
    for (int i = 0; i < state.count; i++) {
        long card = 0, instance = -1, is_graphics = 0, pid = 0, used = 0;
        const char *line = state.text[i];
        if (!is_kind(line, "process")) continue;
        number_of(line, "card", &card);
        number_of(line, "instance", &instance);
        number_of(line, "graphics", &is_graphics);
        if (card != card_of(device) || instance != instance_of(device) || is_graphics != graphics) continue;
        if (*count < room) {
            number_of(line, "pid", &pid);
            int known = number_of(line, "used", &used);
            out[*count] = (process_t){(unsigned)pid, known ? (unsigned long long)used * MIB : NOT_AVAILABLE, ~0U, ~0U};
        }
        ++*count;
    }
    return *count > room ? TOO_SMALL : SUCCESS;
}

#ifndef WITHOUT_V3
int nvmlDeviceGetComputeRunningProcesses_v3(device_t device, unsigned *count, process_t *out) {
    return processes("nvmlDeviceGetComputeRunningProcesses_v3", device, 0, count, out);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(device_t device, unsigned *count, process_t *out) {
    return processes("nvmlDeviceGetGraphicsRunningProcesses_v3", device, 1, count, out);
}
#endif
int nvmlDeviceGetComputeRunningProcesses_v2(device_t device, unsigned *count, process_t *out) {
    return processes("nvmlDeviceGetComputeRunningProcesses_v2", device, 0, count, out);
}
int nvmlDeviceGetGraphicsRunningProcesses_v2(device_t device, unsigned *count, process_t *out) {
    return processes("nvmlDeviceGetGraphicsRunningProcesses_v2", device, 1, count, out);
}

int nvmlDeviceGetMigMode(device_t device, unsigned *current, unsigned *pending) {
    int code = reading("nvmlDeviceGetMigMode", device, "mig", current);
    *pending = *current;
    return code;
}

int nvmlDeviceGetMaxMigDeviceCount(device_t device, unsigned *count) {
    (void)device;
    *count = 7;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(device_t device, unsigned number, device_t *out) {
    state_t state;
    int code = enter("nvmlDeviceGetMigDeviceHandleByIndex", &state);
    *out = device + 1 + number;
    return code != SUCCESS ? code : line_of(&state, *out) == NULL ? NOT_FOUND : SUCCESS;
}

/* link=A,B: the bus ids at the other ends of the card's links. */
static int remote(const char *function, device_t device, unsigned link, char *out, size_t size) {
    char all[256], *rest = all, *part = NULL;
    int code = text(function, device, "link", all, sizeof all);
    if (code != SUCCESS) return code;
    for (unsigned i = 0; i <= link; i++)
        if ((part = strsep(&rest, ",")) == NULL) return INVALID;
    snprintf(out, size, "%s", part);
    return SUCCESS;
}

int nvmlDeviceGetNvLinkState(device_t device, unsigned link, unsigned *active) {
    char other[32];
    *active = 1;
    return remote("nvmlDeviceGetNvLinkState", device, link, other, sizeof other);
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t device, unsigned link, pci_t *pci) {
    memset(pci, 0, sizeof *pci);
    return remote("nvmlDeviceGetNvLinkRemotePciInfo", device, link, pci->bus_id, sizeof pci->bus_id);
}

#ifndef WITHOUT_EVENTS
typedef struct { device_t device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } event_t;

static int events_told;
static char registered[MAX_LINES]; /* by card: of others nothing is told */

int nvmlEventSetCreate(void **set) {
    *set = &events_told;
    return SUCCESS;
}

int nvmlEventSetFree(void *set) {
    (void)set;
    return SUCCESS;
}

int nvmlDeviceGetSupportedEventTypes(device_t device, unsigned long long *types) {
    unsigned supported;
    int code = reading("nvmlDeviceGetSupportedEventTypes", device, "events", &supported);
    *types = code == SUCCESS ? supported : 0;
    return code;
}

int nvmlDeviceRegisterEvents(device_t device, unsigned long long types, void *set) {
    state_t state;
    long code = enter("nvmlDeviceRegisterEvents", &state);
    (void)types, (void)set;
    if (code == SUCCESS) number_of(line_of(&state, device), "deaf", &code); /* what registering this card answers */
    registered[card_of(device)] = code == SUCCESS;
    return (int)code;
}

int nvmlEventSetWait_v2(void *set, event_t *event, unsigned timeout_ms) {
    (void)set;
    for (unsigned waited_ms = 0;; waited_ms += 10) {
        state_t state;
        int code = enter("nvmlEventSetWait", &state);
        if (code != SUCCESS) return code;
        const char *line = nth(&state, "event", events_told);
        if (line != NULL) {
            long card = 0, type = 0, data = 0;
            number_of(line, "card", &card);
            number_of(line, "type", &type);
            number_of(line, "data", &data);
            *event = (event_t){1 + (device_t)card * INSTANCES_PER_CARD, (unsigned long long)type, (unsigned long long)data, ~0U, ~0U};
            events_told++;
            if (!registered[card]) continue;
            return SUCCESS;
        }
        if (waited_ms >= timeout_ms) return TIMED_OUT;
        usleep(10000);
    }
}
#endif
