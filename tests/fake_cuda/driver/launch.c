/* Launches of Ronde's copy kernels: the kernels' own code, compiled for the CPU, one thread of the grid after the other.
 *
 * Before it runs, each entry of its table is checked against the memory of the device, and against the others: on a
 * GPU they are done at once, in no order.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch.h"
#include "run_on_cpu.h"

struct launch {
    const struct ronde_kernel *kernel;
    unsigned blocks;
    struct ronde_table table;
};

struct function *function_new(struct context *context, char *name)
{
    struct function *function = malloc(sizeof *function);
    if (!function || !name)
        abort();
    const struct ronde_kernel *kernel = ronde_kernels;
    while (kernel->name && strcmp(kernel->name, name) != 0)
        kernel++;
    *function = (struct function){context, name, kernel->name ? kernel : NULL};
    return function;
}

void function_free(struct function *function)
{
    free(function->name);
    free(function);
}

/* The bytes of an element on both sides: from "ronde_f32_bf16", 4 and 2. */
static void element_bytes(const char *name, size_t *from, size_t *to)
{
    unsigned from_bits, to_bits;
    *from = *to = 1;
    if (sscanf(name, "ronde_%*[a-z]%u_%*[a-z]%u", &from_bits, &to_bits) == 2)
        *from = from_bits / 8, *to = to_bits / 8;
}

/* Half-open stretches of addresses. */
struct stretch {
    uint64_t start, end;
};

static bool overlap(struct stretch a, struct stretch b)
{
    return a.start < b.end && b.start < a.end;
}

/* What a grid must not do, whatever the memory; or null. */
static const char *complaint(const struct launch *launch, size_t from_bytes, size_t to_bytes)
{
    const struct ronde_table *table = &launch->table;
    bool fill = strcmp(launch->kernel->name, "ronde_fill") == 0;
    size_t chunk = RONDE_CHUNK_BYTES / (from_bytes > to_bytes ? from_bytes : to_bytes);
    if (table->count < 1 || table->count > RONDE_ENTRIES)
        return "the number of entries";
    if (table->divisor == 0)
        return "a divisor of 0";
    uint64_t blocks = 0;
    struct stretch from[RONDE_ENTRIES], to[RONDE_ENTRIES];
    for (unsigned i = 0; i < table->count; ++i) {
        uint64_t elements = table->elements[i];
        if (!elements || table->first_block[i] != blocks)
            return "an entry's elements or first block";
        blocks += (elements + chunk - 1) / chunk;
        from[i] = fill ? (struct stretch){0, 0} : (struct stretch){table->from[i], table->from[i] + elements * from_bytes};
        to[i] = (struct stretch){table->to[i], table->to[i] + elements * to_bytes};
        if (fill && (table->to[i] % 16 || elements % 8))
            return "a fill's target";
    }
    if (blocks != launch->blocks)
        return "the number of blocks";
    for (unsigned i = 0; i < table->count; ++i) {
        for (unsigned j = 0; j < table->count; ++j) {
            bool in_place = i == j && from[i].start == to[i].start && from_bytes == to_bytes;
            if ((i != j && overlap(to[i], to[j])) || (overlap(to[i], from[j]) && !in_place))
                return "entries that overlap";
        }
    }
    return NULL;
}

static void fail(CUresult error, const struct launch *launch, const char *what)
{
    pthread_mutex_lock(&driver_lock);
    context_break(running->context, error, "%s on stream %u: %s", launch->kernel->name, running->number, what);
    pthread_mutex_unlock(&driver_lock);
}

/* From here on the table has addresses of the host. */
static bool touch(struct launch *launch, size_t from_bytes, size_t to_bytes)
{
    struct ronde_table *table = &launch->table;
    bool fill = strcmp(launch->kernel->name, "ronde_fill") == 0;
    for (unsigned i = 0; i < table->count; ++i) {
        if ((!fill && table->from[i] % from_bytes) || table->to[i] % to_bytes) {
            fail(CUDA_ERROR_MISALIGNED_ADDRESS, launch, "an address is not a multiple of the element");
            return false;
        }
        size_t elements = table->elements[i];
        void *to = memory_touch(DEVICE_MEMORY, table->to[i], elements * to_bytes, launch->kernel->name);
        if (!to)
            return false;
        table->to[i] = (uintptr_t)to;
        if (fill)
            continue;
        void *from = memory_touch(DEVICE_MEMORY, table->from[i], elements * from_bytes, launch->kernel->name);
        if (!from)
            return false;
        table->from[i] = (uintptr_t)from;
    }
    return true;
}

static void run(void *argument, int broken)
{
    struct launch *launch = argument;
    if (!broken) {
        size_t from_bytes, to_bytes;
        element_bytes(launch->kernel->name, &from_bytes, &to_bytes);
        const char *wrong = complaint(launch, from_bytes, to_bytes);
        if (wrong)
            fail(CUDA_ERROR_LAUNCH_FAILED, launch, wrong);
        else if (touch(launch, from_bytes, to_bytes))
            for (ronde_block = 0; ronde_block < launch->blocks; ++ronde_block)
                for (ronde_thread = 0; ronde_thread < RONDE_THREADS; ++ronde_thread)
                    launch->kernel->run(&launch->table);
    }
    free(launch);
}

CUresult cuLaunchKernel(CUfunction handle, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                               unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                               CUstream stream_handle, void **parameters, void **extra)
{
    struct context *context;
    struct stream *stream;
    CUresult result = enter(&context);
    if (result)
        return result;
    struct function *function = handle_object(FUNCTION, handle);
    if (!function)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    if ((result = stream_find(context, stream_handle, &stream)))
        return leave(result);
    if (stream->context != function->context)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    if (!grid_x || grid_y != 1 || grid_z != 1 || block_x != RONDE_THREADS || block_y != 1 || block_z != 1 || shared_bytes ||
        !parameters || extra)
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (!function->kernel) {
        fprintf(stderr, "fake_cuda: no kernel %s on the CPU\n", function->name);
        return leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    struct launch *launch = malloc(sizeof *launch);
    if (!launch)
        abort();
    launch->kernel = function->kernel;
    launch->blocks = grid_x;
    memcpy(&launch->table, parameters[0], sizeof launch->table);
    unsigned long long elements = 0;
    for (unsigned i = 0; i < launch->table.count && i < RONDE_ENTRIES; ++i)
        elements += launch->table.elements[i];
    return leave(stream_enqueue(stream, run, launch, "%s entries=%u blocks=%u elements=%llu", function->name,
                                launch->table.count, grid_x, elements));
}
