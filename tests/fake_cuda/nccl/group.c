/* Groups: calls are gathered, and launched together when the outermost group ends. A call outside is a group of one. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "rendezvous.h"

enum { LINE_BYTES = 400 };

static _Thread_local int depth;
static _Thread_local ncclResult_t group_error; /* the first one of a call in it */
static _Thread_local struct call *calls;
static _Thread_local size_t calls_used, calls_room;
static _Thread_local ncclComm_t *inits;
static _Thread_local size_t inits_used, inits_room;

bool group_is_open(void)
{
    return depth > 0;
}

static void *grown(void *list, size_t used, size_t *room, size_t bytes)
{
    if (used < *room)
        return list;
    *room = *room ? 2 * *room : 8;
    list = realloc(list, *room * bytes);
    if (!list)
        abort();
    return list;
}

void group_add_init(ncclComm_t comm)
{
    inits = grown(inits, inits_used, &inits_room, sizeof *inits);
    inits[inits_used++] = comm;
    comm->references++;
}

static bool is_letter(const struct call *call)
{
    return call->kind == SEND || call->kind == RECEIVE;
}

static ncclResult_t check(const struct call *call)
{
    if (call->type >= ncclNumTypes || call->op >= ncclNumOps)
        return fail(ncclInvalidArgument, "%s: type %d, operation %d", kind_name(call->kind), (int)call->type,
                    (int)call->op);
    pthread_mutex_lock(&nccl_lock);
    ncclResult_t result = comm_check(call->comm);
    if (result == ncclSuccess && call->comm->finalized)
        result = fail(ncclInvalidUsage, "%s: the communicator is finalized", kind_name(call->kind));
    else if (result == ncclSuccess && (call->peer < 0 || call->peer >= call->comm->size))
        result = fail(ncclInvalidArgument, "%s: rank %d of %d", kind_name(call->kind), call->peer, call->comm->size);
    pthread_mutex_unlock(&nccl_lock);
    return result;
}

/* The line for the log. */
static void describe(const struct submission *submission, char line[LINE_BYTES])
{
    const struct ncclComm *comm = submission->comm;
    const struct call *call = submission->calls;
    int length;
    if (submission->count == 1) {
        length = snprintf(line, LINE_BYTES, "%s count=%zu type=%s op=%d peer=%d", kind_name(call->kind), call->count,
                          type_name(call->type), (int)call->op, call->peer);
    } else {
        length = snprintf(line, LINE_BYTES, "ncclGroup");
        for (size_t i = 0; i < submission->count && length < LINE_BYTES - 100; ++i)
            length += snprintf(line + length, (size_t)(LINE_BYTES - length), " %s:%zux%s@%d", kind_name(call[i].kind),
                               call[i].count, type_name(call[i].type), call[i].peer);
    }
    snprintf(line + length, (size_t)(LINE_BYTES - length), " rank=%d/%d comm=%04x", comm->rank, comm->size,
             rendezvous_tag(&comm->id));
}

static ncclResult_t enqueue(struct submission *submission)
{
    char line[LINE_BYTES];
    describe(submission, line);
    CUresult result = driver()->enqueue(submission->stream, line, operation_run, submission);
    return result ? fail(ncclUnhandledCudaError, "CUDA error %d", result) : ncclSuccess;
}

static void *enqueue_later(void *argument)
{
    struct submission *submission = argument;
    ncclComm_t comm = submission->comm;
    usleep(HELPER_US);
    ncclResult_t result = enqueue(submission);
    pthread_mutex_lock(&nccl_lock);
    comm_helped(comm, result);
    pthread_mutex_unlock(&nccl_lock);
    return NULL;
}

