/* Collectives: every rank puts a piece into its slot, all meet, each takes what concerns it, all meet again. */
#include <stdio.h>
#include <string.h>

#include "communicator.h"

/* Waits until all have come as often as this rank. */
static bool meet(ncclComm_t comm)
{
    struct segment *segment = comm->segment;
    uint64_t steps = ++segment->members[comm->rank].steps;
    segment_ring(segment);
    for (;;) {
        uint32_t heard = segment->bell;
        int rank = 0;
        while (rank < comm->size && segment->members[rank].steps >= steps)
            rank++;
        if (rank == comm->size)
            return true;
        if (given_up(comm))
            return false;
        segment_listen(segment, heard);
    }
}

/* All must have called the same; if not, all find it out. */
static bool agree(const struct call *call)
{
    ncclComm_t comm = call->comm;
    struct member *members = comm->segment->members;
    struct description mine = {(int)call->kind, (int)call->type, (int)call->op, call->peer, call->count};
    members[comm->rank].description = mine;
    if (!meet(comm))
        return false;
    for (int rank = 0; rank < comm->size; ++rank) {
        struct description other = members[rank].description;
        if (memcmp(&other, &mine, sizeof mine) == 0)
            continue;
        fail(ncclInvalidUsage, "rank %d: %s of %zu %s, operation %d, root %d; rank %d: %s of %zu %s, operation %d, root %d",
             comm->rank, kind_name(call->kind), call->count, type_name(call->type), (int)call->op, call->peer, rank,
             kind_name((enum kind)other.kind), (size_t)other.count, type_name((ncclDataType_t)other.type), other.op,
             other.root);
        comm_break(comm, ncclInvalidUsage);
        hang(comm);
        return false;
    }
    return true;
}

/* Bytes of a slot for each of so many parts, all aligned. */
static size_t part_bytes(int parts)
{
    return SLOT_BYTES / (size_t)parts / 8 * 8;
}

/* Elements from `offset` on, fewer than a part holds. */
static void put(const struct call *call, size_t offset, size_t count)
{
    ncclComm_t comm = call->comm;
    size_t element = type_bytes(call->type);
    unsigned char *slot = segment_slot(comm->segment, comm->rank);
    const unsigned char *send = (const unsigned char *)(uintptr_t)call->send + offset * element;
    if (call->kind == REDUCESCATTER)
        for (int rank = 0; rank < comm->size; ++rank)
            memcpy(slot + (size_t)rank * part_bytes(comm->size), send + (size_t)rank * call->count * element,
                   count * element);
    else if (call->kind != BROADCAST || call->peer == comm->rank)
        memcpy(slot, send, count * element);
}

static void take(const struct call *call, size_t offset, size_t count)
{
    ncclComm_t comm = call->comm;
    size_t element = type_bytes(call->type);
    unsigned char *receive = (unsigned char *)(uintptr_t)call->receive + offset * element;
    unsigned char *slots[comm->size];
    for (int rank = 0; rank < comm->size; ++rank) {
        slots[rank] = segment_slot(comm->segment, rank);
        if (call->kind == REDUCESCATTER)
            slots[rank] += (size_t)comm->rank * part_bytes(comm->size);
    }
    switch (call->kind) {
    case ALLGATHER:
        for (int rank = 0; rank < comm->size; ++rank)
            memcpy(receive + (size_t)rank * call->count * element, slots[rank], count * element);
        break;
    case BROADCAST:
        memcpy(receive, slots[call->peer], count * element);
        break;
    default:
        if (call->kind != REDUCE || call->peer == comm->rank)
            reduce(receive, slots, comm->size, count, call->type, call->op);
    }
}

bool collective_run(const struct call *call)
{
    if (!agree(call))
        return false;
    size_t room = part_bytes(call->kind == REDUCESCATTER ? call->comm->size : 1) / type_bytes(call->type);
    for (size_t offset = 0; offset < call->count; offset += room) {
        size_t count = call->count - offset < room ? call->count - offset : room;
        put(call, offset, count);
        if (!meet(call->comm))
            return false;
        take(call, offset, count);
        if (!meet(call->comm))
            return false;
    }
    return true;
}
