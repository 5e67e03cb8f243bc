/* Copies and fills. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum direction { TO_DEVICE, TO_HOST, ON_DEVICE, FILL };

struct copy {
    enum direction direction;
    bool pinned; /* the host's side may go away before the copy runs, so look again */
    uintptr_t to, from;
    size_t bytes;
    unsigned char value; /* of a fill */
    unsigned char staged[]; /* what the host gave that is not pinned */
};

static void *touch_host(const struct copy *copy, uintptr_t address, const char *who)
{
    return copy->pinned ? memory_touch(PINNED_MEMORY, address, copy->bytes, who) : (void *)address;
}

static void run(void *argument, int broken)
{
    struct copy *copy = argument;
    void *to = NULL;
    const void *from = NULL;
    if (!broken) {
        const char *who = copy->direction == FILL ? "memset" : copy->direction == TO_HOST ? "copy to host" : "copy";
        to = copy->direction == TO_HOST ? touch_host(copy, copy->to, who)
                                        : memory_touch(DEVICE_MEMORY, copy->to, copy->bytes, who);
        if (copy->direction == FILL)
            from = &copy->value;
        else if (copy->direction == TO_DEVICE)
            from = touch_host(copy, copy->from, who);
        else
            from = memory_touch(DEVICE_MEMORY, copy->from, copy->bytes, who);
    }
    if (to && from) {
        if (copy->direction == FILL)
            memset(to, copy->value, copy->bytes);
        else
            memmove(to, from, copy->bytes);
    }
    free(copy);
}

static struct copy *copy_new(enum direction direction, uintptr_t to, uintptr_t from, size_t bytes, size_t staged)
{
    struct copy *copy = malloc(sizeof *copy + staged);
    if (!copy)
        abort();
    *copy = (struct copy){.direction = direction, .to = to, .from = from, .bytes = bytes};
    return copy;
}

/* `now`: the caller waits until the copy is made. */
static CUresult copy_start(enum direction direction, uintptr_t to, uintptr_t from, size_t bytes, CUstream handle, bool now)
{
    static const char *const names[] = {"copy_htod", "copy_dtoh", "copy_dtod"};
    struct context *context;
    struct stream *stream;
    CUresult result = enter(&context);
    if (result)
        return result;
    if ((result = stream_find(context, handle, &stream)))
        return leave(result);
    const void *host = (const void *)(direction == TO_HOST ? to : from);
    if (direction != ON_DEVICE && bytes && memory_is(DEVICE_MEMORY, host, 1))
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (!bytes)
        return leave(CUDA_SUCCESS);
    bool pinned = direction != ON_DEVICE && memory_is(PINNED_MEMORY, host, bytes);
    /* As really: few bytes that are not pinned have been read when it returns, and may not have been written. */
    now = now && (direction != TO_DEVICE || pinned || bytes > 65536);
    bool stage = direction == TO_DEVICE && !pinned && !now;
    struct copy *copy = copy_new(direction, to, from, bytes, stage ? bytes : 0);
    copy->pinned = pinned;
    if (stage) {
        memcpy(copy->staged, host, bytes);
        copy->from = (uintptr_t)copy->staged;
    }
    result = stream_enqueue(stream, run, copy, "%s bytes=%zu", names[direction], bytes);
    /* As really: a copy to memory that is not pinned is not asynchronous. */
    if (!result && (now || (direction == TO_HOST && !pinned)))
        result = stream_wait(stream);
    return leave(result);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    return copy_start(TO_DEVICE, to, (uintptr_t)from, bytes, NULL, true);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    return copy_start(TO_HOST, (uintptr_t)to, from, bytes, NULL, true);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return copy_start(TO_DEVICE, to, (uintptr_t)from, bytes, stream, false);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_start(TO_HOST, (uintptr_t)to, from, bytes, stream, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_start(ON_DEVICE, to, from, bytes, stream, false);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream handle)
{
    struct context *context;
    struct stream *stream;
    CUresult result = enter(&context);
    if (result)
        return result;
    if ((result = stream_find(context, handle, &stream)))
        return leave(result);
    if (!count)
        return leave(CUDA_SUCCESS);
    struct copy *copy = copy_new(FILL, to, 0, count, 0);
    copy->value = value;
    return leave(stream_enqueue(stream, run, copy, "memset bytes=%zu", copy->bytes));
}
