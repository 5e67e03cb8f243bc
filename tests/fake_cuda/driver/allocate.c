/* The calls that allocate and free. */
#include "allocation.h"

static CUresult device_make(struct context *context, size_t bytes, struct allocation **allocation)
{
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > settings.memory_bytes - context->allocated)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *allocation = allocation_make(context, DEVICE_MEMORY, bytes);
    if (!*allocation)
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->allocated += bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    struct context *context;
    struct allocation *allocation;
    CUresult result = enter(&context);
    if (result)
        return result;
    if ((result = device_make(context, bytes, &allocation)) == CUDA_SUCCESS) {
        *address = allocation->start;
        log_line(NULL, "memory_alloc bytes=%zu", bytes);
    }
    return leave(result);
}

/* The start of an allocation that nobody has freed or is about to. */
static struct allocation *freeable(enum memory memory, uintptr_t address)
{
    struct allocation *allocation = allocation_find(address);
    return allocation && allocation->memory == memory && allocation->start == address && allocation->state != LEAVING
               ? allocation
               : NULL;
}

static CUresult free_now(enum memory memory, uintptr_t address)
{
    struct context *context;
    CUresult result = enter(&context);
    if (result)
        return result;
    if (!address)
        return leave(CUDA_SUCCESS);
    struct allocation *allocation = freeable(memory, address);
    if (!allocation)
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (memory == DEVICE_MEMORY)
        log_line(NULL, "memory_free bytes=%zu", allocation->bytes);
    if (allocation->holds) /* the real driver would wait */
        context_break(allocation->context, CUDA_ERROR_ILLEGAL_ADDRESS, "%zu bytes at %#zx freed under an operation",
                      allocation->bytes, (size_t)address);
    result = allocation->context->sticky;
    allocation_retire(allocation);
    return leave(result);
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    return free_now(DEVICE_MEMORY, address);
}

CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned int flags)
{
    (void)flags;
    struct context *context;
    CUresult result = enter(&context);
    if (result)
        return result;
    struct allocation *allocation = bytes ? allocation_make(context, PINNED_MEMORY, bytes) : NULL;
    if (!allocation)
        return leave(bytes ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE);
    *address = allocation->host;
    return leave(CUDA_SUCCESS);
}

CUresult cuMemFreeHost(void *address)
{
    return free_now(PINNED_MEMORY, (uintptr_t)address);
}

static void make_in_order(void *argument, int broken)
{
    (void)broken;
    struct allocation *allocation = argument;
    pthread_mutex_lock(&driver_lock);
    if (allocation->state == PROMISED)
        allocation->state = LIVE;
    allocation_drop_hold(allocation);
    pthread_mutex_unlock(&driver_lock);
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream handle)
{
    struct context *context;
    struct stream *stream;
    struct allocation *allocation;
    CUresult result = enter(&context);
    if (result)
        return result;
    if ((result = stream_find(context, handle, &stream)) || (result = stream->context->sticky))
        return leave(result);
    if ((result = device_make(stream->context, bytes, &allocation)))
        return leave(result);
    allocation->state = PROMISED;
    allocation->holds = 1;
    *address = allocation->start;
    return leave(stream_enqueue(stream, make_in_order, allocation, "memory_alloc bytes=%zu", bytes));
}

static void free_in_order(void *argument, int broken)
{
    (void)broken;
    struct allocation *allocation = argument;
    pthread_mutex_lock(&driver_lock);
    if (allocation->state == LEAVING) {
        if (allocation->holds > 1)
            context_break(allocation->context, CUDA_ERROR_ILLEGAL_ADDRESS, "%zu bytes at %#zx freed under an operation",
                          allocation->bytes, (size_t)allocation->start);
        allocation_retire(allocation);
    }
    allocation_drop_hold(allocation);
    pthread_mutex_unlock(&driver_lock);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle)
{
    struct context *context;
    struct stream *stream;
    CUresult result = enter(&context);
    if (result)
        return result;
    if ((result = stream_find(context, handle, &stream)) || (result = stream->context->sticky))
        return leave(result);
    struct allocation *allocation = freeable(DEVICE_MEMORY, address);
    if (!allocation)
        return leave(CUDA_ERROR_INVALID_VALUE);
    allocation->state = LEAVING;
    allocation->holds++;
    return leave(stream_enqueue(stream, free_in_order, allocation, "memory_free bytes=%zu", allocation->bytes));
}