/* What one communicator does in this group, taken out of `all`, whose first call is of it. */
static ncclResult_t gather(const struct call *all, size_t count, struct submission **made)
{
    ncclComm_t comm = all->comm;
    struct submission *submission = malloc(sizeof *submission + count * sizeof *all);
    if (!submission)
        abort();
    *submission = (struct submission){.comm = comm, .stream = all->stream};
    long to_itself = 0;
    bool one_stream = true;
    for (size_t i = 0; i < count; ++i) {
        const struct call *call = &all[i];
        if (call->comm != comm)
            continue;
        one_stream = one_stream && call->stream == all->stream;
        if (is_letter(call) && call->peer == comm->rank)
            to_itself += call->kind == SEND ? 1 : -1;
        if (call->count)
            submission->calls[submission->count++] = *call;
    }
    if (one_stream && !to_itself) {
        *made = submission;
        return ncclSuccess;
    }
    free(submission);
    return fail(ncclInvalidUsage, one_stream ? "a send to itself without its receive, or the reverse"
                                             : "one communicator on two streams in a group");
}

static ncclResult_t submit(struct submission *submission)
{
    ncclComm_t comm = submission->comm;
    bool new_here = false;
    pthread_mutex_lock(&nccl_lock);
    for (size_t i = 0; i < submission->count; ++i) {
        bool *connected = &comm->connected[is_letter(&submission->calls[i])];
        new_here = new_here || !*connected;
        *connected = true;
    }
    struct submission **at = &comm->first;
    while (*at)
        at = &(*at)->next;
    *at = submission;
    comm->references++;
    /* The first launch of a kind makes connections, which takes its time. */
    bool later = new_here && !comm->blocking;
    if (later)
        comm_help(comm, enqueue_later, submission);
    pthread_mutex_unlock(&nccl_lock);
    return later ? ncclInProgress : enqueue(submission);
}

static ncclResult_t launch(const struct call *all, size_t count)
{
    ncclResult_t result = ncclSuccess;
    for (size_t i = 0; i < count; ++i) {
        bool done = false;
        for (size_t j = 0; j < i; ++j)
            done = done || all[j].comm == all[i].comm;
        struct submission *submission = NULL;
        ncclResult_t this = done ? ncclSuccess : gather(all + i, count - i, &submission);
        if (!done && this == ncclSuccess) {
            if (submission->count)
                this = submit(submission);
            else
                free(submission);
        }
        if (this && (result == ncclSuccess || result == ncclInProgress))
            result = this;
    }
    return result;
}

/* Communicators made in the group: waits for those that block. */
static ncclResult_t await_inits(void)
{
    ncclResult_t result = ncclSuccess;
    pthread_mutex_lock(&nccl_lock);
    for (size_t i = 0; i < inits_used; ++i) {
        ncclComm_t comm = inits[i];
        while (comm->blocking && comm->helpers)
            pthread_cond_wait(&nccl_changed, &nccl_lock);
        if (result == ncclSuccess || result == ncclInProgress) {
            if (comm->helpers)
                result = ncclInProgress;
            else if (comm->error)
                result = (ncclResult_t)comm->error;
        }
        comm_drop(comm);
    }
    inits_used = 0;
    pthread_mutex_unlock(&nccl_lock);
    return result;
}

ncclResult_t group_add(const struct call *call)
{
    ncclResult_t result = check(call);
    if (!depth)
        return result ? result : launch(call, 1);
    if (result) {
        if (!group_error)
            group_error = result;
        return result;
    }
    calls = grown(calls, calls_used, &calls_room, sizeof *calls);
    calls[calls_used++] = *call;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (!depth)
        return fail(ncclInvalidUsage, "no group to end");
    if (--depth)
        return ncclSuccess;
    ncclResult_t result = await_inits();
    if (group_error)
        result = group_error;
    else if (calls_used && (result == ncclSuccess || result == ncclInProgress)) {
        ncclResult_t launched = launch(calls, calls_used);
        result = launched ? launched : result;
    }
    group_error = ncclSuccess;
    free(calls);
    free(inits);
    calls = NULL, inits = NULL;
    calls_used = calls_room = inits_room = 0;
    return result;
}
