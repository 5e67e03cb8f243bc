/* Streams: a thread each, which runs the operations in order while the caller goes on. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "driver.h"

_Thread_local struct stream *running;

static unsigned streams_made;

/* So that orders which nothing enforces do not hold by chance. */
static void delay(unsigned *seed)
{
    if (!settings.delay_us)
        return;
    unsigned us = (unsigned)rand_r(seed) % (settings.delay_us + 1);
    struct timespec time = {us / 1000000, us % 1000000 * 1000l};
    nanosleep(&time, NULL);
}

static void unlink_stream(struct stream *stream)
{
    struct stream **at = &stream->context->first;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
}

static void *work(void *argument)
{
    struct stream *stream = argument;
    running = stream;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    unsigned seed = (unsigned)now.tv_nsec ^ stream->number;
    pthread_mutex_lock(&driver_lock);
    for (;;) {
        while (!stream->first && !stream->ended)
            pthread_cond_wait(&stream->work, &driver_lock);
        struct operation *operation = stream->first;
        if (!operation)
            break;
        stream->first = operation->next;
        pthread_mutex_unlock(&driver_lock);

        delay(&seed);
        int broken = fake_cuda_broken();
        if (!broken && operation->line[0])
            log_line(stream, "%s", operation->line);
        operation->run(operation->argument, broken);
        memory_untouch();
        free(operation);

        pthread_mutex_lock(&driver_lock);
        stream->completed++;
        pthread_cond_broadcast(&driver_changed);
    }
    unlink_stream(stream);
    stream_drop_reference(stream);
    pthread_cond_broadcast(&driver_changed);
    pthread_mutex_unlock(&driver_lock);
    memory_thread_end();
    return NULL;
}

static CUresult stream_make(struct context *context, unsigned number, unsigned flags, int priority, struct stream **made)
{
    struct stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->context = context;
    stream->number = number;
    stream->flags = flags;
    stream->priority = priority;
    stream->references = 2; /* the handle's and the thread's */
    pthread_cond_init(&stream->work, NULL);
    stream->next = context->first;
    context->first = stream;

    /* Signals are for the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    int failed = pthread_create(&thread, NULL, work, stream);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        unlink_stream(stream);
        pthread_cond_destroy(&stream->work);
        free(stream);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    pthread_detach(thread);
    stream->handle = handle_new(STREAM, stream);
    *made = stream;
    return CUDA_SUCCESS;
}

CUresult stream_find(struct context *context, CUstream handle, struct stream **stream)
{
    if ((uintptr_t)handle <= CU_STREAM_PER_THREAD) { /* the per-thread one is taken for the legacy one */
        if (!context)
            return CUDA_ERROR_INVALID_CONTEXT;
        CUresult result = context->legacy ? CUDA_SUCCESS : stream_make(context, 0, 0, 0, &context->legacy);
        *stream = context->legacy;
        return result;
    }
    *stream = handle_object(STREAM, handle);
    return *stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult stream_enqueue(struct stream *stream, void (*run)(void *argument, int broken), void *argument, const char *format,
                        ...)
{
    CUresult result = stream->context->sticky;
    if (result) {
        run(argument, 1);
        return result;
    }
    struct operation *operation = malloc(sizeof *operation);
    if (!operation)
        abort();
    operation->next = NULL;
    operation->run = run;
    operation->argument = argument;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(operation->line, sizeof operation->line, format, arguments);
    va_end(arguments);
    if (stream->first)
        stream->last->next = operation;
    else
        stream->first = operation;
    stream->last = operation;
    stream->enqueued++;
    pthread_cond_signal(&stream->work);
    return CUDA_SUCCESS;
}

CUresult stream_wait(struct stream *stream)
{
    struct context *context = stream->context;
    uint64_t enqueued = stream->enqueued;
    stream->references++;
    while (stream->completed < enqueued && !context->sticky)
        pthread_cond_wait(&driver_changed, &driver_lock);
    stream_drop_reference(stream);
    return context->sticky;
}

/* What is on the stream still runs. */
void stream_end(struct stream *stream)
{
    handle_drop(stream->handle);
    stream->ended = true;
    stream->references--; /* the thread's is left */
    pthread_cond_signal(&stream->work);
}

void stream_drop_reference(struct stream *stream)
{
    if (--stream->references)
        return;
    pthread_cond_destroy(&stream->work);
    free(stream);
}

int fake_cuda_broken(void)
{
    pthread_mutex_lock(&driver_lock);
    CUresult sticky = running->context->sticky;
    return leave(sticky) != CUDA_SUCCESS;
}

CUresult fake_cuda_enqueue(CUstream handle, const char *line, void (*run)(void *argument, int broken), void *argument)
{
    struct context *context;
    struct stream *stream;
    CUresult result = enter(&context);
    /* A stream of one's own knows its context; only the default one needs a current one. */
    if (result == CUDA_ERROR_INVALID_CONTEXT && (uintptr_t)handle > CU_STREAM_PER_THREAD) {
        context = NULL;
        result = enter_initialized();
    }
    if (result) {
        run(argument, 1);
        return result;
    }
    if ((result = stream_find(context, handle, &stream)) == CUDA_SUCCESS) {
        result = stream_enqueue(stream, run, argument, "%s", line);
        return leave(result);
    }
    leave(result);
    run(argument, 1);
    return result;
}

CUresult cuStreamCreateWithPriority(CUstream *handle, unsigned int flags, int priority)
{
    struct context *context;
    CUresult result = enter(&context);
    if (result)
        return result;
    if (flags > CU_STREAM_NON_BLOCKING)
        return leave(CUDA_ERROR_INVALID_VALUE);
    struct stream *stream;
    result = stream_make(context, streams_made + 1, flags, priority, &stream);
    if (result == CUDA_SUCCESS) {
        streams_made++;
        *handle = stream->handle;
        log_line(stream, "stream_create flags=%u priority=%d", flags, priority);
    }
    return leave(result);
}

CUresult cuStreamCreate(CUstream *handle, unsigned int flags)
{
    return cuStreamCreateWithPriority(handle, flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream handle)
{
    struct context *context;
    CUresult result = enter(&context);
    if (result)
        return result;
    struct stream *stream = handle_object(STREAM, handle);
    if (!stream || stream == context->legacy)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    log_line(stream, "stream_destroy pending=%llu", (unsigned long long)(stream->enqueued - stream->completed));
    stream_end(stream);
    return leave(CUDA_SUCCESS);
}

CUresult cuStreamSynchronize(CUstream handle)
{
    struct context *context;
    struct stream *stream;
    CUresult result = enter(&context);
    if (result)
        return result;
    if ((result = stream_find(context, handle, &stream)) == CUDA_SUCCESS)
        result = stream_wait(stream);
    return leave(result);
}

CUresult cuStreamQuery(CUstream handle)
{
    struct context *context;
    struct stream *stream;
    CUresult result = enter(&context);
    if (result)
        return result;
    if ((result = stream_find(context, handle, &stream)) == CUDA_SUCCESS && stream->completed < stream->enqueued)
        result = CUDA_ERROR_NOT_READY;
    return leave(result);
}

/* No stream is ever captured here: what is refused then is the simulated GPU's to show. */
CUresult cuStreamIsCapturing(CUstream handle, int *status)
{
    struct context *context;
    struct stream *stream;
    CUresult result = enter(&context);
    if (result)
        return result;
    if ((result = stream_find(context, handle, &stream)) == CUDA_SUCCESS)
        *status = 0;
    return leave(result);
}
