/* Sends and receives: all of a group go on at once, piece by piece, in order between each two ranks. */
#include <stdlib.h>
#include <string.h>

#include "communicator.h"

struct progress {
    size_t bytes; /* sent or received */
    bool done;
};

enum outcome { NOTHING, MOVED, MISMATCH };

/* A send is done when its last piece has been taken. */
static enum outcome send_on(const struct call *call, struct progress *progress)
{
    struct mailbox *box = segment_mailbox(call->comm->segment, call->comm->rank, call->peer);
    size_t total = call->count * type_bytes(call->type);
    if (box->refused)
        return MISMATCH;
    if (box->full)
        return NOTHING;
    if (progress->bytes == total) {
        progress->done = true;
        return MOVED;
    }
    size_t left = total - progress->bytes;
    box->bytes = left < LETTER_BYTES ? (uint32_t)left : LETTER_BYTES;
    box->total = total;
    memcpy(box->letter, (const char *)(uintptr_t)call->send + progress->bytes, box->bytes);
    progress->bytes += box->bytes;
    box->full = 1;
    segment_ring(call->comm->segment);
    return MOVED;
}

static enum outcome receive_on(const struct call *call, struct progress *progress)
{
    struct mailbox *box = segment_mailbox(call->comm->segment, call->peer, call->comm->rank);
    size_t total = call->count * type_bytes(call->type);
    if (!box->full)
        return NOTHING;
    if (box->total != total) {
        fail(ncclInvalidUsage, "rank %d receives %zu bytes from rank %d, which sends %zu", call->comm->rank, total,
             call->peer, (size_t)box->total);
        box->refused = 1;
        segment_ring(call->comm->segment);
        return MISMATCH;
    }
    memcpy((char *)(uintptr_t)call->receive + progress->bytes, box->letter, box->bytes);
    progress->bytes += box->bytes;
    progress->done = progress->bytes == total;
    box->full = 0;
    segment_ring(call->comm->segment);
    return MOVED;
}

static bool is_blocked(const struct call *calls, const struct progress *progress, size_t index)
{
    for (size_t i = 0; i < index; ++i)
        if (!progress[i].done && calls[i].kind == calls[index].kind && calls[i].peer == calls[index].peer)
            return true;
    return false;
}

/* One round over all; collectives count as done. */
static enum outcome go_on(const struct call *calls, struct progress *progress, size_t count, size_t *left)
{
    enum outcome outcome = NOTHING;
    *left = 0;
    for (size_t i = 0; i < count && outcome != MISMATCH; ++i) {
        if (progress[i].done || (calls[i].kind != SEND && calls[i].kind != RECEIVE))
            continue;
        if (!is_blocked(calls, progress, i)) {
            enum outcome this =
                calls[i].kind == SEND ? send_on(&calls[i], &progress[i]) : receive_on(&calls[i], &progress[i]);
            outcome = this != NOTHING ? this : outcome;
        }
        *left += !progress[i].done;
    }
    return outcome;
}

bool letters_run(const struct call *calls, size_t count)
{
    ncclComm_t comm = calls->comm;
    struct progress *progress = calloc(count, sizeof *progress);
    if (!progress)
        abort();
    size_t left = count;
    bool going = true;
    while (left && going) {
        uint32_t heard = comm->segment->bell;
        enum outcome outcome = go_on(calls, progress, count, &left);
        if (outcome == MISMATCH) {
            comm_break(comm, ncclInvalidUsage);
            hang(comm);
            going = false;
        } else if (outcome == NOTHING && left) {
            going = !given_up(comm);
            if (going)
                segment_listen(comm->segment, heard);
        }
    }
    free(progress);
    return going;
}
