/* Primary contexts, and the stack of current ones that each thread has. */
#include <stdio.h>
#include <string.h>

#include "driver.h"

static struct context contexts[DEVICES_MAX];

enum { STACK_MAX = 64 };
static _Thread_local struct context *stack[STACK_MAX];
static _Thread_local int depth;

struct context *context_of_device(CUdevice device)
{
    contexts[device].device = device;
    return &contexts[device];
}

static struct context *context_of_handle(CUcontext handle)
{
    struct context *context = (struct context *)handle;
    return context >= contexts && context < contexts + DEVICES_MAX ? context : NULL;
}

static struct context *current(void)
{
    return depth ? stack[depth - 1] : NULL;
}

CUresult enter(struct context **context)
{
    CUresult result = enter_initialized();
    if (result)
        return result;
    *context = current();
    if (!*context)
        return leave(CUDA_ERROR_INVALID_CONTEXT);
    if (!(*context)->retained)
        return leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return (*context)->sticky ? leave((*context)->sticky) : CUDA_SUCCESS;
}

void context_break(struct context *context, CUresult error, const char *format, ...)
{
    char text[LINE_MAX_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "fake_cuda: error %d on device %d: %s\n", error, context->device, text);
    log_line(running, "error %d %s", error, text);
    if (!context->sticky)
        context->sticky = error;
    pthread_cond_broadcast(&driver_changed);
    for (struct stream *stream = context->first; stream; stream = stream->next)
        pthread_cond_signal(&stream->work);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *handle, CUdevice device)
{
    CUresult result = enter_initialized();
    if (result)
        return result;
    if (device < 0 || device >= settings.devices)
        return leave(CUDA_ERROR_INVALID_DEVICE);
    struct context *context = context_of_device(device);
    if (context->sticky)
        return leave(context->sticky);
    context->retained++;
    *handle = (CUcontext)context;
    return leave(CUDA_SUCCESS);
}

/* The last release waits for all that is under way, and frees what the context still has. */
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CUresult result = enter_initialized();
    if (result)
        return result;
    if (device < 0 || device >= settings.devices)
        return leave(CUDA_ERROR_INVALID_DEVICE);
    struct context *context = context_of_device(device);
    if (!context->retained)
        return leave(CUDA_ERROR_INVALID_CONTEXT);
    if (--context->retained)
        return leave(CUDA_SUCCESS);
    unsigned streams = 0;
    for (struct stream *stream = context->first; stream; stream = stream->next) {
        streams += !stream->ended && stream->number != 0;
        if (!stream->ended)
            stream_end(stream);
    }
    context->legacy = NULL;
    log_line(NULL, "context_release device=%d streams=%u events=%u bytes=%zu", device, streams, context->events,
             context->allocated);
    while (context->first)
        pthread_cond_wait(&driver_changed, &driver_lock);
    memory_release(context);
    return leave(CUDA_SUCCESS);
}

CUresult cuCtxPushCurrent_v2(CUcontext handle)
{
    CUresult result = enter_initialized();
    if (result)
        return result;
    struct context *context = context_of_handle(handle);
    if (!context || !context->retained)
        return leave(CUDA_ERROR_INVALID_CONTEXT);
    if (depth == STACK_MAX)
        return leave(CUDA_ERROR_INVALID_VALUE);
    stack[depth++] = context;
    return leave(CUDA_SUCCESS);
}

CUresult cuCtxPopCurrent_v2(CUcontext *handle)
{
    CUresult result = enter_initialized();
    if (result)
        return result;
    if (!depth)
        return leave(CUDA_ERROR_INVALID_CONTEXT);
    depth--;
    if (handle)
        *handle = (CUcontext)stack[depth];
    return leave(CUDA_SUCCESS);
}

/* Replaces the top of the stack; null takes it away. */
CUresult cuCtxSetCurrent(CUcontext handle)
{
    CUresult result = enter_initialized();
    if (result)
        return result;
    struct context *context = context_of_handle(handle);
    if (handle && (!context || !context->retained))
        return leave(CUDA_ERROR_INVALID_CONTEXT);
    if (depth)
        depth--;
    if (context)
        stack[depth++] = context;
    return leave(CUDA_SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext *handle)
{
    CUresult result = enter_initialized();
    if (result)
        return result;
    *handle = (CUcontext)current();
    return leave(CUDA_SUCCESS);
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    CUresult result = enter_initialized();
    if (result)
        return result;
    struct context *context = current();
    if (!context)
        return leave(CUDA_ERROR_INVALID_CONTEXT);
    *device = context->device;
    return leave(CUDA_SUCCESS);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    struct context *context;
    CUresult result = enter(&context);
    if (result)
        return result;
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return leave(CUDA_SUCCESS);
}
