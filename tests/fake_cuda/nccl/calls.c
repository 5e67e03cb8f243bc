/* The calls that move data: each becomes a `struct call`. */
#include "communicator.h"

ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, CUstream stream)
{
    struct call call = {ALLREDUCE, comm, stream, (uintptr_t)send, (uintptr_t)receive, count, type, op, 0};
    return group_add(&call);
}

ncclResult_t ncclAllGather(const void *send, void *receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                           CUstream stream)
{
    struct call call = {ALLGATHER, comm, stream, (uintptr_t)send, (uintptr_t)receive, count, type, ncclSum, 0};
    return group_add(&call);
}

ncclResult_t ncclReduceScatter(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, CUstream stream)
{
    struct call call = {REDUCESCATTER, comm, stream, (uintptr_t)send, (uintptr_t)receive, count, type, op, 0};
    return group_add(&call);
}

ncclResult_t ncclBroadcast(const void *send, void *receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           CUstream stream)
{
    struct call call = {BROADCAST, comm, stream, (uintptr_t)send, (uintptr_t)receive, count, type, ncclSum, root};
    return group_add(&call);
}

ncclResult_t ncclReduce(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, CUstream stream)
{
    struct call call = {REDUCE, comm, stream, (uintptr_t)send, (uintptr_t)receive, count, type, op, root};
    return group_add(&call);
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream)
{
    struct call call = {SEND, comm, stream, (uintptr_t)send, 0, count, type, ncclSum, peer};
    return group_add(&call);
}

ncclResult_t ncclRecv(void *receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream)
{
    struct call call = {RECEIVE, comm, stream, 0, (uintptr_t)receive, count, type, ncclSum, peer};
    return group_add(&call);
}
