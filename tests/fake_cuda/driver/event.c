/* Events. Each record makes a mark; a wait is for the mark that was the event's last when the wait was called. */
#include <stdlib.h>
#include <time.h>

#include "driver.h"

struct mark {
    int references; /* the event, the operation that makes it, and those who wait */
    bool done;
    int64_t ns;
};

struct event {
    struct context *context;
    unsigned number;
    unsigned flags;
    struct mark *last; /* null: never recorded */
};

static unsigned events_made;

static void mark_drop(struct mark *mark)
{
    if (mark && --mark->references == 0)
        free(mark);
}

/* An operation on an event. */
struct step {
    struct mark *mark;
    unsigned number;
};

static struct step *step_new(struct mark *mark, unsigned number)
{
    struct step *step = malloc(sizeof *step);
    if (!step)
        abort();
    mark->references++;
    *step = (struct step){mark, number};
    return step;
}

static void record(void *argument, int broken)
{
    (void)broken; /* those who wait must go on all the same */
    struct step *step = argument;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&driver_lock);
    step->mark->done = true;
    step->mark->ns = now.tv_sec * 1000000000ll + now.tv_nsec;
    mark_drop(step->mark);
    pthread_cond_broadcast(&driver_changed);
    pthread_mutex_unlock(&driver_lock);
    free(step);
}

static void await(void *argument, int broken)
{
    struct step *step = argument;
    pthread_mutex_lock(&driver_lock);
    while (!broken && !step->mark->done && !running->context->sticky)
        pthread_cond_wait(&driver_changed, &driver_lock);
    mark_drop(step->mark);
    pthread_mutex_unlock(&driver_lock);
    if (!broken)
        log_line(running, "event_wait e%u", step->number);
    free(step);
}

static CUresult find(CUevent handle, struct context **context, struct event **event)
{
    CUresult result = enter(context);
    if (result)
        return result;
    *event = handle_object(EVENT, handle);
    return *event ? CUDA_SUCCESS : leave(CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuEventCreate(CUevent *handle, unsigned int flags)
{
    struct context *context;
    CUresult result = enter(&context);
    if (result)
        return result;
    if (flags > CU_EVENT_FLAGS_ALL)
        return leave(CUDA_ERROR_INVALID_VALUE);
    struct event *event = calloc(1, sizeof *event);
    if (!event)
        abort();
    event->context = context;
    event->number = ++events_made;
    event->flags = flags;
    context->events++;
    *handle = handle_new(EVENT, event);
    return leave(CUDA_SUCCESS);
}

CUresult cuEventDestroy_v2(CUevent handle)
{
    struct context *context;
    struct event *event;
    CUresult result = find(handle, &context, &event);
    if (result)
        return result;
    mark_drop(event->last);
    event->context->events--;
    handle_drop(handle);
    free(event);
    return leave(CUDA_SUCCESS);
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle)
{
    struct context *context;
    struct event *event;
    struct stream *stream;
    CUresult result = find(handle, &context, &event);
    if (result)
        return result;
    if ((result = stream_find(context, stream_handle, &stream)))
        return leave(result);
    if (stream->context != event->context)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    if (stream->context->sticky)
        return leave(stream->context->sticky);
    struct mark *mark = calloc(1, sizeof *mark);
    if (!mark)
        abort();
    mark_drop(event->last);
    mark->references = 1;
    event->last = mark;
    return leave(stream_enqueue(stream, record, step_new(mark, event->number), "event_record e%u", event->number));
}

CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned int flags)
{
    struct context *context;
    struct event *event;
    struct stream *stream;
    CUresult result = find(handle, &context, &event);
    if (result)
        return result;
    if (flags)
        result = CUDA_ERROR_INVALID_VALUE;
    else
        result = stream_find(context, stream_handle, &stream);
    if (result)
        return leave(result);
    if (stream->context->sticky || !event->last)
        return leave(stream->context->sticky);
    /* Also if it has happened already: the log is then the same. */
    return leave(stream_enqueue(stream, await, step_new(event->last, event->number), "%s", ""));
}

CUresult cuEventQuery(CUevent handle)
{
    struct context *context;
    struct event *event;
    CUresult result = find(handle, &context, &event);
    if (result)
        return result;
    if (event->context->sticky)
        return leave(event->context->sticky);
    return leave(event->last && !event->last->done ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

CUresult cuEventSynchronize(CUevent handle)
{
    struct context *context;
    struct event *event;
    CUresult result = find(handle, &context, &event);
    if (result)
        return result;
    struct mark *mark = event->last;
    struct context *owner = event->context;
    if (mark) {
        mark->references++;
        while (!mark->done && !owner->sticky)
            pthread_cond_wait(&driver_changed, &driver_lock);
        mark_drop(mark);
    }
    return leave(owner->sticky);
}

CUresult cuEventElapsedTime(float *ms, CUevent start_handle, CUevent end_handle)
{
    struct context *context;
    struct event *start;
    CUresult result = find(start_handle, &context, &start);
    if (result)
        return result;
    struct event *end = handle_object(EVENT, end_handle);
    if (!end || start->context != end->context || (start->flags | end->flags) & CU_EVENT_DISABLE_TIMING || !start->last ||
        !end->last)
        return leave(CUDA_ERROR_INVALID_HANDLE);
    if (!start->last->done || !end->last->done)
        return leave(CUDA_ERROR_NOT_READY);
    *ms = (float)((double)(end->last->ns - start->last->ns) / 1e6);
    return leave(CUDA_SUCCESS);
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
    return cuEventElapsedTime(ms, start, end);
}
