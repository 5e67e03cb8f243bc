/* An operation of NCCL on its stream: waits for its turn on the communicator, and for the other ranks. */
#include <stdlib.h>
#include <time.h>

#include "communicator.h"

const char *kind_name(enum kind kind)
{
    static const char *const names[] = {"ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclBroadcast",
                                        "ncclReduce",    "ncclSend",      "ncclRecv"};
    return names[kind];
}

bool given_up(ncclComm_t comm)
{
    return comm->aborted || driver()->broken();
}

void hang(ncclComm_t comm)
{
    while (!given_up(comm))
        segment_listen(comm->segment, comm->segment->bell);
}

/* Replaces an address by the host's. */
static bool touch(uint64_t *address, size_t bytes, const struct call *call)
{
    *address = (uintptr_t)driver()->touch(*address, bytes, kind_name(call->kind));
    return *address != 0;
}

/* Checks what a call reads and writes, the whole of it before anything moves. */
static bool touch_call(struct call *call)
{
    size_t ranks = (size_t)call->comm->size, bytes = call->count * type_bytes(call->type);
    bool at_root = call->peer == call->comm->rank;
    bool sends = call->kind != RECEIVE && (call->kind != BROADCAST || at_root);
    bool receives = call->kind != SEND && (call->kind != REDUCE || at_root);
    return (!sends || touch(&call->send, call->kind == REDUCESCATTER ? ranks * bytes : bytes, call)) &&
           (!receives || touch(&call->receive, call->kind == ALLGATHER ? ranks * bytes : bytes, call));
}

/* Operations of a communicator run in the order of their calls. */
static bool await_turn(struct submission *submission)
{
    ncclComm_t comm = submission->comm;
    for (;;) {
        pthread_mutex_lock(&nccl_lock);
        if (comm->first != submission) {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += 5000000;
            until.tv_sec += until.tv_nsec / 1000000000;
            until.tv_nsec %= 1000000000;
            pthread_cond_timedwait(&nccl_changed, &nccl_lock, &until);
        }
        bool mine = comm->first == submission;
        pthread_mutex_unlock(&nccl_lock);
        if (given_up(comm))
            return false;
        if (mine)
            return true;
    }
}

/* False if it was given up. */
static bool execute(struct submission *submission)
{
    for (size_t i = 0; i < submission->count; ++i)
        if (!touch_call(&submission->calls[i]))
            return false;
    if (!await_turn(submission))
        return false;
    /* What has failed before does not work again. */
    if (submission->comm->error == ncclInvalidUsage) {
        hang(submission->comm);
        return false;
    }
    for (size_t i = 0; i < submission->count; ++i) {
        const struct call *call = &submission->calls[i];
        if (call->kind != SEND && call->kind != RECEIVE && !collective_run(call))
            return false;
    }
    return letters_run(submission->calls, submission->count);
}

void operation_run(void *argument, int broken)
{
    struct submission *submission = argument;
    ncclComm_t comm = submission->comm;
    if (!broken) {
        pthread_mutex_lock(&nccl_lock);
        comm->running++;
        pthread_mutex_unlock(&nccl_lock);
        if (!execute(submission))
            comm_log(comm, "nccl_given_up");
    }
    pthread_mutex_lock(&nccl_lock);
    if (!broken)
        comm->running--;
    struct submission **at = &comm->first;
    while (*at != submission)
        at = &(*at)->next;
    *at = submission->next;
    pthread_cond_broadcast(&nccl_changed);
    comm_drop(comm);
    pthread_mutex_unlock(&nccl_lock);
    free(submission);
}
